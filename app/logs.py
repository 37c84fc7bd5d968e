"""Log lines: `noun.verb` and ids, as text or JSON. Never the content of a message."""

import logging
import sys
import traceback
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final, Literal

import structlog

# Text with one of these in it is quoted.
_QUOTED: Final = frozenset(" \t=\r\n\"'")


def configure(*, level: str, output: Literal["text", "json"]) -> None:
    """Send every log line of this process, uvicorn's included, to standard error in one shape.

    Our own lines go there directly: on their way through ``logging`` a request's line took a tenth of a millisecond.
    """
    first: list[Any] = [structlog.contextvars.merge_contextvars]
    then: list[Any] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _renderer(output),
    ]
    structlog.configure(
        processors=[*first, _add_name_and_level, *then],
        logger_factory=_Lines,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*first, structlog.stdlib.add_logger_name, structlog.stdlib.add_log_level],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *then],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # uvicorn's own access line would name no request id and no route; the door writes a better one.
    logging.getLogger("uvicorn.access").disabled = True
    # Alembic's steps are of no interest, and httpx would write the model's address, which may hold a password.
    for name in ("alembic", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Lines:
    """Writes the lines of one logger to standard error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, line: str) -> None:
        """Write a line. Where nobody reads them any more, what was to be told is done all the same."""
        if sys.stderr is None:
            return
        try:
            sys.stderr.write(f"{line}\n")
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = write


def _add_name_and_level(logger: _Lines, level: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    line["logger"] = logger.name
    line["level"] = level
    return line


def _renderer(output: Literal["text", "json"]) -> Any:
    if output == "json":
        return structlog.processors.JSONRenderer()
    if sys.stderr is not None and sys.stderr.isatty():
        # A plain traceback: the rich one shows local variables, and those hold what clients said.
        return structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback)
    return _text


def _text(_logger: object, _level: str, line: MutableMapping[str, Any]) -> str:
    """Write a line as ``ConsoleRenderer`` does without colours, in a tenth of the time."""
    head = f"{line.pop('timestamp')} [{line.pop('level'):<9}] {line.pop('event'):<30} [{line.pop('logger')}]"
    error = line.pop("exception", None)
    facts = "".join([f" {name}={_shown(line[name])}" for name in sorted(line)])
    return f"{head}{facts}\n{error}" if error else head + facts


def _shown(value: object) -> str:
    # What moves a terminal, or a reader to another line, is written as its code, whoever it comes from.
    return value if isinstance(value, str) and value.isprintable() and _QUOTED.isdisjoint(value) else repr(value)


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
