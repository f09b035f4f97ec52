"""Commands that look: namespaces, list, search, show, history, values, stats. None needs to change anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from .._checks import MAX_COUNT
from .._memory import PersistentMemory
from .._records import MemoryHit, MemoryRecord, utc_now
from .._store import ANY_EMBEDDING, SHELVES, Connection
from .commands import command
from .options import At, Containing, EmbeddingId, EmbeddingName, Id, Kinds, Limit, Namespace, Session, Tags
from .printing import SHORT_ID, fields_of, print_records, to_json
from .shell import NothingFoundError, Shell, size_of

PARTS = ("cosine", "keywords", "session", "neighbours", "speaker", "particulars", "question")
_LEAST_PREFIX = 4


def add_looking(app: typer.Typer) -> None:
    """Add these commands."""

    @command(app, "namespaces")
    def namespaces(shell: Shell) -> None:
        """List the namespaces of the store, with how many rows each has, history included."""
        with shell.connection() as connection:
            found = shell.run(_sizes(connection))
        if shell.as_json:
            shell.printer.objects(found)
        else:
            shell.printer.table(
                ("namespace", "memories", "messages", "embedding"), [tuple(row.values()) for row in found]
            )

    @command(app, "list")
    def list_(
        shell: Shell,
        namespace: Namespace,
        kind: Kinds = None,
        tag: Tags = None,
        session: Session = None,
        containing: Containing = None,
        history: Annotated[bool, typer.Option("--history", help="Also what was replaced or has expired.")] = False,
        limit: Limit = 50,
        offset: Annotated[int, typer.Option(min=0, help="Skip so many.")] = 0,
    ) -> None:
        """List memories, newest first."""
        with shell.memory(namespace) as memory:
            most = MAX_COUNT if containing else limit
            records = shell.run(
                memory.records(
                    kind, tag, session, limit=most, offset=0 if containing else offset, include_history=history
                )
            )
        if containing:
            records = [record for record in records if containing in record.content][offset : offset + limit]
        print_records(shell.printer, records)

    @command(app, "search")
    def search(
        shell: Shell,
        query: Annotated[str, typer.Argument(help="What to look for, in words.")],
        namespace: Namespace,
        limit: Limit = 5,
        kind: Kinds = None,
        tag: Tags = None,
        session: Session = None,
        min_score: Annotated[float, typer.Option(min=0, max=1, help="Only of at least this score.")] = 0.0,
        at: At = None,
        embedding: EmbeddingName = None,
        embedding_id: EmbeddingId = None,
    ) -> None:
        """Search by meaning and by words, best first, with the parts of each score."""
        with shell.memory(namespace, shell.embedding(namespace, embedding, embedding_id)) as memory:
            found = shell.run(
                memory.recall(
                    query, limit=limit, kinds=kind, tags=tag, session=session, min_score=min_score or None, at=at
                )
            )
        if not found.hits:
            raise NothingFoundError(f"Nothing in {namespace!r} matches {query!r}.")
        _print_hits(shell, found.hits)

    @command(app, "show")
    def show(shell: Shell, id: Id, namespace: Namespace) -> None:
        """Show everything about one memory, current or not."""
        with shell.memory(namespace) as memory:
            record = find(shell, memory, id)
        if shell.as_json:
            shell.printer.objects([fields_of(record)])
        else:
            shell.printer.pairs(fields_of(record).items())

    @command(app, "history")
    def history(
        shell: Shell,
        id_or_key: Annotated[str, typer.Argument(metavar="ID_OR_KEY", help="A memory's id, or a key.")],
        namespace: Namespace,
    ) -> None:
        """Show a memory with all that it replaced or was replaced by, newest first."""
        with shell.memory(namespace) as memory:
            records = shell.run(memory.history(id_or_key))
            if not records:
                records = shell.run(memory.history(find(shell, memory, id_or_key).id))
        print_records(shell.printer, records)

    @command(app, "values")
    def values(shell: Shell, namespace: Namespace) -> None:
        """List the named values of a namespace."""
        with shell.memory(namespace) as memory:
            found = shell.run(memory.values())
        if shell.as_json:
            shell.printer.objects({"key": key, "value": value} for key, value in found.items())
        else:
            shell.printer.table(("key", "value"), [(key, to_json(value)) for key, value in found.items()])

    @command(app, "stats")
    def stats(
        shell: Shell,
        namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    ) -> None:
        """Count what the store holds, by namespace and kind, and say how large it is and what wrote it."""
        with shell.connection() as connection:
            inventory = shell.run(connection.inventory())
            names = dict.fromkeys(stored.namespace for stored in inventory if namespace in (None, stored.namespace))
            if namespace is not None and not names:
                raise NothingFoundError(f"The store has no namespace {namespace!r}.")
            counted: list[dict[str, Any]] = []
            for name in names:
                parts = [stored for stored in inventory if stored.namespace == name]
                made_by = sorted({stored.embedding for stored in parts if stored.shelf != "values"})
                with shell.memory(name, may_be_new=True) as memory:  # it is there, as was just seen
                    counted.append(
                        {
                            "namespace": name,
                            **shell.run(_counts(memory)),
                            "embedding": ", ".join(made_by) or None,
                            "schema": min(stored.schema for stored in parts),
                        }
                    )
        size = size_of(shell.store)
        if shell.as_json:
            shell.printer.objects([{"store": where(shell), "bytes": size, "namespaces": counted}])
            return
        shell.printer.line(where(shell) + ("" if size is None else f": {size / 1e6:.1f} MB"))
        columns = ("namespace", "memories", "kinds", "history", "sessions", "values", "embedding", "schema")
        shell.printer.table(columns, [_shown(row) for row in counted])


def find(shell: Shell, memory: PersistentMemory, id: str) -> MemoryRecord:
    """The memory of that id, current or not, or the only one whose id begins so.

    Raises:
        NothingFoundError: There is none.
        ValueError: There are several.
    """
    return shell.run(_find(memory, id, shell.store.connect()))


async def _find(memory: PersistentMemory, id: str, connection: Connection) -> MemoryRecord:
    try:
        shelves = [connection.shelf(memory.namespace, name, ANY_EMBEDDING) for name in SHELVES]
        exact = [record for shelf in shelves for record in await shelf.get([id])]
        if exact:
            return exact[0]
        begun = [other for shelf in shelves for other in await shelf.ids() if other.startswith(id)]
        if len(begun) == 1 and len(id) >= _LEAST_PREFIX:
            (record,) = [record for shelf in shelves for record in await shelf.get(begun)]
            return record
    finally:
        await connection.close()
    if begun and len(id) >= _LEAST_PREFIX:
        raise ValueError(f"The ids of {len(begun)} memories of {memory.namespace!r} begin with {id}; give more of it.")
    raise NothingFoundError(f"{memory.namespace!r} has no memory with the id {id!r}.")


def where(shell: Shell) -> str:
    """The store, in a few words."""
    config = shell.store.config
    if config.type == "server":
        return f"{'https' if config.ssl else 'http'}://{config.host}:{config.port}"
    return str(shell.store.folder())  # type: ignore[union-attr]


async def _sizes(connection: Connection) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for stored in await connection.inventory():
        row = rows.setdefault(
            stored.namespace, {"namespace": stored.namespace, "memories": 0, "messages": 0, "embedding": None}
        )
        if stored.shelf != "values":
            size = await connection.shelf(stored.namespace, stored.shelf, ANY_EMBEDDING).size()
            row |= {"memories" if stored.shelf == "profile" else "messages": size, "embedding": stored.embedding}
    return list(rows.values())


async def _counts(memory: PersistentMemory) -> dict[str, Any]:
    records = await memory.records(limit=MAX_COUNT, include_history=True)
    now = utc_now()
    kinds = Counter(record.kind for record in records if record.is_current(now))
    return {
        "memories": kinds.total(),
        "kinds": dict(kinds.most_common()),
        "history": len(records) - kinds.total(),
        "sessions": len(await memory.sessions()),
        "values": len(await memory.keys()),
    }


def _shown(row: dict[str, Any]) -> tuple[object, ...]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in row["kinds"].items())
    return tuple((row | {"kinds": kinds}).values())


def _print_hits(shell: Shell, hits: Sequence[MemoryHit]) -> None:
    if shell.as_json:
        parts = ("score", "similarity", "recency", "frequency", *PARTS)
        shell.printer.objects(
            {**{part: getattr(hit, part) + 0.0 for part in parts}, "record": fields_of(hit.record)} for hit in hits
        )
        return
    told = [part for part in PARTS if any(getattr(hit, part) for hit in hits)]
    columns = ("score", "id", "kind", "content", "similarity", *told, "recency", "frequency")
    shell.printer.table(
        columns,
        [
            (
                hit.score,
                hit.record.id[:SHORT_ID],
                hit.record.kind,
                hit.record.content,
                hit.similarity,
                *(getattr(hit, part) for part in told),
                hit.recency,
                hit.frequency,
            )
            for hit in hits
        ],
    )
