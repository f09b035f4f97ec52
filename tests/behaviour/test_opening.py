"""`open()`: errors that need the developer are raised at start-up, temporary failures are warnings."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import free_port
from toys import make_schema_newer, word_vectors, words

from autogen_persistent_memory import (
    CallableEmbedding,
    ChromaEmbedding,
    EmbeddedStore,
    EmbeddingMismatchError,
    PersistentMemory,
    PersistentMemoryError,
    ProfileMemory,
    RecallPolicy,
    SchemaVersionError,
    ServerStore,
    SessionMemory,
    StoreLockedError,
    StoreUnavailableError,
    TemporaryStore,
)

Memory = PersistentMemory | ProfileMemory | SessionMemory
SLACK = 1.5
"""What a busy machine may take in addition to a deadline."""


def each_memory(store: Any, id: str = "toy-words", **options: Any) -> list[Memory]:
    common = {"store": store, "embedding": words(id), **options}
    return [
        PersistentMemory("ann", **common),
        ProfileMemory("ann", **common),
        SessionMemory("ann", "monday", **common),
    ]


async def refusals(memory: Memory) -> list[Exception]:
    """Return what `open()` and `async with` raise."""
    raised: list[Exception] = []
    try:
        await memory.open()
    except Exception as error:
        raised.append(error)
    try:
        async with memory:
            pass
    except Exception as error:
        raised.append(error)
    return raised


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """Open a folder in another process."""
    code = """
    import asyncio, sys
    from toys import words
    from autogen_persistent_memory import *
    async def main():
        await PersistentMemory("ann", store=EmbeddedStore(sys.argv[1]), embedding=words()).open()
        print("open", flush=True)
        sys.stdin.read()
    asyncio.run(main())
    """
    folder = tmp_path / "store"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})"]
    command[-1] += textwrap.dedent(code)
    with subprocess.Popen([*command, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield folder
        process.kill()


async def test_a_store_that_another_process_has_open_is_refused_with_the_command_to_share_it(held: Path) -> None:
    for memory in each_memory(EmbeddedStore(held)):
        raised = await refusals(memory)
        assert [type(error) for error in raised] == [StoreLockedError] * 2
        assert f"autogen-memory share --path {held}" in str(raised[0])
        assert "ServerStore('127.0.0.1', 8000)" in str(raised[0])


async def test_another_embedding_is_refused_at_open(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    async with PersistentMemory("ann", session="monday", store=store, embedding=words("old")) as memory:
        await memory.remember("Likes tea")
        await memory.session.append("ann", "Shall we have tea?")
    for memory in each_memory(store, "new"):
        assert [type(error) for error in await refusals(memory)] == [EmbeddingMismatchError] * 2
    async with PersistentMemory("ben", store=store, embedding=words("new")) as memory:
        await memory.remember("Likes jam")


async def test_a_newer_schema_is_refused_at_open(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    async with PersistentMemory("ann", store=store, embedding=words()) as memory:
        await memory.set("key", "value")
    await asyncio.to_thread(make_schema_newer, store.folder())
    for memory in each_memory(store):
        assert [type(error) for error in await refusals(memory)] == [SchemaVersionError] * 2


async def test_a_folder_that_cannot_be_opened_is_refused_at_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for memory in each_memory(EmbeddedStore(tmp_path / "file")):
        assert [type(error) for error in await refusals(memory)] == [StoreUnavailableError] * 2


async def test_an_embedding_that_cannot_work_is_refused_at_open() -> None:
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=ChromaEmbedding("no such thing"))
    assert ["knows no embedding function" in str(error) for error in await refusals(memory)] == [True, True]


async def test_a_temporary_failure_of_the_embedding_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Away(CallableEmbedding):
        async def load(self) -> None:
            raise PersistentMemoryError("The weights cannot be downloaded.")

    store = TemporaryStore()
    for _ in range(2):
        async with PersistentMemory("ann", store=store, embedding=Away(word_vectors, id="x")) as memory:
            await memory.set("theme", "dark")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "The weights cannot be downloaded." in caplog.text


async def test_a_failed_open_releases_the_store(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    async with PersistentMemory("ann", store=store, embedding=words("old")) as memory:
        await memory.remember("Likes tea")
    with pytest.raises(EmbeddingMismatchError):
        await PersistentMemory("ann", store=store, embedding=words("new")).open()
    assert not (tmp_path / "store" / "autogen_memory.holder.json").exists()


async def test_a_failed_open_does_not_close_memories_in_use() -> None:
    store = TemporaryStore()
    await PersistentMemory("ann", store=store, embedding=words("old")).remember("Likes tea")
    memory = PersistentMemory("ann", store=store, embedding=words("new"))
    await memory.set("theme", "dark")
    connection = memory._engine.data.connection
    with pytest.raises(EmbeddingMismatchError):
        await memory.open()
    assert memory._engine.data.connection is connection
    assert await memory.get("theme") == "dark"
    await memory.close()


async def test_open_is_idempotent_and_reopens_after_close(tmp_path: Path) -> None:
    loads = 0

    class Counting(CallableEmbedding):
        async def load(self) -> None:
            nonlocal loads
            loads += 1

    store = EmbeddedStore(tmp_path / "store")
    memory = PersistentMemory("ann", store=store, embedding=Counting(word_vectors, id="x"))
    for _ in range(3):
        await memory.open()
    async with memory:
        assert loads == 1
        assert (tmp_path / "store" / "autogen_memory.holder.json").exists()
    async with memory:
        assert loads == 2
        await memory.remember("Likes tea")


async def test_an_unreachable_server_is_a_warning_and_agents_do_not_wait_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    for memory in each_memory(ServerStore("127.0.0.1", port)):
        async with memory:
            pass
    (warning,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert f"127.0.0.1:{port}" in warning.getMessage()


async def test_open_waits_for_a_hanging_server_at_most_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        store = ServerStore("127.0.0.1", listener.getsockname()[1], timeout=1)
        policy = RecallPolicy(deadline=0.5)
        await asyncio.to_thread(__import__, "chromadb")
        memory = PersistentMemory("ann", store=store, embedding=words(), policy=policy)
        started = time.monotonic()
        await memory.open()
        assert time.monotonic() - started < 0.5 + SLACK
        assert [record.levelno for record in caplog.records if record.levelno >= logging.WARNING] == [logging.WARNING]
        await memory.close()


async def test_a_server_with_another_embedding_is_refused(chroma_server: tuple[str, int], namespace: str) -> None:
    store = ServerStore(*chroma_server)
    async with PersistentMemory(namespace, store=store, embedding=words("old")) as memory:
        await memory.remember("Likes tea")
    memory = PersistentMemory(namespace, store=store, embedding=words("new"))
    assert [type(error) for error in await refusals(memory)] == [EmbeddingMismatchError] * 2
