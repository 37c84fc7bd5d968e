"""The database that a command works on: the one that is named, or the embedded one of a data folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app import embedded
from app.settings import Settings


def override(settings: Settings, **given: Any) -> Settings:
    """Return the settings with those that the command line gave, checked like the others."""
    return Settings(**{**settings.model_dump(exclude_unset=True), **{k: v for k, v in given.items() if v is not None}})


@contextmanager
def database_url(settings: Settings, *, exclusive: bool) -> Iterator[str]:
    """Return where the database is, which runs at least as long as the block.

    ``exclusive`` is for the service: it must be the only one on its data folder. A command uses the database of
    a running service, or starts it for its own time.

    Raises:
        EmbeddedError.
    """
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    data_dir = settings.data_dir or embedded.default_data_dir()
    if exclusive:
        with embedded.start(data_dir) as server:
            yield server.url
    else:
        with embedded.use(data_dir) as url:
            yield url
