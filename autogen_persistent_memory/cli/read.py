"""Commands that look: namespaces, list, search, show, history, values, stats. None needs to change anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..core.checks import MAX_COUNT, fold_kind
from ..core.records import SIGNALS, MemoryHit, MemoryRecord, contains
from ..memories.memory import PersistentMemory
from ..storage.protocol import TABLES
from ..storage.stores import store_config
from .commands import At, Containing, EmbeddingId, EmbeddingName, Id, Kinds, Limit, Namespace, Session, Tags, command
from .context import NothingFoundError, Shell, size_of
from .output import MESSAGE, SHORT_ID, Row, fields_of, print_records, to_json

_LEAST_PREFIX = 4


def add_looking(app: typer.Typer) -> None:
    """Add these commands."""

    @command(app, "namespaces")
    def namespaces(shell: Shell) -> None:
        """List the namespaces of the store, with how many memories and captured messages each has."""
        columns = ("namespace", "memories", "messages", "embedding")
        found = [{column: row[column] for column in columns} for row in _count(shell)]
        if shell.as_json:
            shell.printer.objects(found)
        else:
            shell.printer.table(columns, [tuple(row.values()) for row in found])

    @command(app, "list")
    def list_(
        shell: Shell,
        namespace: Namespace,
        kind: Kinds = None,
        tag: Tags = None,
        session: Session = None,
        containing: Containing = None,
        messages: Annotated[
            bool, typer.Option("--messages", help="The captured messages instead, newest first.")
        ] = False,
        history: Annotated[bool, typer.Option("--history", help="Also what was replaced or has expired.")] = False,
        limit: Limit = 50,
        offset: Annotated[int, typer.Option(min=0, help="Skip so many.")] = 0,
    ) -> None:
        """List memories, newest first; with --messages what was said in conversations."""
        if messages and kind:
            raise ValueError(f"--messages are of the kind {MESSAGE}; leave out --kind.")
        kinds = [MESSAGE] if messages else kind
        with shell.memory(namespace) as memory:
            names_messages = MESSAGE in map(fold_kind, kinds or ())
            of = memory if names_messages else memory.profile
            most = MAX_COUNT if containing else limit
            records = shell.run(
                of.records(kinds, tag, session, limit=most, offset=0 if containing else offset, include_history=history)
            )
        if containing:
            records = [record for record in records if contains(record.content, containing)][offset : offset + limit]
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
        explain: Annotated[bool, typer.Option("--explain", help="Also what each score is made of.")] = False,
        embedding: EmbeddingName = None,
        embedding_id: EmbeddingId = None,
    ) -> None:
        """Search memories and messages by meaning and by words, best first."""
        with shell.memory(namespace, shell.embedding(namespace, embedding, embedding_id)) as memory:
            found = shell.run(
                memory.recall(
                    query, limit=limit, kinds=kind, tags=tag, session=session, min_score=min_score or None, at=at
                )
            )
        if not found.hits:
            raise NothingFoundError(f"Nothing in {namespace!r} matches {query!r}.")
        _print_hits(shell, found.hits, explain=explain)

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
        counted = _count(shell, namespace)
        size = size_of(shell.store)
        if shell.as_json:
            shell.printer.objects([{"store": where(shell), "bytes": size, "namespaces": counted}])
            return
        shell.printer.line(where(shell) + ("" if size is None else f": {size / 1e6:.1f} MB"))
        columns = ("namespace", "memories", "kinds", "messages", "sessions", "history", "values", "embedding")
        shell.printer.table(columns, [_shown(row, columns) for row in counted])


def find(shell: Shell, memory: PersistentMemory, id: str) -> MemoryRecord:
    """The memory of that id, current or not, or the only one whose id begins so.

    Raises:
        NothingFoundError: There is none.
        ValueError: There are several.
    """
    return shell.run(_find(memory, id))


async def _find(memory: PersistentMemory, id: str) -> MemoryRecord:
    engine = memory._engine
    found = await engine.find([id], TABLES)
    if not found and len(id) >= _LEAST_PREFIX:
        found = await engine.find(await engine.ids_beginning(id, TABLES), TABLES)
    if len(found) > 1:
        raise ValueError(f"The ids of {len(found)} memories of {memory.namespace!r} begin with {id}; give more of it.")
    if not found:
        raise NothingFoundError(f"{memory.namespace!r} has no memory with the id {id!r}.")
    return found[0]


def where(shell: Shell) -> str:
    """The store, in a few words."""
    config = store_config(shell.store)
    if config.type == "server":
        return f"{'https' if config.ssl else 'http'}://{config.host}:{config.port}"
    return str(shell.store.folder())  # type: ignore[union-attr]


def _count(shell: Shell, namespace: str | None = None) -> list[dict[str, Any]]:
    """What each namespace holds, or one of them.

    Raises:
        NothingFoundError: There is none of that name.
    """
    with shell.connection() as connection:
        inventory = shell.run(connection.inventory())
        names = dict.fromkeys(stored.namespace for stored in inventory if namespace in (None, stored.namespace))
        if namespace is not None and not names:
            raise NothingFoundError(f"The store has no namespace {namespace!r}.")
        counted: list[dict[str, Any]] = []
        for name in names:
            parts = [stored for stored in inventory if stored.namespace == name]
            made_by = sorted({stored.embedding for stored in parts if stored.table != "values"})
            with shell.memory(name, may_be_new=True) as memory:  # it is there, as was just seen
                counted.append(
                    {
                        "namespace": name,
                        **shell.run(_counts(memory)),
                        "embedding": ", ".join(made_by) or None,
                        "schema": min(stored.schema for stored in parts),
                    }
                )
    return counted


async def _counts(memory: PersistentMemory) -> dict[str, Any]:
    """The memories as `list` shows them, the messages as `list --messages` does, and what of both is over."""
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


def _shown(row: dict[str, Any], columns: Sequence[str]) -> tuple[object, ...]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in row["kinds"].items())
    return tuple((row | {"kinds": kinds})[column] for column in columns)


def _print_hits(shell: Shell, hits: Sequence[MemoryHit], *, explain: bool) -> None:
    if shell.as_json:
        parts = ("score", "similarity", "recency", "frequency", *(signal.name for signal in SIGNALS))
        shell.printer.objects(
            {**{part: getattr(hit, part) + 0.0 for part in parts}, "record": fields_of(hit.record)} for hit in hits
        )
        return
    rows: list[Row] = []
    for hit in hits:
        rows.append((hit.score, hit.record.id[:SHORT_ID], _said(hit)))
        if explain:
            rows.append(("", "", f"{hit.record.kind}: {hit.reasons}"))
    shell.printer.table(("score", "id", "content"), rows)


def _said(hit: MemoryHit) -> str:
    """What a memory says; of a message also who said it."""
    return f"{hit.record.source}: {hit.content}" if hit.record.kind == MESSAGE and hit.record.source else hit.content
