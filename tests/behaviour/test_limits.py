"""Too large arguments are refused by every call, with the limit, before anything is stored; messages are never refused."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import word_vectors, words

from autogen_persistent_memory import (
    CallableEmbedding,
    EmbeddedStore,
    Extractor,
    Fact,
    Message,
    PersistentMemory,
    PersistentMemoryError,
    RuleExtractor,
    TemporaryStore,
    export_memories,
    import_memories,
    memory_tools,
)

MEGABYTE = 1 << 20
MANY_TAGS = [f"tag {number}" for number in range(6000)]


def by_first_words(embedded: list[str] | None = None) -> CallableEmbedding:
    """As `words()`, but fast on long texts; texts are appended to the list."""

    def embed(texts: list[str]) -> list[list[float]]:
        if embedded is not None:
            embedded.extend(texts)
        return word_vectors([text[:1000] for text in texts])

    return CallableEmbedding(embed, id="toy-words")


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


TOO_LARGE: dict[str, tuple[dict[str, Any], str]] = {
    "content": ({"content": "x" * (MEGABYTE + 1)}, r"content has 1,048,577 characters; at most 1,048,576"),
    "tags": ({"tags": MANY_TAGS}, r"tags has 6,000 entries; at most 64"),
    "a tag": ({"tags": ["fine", "x" * 257]}, r"each of tags has 257 characters; at most 256"),
    "key": ({"key": "k" * 513}, r"key has 513 characters; at most 512"),
    "kind": ({"kind": "k" * 129}, r"kind has 129 characters; at most 128"),
    "source": ({"source": "s" * 513}, r"source has 513 characters; at most 512"),
    "session": ({"session": "s" * 513}, r"session has 513 characters; at most 512"),
    "metadata": ({"metadata": {"x": "y" * 100_000}}, r"metadata has 100,009 characters as JSON; at most 100,000"),
    "depth": ({"metadata": nested(65)}, r"metadata is nested more than 64 deep"),
}
LARGEST: dict[str, Any] = {
    "content": "word " * (MEGABYTE // 5),
    "tags": [f"{number:03d}".ljust(256, "t") for number in range(64)],
    "key": "k" * 512,
    "kind": "k" * 128,
    "source": "s" * 512,
    "session": "s" * 512,
    "metadata": {"x": "y" * 99_000, "deep": nested(63)},
}


@pytest.mark.parametrize("what", TOO_LARGE)
async def test_arguments_that_are_too_large_are_refused_before_anything_is_opened(what: str, tmp_path: Path) -> None:
    given, reason = TOO_LARGE[what]
    item = {"content": "Likes tea", **given}
    memory = PersistentMemory("ann", store=EmbeddedStore(tmp_path / "store"), embedding=words())
    with pytest.raises(ValueError, match=reason):
        await memory.remember(**item)
    with pytest.raises(ValueError, match=f"Item 1: .*{reason}"):
        await memory.remember_many(["Likes coffee", item])
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("what", ["content", "tags", "a tag", "key", "kind"])
async def test_edits_have_the_same_limits(what: str, memory: PersistentMemory) -> None:
    record = await memory.remember("Likes tea")
    given, reason = TOO_LARGE[what]
    with pytest.raises(ValueError, match=reason):
        await memory.edit(record.id, **given)
    assert await memory.record(record.id) == record


@pytest.mark.parametrize("what", ["content", "metadata", "depth"])
async def test_autogens_memory_contents_have_the_same_limits(what: str, memory: PersistentMemory) -> None:
    given, reason = TOO_LARGE[what]
    with pytest.raises(ValueError, match=reason):
        await memory.add(MemoryContent(**{"content": "x", "mime_type": MemoryMimeType.TEXT, **given}))
    with pytest.raises(ValueError, match="JSON content is nested more than 64 deep"):
        await memory.add(MemoryContent(content=nested(300), mime_type=MemoryMimeType.JSON))
    assert await memory.count() == 0


async def test_a_memory_of_maximum_size_is_stored_and_exported() -> None:
    store = TemporaryStore()
    memory = PersistentMemory("ann", store=store, embedding=by_first_words())
    record = await memory.remember(**LARGEST)
    assert await memory.record(record.id) == record
    assert (record.content, list(record.tags)) == (LARGEST["content"], LARGEST["tags"])
    file, other = io.BytesIO(), TemporaryStore()
    await export_memories(store, file, progress=False)
    await import_memories(other, io.BytesIO(file.getvalue()), embedding=by_first_words(), progress=False)
    async with PersistentMemory("ann", store=other, embedding=by_first_words()) as copy:
        assert await copy.record(record.id) == record
    await memory.close()


async def test_keys_and_values_have_limits(memory: PersistentMemory) -> None:
    with pytest.raises(ValueError, match="key has 513 characters; at most 512"):
        await memory.set("k" * 513, 1)
    with pytest.raises(ValueError, match="value is nested more than 64 deep"):
        await memory.set("deep", nested(65))
    with pytest.raises(ValueError, match="value has 33,554,435 characters as JSON; at most 33,554,432"):
        await memory.set("long", "x" * (1 << 25) + "x")
    await memory.set("k" * 512, nested(64))
    assert await memory.get("k" * 512) == nested(64)
    assert await memory.keys() == ["k" * 512]


async def test_too_many_tags_from_a_model_are_an_error_for_the_model(memory: PersistentMemory) -> None:
    remember, *_ = memory_tools(memory)
    said = await remember.run_json({"content": "Likes tea", "tags": MANY_TAGS}, CancellationToken())
    assert "at most 64" in said
    said = await remember.run_json({"content": "x" * (MEGABYTE + 1)}, CancellationToken())
    assert "at most 1,048,576" in said
    await memory.remember("Likes tea")
    assert await memory.count() == 1
    with pytest.raises(ValueError, match="at most 64"):
        memory_tools(memory, tags=MANY_TAGS)


async def test_a_memory_that_is_restated_often_does_not_exceed_the_limit_of_tags(
    memory: PersistentMemory,
) -> None:
    for start in range(0, 320, 64):
        record = await memory.remember("Likes tea", tags=MANY_TAGS[start : start + 64])
    assert record.tags == tuple(MANY_TAGS[:64])


class _Generous(Extractor):
    """An extractor whose facts are too large."""

    config = RuleExtractor().config

    async def extract_now(self, message: Message) -> list[Fact]:
        return (
            []
            if not message.by_user
            else [
                Fact(content="The user likes tea", tags=(*MANY_TAGS, "x" * 300), key="k" * 600, kind="k" * 200),
                Fact(content="x" * (MEGABYTE + 1)),
            ]
        )


async def test_extracted_facts_are_cut_to_the_limits_and_the_message_is_kept() -> None:
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=words(), extractor=_Generous())
    agent = AssistantAgent("assistant", ReplayChatCompletionClient(["Fine."]), memory=[memory])
    await agent.run(task="I like tea")
    await memory.flush()
    (fact,) = await memory.profile.records()
    assert (fact.content, fact.kind, fact.key, len(fact.tags)) == ("The user likes tea", "fact", None, 64)
    assert [message.content for message in await memory.session.messages()] == ["I like tea", "Fine."]
    await memory.close()


async def test_a_message_is_captured_whole_and_found_by_its_first_megabyte() -> None:
    embedded: list[str] = []
    long = f"The harvester is called Gertrude. {'lorem ipsum ' * 80_000} The plough is called Ottilie. {'lorem ipsum ' * 40_000} The tractor is called Wilhelmina."
    assert len(long) > MEGABYTE
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=by_first_words(embedded), extractor=None)
    agent = AssistantAgent("assistant", ReplayChatCompletionClient(["Fine."]), memory=[memory])
    await agent.run(task=long)
    await memory.flush()
    await memory.session.append("user", long + " Really.")
    await memory.flush()
    assert [message.content for message in await memory.session.messages()] == [long, "Fine.", long + " Really."]
    (hit, *_) = await memory.recall("Gertrude", kinds=["interaction"])
    assert (hit.record.content, hit.keywords > 0) == (long + " Really.", True)
    assert any(hit.keywords > 0 for hit in await memory.recall("Ottilie", kinds=["interaction"]))
    assert all(hit.keywords == 0 for hit in await memory.recall("Wilhelmina", kinds=["interaction"]))
    assert max(map(len, embedded)) == 32_000  # more than embeddings use
    await memory.close()


async def test_a_speakers_very_long_name_is_cut(memory: PersistentMemory) -> None:
    await memory.extract([{"source": "s" * 1000, "content": "The boiler is in the cellar"}])
    await memory.extract([{"source": "s" * 1000, "content": "The boiler is in the cellar"}])
    assert {message.source for message in await memory.session.messages()} == {"s" * 512}


def lines_of(export: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export.splitlines()]


@pytest.mark.parametrize("what", [what for what in TOO_LARGE if what != "content"])
async def test_an_import_skips_and_names_a_line_that_is_too_large(what: str) -> None:
    source, target, file = TemporaryStore(), TemporaryStore(), io.BytesIO()
    async with PersistentMemory("ann", store=source, embedding=words()) as memory:
        await memory.remember_many(["Likes tea", "Likes coffee", "Likes milk"])
    await export_memories(source, file, progress=False)
    lines = lines_of(file.getvalue())
    given, reason = TOO_LARGE[what]
    spoiled = [*lines[:3], lines[3] | given, *lines[4:]]
    with pytest.raises(PersistentMemoryError, match=f"Line 4 of the export .*{reason}.* All lines before it were"):
        await import_lines(target, spoiled)
    async with PersistentMemory("ann", store=target, embedding=words()) as memory:
        assert await memory.count() == 1
        assert await import_lines(target, lines) == 2


async def import_lines(store: TemporaryStore, lines: list[dict[str, Any]]) -> int:
    text = io.StringIO("".join(json.dumps(line) + "\n" for line in lines))
    return await import_memories(store, text, embedding=words(), progress=False)


async def test_a_very_long_line_is_named_and_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogen_persistent_memory.core.checks.MAX_LINE_BYTES", 10_000)
    source, file = TemporaryStore(), io.BytesIO()
    async with PersistentMemory("ann", store=source, embedding=words()) as memory:
        await memory.remember("Likes tea")
    await export_memories(source, file, progress=False)
    header, namespace, record, _ = file.getvalue().splitlines()

    class Endless(io.BytesIO):
        read_at_most = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            line = super().readline(size)
            self.read_at_most = max(self.read_at_most, len(line))
            return line

    endless = Endless(b"\n".join([header, namespace, record, b'{"type": "' + b"x" * 1_000_000]))
    target = TemporaryStore()
    with pytest.raises(PersistentMemoryError, match=r"Line 4 .*longer than 10,000 bytes.* All lines before it were"):
        await import_memories(target, endless, embedding=words(), progress=False)
    assert endless.read_at_most <= 10_001
    async with PersistentMemory("ann", store=target, embedding=words()) as memory:
        assert await memory.count() == 1


async def test_import_chroma_skips_and_names_memories_that_are_too_large(
    tmp_path: Path, memory: PersistentMemory, caplog: pytest.LogCaptureFixture
) -> None:
    import asyncio

    import chromadb

    def write() -> None:
        client = chromadb.PersistentClient(
            str(tmp_path / "theirs"), settings=chromadb.Settings(anonymized_telemetry=False)
        )
        collection = client.create_collection("prefs", embedding_function=None)
        documents = ["Likes tea", "x" * (MEGABYTE + 1), "Likes milk"]
        collection.add(ids=["1", "2", "3"], documents=documents, embeddings=[[1.0]] * 3)
        client.close()

    await asyncio.to_thread(write)
    with caplog.at_level(logging.WARNING, logger="autogen_persistent_memory"):
        assert await memory.import_chroma(tmp_path / "theirs", "prefs", progress=False) == 2
    (warning,) = caplog.messages
    assert "'2'" in warning
    assert "content has 1,048,577 characters" in warning
    assert {record.content for record in await memory.records()} == {"Likes tea", "Likes milk"}
