"""One suite for every store backend: what the store protocol promises, and what a memory does on top of it."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ..core.errors import EmbeddingMismatchError, PersistentMemoryError
from ..core.records import MemoryRecord, Selection
from ..memories.memory import PersistentMemory
from ..memories.session import SessionMemory
from ..storage.connection import cosine
from ..storage.protocol import (
    ANY_EMBEDDING,
    Connection,
    Countable,
    Entry,
    Exclusive,
    Identified,
    MemoryStore,
    Preparable,
    Rebuildable,
    RecordTable,
    Remote,
    Stored,
)
from ..text.embeddings import Vectors
from .words import word_embedding, word_vectors

Self = TypeVar("Self", bound="StoreConformance")

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)
EMBEDDING = "words"
VERBATIM = [
    "trailing white space \n\t ",
    "\n leading",
    "nul \x00 inside",
    "שלום, עולם: right to left",
    "🙂 👩‍👩‍👧 é e\u0301",
    "\r\n windows",
    "x" * 1_000_000,
]


def _runs(test: Callable[[Self], Awaitable[None]]) -> Callable[[Self], None]:
    """Run a test in an event loop of its own, so that no plugin of pytest is needed."""

    @functools.wraps(test)
    def run(self: Self) -> None:
        async def call() -> None:
            try:
                await test(self)
            finally:
                for connection in self.connections:
                    await connection.close()

        asyncio.run(call())

    return run


class StoreConformance:
    """The suite. Inherit from it, say how to make your store, and run pytest.

    Example:
        >>> from autogen_persistent_memory import EmbeddedStore
        >>> class TestMyStore(StoreConformance):
        ...     def make_store(self):
        ...         return EmbeddedStore(self.folder / "store")
    """

    folder: Path
    """A folder of the test's own, for stores that need one."""
    namespace: str
    """A namespace of the test's own: a server may be shared by all tests."""

    def make_store(self) -> MemoryStore:
        """Return a new handle to the store. All handles made within one test lead to the same data, also after closing."""
        raise NotImplementedError("Override make_store() to return a handle to the store that is to be tested.")

    @pytest.fixture(autouse=True)
    def _of_this_test(self, tmp_path: Path) -> None:
        self.folder, self.namespace = tmp_path, f"conformance/{uuid.uuid4().hex}"
        self.connections: list[Connection] = []

    def connect(self) -> Connection:
        """Return a connection, which is closed after the test."""
        connection = self.make_store().connect()
        self.connections.append(connection)
        return connection

    def capable(self, backend: object, capability: Any) -> Any:
        """Return a connection or table if it has a capability; skip the test if it has not."""
        if not isinstance(backend, capability):
            pytest.skip(f"{type(backend).__name__} is not {capability.__name__}.")
        return backend

    async def filled(self, records: Sequence[MemoryRecord]) -> RecordTable:
        """Return the profile's table with these records, which are new."""
        table = self.table()
        await _put(table, records)
        return table

    def table(self, embedding: str = EMBEDDING) -> RecordTable:
        """Return the profile's table over a connection of its own."""
        return self.connect().table(self.namespace, "profile", embedding)

    def memory(self, namespace: str | None = None, **options: Any) -> PersistentMemory:
        """Return a memory on a new handle to the store."""
        name = namespace or self.namespace
        return PersistentMemory(name, store=self.make_store(), embedding=word_embedding(), **options)

    def record(self, content: str, **fields: Any) -> MemoryRecord:
        """Return a record of the test's namespace."""
        plain = {"id": uuid.uuid4().hex, "namespace": self.namespace, "created_at": NOW, "updated_at": NOW}
        return MemoryRecord(content=content, **{**plain, **fields})

    # The protocol

    def test_a_store_is_described_the_same_each_time(self) -> None:
        one, other = self.make_store().config, self.make_store().config
        assert one.model_dump_json() == other.model_dump_json()

    async def test_reading_a_namespace_that_was_never_written_finds_nothing_and_creates_nothing(self) -> None:
        connection = self.connect()
        table, values = connection.table(self.namespace, "profile", EMBEDDING), connection.values(self.namespace)
        assert await table.get(["x"]) == await table.select(Selection()) == []
        assert await table.ids() == []
        assert await table.vectors(["x"]) == {}
        assert await table.nearest(word_vectors(["x", "y"]), Selection(), fetch=3) == [{}, {}]
        assert await table.remove(["x"]) == 0
        await table.amend([self.record("not stored")])
        assert await values.get("value", ["x"]) == {}
        assert await values.names("value") == []
        assert not await values.remove("value", "x")
        await values.clear("value")
        await connection.drop(self.namespace, ["profile", "session", "values"])
        assert self.namespace not in {stored.namespace for stored in await self.connect().inventory()}

    async def test_every_field_of_a_record_comes_back(self) -> None:
        full = self.record(
            "Uses PostgreSQL, because of JSONB",
            kind="decision",
            tags=("db", "ünï"),
            key="project/database",
            source="Ann",
            session="s1",
            sequence=7,
            origin="user",
            expires_at=NOW + timedelta(days=10_000),
            last_used_at=NOW + timedelta(microseconds=1),
            uses=3,
            pinned=True,
            superseded_by="other",
            superseded_at=NOW + timedelta(hours=1),
            mime_type="text/markdown",
            metadata={"nested": {"list": [1, None, {"x": True}]}, "text": "ä"},
        )
        bare = self.record("Likes tea")
        table = await self.filled([full, bare])
        assert _by_id(await table.get([full.id, bare.id, "nothing"])) == _by_id([full, bare])
        assert sorted(await table.ids()) == sorted([full.id, bare.id])

    async def test_content_comes_back_verbatim(self) -> None:
        records = [self.record(content, metadata={"copy": content[:100]}) for content in VERBATIM]
        table = await self.filled(records)
        assert _by_id(await table.get([record.id for record in records])) == _by_id(records)

    async def test_putting_replaces_a_record_and_its_vector(self) -> None:
        table = self.table()
        before = self.record("Likes tea", key="drink", tags=("a",), metadata={"x": 1})
        await _put(table, [before], new=False)
        after = self.record("Lives in Oslo", id=before.id)
        await _put(table, [after], new=False)
        assert await table.get([before.id]) == [after]
        ((vector,),) = [list((await table.vectors([before.id])).values())]
        assert cosine(vector, word_vectors(["Lives in Oslo"])[0]) > 0.999
        assert await table.select(Selection(key="drink")) == []

    async def test_amending_changes_fields_and_keeps_content_and_vector(self) -> None:
        before = self.record("Likes tea", key="drink", tags=("a",), uses=1)
        table = await self.filled([before])
        after = replace(before, key=None, tags=(), uses=2, superseded_by="other", superseded_at=NOW, metadata={"x": 1})
        await table.amend([after, self.record("not stored")])
        assert await table.select(Selection()) == [after]
        assert cosine((await table.vectors([before.id]))[before.id], word_vectors(["Likes tea"])[0]) > 0.999

    async def test_counting_uses_does_not_revert_another_change(self) -> None:
        before = self.record("Likes tea", key="drink")
        table = await self.filled([before])
        await table.amend([replace(before, key="favourite")])
        await table.amend([replace(before, uses=5, last_used_at=NOW)], usage_only=True)
        assert await table.get([before.id]) == [replace(before, key="favourite", uses=5, last_used_at=NOW)]

    async def test_a_selection_finds_what_it_matches(self) -> None:
        later = NOW + timedelta(days=1)
        records = [
            self.record("Likes tea", kind="preference", tags=("a", "b"), session="one", key="drink"),
            self.record("Likes coffee", tags=("a",), session="two", expires_at=later),
            self.record("Lives in Rome", key="home", superseded_by="x", superseded_at=later),
            self.record("Lives in Oslo", key="home", created_at=later, updated_at=later),
        ]
        records += [self.record(f"fact {number}", session="bulk") for number in range(150)]
        table = await self.filled(records)
        for selection in [
            Selection(),
            Selection(kinds=("preference", "lesson")),
            Selection(tags=("a",)),
            Selection(tags=("a", "b")),
            Selection(session="bulk"),
            Selection(key="home"),
            Selection(superseded_by="x"),
            Selection(containing="LIVES"),
            Selection(before=later),
            Selection(expired_at=later),
            Selection(expired_at=NOW),
            Selection(current_at=later),
            Selection(believed_at=NOW),
            Selection(key="home", current_at=later),
            Selection(tags=("none",)),
        ]:
            wanted = [record for record in records if selection.matches(record)]
            assert _by_id(await table.select(selection)) == _by_id(wanted), selection

    async def test_the_nearest_come_first_with_theircosine(self) -> None:
        texts = ["green tea", "green tea from a shop in the old town", "lives in Oslo", "likes jam", "tea"]
        records = [self.record(text, key=text) for text in texts]
        table = await self.filled(records)
        queries = word_vectors(["green tea", "Oslo"])
        for query, near in zip(queries, await table.nearest(queries, Selection(), fetch=3), strict=True):
            cosines = {record.id: cosine(query, word_vectors([record.content])[0]) for record in records}
            best = sorted(cosines, key=cosines.__getitem__, reverse=True)[:3]
            assert list(near) == best
            assert all(abs(near[id] - cosines[id]) < 0.001 for id in best)
        for thorough in (False, True):
            (near,) = await table.nearest(queries[:1], Selection(key="likes jam"), fetch=10, thorough=thorough)
            assert records[3].id in near
        assert await table.nearest([], Selection(), fetch=3) == []

    async def test_vectors_come_back(self) -> None:
        records = [self.record("likes tea"), self.record("lives in Oslo")]
        found = await (await self.filled(records)).vectors([*_by_id(records), "nothing"])
        assert set(found) == set(_by_id(records))
        for record in records:
            assert cosine(found[record.id], word_vectors([record.content])[0]) > 0.999

    async def test_removing_is_for_good(self) -> None:
        records = [self.record(f"fact {number}") for number in range(100)]
        table = await self.filled(records)
        gone, kept = [record.id for record in records[:90]], {record.id for record in records[90:]}
        assert await table.remove([*gone, "nothing"]) == 90
        assert await table.remove(gone) == 0
        assert set(await table.ids()) == kept
        (near,) = await table.nearest(word_vectors(["fact 3"]), Selection(), fetch=20)
        assert set(near) == kept

    async def test_namespaces_and_tables_are_separate(self) -> None:
        connection = self.connect()
        parts = [(self.namespace, "profile"), (self.namespace, "session"), (f"{self.namespace}/other", "profile")]
        for number, (namespace, name) in enumerate(parts):
            table = connection.table(namespace, name, EMBEDDING)  # type: ignore[arg-type]
            await _put(table, [self.record(f"fact {number}", id="same", namespace=namespace)])
            await connection.values(namespace).put("value", "same", Entry(namespace, NOW))
        for number, (namespace, name) in enumerate(parts):
            table = connection.table(namespace, name, EMBEDDING)  # type: ignore[arg-type]
            (record,) = await table.get(["same"])
            assert (record.namespace, record.content) == (namespace, f"fact {number}")
            assert await connection.values(namespace).get("value", ["same"]) == {"same": Entry(namespace, NOW)}

    async def test_vectors_of_another_embedding_are_refused(self) -> None:
        record = self.record("Likes tea")
        await self.filled([record])
        other = self.table("another")
        for refused in (other.vectors([]), other.get([record.id]), other.ids(), _put(other, [record], new=False)):
            with pytest.raises(EmbeddingMismatchError):
                await refused
        any_embedding = self.table(ANY_EMBEDDING)
        assert await any_embedding.get([record.id]) == [record]
        with pytest.raises(EmbeddingMismatchError):
            await self.connect().table(f"{self.namespace}/new", "profile", ANY_EMBEDDING).put([record], [[1.0]])
        assert await any_embedding.remove([record.id]) == 1

    async def test_the_inventory_tells_what_there_is(self) -> None:
        connection = self.connect()
        await _put(connection.table(self.namespace, "session", EMBEDDING), [self.record("hello")])
        await connection.values(self.namespace).put("mark", "x", Entry("1", NOW))
        listed = await connection.inventory()
        assert listed == sorted(listed, key=lambda stored: (stored.namespace, stored.table))
        session, values = [stored for stored in listed if stored.namespace == self.namespace]
        assert session == Stored(self.namespace, "session", EMBEDDING, session.schema)
        assert values.table == "values"

    async def test_what_was_dropped_is_gone_and_may_be_made_with_another_embedding(self) -> None:
        connection = self.connect()
        table, values = connection.table(self.namespace, "profile", EMBEDDING), connection.values(self.namespace)
        await _put(table, [self.record("Likes tea")])
        await values.put("value", "x", Entry("1", NOW))
        await connection.drop(self.namespace, ["profile"])
        assert await table.ids() == []
        assert await values.names("value") == ["x"]
        other = connection.table(self.namespace, "profile", "another")
        await _put(other, [self.record("Likes jam")])
        await connection.drop(self.namespace, ["profile", "session", "values"])
        assert [stored for stored in await connection.inventory() if stored.namespace == self.namespace] == []
        assert await values.names("value") == []

    async def test_values_keep_their_texts_times_and_spaces(self) -> None:
        values = self.connect().values(self.namespace)
        texts = {f"name {number}/ü\n": text for number, text in enumerate(["", *VERBATIM])}
        entries = {name: Entry(text, NOW + timedelta(days=1)) for name, text in texts.items()}
        for name, entry in entries.items():
            await values.put("value", name, Entry("before", NOW))
            await values.put("value", name, entry)
        await values.put("state", "name", Entry("state", NOW))
        assert await values.get("value", [*texts, "nothing"]) == entries
        assert sorted(await values.names("value")) == sorted(await values.get("value")) == sorted(texts)
        assert await values.get("summary") == await values.get("value", []) == {}
        assert [await values.remove("value", next(iter(texts))) for _ in range(2)] == [True, False]
        await values.clear("value")
        assert await values.names("value") == []
        assert await values.get("state", ["name"]) == {"name": Entry("state", NOW)}

    async def test_a_value_of_megabytes_is_replaced_by_a_short_one(self) -> None:
        values = self.connect().values(self.namespace)
        for size in (3_000_000, 700_000, 10):
            await values.put("value", "big", Entry("äx" * (size // 2), NOW))
            assert (await values.get("value", ["big"]))["big"].text == "äx" * (size // 2)

    async def test_what_is_stored_is_there_after_a_restart_and_for_others(self) -> None:
        record = self.record("Likes tea")
        first, second = self.connect(), self.connect()
        table = first.table(self.namespace, "profile", EMBEDDING)
        await _put(table, [record])
        await first.values(self.namespace).put("value", "x", Entry("1", NOW))
        assert await second.table(self.namespace, "profile", EMBEDDING).get([record.id]) == [record]
        for connection in (first, second, first):
            await connection.close()
        again = self.connect()
        table = again.table(self.namespace, "profile", EMBEDDING)
        assert await table.select(Selection()) == [record]
        (near,) = await table.nearest(word_vectors(["tea"]), Selection(), fetch=1)
        assert list(near) == [record.id]
        assert await again.values(self.namespace).get("value", ["x"]) == {"x": Entry("1", NOW)}

    def test_one_connection_serves_several_event_loops(self) -> None:
        table, record = self.table(), self.record("Likes tea")
        asyncio.run(_put(table, [record]))
        assert asyncio.run(table.get([record.id])) == [record]
        asyncio.run(self.connections[0].close())

    async def test_many_may_write_at_once(self) -> None:
        table = self.table()
        records = [self.record(f"fact {number}") for number in range(40)]
        await asyncio.gather(*(_put(table, [record]) for record in records))
        assert _by_id(await table.select(Selection())) == _by_id(records)

    # Optional capabilities

    async def test_handles_to_one_store_are_one_store(self) -> None:
        one, other = (self.capable(self.connect(), Identified) for _ in range(2))
        assert await one.identity() == await other.identity()

    async def test_a_store_is_prepared_any_number_of_times(self) -> None:
        connection = self.capable(self.connect(), Preparable)
        await connection.prepare()
        await connection.prepare()

    async def test_a_store_that_can_be_reached_is_known_to_be(self) -> None:
        connection = self.capable(self.connect(), Remote)
        assert not connection.breaker.is_open
        outbox = connection.outbox(self.namespace)
        assert outbox is None or not await asyncio.to_thread(outbox.waits)

    async def test_an_exclusive_store_lists_what_a_cancelled_task_wrote(self) -> None:
        connection = self.capable(self.connect(), Exclusive)
        if not connection.exclusive:
            pytest.skip("Other processes can write to the store.")
        table = connection.table(self.namespace, "profile", EMBEDDING)
        writing = asyncio.ensure_future(_put(table, [self.record(f"fact {number}") for number in range(200)]))
        await asyncio.sleep(0.02)
        writing.cancel()
        await asyncio.wait({writing})
        listed = await table.ids()
        await asyncio.sleep(0.3)
        assert sorted(await table.ids()) == sorted(listed)

    async def test_records_are_counted_whatever_embedding_made_their_vectors(self) -> None:
        await self.filled([self.record(f"fact {number}") for number in range(3)])
        assert await self.capable(self.table("another"), Countable).size() == 3

    async def test_vectors_are_made_again_with_another_embedding(self) -> None:
        records = [self.record(f"fact {number}") for number in range(120)]
        await self.filled(records)
        other = self.capable(self.table("another"), Rebuildable)
        counted: list[int] = []
        await other.rebuild(_embed, counted.append)
        assert sum(counted) == 120
        assert _by_id(await self.table("another").select(Selection())) == _by_id(records)
        await other.remove([record.id for record in records[:60]])
        await other.rebuild(_embed, counted.append, keep=True)
        assert len(await other.vectors(await other.ids())) == 60
        assert await other.mend(_embed) == 0

    # A memory on top of it

    async def test_a_memory_is_recalled_after_a_restart(self) -> None:
        async with self.memory() as memory:
            stored = await memory.remember(
                "Uses PostgreSQL, because of JSONB", kind="decision", tags=["db"], key="base"
            )
            await memory.remember("Likes tea")
        async with self.memory() as memory:
            assert await memory.record(stored.id) == stored
            assert (await memory.recall("which PostgreSQL")).hits[0].record == stored
            assert await memory.count() == 2

    async def test_a_memory_keeps_its_content_verbatim(self) -> None:
        async with self.memory() as memory:
            for content in VERBATIM:
                stored = await memory.remember(content, metadata={"copy": content[:100]})
                back = await memory.record(stored.id)
                assert back is not None
                assert (back.content, back.metadata) == (content, {"copy": content[:100]})
                await memory.set("value", content)
                assert await memory.get("value") == content

    async def test_filters_find_the_rare_among_the_many(self) -> None:
        async with self.memory() as memory:
            await memory.remember_many([{"content": f"tea number {n}", "session": "bulk"} for n in range(150)])
            rare = await memory.remember("coffee", kind="preference", tags=["a", "b"], session="one")
            chosen: Any
            for chosen in ({"kinds": ["preference"]}, {"tags": ["a"]}, {"tags": ["a", "b"]}, {"session": "one"}):
                found = await memory.recall("tea number", limit=3, **chosen)
                assert [hit.record.id for hit in found] == [rare.id], chosen
                assert [record.id for record in await memory.records(**chosen)] == [rare.id]
            assert (await memory.recall("tea", tags=["a", "c"])).hits == ()
            assert len((await memory.recall("tea number", limit=120)).hits) == 120

    async def test_a_long_history_does_not_hide_what_is_current(self) -> None:
        async with self.memory() as memory:
            await memory.remember("Ann likes tea with milk")
            for number in range(130):
                await memory.remember(f"Ann lives in street {number}", key="home")
            found = await memory.recall("Ann lives in street", limit=2)
            assert [hit.record.content for hit in found] == ["Ann lives in street 129", "Ann likes tea with milk"]
            assert await memory.count() == 2
            assert len(await memory.history("home")) == 130

    async def test_what_is_forgotten_is_gone_for_all(self) -> None:
        async with self.memory() as one, self.memory() as other:
            record = await one.remember("Likes tea")
            assert await other.count() == 1
            assert [await one.forget(record.id) for _ in range(2)] == [1, 0]
            assert (await one.recall("tea")).hits == ()
        async with self.memory() as memory:
            assert await memory.records(include_history=True) == []

    async def test_values_keep_their_types(self) -> None:
        values = {"n": 5, "yes": True, "float": 1.0, "text": "[1,2]", "list": [1, [2]], "map": {"a": None}, "no": False}
        async with self.memory() as memory:
            for key, value in values.items():
                await memory.set(key, value)
            await memory.set("n", 6)
            await memory.set("gone", 1)
            await memory.set("gone", None)
        async with self.memory() as memory:
            back = {key: (type(value), value) for key, value in (await memory.values()).items()}
            assert back == {key: (type(value), value) for key, value in {**values, "n": 6}.items()}
            assert await memory.keys() == sorted(values)
            assert await memory.count() == 0
            assert (await memory.recall("text")).hits == ()
            assert [await memory.delete("n") for _ in range(2)] == [True, False]
            assert (await memory.get("n"), await memory.get("x", "default")) == (None, "default")

    async def test_clear_empties_what_the_object_owns_and_nothing_else(self) -> None:
        other_namespace = f"{self.namespace}/other"
        async with self.memory(session="a") as memory, self.memory(other_namespace) as other:

            async def fill() -> None:
                await memory.remember("profile fact")
                await memory.set("key", 1)
                await memory.session.append("Ann", "message in a")
                await SessionMemory.part_of(memory, "b").append("Ann", "message in b")

            await other.remember("other fact")
            await fill()
            await memory.session.clear()
            assert sorted(record.content for record in await memory.records()) == ["message in b", "profile fact"]
            await fill()
            await memory.profile.clear()
            said = sorted(record.content for record in await memory.records())
            assert said == ["message in a", "message in b", "message in b"]
            assert await memory.values() == {}
            await fill()
            await memory.clear()
            assert await memory.records(include_history=True) == []
            assert await memory.values() == {}
            assert await other.count() == 1
            await memory.remember("after clear")
            assert await memory.count() == 1

    async def test_another_memory_notices_that_the_namespace_was_cleared(self) -> None:
        async with self.memory() as one, self.memory() as other:
            await one.remember("Likes tea")
            assert await other.count() == 1
            await one.clear()
            assert await other.count() == 0
            assert (await other.recall("tea")).hits == ()
            await other.remember("Likes coffee")
            assert [record.content for record in await one.records()] == ["Likes coffee"]

    async def test_concurrent_restatements_become_one_memory(self) -> None:
        async with self.memory() as one, self.memory() as other:
            told = await asyncio.gather(*(memory.remember("Likes tea") for memory in [one, other] * 10))
            (record,) = await one.records()
            assert ({same.id for same in told}, record.uses) == ({record.id}, 19)

    async def test_messages_of_a_session_keep_their_order(self) -> None:
        async with self.memory(session="a") as memory:
            for number in range(12):
                await memory.session.append("Ann" if number % 2 else "Bob", f"message {number}", at=NOW)
        async with self.memory(session="a") as memory:
            await memory.session.append("Ann", "ok")
            await memory.session.append("Ann", "ok")
            messages = await memory.session.messages()
            assert [message.content for message in messages] == [f"message {n}" for n in range(12)] + ["ok", "ok"]
            assert [message.sequence for message in messages] == list(range(1, 15))
            latest = await memory.session.messages(limit=3)
            assert [message.content for message in latest] == ["message 11", "ok", "ok"]
            assert messages[1].source == "Ann"

    async def test_used_memories_are_counted_in_the_store(self) -> None:
        async with self.memory() as memory:
            record = await memory.remember("Likes tea")
            await memory.recall("tea")
            await memory.recall("tea", reinforce=True)
            await memory.recall("tea", reinforce=True)
        async with self.memory() as memory:
            back = await memory.record(record.id)
            assert back is not None
            assert (back.uses, back.last_used_at is None) == (2, False)

    async def test_vectors_are_rebuilt_or_the_error_says_what_to_do(self) -> None:
        async with self.memory() as memory:
            await memory.remember("Likes tea")
            if isinstance(memory._engine.data.table("profile"), Rebuildable):
                assert await memory.reembed(progress=False) == 1
            else:
                with pytest.raises(PersistentMemoryError, match="export_memories"):
                    await memory.reembed(progress=False)
            assert len((await memory.recall("tea")).hits) == 1


for _name, _test in list(vars(StoreConformance).items()):
    if _name.startswith("test_") and asyncio.iscoroutinefunction(_test):
        setattr(StoreConformance, _name, _runs(_test))


async def _put(table: RecordTable, records: Sequence[MemoryRecord], *, new: bool = True) -> None:
    await table.put(records, await _embed(records), new=new)


async def _embed(records: Sequence[MemoryRecord]) -> Vectors:
    return word_vectors([record.content for record in records])


def _by_id(records: Sequence[MemoryRecord]) -> dict[str, MemoryRecord]:
    return {record.id: record for record in records}
