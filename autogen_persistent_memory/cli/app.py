"""The console script `autogen-memory`: its commands, the options that all of them have, and its exit codes.

0 done; 1 failed, with the reason on stderr; 2 usage error; 3 not found; 130 interrupted; 141 the reader of the output closed
the pipe. See docs/cli.md.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from ..cli import demo, maintain, read, share, write
from ..core.errors import PersistentMemoryError
from .context import FAILED, CommandContext, NothingFoundError
from .options import Json, Path, Server, Ssl, TokenEnv, Version
from .output import note

_USAGE_ERROR, _NOT_FOUND, _INTERRUPTED, _READER_GONE = 2, 3, 130, 141

app = typer.Typer(
    name="autogen-memory",
    help="Inspect, change, move and repair the memories of AutoGen agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def common_options(
    context: typer.Context,
    version: Version = False,
    path: Path = None,
    server: Server = None,
    ssl: Ssl = False,
    token_env: TokenEnv = None,
    json: Json = False,
) -> None:
    """Keep the options that may be given before the command as well as after it."""
    context.obj = {"path": path, "server": server, "ssl": ssl, "token_env": token_env, "json": json}


_CONTEXT, _, *_COMMON = inspect.signature(common_options, eval_str=True).parameters.values()


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a function of a `CommandContext` as a Typer command that has the common options, too."""
    _, *own = inspect.signature(function, eval_str=True).parameters.values()

    @functools.wraps(function)
    def run(context: typer.Context, **given: Any) -> None:
        common = {option: given.pop(option) or before for option, before in context.obj.items()}
        with _errors_as_exit_codes():
            function(CommandContext(**common), **given)

    parameters = [_CONTEXT, *(parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*own, *_COMMON))]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    """Print errors on stderr, without a traceback, and exit with the code of their kind."""
    try:
        yield
    except NothingFoundError as error:
        raise _failed(_NOT_FOUND, error) from None
    except (PersistentMemoryError, OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError) or isinstance(error.__cause__, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's last flush fails, loudly
            raise typer.Exit(_READER_GONE) from None
        raise _failed(_USAGE_ERROR if isinstance(error, ValueError) else FAILED, error) from None
    except KeyboardInterrupt:
        note("Interrupted.")
        raise typer.Exit(_INTERRUPTED) from None


def _failed(code: int, error: Exception) -> typer.Exit:
    note(f"Error: {error}")
    return typer.Exit(code)


for _function in (
    *(read.namespaces, read.list_, read.search, read.show, read.history, read.values, read.stats),
    *(write.add, write.edit, write.forget, write.sessions),
    *(maintain.export, maintain.import_, maintain.snapshot, maintain.doctor, maintain.compact, maintain.reembed),
    *(share.share, share.serve, demo.demo),
):
    app.command(_function.__name__.rstrip("_"), hidden=_function is share.serve)(_command(_function))


def main() -> None:
    """Run the console script."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    app()
