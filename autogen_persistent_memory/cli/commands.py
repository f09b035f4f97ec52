"""Options that several commands have, and how what is typed becomes a time, a lifetime or a memory's id."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from ..core.checks import check_time
from ..core.errors import PersistentMemoryError
from ..core.records import utc_now
from .context import NothingFoundError, Place, Shell
from .output import note

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TIME = "a time such as 2026-03-01 or 2026-03-01T12:00 (UTC), or an age such as 90m, 12h, 7d or 2w"


def duration(text: str) -> timedelta:
    """What 90m, 12h, 7d or 2w means."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration such as 90m, 12h, 7d or 2w.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def moment(text: str) -> datetime:
    """A time, or one that long ago; UTC where it does not say."""
    if re.fullmatch(r"\d+[mhdw]", text.strip()):
        return utc_now() - duration(text)
    try:
        time = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text.strip()))
        found = check_time(time if time.tzinfo else time.replace(tzinfo=timezone.utc), "the time")
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not {_TIME}: {error}") from None
    assert found is not None
    return found


Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", envvar="AUTOGEN_MEMORY_NAMESPACE", help="Whose memories, such as user-42."),
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", "-k", help="Only this kind; may be repeated.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", "-t", help="Only with this tag; repeated, with all of them.")]
Session = Annotated[str | None, typer.Option("--session", "-s", help="Only of this session.")]
Containing = Annotated[str | None, typer.Option(help="Only with this literal text, in upper or lower case.")]
Limit = Annotated[int, typer.Option("--limit", "-l", min=1, help="At most so many.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")]
EmbeddingName = Annotated[
    str | None,
    typer.Option(
        "--embedding",
        metavar="NAME",
        help="minilm, chroma:NAME or module:function; by default what the memories were written with.",
    ),
]
EmbeddingId = Annotated[
    str | None, typer.Option("--embedding-id", metavar="ID", help="The name of the vectors of module:function.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The memory's id, or the beginning of it.")]
At = Annotated[datetime | None, typer.Option(parser=moment, metavar="TIME", help=f"As it was at {_TIME}.")]
Before = Annotated[datetime | None, typer.Option(parser=moment, metavar="TIME", help=f"Only written before {_TIME}.")]
Ttl = Annotated[timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="How long it lives, as 7d.")]


P = ParamSpec("P")

FAILED, USAGE, NOT_FOUND, INTERRUPTED, READER_GONE = 1, 2, 3, 130, 141
_PANEL = "Store and output"

Path = Annotated[
    str | None,
    typer.Option(
        help="The store's folder; by default AUTOGEN_MEMORY_PATH, else ~/.autogen_memory.", rich_help_panel=_PANEL
    ),
]
Server = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="A Chroma server instead of a folder.", rich_help_panel=_PANEL),
]
Ssl = Annotated[bool, typer.Option("--ssl", help="Speak https to the server.", rich_help_panel=_PANEL)]
TokenEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The environment variable with the server's token.", rich_help_panel=_PANEL),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.", rich_help_panel=_PANEL)]


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        sys.stdout.write(f"autogen-memory {__version__}\n")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
]


def everywhere(
    context: typer.Context,
    version: Version = False,
    path: Path = None,
    server: Server = None,
    ssl: Ssl = False,
    token_env: TokenEnv = None,
    json: Json = False,
) -> None:
    """The options that may stand before the command as well as after it."""
    context.obj = {"path": path, "server": server, "ssl": ssl, "token_env": token_env, "json": json}


_CONTEXT, _, *_COMMON = inspect.signature(everywhere, eval_str=True).parameters.values()


def command(
    app: typer.Typer, name: str, *, hidden: bool = False
) -> Callable[[Callable[Concatenate[Shell, P], None]], Callable[..., None]]:
    """Make a function that takes a `Shell` a command, with the options that all commands have."""

    def register(function: Callable[Concatenate[Shell, P], None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()

        def run(context: typer.Context, **given: Any) -> None:
            here = {option: given.pop(option) for option in context.obj}
            common = {option: here[option] or before for option, before in context.obj.items()}
            with errors_as_exit_codes():
                as_json = common.pop("json")
                function(Shell(Place(**common), as_json=as_json), **given)  # type: ignore[call-arg]

        functools.update_wrapper(run, function)
        parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*own, *_COMMON)]
        signature = inspect.Signature([_CONTEXT, *parameters])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
        app.command(name, hidden=hidden)(run)
        return run

    return register


@contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """Tell what went wrong on stderr, without a traceback, and in the exit code."""
    try:
        yield
    except NothingFoundError as error:
        raise _ended(NOT_FOUND, str(error)) from None
    except (PersistentMemoryError, OSError) as error:
        if isinstance(error, BrokenPipeError) or isinstance(error.__cause__, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # lest Python complains when it flushes
            raise typer.Exit(READER_GONE) from None
        raise _ended(USAGE if isinstance(error, ValueError) else FAILED, str(error)) from None
    except ValueError as error:
        raise _ended(USAGE, str(error)) from None
    except KeyboardInterrupt:
        raise _ended(INTERRUPTED, "Interrupted.") from None


def _ended(code: int, reason: str) -> typer.Exit:
    note(reason if code == INTERRUPTED else f"Error: {reason}")
    return typer.Exit(code)
