"""The command line: `autogen-memory`. See docs/cli.md.

Exit codes: 0 done; 1 it could not be done, and stderr says why; 2 it was asked for in a way that means nothing; 3 there is
no such thing; 130 interrupted; 141 whoever read the output went away.
"""

from __future__ import annotations

import sys

import typer

from .commands import everywhere
from .demo import add_demonstration
from .maintain import add_mending
from .read import add_looking
from .sessions import add_conversing
from .share import add_sharing
from .transfer import add_moving
from .write import add_changing

app = typer.Typer(
    name="autogen-memory",
    help="Look at the memories of AutoGen agents, change them, move them, and keep them in order.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(everywhere)
for add_commands in (
    add_looking,
    add_changing,
    add_conversing,
    add_moving,
    add_mending,
    add_sharing,
    add_demonstration,
):
    add_commands(app)


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    app()
