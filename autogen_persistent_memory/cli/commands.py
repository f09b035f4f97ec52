"""How a function becomes a command: the options all of them have, and what their errors tell the shell."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from ..core.errors import PersistentMemoryError
from .context import NothingFoundError, Place, Shell
from .output import note

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
