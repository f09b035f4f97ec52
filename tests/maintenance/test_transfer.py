"""Export everything from a store and import it into another, also after interruptions."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from chromadb.api.models.Collection import Collection
from data.stores.make import contents, write
from documents import code_blocks, run
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import DIMENSIONS, words

from autogen_persistent_memory import (
    CallableEmbedding,
    EmbeddedStore,
    EmbeddingMismatchError,
    MemoryRecord,
    NamespaceError,
    PersistentMemory,
    PersistentMemoryError,
    SchemaVersionError,
    ServerStore,
    TemporaryStore,
    export_memories,
    import_memories,
)
from autogen_persistent_memory.core.checks import fold_kind
from autogen_persistent_memory.core.records import MIME_TYPES, TEXT
from autogen_persistent_memory.maintenance.transfer.export_format import (
    End,
    Header,
    NamespaceLine,
    RecordLine,
    ValueLine,
    _RecordFields,
    from_line,
    to_line,
)
from autogen_persistent_memory.storage.connection import StoreConnection
from autogen_persistent_memory.storage.protocol import Entry

Store = EmbeddedStore | ServerStore | TemporaryStore
GUIDE = (Path(__file__).parents[2] / "docs" / "moving.md").read_text(encoding="utf-8")
NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def a_memory(store: Store, namespace: str = "ann") -> PersistentMemory:
    return PersistentMemory(namespace, session="kick-off", store=store, embedding=words(), extractor=None)


async def filled(
    store: Store, *namespaces: str, write: Callable[[PersistentMemory], Awaitable[None]] = write
) -> dict[str, Any]:
    """Write some of everything, and return what is there."""
    there = {}
    for namespace in namespaces:
        async with a_memory(store, namespace) as memory:
            await write(memory)
            await memory.flush()
            there[namespace] = await contents(memory)
    return there


async def a_few(memory: PersistentMemory) -> None:
    await memory.remember_many(["Never deploy on Fridays", {"content": "Likes tea", "key": "drink"}, "Has two cats"])
    await memory.session.append("user", "Where is the plan for the launch?")
    await memory.set("theme", "dark")


async def found_in(store: Store, namespace: str) -> dict[str, Any]:
    async with a_memory(store, namespace) as memory:
        return await contents(memory)


def in_namespace(there: dict[str, Any], namespace: str) -> dict[str, Any]:
    return there | {"records": [record | {"namespace": namespace} for record in there["records"]]}


async def exported(store: Store, **options: Any) -> bytes:
    stream = io.BytesIO()
    await export_memories(store, stream, progress=False, **options)
    return stream.getvalue()


async def imported(store: Store, export: bytes, **options: Any) -> int:
    return await import_memories(store, io.BytesIO(export), **{"embedding": words(), "progress": False} | options)


def lines_of(export: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export.splitlines()]


def as_export(lines: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


# Lines


def text(characters: str = 'text ✓\u2028\n"\\') -> st.SearchStrategy[str]:
    return st.text(min_size=1).map(lambda value: value + characters).filter(_is_storable)


def _is_storable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return bool(value.strip())


times = st.datetimes(datetime(2, 1, 2), datetime(8000, 1, 1), timezones=st.just(timezone.utc))
names = st.from_regex(r"[a-zé0-9]{1,9}(/[a-z0-9]{1,9}){0,2}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text(), inner, max_size=3),
    max_leaves=6,
)
records = st.builds(
    MemoryRecord,
    id=text(),
    namespace=names,
    content=text(),
    kind=text().map(fold_kind),
    tags=st.lists(text(), unique=True, max_size=3).map(tuple),
    key=st.none() | text(),
    source=st.none() | text(),
    session=st.none() | names,
    sequence=st.none() | st.integers(0, 10**6),
    origin=st.sampled_from(("user", "agent", "tool", "extractor", "application")),
    created_at=times,
    updated_at=times,
    expires_at=st.none() | times,
    last_used_at=st.none() | times,
    uses=st.integers(0, 10**6),
    pinned=st.booleans(),
    superseded_by=st.none() | text(),
    superseded_at=st.none() | times,
    mime_type=st.sampled_from([type for type in MIME_TYPES if "json" not in type]),
    metadata=st.dictionaries(text(), json_values, max_size=3),
)
vectors = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=5)


@given(st.builds(RecordLine, st.sampled_from(("profile", "session")), records, st.none() | vectors))
def test_a_record_comes_back_from_its_line_as_it_was(line: RecordLine) -> None:
    assert to_line(line).count("\n") == 1
    assert from_line(to_line(line)) == line
    assert from_line(to_line(line).encode()) == line


def test_a_kind_that_an_earlier_version_exported_is_folded() -> None:
    record = MemoryRecord(id="x", namespace="ann", content="Uses SQLite", created_at=NOW, updated_at=NOW)
    line = to_line(RecordLine("profile", replace(record, kind=" Decision"), None))
    assert from_line(line) == RecordLine("profile", replace(record, kind="decision"), None)


@given(names, st.sampled_from(("value", "state", "mark")), text(), json_values, st.none() | times)
def test_a_value_comes_back_from_its_line_as_it_was(
    namespace: str, space: Any, name: str, value: Any, at: datetime | None
) -> None:
    line = ValueLine(namespace, space, name, Entry(json.dumps(value, ensure_ascii=False), at))
    assert from_line(to_line(line)) == line


@given(text() | st.just("[1,2]") | st.just("NaN") | st.just("[" * 5000))
def test_a_text_that_is_not_json_comes_back_as_it_was(text: str) -> None:
    line = ValueLine("ann", "state", "today", Entry(text, None))
    assert from_line(to_line(line)) == line


def test_the_lines_about_the_file_come_back_as_they_were() -> None:
    for line in (Header(7), NamespaceLine("prod/ann", {"profile": "toy"}), End(7)):
        assert from_line(to_line(line)) == line


def test_every_field_of_a_record_is_read_and_only_the_identifying_ones_are_required() -> None:
    required = {"shelf", "id", "namespace", "content", "created_at"}
    assert set(_RecordFields.__annotations__) == {field.name for field in fields(MemoryRecord)} | {"shelf", "vector"}
    assert _RecordFields.__required_keys__ == required
    record = MemoryRecord(id="x", namespace="ann", content="Uses SQLite", created_at=NOW, updated_at=NOW)
    line = {name: value for name, value in json.loads(to_line(RecordLine("profile", record))).items() if value}
    oldest = {name: line[name] for name in ("type", *required)}
    assert from_line(json.dumps(oldest)) == RecordLine("profile", record)


# There and back


@pytest.mark.parametrize(
    ("way", "vectors"), [("embedded-server", False), ("server-temporary", True), ("temporary-embedded", False)]
)
async def test_everything_is_the_same_in_the_other_store(
    way: str, vectors: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def store_of(kind: str) -> Store:
        if kind == "server":
            return ServerStore(*request.getfixturevalue("chroma_server"))
        return EmbeddedStore(tmp_path / "store") if kind == "embedded" else TemporaryStore()

    source, target = map(store_of, way.split("-"))
    names = [f"{way}/{name}" for name in ("ann", "bob")]
    there = await filled(source, *names)
    file = tmp_path / "memories.jsonl"
    count = await export_memories(source, file, namespaces=[f"{way}/"], vectors=vectors, progress=False)
    assert count == sum(len(one["records"]) + len(one["values"]) + 1 for one in there.values())
    assert await import_memories(target, str(file), embedding=words(), progress=False) == count
    assert {name: await found_in(target, name) for name in names} == there
    async with a_memory(target, names[0]) as memory:
        assert [hit.record.content for hit in await memory.recall("favourite drink", limit=1)] == [
            "Favourite drink is cocoa"
        ]
    assert await import_memories(target, file, embedding=words(), progress=False) == 0
    assert {name: await found_in(target, name) for name in names} == there


@settings(max_examples=15)
@given(st.lists(records, max_size=5, unique_by=lambda record: record.id))
async def test_any_records_are_the_same_in_another_store(some: list[MemoryRecord]) -> None:
    of_ann = [replace(record, namespace="ann") for record in some]
    lines = [Header(len(some)), *(RecordLine("profile", record) for record in of_ann), End(len(some))]
    first, second = TemporaryStore(), TemporaryStore()
    assert await imported(first, "".join(map(to_line, lines)).encode()) == len(some)
    await imported(second, await exported(first))
    for store in (first, second):
        found = await a_memory(store)._engine.find([record.id for record in some], ["profile"])
        assert sorted(found, key=lambda record: record.id) == sorted(of_ann, key=lambda record: record.id)


async def test_streams_of_text_and_of_bytes_hold_the_same(tmp_path: Path) -> None:
    store = TemporaryStore()
    there = await filled(store, "ann")
    in_text, below = io.StringIO(), io.BytesIO()
    wrapped = io.TextIOWrapper(below, encoding="latin-1")
    await export_memories(store, in_text, progress=False)
    await export_memories(store, wrapped, progress=False)
    assert in_text.getvalue().encode() == below.getvalue() == await exported(store)
    for stream in (io.StringIO(in_text.getvalue()), io.TextIOWrapper(io.BytesIO(below.getvalue()), encoding="latin-1")):
        target = TemporaryStore()
        await import_memories(target, stream, embedding=words(), progress=False)
        assert await found_in(target, "ann") == there["ann"]


async def test_progress_ends_at_its_total() -> None:
    store, seen = TemporaryStore(), list[tuple[int, int]]()
    await filled(store, "ann", write=a_few)
    stream = io.BytesIO()
    count = await export_memories(store, stream, progress=lambda *so_far: seen.append(so_far))
    assert seen[-1] == (count, count)
    stream.seek(0)
    await import_memories(TemporaryStore(), stream, embedding=words(), progress=lambda *so_far: seen.append(so_far))
    assert seen[-1] == (count, count)


# Embeddings


async def test_vectors_in_the_file_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, other = TemporaryStore(), TemporaryStore(), TemporaryStore()
    there = await filled(source, "ann", write=a_few)
    export = await exported(source, vectors=True)

    def fail(texts: list[str]) -> list[list[float]]:
        raise AssertionError(texts)

    await imported(target, export, embedding=CallableEmbedding(fail, id="toy-words"))
    assert await found_in(target, "ann") == there["ann"]
    async with a_memory(target) as memory:
        assert (await memory.recall("Never deploy on Fridays", limit=1)).hits[0].cosine == pytest.approx(1, abs=1e-3)
    with pytest.raises(PersistentMemoryError):
        await imported(other, export, embedding=CallableEmbedding(fail, id="another"))


async def test_an_embedding_other_than_the_targets_is_refused() -> None:
    source, target = TemporaryStore(), TemporaryStore()
    there = await filled(source, "ann", write=a_few)
    await imported(target, await exported(source))
    with pytest.raises(EmbeddingMismatchError):
        await imported(target, await exported(source), embedding=words("another"))
    assert await found_in(target, "ann") == there["ann"]


# Records that exist already


async def test_the_version_that_changed_later_wins() -> None:
    here, there = TemporaryStore(), TemporaryStore()
    async with a_memory(here) as memory:
        await memory.remember("Favourite drink is tea", key="drink")
        await memory.set("theme", "dark")
    before = await exported(here)
    async with a_memory(here) as memory:
        await memory.remember("Favourite drink is cocoa", key="drink")
        await memory.set("theme", "light")
    after = await exported(here)
    await imported(there, before)
    assert await imported(there, after) == 3
    assert await imported(there, before) == 0
    async with a_memory(there) as memory:
        assert [record.content for record in await memory.records()] == ["Favourite drink is cocoa"]
        assert [record.superseded_by is None for record in await memory.history("drink")] == [True, False]
        assert await memory.get("theme") == "light"


async def test_the_later_of_two_lines_with_one_id_wins() -> None:
    record = MemoryRecord(id="x", namespace="ann", content="Likes tea", created_at=NOW, updated_at=NOW)
    later = replace(record, tags=("sure",), updated_at=NOW + timedelta(days=1))
    lines = [Header(2), *(RecordLine("profile", one) for one in (later, record)), End(2)]
    store = TemporaryStore()
    await imported(store, "".join(map(to_line, lines)).encode())
    assert await a_memory(store).record("x") == later


async def test_an_open_memory_finds_imported_records_at_once() -> None:
    source, target = TemporaryStore(), TemporaryStore()
    async with a_memory(source) as memory:
        await memory.remember("The zebra is called Mabel")
        for number in range(5):
            await memory.session.append("user", f"This is the message number {number}")
    async with a_memory(target) as memory:
        await memory.remember("The lion is called Leo")
        await memory.session.append("user", "Who is the first one here?")
        assert len(await memory.recall("zebra", limit=9)) == 2
        await imported(target, await exported(source))
        best = (await memory.recall("zebra", limit=1)).hits[0]
        assert (best.record.content, best.keywords > 0) == ("The zebra is called Mabel", True)
        assert (await memory.session.append("user", "And who is the last one?")).sequence == 6


# Names


async def test_namespaces_are_renamed_one_by_one_and_by_path() -> None:
    source, target = TemporaryStore(), TemporaryStore()
    there = await filled(source, "prod/ann", "prod/eu/bob", "cleo", "prod", write=a_few)
    rename = {"prod/": "staging/", "prod/eu/": "eu/", "cleo": "dora"}
    await imported(target, await exported(source), rename=rename)
    assert list(await StoreConnection(target).embeddings()) == ["dora", "eu/bob", "prod", "staging/ann"]
    assert await found_in(target, "staging/ann") == in_namespace(there["prod/ann"], "staging/ann")


async def test_two_namespaces_are_never_mixed_in_one() -> None:
    source, target = TemporaryStore(), TemporaryStore()
    there = await filled(source, "ann", "bob", write=a_few)
    with pytest.raises(PersistentMemoryError, match=r"Line \d+ .*'ann' and 'bob' would be mixed in 'ann'"):
        await imported(target, await exported(source), rename={"bob": "ann"})
    assert await found_in(target, "ann") == there["ann"]


@pytest.mark.parametrize("rename", [{"a/": "b"}, {"a": "b/"}, {"": "b"}, {"a": "../b"}, {"/": "b/"}])
async def test_an_invalid_rename_is_refused(rename: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"slash|namespace"):
        await imported(TemporaryStore(), b"", rename=rename)


async def test_only_the_namespaces_asked_for_are_exported() -> None:
    store = TemporaryStore()
    await filled(store, "prod/ann", "prod/bob", "ann", write=a_few)
    export = await exported(store, namespaces=["ann", "prod/b/", "prod/bob"][0::2])
    assert {line["namespace"] for line in lines_of(export) if "namespace" in line} == {"ann", "prod/bob"}
    with pytest.raises(PersistentMemoryError, match=r"no namespace 'prod/b/'. It has ann, prod/ann, prod/bob"):
        await exported(store, namespaces=["prod/b/"])
    with pytest.raises(NamespaceError):
        await exported(store, namespaces=["../ann"])


# Errors


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda line: {key: value for key, value in line.items() if key != name}


BAD_LINES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "cut": (lambda line: json.dumps(line)[:-9], "not JSON"),
    "no object": (lambda line: [line], "not a JSON object, but list"),
    "another type": (lambda line: line | {"type": "rekord"}, "type is 'rekord', and must be one of header, namespace"),
    "a field too few": (without("created_at"), "no created_at"),
    "a field too many": (lambda line: line | {"colour": "red"}, "unknown fields: colour"),
    "blank content": (lambda line: line | {"content": " "}, "content is empty"),
    "half a character": (lambda line: line | {"content": "\ud800"}, "surrogate"),
    "no time": (lambda line: line | {"updated_at": "yesterday"}, "updated_at must be a time"),
    "a time without zone": (lambda line: line | {"updated_at": "2026-03-01T12:00:00"}, "updated_at must be a time"),
    "a bad namespace": (lambda line: line | {"namespace": "../ann"}, "has an empty part"),
    "a bad shelf": (lambda line: line | {"shelf": "attic"}, "shelf must be 'profile' or 'session', not 'attic'"),
    "a bad origin": (lambda line: line | {"origin": "god"}, "origin must be 'user', .*, not 'god'"),
    "a bad count": (lambda line: line | {"uses": -1}, "uses must be greater than or equal to 0, not -1"),
    "a bad flag": (lambda line: line | {"pinned": "no"}, "pinned must be a valid boolean, not 'no'"),
    "bad tags": (lambda line: line | {"tags": "db"}, "tags must be a list"),
    "bad metadata": (lambda line: line | {"metadata": None}, "metadata must be a valid dictionary, not None"),
    "no number": (lambda line: line | {"metadata": {"x": float("nan")}}, "NaN is not a JSON number"),
    "content that is no JSON": (
        lambda line: line | {"mime_type": "application/json"},
        "content is not application/json",
    ),
    "a bad vector": (lambda line: line | {"vector": "abc"}, "vector is not the base64"),
}


@pytest.mark.parametrize("bad", BAD_LINES)
async def test_an_invalid_line_is_named_and_the_rest_is_imported_once_it_is_corrected(bad: str) -> None:
    source, target = TemporaryStore(), TemporaryStore()
    async with a_memory(source) as memory:
        await memory.remember_many([f"The number {number} is mine" for number in range(9)])
    lines = [*lines_of(await exported(source))]
    spoil, reason = BAD_LINES[bad]
    spoiled = spoil(lines[6])
    broken = [*map(json.dumps, lines[:6]), spoiled if isinstance(spoiled, str) else json.dumps(spoiled)]
    export = "\n".join([*broken, *map(json.dumps, lines[7:])]).encode()
    with pytest.raises(
        PersistentMemoryError, match=rf"^Line 7 of the export .*{reason}.* All lines before it were imp"
    ):
        await imported(target, export)
    async with a_memory(target) as memory:
        assert {record.id for record in await memory.records()} == {line["id"] for line in lines[2:6]}
    assert await imported(target, as_export(lines)) == 5
    assert await found_in(target, "ann") == await found_in(source, "ann")


async def test_a_truncated_file_is_detected() -> None:
    source, target = TemporaryStore(), TemporaryStore()
    there = await filled(source, "ann", write=a_few)
    *lines, end = (await exported(source)).splitlines(keepends=True)
    with pytest.raises(PersistentMemoryError, match=rf"cut off after line {len(lines)}"):
        await imported(target, b"".join(lines))
    assert await found_in(target, "ann") == there["ann"]
    assert await imported(target, b"".join([*lines, b"\n", end])) == 0


@pytest.mark.parametrize(
    ("export", "error", "reason"),
    [
        (b"", PersistentMemoryError, "not an export"),
        (b"a,b,c\n", PersistentMemoryError, "not an export"),
        (to_line(End(0)).encode(), PersistentMemoryError, "header, is missing"),
        (to_line(Header(0)).replace("autogen", "other").encode(), PersistentMemoryError, "not an export of"),
        (
            to_line(Header(0)).replace('"version":1', '"version":2').encode(),
            SchemaVersionError,
            "pip install --upgrade",
        ),
    ],
)
async def test_a_file_that_is_not_an_export_is_refused(export: bytes, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        await imported(TemporaryStore(), export)


async def test_an_unusable_file_is_named(tmp_path: Path) -> None:
    store = TemporaryStore()
    await filled(store, "ann", write=a_few)
    with pytest.raises(PersistentMemoryError, match=r"missing\.jsonl cannot be read: No such file"):
        await import_memories(store, tmp_path / "missing.jsonl", progress=False)
    with pytest.raises(PersistentMemoryError, match=r"cannot be written: No such file"):
        await export_memories(store, tmp_path / "nowhere" / "file.jsonl", progress=False)


async def test_a_failed_export_keeps_the_previous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, file = TemporaryStore(), tmp_path / "memories.jsonl"
    await filled(store, "ann", write=a_few)
    file.write_text("the former one")

    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError("disk")

    with monkeypatch.context() as broken:
        broken.setattr(Collection, "get", fail)
        with pytest.raises(PersistentMemoryError):
            await export_memories(store, file, progress=False)
    assert [name for name in os.listdir(tmp_path) if "jsonl" in name] == ["memories.jsonl"]
    assert file.read_text() == "the former one"
    await export_memories(store, file, progress=False)
    assert file.read_text().startswith('{"type":"header"')


async def test_a_killed_export_keeps_the_previous_file_and_can_be_repeated(tmp_path: Path) -> None:
    store, file = EmbeddedStore(tmp_path / "store"), tmp_path / "memories.jsonl"
    async with a_memory(store) as memory:
        await memory.remember_many([f"The number {number} is mine" for number in range(1200)])
    file.write_text("the former one")
    program = await a_program("export", tmp_path / "store", file)
    await program.communicate()
    assert program.returncode == -signal.SIGKILL
    assert file.read_text() == "the former one"
    (left,) = [name for name in os.listdir(tmp_path) if name.startswith("memories.jsonl.")]
    assert left.endswith(".unfinished")
    with pytest.raises(PersistentMemoryError, match=r"cut off|[Ll]ine"):
        await import_memories(TemporaryStore(), tmp_path / left, embedding=words(), progress=False)
    assert await export_memories(store, file, progress=False) == 1200
    target = TemporaryStore()
    assert await import_memories(target, file, embedding=words(), progress=False) == 1200


async def test_two_concurrent_exports_to_one_file_are_both_complete(tmp_path: Path) -> None:
    store, file = TemporaryStore(), tmp_path / "memories.jsonl"
    await filled(store, "ann", "bob", "eve", write=a_few)
    first = await asyncio.gather(*(export_memories(store, file, progress=False) for _ in range(5)))
    assert len(set(first)) == 1
    assert [name for name in os.listdir(tmp_path) if "jsonl" in name] == ["memories.jsonl"]
    assert await import_memories(TemporaryStore(), file, embedding=words(), progress=False) == first[0]


async def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    store, pipe = TemporaryStore(), tmp_path / "pipe"
    await filled(store, "ann", write=a_few)
    os.mkfifo(pipe)
    count, text = await asyncio.gather(export_memories(store, pipe, progress=False), asyncio.to_thread(pipe.read_bytes))
    assert pipe.is_fifo()
    assert await imported(TemporaryStore(), text) == count
    with pytest.raises(PersistentMemoryError, match="Is a directory"):
        await export_memories(store, tmp_path, progress=False)


async def test_an_export_is_consistent_while_memories_change() -> None:
    store = TemporaryStore()
    memory = a_memory(store)
    await memory.remember_many([{"content": f"The key {number} is at 0", "key": str(number)} for number in range(30)])

    async def change() -> None:
        for number in range(1, 200):
            await memory.remember(f"The key {number % 30} is at {number}", key=str(number % 30))

    changing = asyncio.create_task(change())
    await asyncio.sleep(0)
    for _ in range(5):
        found = {line["id"]: line for line in lines_of(await exported(store)) if line["type"] == "record"}
        assert all(line["superseded_by"] in found for line in found.values() if line["superseded_by"])
        assert sorted(line["key"] for line in found.values() if not line["superseded_by"]) == sorted(
            map(str, range(30))
        )
    changing.cancel()
    await asyncio.wait([changing])
    await memory.close()


async def test_a_killed_import_can_be_repeated(tmp_path: Path) -> None:
    source, target, file = TemporaryStore(), EmbeddedStore(tmp_path / "store"), tmp_path / "memories.jsonl"
    async with a_memory(source) as memory:
        await memory.remember_many([f"The number {number} is mine" for number in range(300)])
        await memory.set("theme", "dark")
    count = await export_memories(source, file, progress=False)
    program = await a_program("import", tmp_path / "store", file)
    assert program.stdout is not None
    while int(await program.stdout.readline()) < 100:
        pass
    program.send_signal(signal.SIGKILL)
    await program.communicate()
    written = await import_memories(target, file, embedding=words(), progress=False)
    assert 1 < written < count - 100
    assert await found_in(target, "ann") == await found_in(source, "ann")


async def a_program(what: str, folder: Path, file: Path) -> asyncio.subprocess.Process:
    """Run this file as a program that imports and prints its progress, or exports and dies halfway."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return await asyncio.create_subprocess_exec(
        sys.executable, __file__, what, str(folder), str(file), env=environment, stdout=subprocess.PIPE
    )


