"""The command `turnlog`."""

import sys
from typing import Annotated

import pydantic
import typer
import yaml

from app import __version__
from app.bootstrap import BadSetting
from app.cli import importing, keys, maintenance, serving
from app.cli.client import CallFailed
from app.domain.errors import TurnlogError, Unavailable
from app.embedded import EmbeddedError
from app.encodings import DamagedVocabulary, UnknownEncoding
from app.storage.refusals import UnknownPooler

app = typer.Typer(
    name="turnlog",
    help="Session memory for LLM agents: an append-only log, and a compacted view before each model call.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serving.serve)
app.command("migrate")(maintenance.migrate)
app.command("import")(importing.import_conversations)
app.command("compact")(maintenance.compact)
app.command("purge")(maintenance.purge)
app.add_typer(keys.app, name="keys", no_args_is_help=True)


@app.command("openapi")
def openapi() -> None:
    """Print the HTTP contract as OpenAPI, in YAML."""
    typer.echo(yaml.safe_dump(serving.described(), sort_keys=False, allow_unicode=True, width=120), nl=False)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if wanted:
        typer.echo(f"turnlog {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command. What a user can do something about is one line on standard error, and exit code 1."""
    try:
        app()
    except pydantic.ValidationError as error:
        _fail("\n".join(f"TURNLOG_{'_'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors()))
    except UnknownPooler as error:
        _fail(str(error))
    except Unavailable as error:
        # The driver's own words, without what SQLAlchemy wraps around them.
        cause = getattr(error.__cause__, "orig", None)
        _fail(f"the database cannot be reached: {getattr(cause, '__cause__', None) or error.__cause__}")
    except (TurnlogError, BadSetting, EmbeddedError, UnknownEncoding, DamagedVocabulary, CallFailed) as error:
        _fail(str(error))


def _fail(message: str) -> None:
    typer.echo(f"turnlog: {message}", err=True)
    sys.exit(1)
