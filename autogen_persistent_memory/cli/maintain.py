"""Commands on whole stores: export, import, snapshot, doctor; and on a whole namespace's index: compact, reembed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..storage.stores import EmbeddedStore
from .context import FAILED, CommandContext
from .embedding import named_embedding
from .options import EmbeddingId, EmbeddingName, Namespace, Yes
from .output import fields_of

if TYPE_CHECKING:
    from ..maintenance.doctor import Finding

_STREAM = "-"


def export(
    context: CommandContext,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="The file to write; - for stdout.")] = _STREAM,
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", help="Only this one, or with a / at its end all below it; may be repeated."),
    ] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="Also export the vectors.")] = False,
) -> None:
    """Write all memories, values and saved states as JSON lines."""
    from ..maintenance.transfer.transfer import export_memories

    target = sys.stdout if file == _STREAM else file
    count = context.run(export_memories(context.existing_store(), target, namespaces=namespace, vectors=vectors))
    if file != _STREAM:
        context.report(f"Exported {count} to {file}.", exported=count, file=file)


def import_(
    context: CommandContext,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - for stdin.")],
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Rename a namespace, or with a / at both ends all below a path."),
    ] = None,
    embedding: EmbeddingName = None,
    embedding_id: EmbeddingId = None,
) -> None:
    """Import what export wrote; memories that the store already has are skipped."""
    from ..maintenance.transfer.transfer import import_memories

    names = {}
    for text in rename or ():
        old, equals, new = text.partition("=")
        if not equals:
            raise ValueError(f"--rename must be OLD=NEW, not {text!r}.")
        names[old] = new
    source = sys.stdin if file == _STREAM else file
    by = context.common_embedding(embedding, embedding_id)
    count = context.run(import_memories(context.store, source, rename=names, embedding=by))
    context.report(f"Imported {count}.", imported=count)


def snapshot(
    context: CommandContext,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder to copy to; new or empty.")],
) -> None:
    """Copy an embedded store to a folder that can be opened as a store."""
    from ..maintenance.snapshot import snapshot as copy_store

    store = context.existing_store()
    if not isinstance(store, EmbeddedStore):
        raise ValueError("A snapshot needs the store's folder, which a server does not share; use export.")
    size = context.run(copy_store(store, folder))
    context.report(f"Copied {size / 1e6:.1f} MB to {folder}.", bytes=size, folder=folder)


def doctor(
    context: CommandContext,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair the store, with a backup of what is changed.")
    ] = False,
    yes: Yes = False,
    embedding: EmbeddingName = None,
    embedding_id: EmbeddingId = None,
) -> None:
    """Check the store for damage; the exit code is 1 if something harmful is found."""
    from ..maintenance.doctor import diagnose
    from ..maintenance.doctor import repair as repair_store

    store = context.existing_store()
    if not repair:
        found: Sequence[Finding] = context.run(diagnose(store))
        if context.as_json:
            context.printer.objects(_as_objects(found))
    else:
        context.confirm("Repair the store? What is changed is kept in a backup beside it.", yes=yes)
        report = context.run(repair_store(store, embedding=context.common_embedding(embedding, embedding_id)))
        found = report.left
        if context.as_json:
            findings, left = _as_objects(report.findings), _as_objects(found)
            context.printer.objects([{**fields_of(report), "findings": findings, "left": left}])
        else:
            backup = [f"What was changed is kept in {report.backup}."] if report.backup is not None else []
            for sentence in (*(report.done or ["There was nothing to repair."]), *backup):
                context.printer.line(sentence)
    if not context.as_json:
        for line in [str(finding) for finding in found] or ["Nothing is wrong."]:
            context.printer.line(line)
    if not all(finding.is_harmless for finding in found):
        raise typer.Exit(FAILED)


def compact(context: CommandContext, namespace: Namespace) -> None:
    """Rebuild a namespace's index without the vectors of deleted memories, which slow every search down."""
    with context.memory(namespace, context.embedding(namespace)) as memory:
        count = context.run(memory.compact())
    context.report(f"Compacted {count} memories.", compacted=count)


def reembed(
    context: CommandContext,
    namespace: Namespace,
    embedding: Annotated[
        str, typer.Option("--embedding", metavar="NAME", help="minilm, chroma:NAME or module:function.")
    ],
    embedding_id: EmbeddingId = None,
    yes: Yes = False,
) -> None:
    """Recompute all vectors of a namespace with another embedding."""
    by = named_embedding(embedding, embedding_id)
    with context.memory(namespace, by) as memory:
        context.confirm(f"Embed all of {namespace!r} with {by.id!r}, which its agents must use from then on?", yes=yes)
        count = context.run(memory.reembed())
    context.report(f"Embedded {count} memories with {by.id}.", embedded=count, embedding=by.id)


def _as_objects(findings: Sequence[Finding]) -> list[dict[str, object]]:
    return [fields_of(finding) for finding in findings]
