"""When memory fails, the agent still answers in time, and the failure is logged."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from conftest import free_port, run_chroma
from stalling import own_stall
from toys import word_vectors, words

from autogen_persistent_memory import (
    CallableEmbedding,
    CloudStore,
    EmbeddedStore,
    EmbeddingMismatchError,
    PersistentMemory,
    PersistentMemoryError,
    RecallPolicy,
    ServerStore,
    StoreUnavailableError,
    TemporaryStore,
)

SLACK = 1.0
"""The agent's own time on a busy machine, in addition to memory's deadline."""


async def answer_time(memory: PersistentMemory) -> float:
    client = ReplayChatCompletionClient(["Here I am."])
    agent = AssistantAgent("assistant", model_client=client, memory=[memory])
    started = time.monotonic()
    result = await agent.run(task="green tea?")
    assert result.messages[-1].content == "Here I am."  # type: ignore[union-attr]
    return time.monotonic() - started


def warnings_in(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.fixture
def hung_server() -> Iterator[int]:
    """Accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield listener.getsockname()[1]


async def test_a_memory_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    def fail(texts: list[str]) -> list[list[float]]:
        raise RuntimeError("boom")

    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=CallableEmbedding(fail, id="x"))
    assert await answer_time(memory) < 2 + SLACK
    (warning,) = warnings_in(caplog)
    assert "without memory" in warning
    assert "boom" in warning


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_memory_that_hangs(caplog: pytest.LogCaptureFixture, is_async: bool) -> None:
    hang = asyncio.Event()

    async def hang_async(texts: list[str]) -> list[list[float]]:
        try:
            await hang.wait()
        except asyncio.CancelledError:
            await asyncio.wait_for(hang.wait(), 5)  # ignores cancellation
        return word_vectors(texts)

    def hang_sync(texts: list[str]) -> list[list[float]]:
        time.sleep(3)
        return word_vectors(texts)

    embedding = CallableEmbedding(hang_async if is_async else hang_sync, id="x")
    policy = RecallPolicy(deadline=0.3)
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=embedding, policy=policy)
    await memory._engine.data.connection.prepare()
    for _ in range(2):
        assert await answer_time(memory) < 0.3 + SLACK
    (warning,) = warnings_in(caplog)
    assert "did not answer in time" in warning
    hang.set()


def logged_failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and "goes on without memory of" in record.getMessage()
    ]


async def test_a_failure_of_memory_is_logged_once_per_namespace_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reason: str | None = "no weights"

    def fragile(texts: list[str]) -> list[list[float]]:
        if reason is not None:
            raise OSError(reason)
        return word_vectors(texts)

    def a_memory(namespace: str) -> PersistentMemory:
        return PersistentMemory(namespace, store=store, embedding=CallableEmbedding(fragile, id="x"), capture=False)

    store = TemporaryStore()
    for _ in range(2):
        await answer_time(a_memory("ann"))  # a new object for every request, in the same process
    assert len(logged_failures(caplog)) == 1
    await answer_time(a_memory("ben"))
    assert len(logged_failures(caplog)) == 2
    reason = "no more disk"
    for _ in range(2):
        await answer_time(a_memory("ann"))
    assert len(logged_failures(caplog)) == 3
    reason = None
    await answer_time(a_memory("ann"))
    reason = "no weights"
    for _ in range(2):
        await answer_time(a_memory("ann"))
        await answer_time(a_memory("ben"))
    assert len(logged_failures(caplog)) == 4


async def test_an_error_that_needs_the_developer_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = TemporaryStore()
    await PersistentMemory("ann", store=store, embedding=words("old")).remember("Likes tea")
    for _ in range(3):
        await answer_time(PersistentMemory("ann", store=store, embedding=words("new")))
    (error,) = logged_failures(caplog)
    assert "reembed" in error


async def test_a_server_that_hangs(caplog: pytest.LogCaptureFixture, hung_server: int) -> None:
    policy = RecallPolicy(deadline=0.5)
    store = ServerStore("127.0.0.1", hung_server, timeout=1)
    memory = PersistentMemory("ann", store=store, embedding=words(), policy=policy)
    assert await answer_time(memory) < 0.5 + SLACK
    assert len(warnings_in(caplog)) == 1
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError, match=f"127.0.0.1:{hung_server}.*autogen-memory share"):
        await memory.remember("Likes tea")
    assert time.monotonic() - started < 10
    await memory.close()


@pytest.mark.usefixtures("quick_retries")
async def test_a_server_that_is_gone_and_comes_back(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    port = free_port()
    memory = PersistentMemory("ann", store=ServerStore("127.0.0.1", port), embedding=words())
    assert await answer_time(memory) < 2 + SLACK
    (warning,) = warnings_in(caplog)
    assert f"127.0.0.1:{port}" in warning
    with pytest.raises(StoreUnavailableError, match="autogen-memory share"):
        await memory.remember("Likes green tea")
    server = run_chroma(tmp_path, port)
    await asyncio.to_thread(server.__enter__)
    try:
        await memory.remember("Likes green tea")
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)
    with pytest.raises(StoreUnavailableError, match="autogen-memory share"):
        await memory.recall("tea")
    assert await answer_time(memory) < 2 + SLACK
    await memory.close()


