"""Commands that only read: namespaces, list, search, show, history, values, stats."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..core.checks import MAX_COUNT, fold_kind
from ..core.records import SIGNALS, MemoryHit, MemoryRecord, contains
from ..memories.memory import PersistentMemory
from ..storage.protocol import TABLES
from ..storage.stores import EmbeddedStore, ServerStore
from .context import CommandContext, NothingFoundError
from .options import At, Containing, EmbeddingId, EmbeddingName, Id, Kinds, Limit, Namespace, Session, Tags
from .output import MESSAGE, SHORT_ID, Row, fields_of, to_json

_SHORTEST_PREFIX = 4


def namespaces(context: CommandContext) -> None:
    """List the namespaces of the store, with how many memories and captured messages each has."""
    columns = ("namespace", "memories", "messages", "embedding")
    context.printer.rows(columns, [{column: row[column] for column in columns} for row in _count(context)])


def list_(
    context: CommandContext,
    namespace: Namespace,
    kind: Kinds = None,
    tag: Tags = None,
    session: Session = None,
    containing: Containing = None,
    messages: Annotated[bool, typer.Option("--messages", help="List the captured messages instead.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Also replaced and expired memories.")] = False,
    limit: Limit = 50,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many.")] = 0,
) -> None:
    """List memories, or with --messages the captured messages, newest first."""
    if messages and kind:
        raise ValueError(f"--messages lists the kind {MESSAGE}; leave out --kind.")
    kinds = [MESSAGE] if messages else kind
    with context.memory(namespace) as memory:
        listed = memory if MESSAGE in map(fold_kind, kinds or ()) else memory.profile
        page = {} if containing else {"limit": limit, "offset": offset}
        records = context.run(
            listed.records(kinds, tag, session, **{"limit": MAX_COUNT, **page}, include_history=history)
        )
    if containing:
        records = [record for record in records if contains(record.content, containing)][offset : offset + limit]
    context.printer.records(records)


def search(
    context: CommandContext,
    query: Annotated[str, typer.Argument(help="The text to search for.")],
    namespace: Namespace,
    limit: Limit = 5,
    kind: Kinds = None,
    tag: Tags = None,
    session: Session = None,
    min_score: Annotated[float, typer.Option(min=0, max=1, help="Only results with at least this score.")] = 0.0,
    at: At = None,
    explain: Annotated[bool, typer.Option("--explain", help="Also print the parts of each score.")] = False,
    embedding: EmbeddingName = None,
    embedding_id: EmbeddingId = None,
) -> None:
    """Search memories and messages by meaning and by words, best first."""
    with context.memory(namespace, context.embedding(namespace, embedding, embedding_id)) as memory:
        found = context.run(
            memory.recall(query, limit=limit, kinds=kind, tags=tag, session=session, min_score=min_score or None, at=at)
        )
    if not found.hits:
        raise NothingFoundError(f"Nothing in {namespace!r} matches {query!r}.")
    _print_hits(context, found.hits, explain=explain)


def show(context: CommandContext, id: Id, namespace: Namespace) -> None:
    """Show all fields of one memory, current or not."""
    with context.memory(namespace) as memory:
        record = find(context, memory, id)
    if context.as_json:
        context.printer.objects([fields_of(record)])
    else:
        context.printer.pairs(fields_of(record).items())


def history(
    context: CommandContext,
    id_or_key: Annotated[
        str, typer.Argument(metavar="ID_OR_KEY", help="A memory's id, its first characters, or a key.")
    ],
    namespace: Namespace,
) -> None:
    """Show a memory with the versions that it replaced and that replaced it, newest first."""
    with context.memory(namespace) as memory:
        records = context.run(memory.history(id_or_key))
        if not records:
            records = context.run(memory.history(find(context, memory, id_or_key).id))
    context.printer.records(records)


def values(context: CommandContext, namespace: Namespace) -> None:
    """List the named values of a namespace."""
    with context.memory(namespace) as memory:
        found = context.run(memory.values())
    if context.as_json:
        context.printer.objects({"key": key, "value": value} for key, value in found.items())
    else:
        context.printer.table(("key", "value"), [(key, to_json(value)) for key, value in found.items()])


def stats(
    context: CommandContext,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
) -> None:
    """Count the contents of the store by namespace and kind, and show its size and its embeddings."""
    counted = _count(context, namespace)
    place, size = _place_and_size(context.store)
    if context.as_json:
        context.printer.objects([{"store": place, "bytes": size, "namespaces": counted}])
        return
    context.printer.line(place if size is None else f"{place}: {size / 1e6:.1f} MB")
    columns = ("namespace", "memories", "kinds", "messages", "sessions", "history", "values", "embedding")
    for row in counted:
        row["kinds"] = ", ".join(f"{count} {kind}" for kind, count in row["kinds"].items())
    context.printer.table(columns, [[row[column] for column in columns] for row in counted])


def find(context: CommandContext, memory: PersistentMemory, id: str) -> MemoryRecord:
    """Return the memory with an id, current or not, or the only one whose id starts with it."""
    engine = memory._engine
    found = context.run(engine.find([id], TABLES))
    if not found and len(id) >= _SHORTEST_PREFIX:
        found = context.run(engine.find(context.run(engine.ids_beginning(id, TABLES)), TABLES))
    if len(found) > 1:
        raise ValueError(f"The ids of {len(found)} memories of {memory.namespace!r} start with {id}; give more of it.")
    if not found:
        raise NothingFoundError(f"{memory.namespace!r} has no memory with the id {id!r}.")
    return found[0]


def _place_and_size(store: EmbeddedStore | ServerStore) -> tuple[str, int | None]:
    """Return a store's folder and its bytes on disk, or a server's address and None."""
    if isinstance(store, ServerStore):
        return f"{'https' if store.config.ssl else 'http'}://{store.config.host}:{store.config.port}", None
    files = (os.path.join(folder, name) for folder, _, names in os.walk(store.folder()) for name in names)
    return str(store.folder()), sum(os.lstat(path).st_size for path in files)


def _count(context: CommandContext, namespace: str | None = None) -> list[dict[str, Any]]:
    with context.connection() as connection:
        inventory = context.run(connection.inventory())
        names = dict.fromkeys(stored.namespace for stored in inventory if namespace in (None, stored.namespace))
        if namespace is not None and not names:
            raise NothingFoundError(f"The store has no namespace {namespace!r}.")
        counted: list[dict[str, Any]] = []
        for name in names:
            parts = [stored for stored in inventory if stored.namespace == name]
            made_by = sorted({stored.embedding for stored in parts if stored.table != "values"})
            with context.memory(name, may_be_new=True) as memory:  # which the inventory has just listed
                counted.append(
                    {
                        "namespace": name,
                        **context.run(_counts(memory)),
                        "embedding": ", ".join(made_by) or None,
                        "schema": min(stored.schema for stored in parts),
                    }
                )
    return counted


async def _counts(memory: PersistentMemory) -> dict[str, Any]:
    """Count memories as `list` shows them, messages as `list --messages` does, and the history of both."""
    current = await memory.records(limit=MAX_COUNT)
    kinds = Counter(record.kind for record in current)
    messages = kinds.pop(MESSAGE, 0)
    everything = await memory.records(limit=MAX_COUNT, include_history=True)
    return {
        "memories": kinds.total(),
        "kinds": dict(kinds.most_common()),
        "messages": messages,
        "sessions": len(await memory.sessions()),
        "history": len(everything) - len(current),
        "values": len(await memory.keys()),
    }


def _print_hits(context: CommandContext, hits: Sequence[MemoryHit], *, explain: bool) -> None:
    if context.as_json:
        parts = ("score", "similarity", "recency", "frequency", *(signal.name for signal in SIGNALS))
        context.printer.objects(
            {**{part: getattr(hit, part) + 0.0 for part in parts}, "record": fields_of(hit.record)} for hit in hits
        )
        return
    rows: list[Row] = []
    for hit in hits:
        is_message = hit.record.kind == MESSAGE and hit.record.source
        content = f"{hit.record.source}: {hit.content}" if is_message else hit.content
        rows.append((hit.score, hit.record.id[:SHORT_ID], content))
        if explain:
            rows.append(("", "", f"{hit.record.kind}: {hit.reasons}"))
    context.printer.table(("score", "id", "content"), rows)
