"""Commands that keep a store in order: doctor, compact, reembed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .commands import FAILED, EmbeddingId, EmbeddingName, Namespace, Yes, command
from .context import Shell
from .embedding import named_embedding
from .output import fields_of

if TYPE_CHECKING:
    from ..maintenance.doctor import Finding


def add_mending(app: typer.Typer) -> None:
    """Add these commands."""

    @command(app, "doctor")
    def doctor(
        shell: Shell,
        mend: Annotated[bool, typer.Option("--repair", help="Repair what can be, with a backup.")] = False,
        yes: Yes = False,
        embedding: EmbeddingName = None,
        embedding_id: EmbeddingId = None,
    ) -> None:
        """Look for what is wrong with the store; exit code 1 if anything is that does harm."""
        from ..maintenance.doctor import diagnose, repair

        store = shell.existing_store()
        if not mend:
            found = shell.run(diagnose(store))
            _print_findings(shell, found)
            if not all(finding.is_harmless for finding in found):
                raise typer.Exit(FAILED)
            return
        shell.confirm("Repair the store? What is changed is kept in a backup beside it.", yes=yes)
        report = shell.run(repair(store, embedding=shell.common_embedding(embedding, embedding_id)))
        if shell.as_json:
            shell.printer.objects(
                [{**fields_of(report), "findings": _plain(report.findings), "left": _plain(report.left)}]
            )
        else:
            for sentence in report.done or ("There was nothing to repair.",):
                shell.printer.line(sentence)
            if report.backup is not None:
                shell.printer.line(f"What was changed is kept in {report.backup}.")
            _print_findings(shell, report.left)
        if not all(finding.is_harmless for finding in report.left):
            raise typer.Exit(FAILED)

    @command(app, "compact")
    def compact(shell: Shell, namespace: Namespace) -> None:
        """Rebuild a namespace's index without the vectors of what was deleted, which slow every search down."""
        with shell.memory(namespace, shell.embedding(namespace, None, None)) as memory:
            count = shell.run(memory.compact())
        shell.tell(f"Compacted {count} memories.", compacted=count)

    @command(app, "reembed")
    def reembed(
        shell: Shell,
        namespace: Namespace,
        embedding: Annotated[
            str, typer.Option("--embedding", metavar="NAME", help="minilm, chroma:NAME or module:function.")
        ],
        embedding_id: EmbeddingId = None,
        yes: Yes = False,
    ) -> None:
        """Make all vectors of a namespace anew with another embedding."""
        by = named_embedding(embedding, embedding_id)
        with shell.memory(namespace, by) as memory:
            shell.confirm(
                f"Embed all of {namespace!r} with {by.id!r}, which its agents must use from then on?", yes=yes
            )
            count = shell.run(memory.reembed())
        shell.tell(f"Embedded {count} memories with {by.id}.", embedded=count, embedding=by.id)


def _print_findings(shell: Shell, found: Sequence[Finding]) -> None:
    if shell.as_json:
        shell.printer.objects(_plain(found))
    elif not found:
        shell.printer.line("Nothing is wrong.")
    for finding in () if shell.as_json else found:
        shell.printer.line(str(finding))


def _plain(found: Sequence[Finding]) -> list[dict[str, object]]:
    return [fields_of(finding) for finding in found]