async def test_an_error_that_needs_the_developer_is_raised_when_strict(caplog: pytest.LogCaptureFixture) -> None:
    store = TemporaryStore()
    await PersistentMemory("ann", store=store, embedding=words("old")).remember("Likes tea")
    memory = PersistentMemory("ann", store=store, embedding=words("new"))
    await answer_time(memory)
    assert warnings_in(caplog) == []
    (error,) = warnings_in(caplog, logging.ERROR)
    assert "reembed" in error
    strict = PersistentMemory("ann", store=store, embedding=words("new"), policy=RecallPolicy(strict=True))
    with pytest.raises(EmbeddingMismatchError, match="reembed"):
        await answer_time(strict)


async def test_strict_does_not_raise_temporary_failures(caplog: pytest.LogCaptureFixture) -> None:
    store = ServerStore("127.0.0.1", free_port())
    await answer_time(PersistentMemory("ann", store=store, embedding=words(), policy=RecallPolicy(strict=True)))
    assert len(warnings_in(caplog)) == 1


async def test_a_cold_start_gets_its_own_deadline_but_only_once(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(CallableEmbedding):
        async def load(self) -> None:
            await asyncio.sleep(1)

    policy = RecallPolicy(deadline=0.3, opening_deadline=0.6)
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=Slow(word_vectors, id="x"), policy=policy)
    assert 0.5 < await answer_time(memory) < 0.6 + SLACK
    assert await answer_time(memory) < 0.3 + SLACK
    patient = PersistentMemory("ann", store=TemporaryStore(), embedding=Slow(word_vectors, id="x"))
    await patient.remember("Likes green tea")
    caplog.clear()
    assert await answer_time(patient) > 0.9
    assert warnings_in(caplog) == []


async def test_cancelling_a_run_is_not_swallowed() -> None:
    async def hang(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(60)
        return []

    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=CallableEmbedding(hang, id="x"))
    run = asyncio.ensure_future(answer_time(memory))
    await asyncio.sleep(0.2)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


def test_a_hung_memory_does_not_hold_up_the_end_of_the_program(hung_server: int) -> None:
    code = f"""
    import asyncio, time
    from autogen_core.model_context import UnboundedChatCompletionContext
    from autogen_core.models import UserMessage
    from autogen_persistent_memory import *
    async def main():
        store = ServerStore("127.0.0.1", {hung_server}, timeout=60)
        fn = lambda texts: [[1.0, 0.0]] * len(texts)
        memory = PersistentMemory("a", store=store, embedding=CallableEmbedding(fn, id="x"),
                                  policy=RecallPolicy(deadline=0.2))
        await memory.update_context(UnboundedChatCompletionContext([UserMessage(content="hi", source="user")]))
    asyncio.run(main())
    """
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=40, capture_output=True)
    assert time.monotonic() - started < 20


@pytest.mark.alone
async def test_writing_many_memories_leaves_the_event_loop_responsive(tmp_path: Path) -> None:
    async def write(attempt: int) -> None:
        async with PersistentMemory(f"ann-{attempt}", store=EmbeddedStore(tmp_path), embedding=words()) as memory:
            await memory.remember_many(f"fact number {number}" for number in range(500))

    async with PersistentMemory("first", store=EmbeddedStore(tmp_path), embedding=words()) as keeps_it_open:
        await keeps_it_open.remember("first")
        assert await own_stall(write, 0.25, share=0.99) < 0.25


@pytest.mark.parametrize("store", [ServerStore(token_env="NOT_SET_42"), CloudStore("t", "d", api_key_env="NOT_SET_42")])
async def test_a_missing_secret_names_its_variable(store: Any) -> None:
    memory = PersistentMemory("ann", store=store, embedding=words())
    with pytest.raises(StoreUnavailableError, match="NOT_SET_42"):
        await memory.remember("x")
    await memory.close()


@pytest.mark.usefixtures("quick_retries")
async def test_a_server_gets_the_token_and_headers_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    received = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("MY_TOKEN", "t0ken")
    monkeypatch.setenv("MY_HEADER", "h3ader")
    store = ServerStore("127.0.0.1", port, token_env="MY_TOKEN", headers_env={"X-Tenant": "MY_HEADER"})
    memory = PersistentMemory("ann", store=store, embedding=words())
    with pytest.raises(StoreUnavailableError) as failure:
        await memory.remember("x")
    await memory.close()
    server.close()
    assert b"authorization: bearer t0ken" in bytes(received).lower()
    assert b"x-tenant: h3ader" in bytes(received).lower()
    assert "t0ken" not in str(failure.value)


async def test_a_failed_turn_removes_the_old_block() -> None:
    broken = False

    def fragile(texts: list[str]) -> list[list[float]]:
        if broken:
            raise OSError("gone")
        return word_vectors(texts)

    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=CallableEmbedding(fragile, id="x"))
    record = await memory.remember("the green word is hunter2")
    context = UnboundedChatCompletionContext([UserMessage(content="the green word?", source="user")])
    await memory.update_context(context)
    assert "hunter2" in str(await context.get_messages())
    await memory.forget(record.id)
    broken = True
    await context.add_message(UserMessage(content="the green password again?", source="user"))
    await memory.update_context(context)
    assert "hunter2" not in str(await context.get_messages())


