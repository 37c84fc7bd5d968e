"""Log lines: `noun.verb` and ids, as text or JSON. Never the content of a message."""

import logging
import sys
import traceback
from pathlib import Path
from typing import Any, Literal

import structlog


def configure(*, level: str, output: Literal["text", "json"]) -> None:
    """Send every log line of this process, uvicorn's included, to standard error in one shape."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer = (
        structlog.processors.JSONRenderer()
        if output == "json"
        # A plain traceback: the rich one shows local variables, and those hold what clients said.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ]
            if output == "json"
            else [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # uvicorn's own access line would name no request id and no route; the door writes a better one.
    logging.getLogger("uvicorn.access").disabled = True
    # Alembic's steps are of no interest, and httpx would write the model's address, which may hold a password.
    for name in ("alembic", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        cache_logger_on_first_use=True,
    )


def without_words(error: BaseException) -> list[str]:
    """Return an error and what caused it as kinds and places, innermost last.

    An error's own words are left out: they can quote what a client said, as Postgres does with a row that it refuses.
    """
    kinds: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        place = traceback.extract_tb(cause.__traceback__)
        where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(place))
        facts = [str(getattr(cause, name)) for name in ("sqlstate", "constraint_name") if getattr(cause, name, None)]
        kinds.append(" ".join([type(cause).__name__, *facts, f"at {where}"]))
        cause = cause.__cause__ or cause.__context__
    return kinds