async def _main(what: str, folder: str, file: str) -> None:
    def tell(done: int, total: int) -> None:
        print(done, flush=True)

    def die(done: int, total: int) -> None:
        if done >= total / 2:
            os.kill(os.getpid(), signal.SIGKILL)

    if what == "export":
        await export_memories(EmbeddedStore(folder), file, progress=die)
    else:
        await import_memories(EmbeddedStore(folder), file, embedding=words(), progress=tell)


# The guide


async def test_the_code_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = code_blocks(GUIDE)
    await run(code)
    assert capsys.readouterr().out == "1 exported\n1 imported\n"
    async with PersistentMemory("prod/ann", store=EmbeddedStore("backups/monday")) as memory:
        assert [record.content for record in await memory.records()] == ["Prefers tea"]


# Size


@pytest.mark.soak
async def test_a_hundred_thousand_memories_go_through_little_ram(tmp_path: Path) -> None:
    """Measure each in its own process: the RAM that an import or export takes beyond an open store."""
    file, folder = tmp_path / "many.jsonl", tmp_path / "store"
    count = 100_000
    record = MemoryRecord(id="", namespace="ann", content="", created_at=NOW, updated_at=NOW, mime_type=TEXT)
    vector = [1.0, *[0.5] * (DIMENSIONS - 1)]
    with file.open("w") as stream:
        stream.write(to_line(Header(count)) + to_line(NamespaceLine("ann", {"profile": "toy-words"})))
        for number in range(count):
            one = replace(record, id=f"{number:032x}", content=f"The thing number {number} is {'here ' * 20}")
            vector[number % DIMENSIONS] += 1
            stream.write(to_line(RecordLine("profile", one, vector)))
        stream.write(to_line(End(count)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    async def run(*arguments: str) -> tuple[int, float, float]:
        program = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "measure", *arguments, env=environment, stdout=subprocess.PIPE
        )
        answer, _ = await program.communicate()
        assert program.returncode == 0
        number, megabytes, seconds = answer.decode().split()
        return int(number), float(megabytes), float(seconds)

    again = tmp_path / "again.jsonl"
    for what, path, expected, most in (
        ("import", file, count, 250),  # of which Chroma's own index, which grows, takes a hundred
        ("import", file, 0, 150),
        ("export", again, count, 150),
    ):
        number, megabytes, seconds = await run(what, str(folder), str(path))
        print(f"{what}: {number} in {seconds:.0f} s, {megabytes:.0f} MB above the open store")
        assert number == expected
        assert megabytes < most
    assert again.stat().st_size > 30_000_000


async def _measure(what: str, folder: str, file: str) -> None:
    import resource
    import time

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    store = EmbeddedStore(folder)
    connection = store.connect()
    await connection.prepare()
    await connection.table("ann", "profile", "toy-words").size()
    before, started = peak(), time.monotonic()
    if what == "import":
        number = await import_memories(store, file, embedding=words(), progress=False)
    else:
        number = await export_memories(store, file, progress=False)
    print(number, peak() - before, time.monotonic() - started)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(_measure(*sys.argv[2:]) if sys.argv[1] == "measure" else _main(*sys.argv[1:]))