async def test_an_embedding_that_cancels_itself_does_not_cancel_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    async def cancelled(texts: list[str]) -> list[list[float]]:
        raise asyncio.CancelledError

    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=CallableEmbedding(cancelled, id="x"))
    await answer_time(memory)
    assert len(warnings_in(caplog)) == 1


async def test_native_code_that_panics_does_not_reach_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    class PanicException(BaseException):
        pass

    def panic(texts: list[str]) -> list[list[float]]:
        raise PanicException("rust")

    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=CallableEmbedding(panic, id="x"))
    await answer_time(memory)
    assert "rust" in warnings_in(caplog)[0]
    with pytest.raises(PersistentMemoryError, match="rust"):
        await memory.recall("x")


async def test_a_late_embedding_does_not_change_the_context() -> None:
    late = asyncio.Event()

    async def stubborn(texts: list[str]) -> list[list[float]]:
        while True:
            try:
                await late.wait()
                return word_vectors(texts)
            except asyncio.CancelledError:
                continue

    store = TemporaryStore()
    await PersistentMemory("ann", store=store, embedding=words("x")).remember("Likes green tea")
    embedding = CallableEmbedding(stubborn, id="x")
    memory = PersistentMemory("ann", store=store, embedding=embedding, policy=RecallPolicy(deadline=0.2))
    context = UnboundedChatCompletionContext([UserMessage(content="green tea?", source="user")])
    await memory.update_context(context)
    late.set()
    for number in range(20):
        await context.add_message(UserMessage(content=f"message {number}", source="user"))
        await asyncio.sleep(0.01)
    assert len(await context.get_messages()) == 21


async def test_a_hung_server_does_not_hold_up_a_healthy_store(hung_server: int) -> None:
    async def turn(store: Any, **policy: float) -> float:
        memory = PersistentMemory("ann", store=store, embedding=words(), policy=RecallPolicy(**policy))  # type: ignore[arg-type]
        return await answer_time(memory)

    hung = ServerStore("127.0.0.1", hung_server, timeout=5)
    await asyncio.gather(*(turn(hung, deadline=0.2) for _ in range(6)))
    assert await turn(TemporaryStore()) < SLACK


async def test_a_hung_server_does_not_hold_up_later_calls_or_close(hung_server: int) -> None:
    store = ServerStore("127.0.0.1", hung_server, timeout=1.5)
    memory = PersistentMemory("ann", store=store, embedding=words(), policy=RecallPolicy(deadline=0.1))
    for _ in range(4):
        await answer_time(memory)
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        await memory.recall("x")
    assert time.monotonic() - started < 2 * 1.5 + SLACK
    await memory.close()
    assert time.monotonic() - started < 10


async def test_a_hung_download_of_the_model_does_not_hold_up_other_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    from autogen_persistent_memory import MiniLMEmbedding
    from autogen_persistent_memory.text import minilm

    release = threading.Event()
    monkeypatch.setattr(minilm, "_find_weights", lambda: release.wait(30) and Path("/nowhere"))
    policy = RecallPolicy(deadline=0.1, opening_deadline=0.2)
    threads = 3  # not loaded yet in this process
    hung = PersistentMemory("ann", store=TemporaryStore(), embedding=MiniLMEmbedding(threads), policy=policy)
    await answer_time(hung)
    healthy = PersistentMemory("ann", store=TemporaryStore(), embedding=words())
    await asyncio.wait_for(healthy.remember("Likes tea"), 5)
    release.set()


def test_closing_the_loop_without_close_prints_nothing() -> None:
    code = """
    import asyncio
    from autogen_persistent_memory import *
    memory = PersistentMemory("a", store=TemporaryStore(), embedding=CallableEmbedding(
        lambda texts: [[1.0, 0.0]] * len(texts), id="x"))
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(memory.remember("x y"))
        loop.run_until_complete(memory.recall("x", reinforce=True))
        loop.close()
    """
    answer = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert answer.stderr == ""


async def test_a_context_that_hangs_does_not_hang_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    class Hanging(UnboundedChatCompletionContext):
        async def get_messages(self) -> Any:
            await asyncio.sleep(60)

    policy = RecallPolicy(deadline=0.2)
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=words(), policy=policy)
    started = time.monotonic()
    await memory.update_context(Hanging())
    assert time.monotonic() - started < 0.2 + SLACK
    assert len(warnings_in(caplog)) == 1


async def test_a_long_message_without_a_sentence_does_not_hold_up_the_loop() -> None:
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=words())
    await memory.remember("Likes green tea")
    context = UnboundedChatCompletionContext(
        [UserMessage(content="x" * 200_000, source="user"), UserMessage(content="green tea?", source="user")]
    )
    await memory.update_context(context)
    started = time.monotonic()
    await memory.update_context(context)
    assert time.monotonic() - started < SLACK
