"""Commands that move memories: export, import, snapshot."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..storage.stores import EmbeddedStore
from .commands import EmbeddingId, EmbeddingName, command
from .context import Shell

_STREAM = "-"


def add_moving(app: typer.Typer) -> None:
    """Add these commands."""

    @command(app, "export")
    def export(
        shell: Shell,
        file: Annotated[str, typer.Argument(metavar="[FILE]", help="Where to; - for stdout.")] = _STREAM,
        namespace: Annotated[
            list[str] | None,
            typer.Option("--namespace", "-n", help="Only this one, or with a / at its end all below it."),
        ] = None,
        vectors: Annotated[bool, typer.Option("--vectors", help="Also the vectors.")] = False,
    ) -> None:
        """Write all memories, values and saved states as JSON, one a line."""
        from ..maintenance.transfer.transfer import export_memories

        target = sys.stdout if file == _STREAM else file
        count = shell.run(export_memories(shell.existing_store(), target, namespaces=namespace, vectors=vectors))
        if file != _STREAM:
            shell.tell(f"Exported {count} to {file}.", exported=count, file=file)

    @command(app, "import")
    def import_(
        shell: Shell,
        file: Annotated[str, typer.Argument(metavar="FILE", help="What export wrote; - for stdin.")],
        rename: Annotated[
            list[str] | None,
            typer.Option(metavar="OLD=NEW", help="Another name for a namespace, or with a / at both ends for a path."),
        ] = None,
        embedding: EmbeddingName = None,
        embedding_id: EmbeddingId = None,
    ) -> None:
        """Take over what export wrote; what is there already is not written twice."""
        from ..maintenance.transfer.transfer import import_memories

        source = sys.stdin if file == _STREAM else file
        names = dict(_pair(text) for text in rename or ())
        by = shell.common_embedding(embedding, embedding_id)
        count = shell.run(import_memories(shell.store, source, rename=names, embedding=by))
        shell.tell(f"Imported {count}.", imported=count)

    @command(app, "snapshot")
    def snapshot(
        shell: Shell, folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where to; new or empty.")]
    ) -> None:
        """Copy an embedded store, as a store that can be opened itself."""
        from ..maintenance.snapshot import snapshot as copy_store

        store = shell.existing_store()
        if not isinstance(store, EmbeddedStore):
            raise ValueError("A server's store cannot be copied from here; use export.")
        size = shell.run(copy_store(store, folder))
        shell.tell(f"Copied {size / 1e6:.1f} MB to {folder}.", bytes=size, folder=folder)


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals:
        raise ValueError(f"--rename must be OLD=NEW, not {text!r}.")
    return old, new
