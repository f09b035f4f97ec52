"""The command about conversations: list them, or delete one with all that is kept about it."""

from __future__ import annotations

from typing import Annotated

import typer

from ..core.records import SessionInfo
from .commands import DryRun, Namespace, Yes, command
from .context import NothingFoundError, Shell
from .output import fields_of


def add_conversing(app: typer.Typer) -> None:
    """Add this command."""

    @command(app, "sessions")
    def sessions(
        shell: Shell,
        namespace: Namespace,
        delete: Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help="Delete this one for good: its messages, its saved state, its summary. What was learned from it stays.",
            ),
        ] = None,
        dry_run: DryRun = False,
        yes: Yes = False,
    ) -> None:
        """List the conversations of a namespace, the latest first; or delete one of them."""
        if delete is None and (dry_run or yes):
            raise ValueError("--dry-run and --yes belong to --delete NAME.")
        with shell.memory(namespace) as memory:
            found = shell.run(memory.sessions())
            if delete is None:
                _print(shell, found)
                return
            doomed = next((session for session in found if session.name == delete), None)
            if doomed is None:
                raise NothingFoundError(f"{namespace!r} has no conversation {delete!r}. Nothing was deleted.")
            what = f"the conversation {delete!r} of {namespace!r}, {_extent(doomed)}"
            if not dry_run:
                shell.confirm(f"Delete {what}, for good?", yes=yes)
                shell.run(memory.delete_session(delete))
        shell.tell(
            f"{'Would delete' if dry_run else 'Deleted'} {what}.",
            session=delete,
            messages=doomed.messages,
            state=doomed.resumable,
            dry_run=dry_run,
        )


def _extent(session: SessionInfo) -> str:
    messages = f"{session.messages} message{'' if session.messages == 1 else 's'}"
    return f"{messages} and its saved state" if session.resumable else messages


def _print(shell: Shell, found: list[SessionInfo]) -> None:
    rows = [fields_of(session) for session in found]
    if shell.as_json:
        shell.printer.objects(rows)
    else:
        columns = ("session", "started", "ended", "speakers", "messages", "resumable")
        shell.printer.table(columns, [tuple(row.values()) for row in rows])
