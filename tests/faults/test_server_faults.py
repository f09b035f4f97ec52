"""A Chroma server is down, hangs, is slow or flaps: agents answer in time, and nothing is lost or stored twice."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from conftest import free_port, run_chroma
from toys import words
from typer.testing import CliRunner
from unreliable import Line, Mode, line_to

from autogen_persistent_memory import (
    MemoryRecord,
    PersistentMemory,
    ProfileMemory,
    RecallPolicy,
    ServerStore,
    StoreUnavailableError,
)
from autogen_persistent_memory.cli.app import app

DEADLINE = 1.0
SLACK = 1.0
"""The agent's own time on a busy machine, in addition to memory's deadline."""
POLICY = RecallPolicy(deadline=DEADLINE)


@pytest.fixture
def line(chroma_server: tuple[str, int]) -> Iterator[Line]:
    with line_to(chroma_server) as line:
        yield line


def through(line: Line, namespace: str, session: str = "s", **options: object) -> PersistentMemory:
    store = ServerStore("127.0.0.1", line.port, timeout=3)
    settings: dict[str, object] = {"store": store, "embedding": words(), "policy": POLICY, **options}
    return PersistentMemory(namespace, session=session, **settings)  # type: ignore[arg-type]


class Conversation:
    """An agent's model context, to which each turn adds the user's message and the agent's answer."""

    def __init__(self, memory: PersistentMemory) -> None:
        self._memory = memory
        self._context = UnboundedChatCompletionContext()
        self.said: list[str] = []

    async def turn(self, text: str) -> float:
        """Run a turn, and return the seconds that memory took."""
        await self._context.add_message(UserMessage(content=text, source="user"))
        started = time.monotonic()
        await self._memory.update_context(self._context)
        seconds = time.monotonic() - started
        reply = f"That is noted, {text}"
        await self._context.add_message(AssistantMessage(content=reply, source="assistant"))
        self.said += [text, reply]
        return seconds


async def messages(memory: PersistentMemory) -> list[MemoryRecord]:
    return await memory.session.messages()


async def is_back(memory: PersistentMemory) -> None:
    """Wait until memory has noticed that its server is back."""
    until = time.monotonic() + 20
    while memory._engine.data.connection.breaker.is_open:
        assert time.monotonic() < until
        await asyncio.sleep(0.02)


async def is_delivered(memory: PersistentMemory | ProfileMemory, seconds: float = 20) -> None:
    outbox = memory._engine.data.outbox
    assert outbox is not None
    until = time.monotonic() + seconds
    while await asyncio.to_thread(outbox.waits):
        assert time.monotonic() < until
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("mode", ["hang", "refuse", "slow"])
async def test_an_agent_pays_one_deadline_and_nothing_is_lost_or_stored_twice(
    line: Line, namespace: str, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "autogen_persistent_memory")
    async with through(line, namespace) as memory:
        talk = Conversation(memory)
        await talk.turn("my name is Sarah Connor")
        await memory.flush()
        caplog.clear()
        line.mode = mode
        assert await talk.turn("I live in Berlin with two cats") < DEADLINE + SLACK
        later = [await talk.turn(text) for text in ("I prefer TypeScript", "I moved to Lisbon", "what do you know?")]
        assert min(later) < 0.05
        assert max(later) < DEADLINE / 2
        line.mode = "pass"
        await is_back(memory)
        await is_delivered(memory)
        assert await talk.turn("and now it works again") < DEADLINE + SLACK
        await memory.flush()
        stored = await messages(memory)
        assert [record.content for record in stored] == talk.said
        assert [record.created_at for record in stored] == sorted(record.created_at for record in stored)
        facts = {record.content for record in await memory.profile.records()}
        assert facts == {
            "The user's name is Sarah Connor.",
            "The user moved to Lisbon.",
            "The user prefers TypeScript.",
        }
        assert [record.content for record in await memory.history("user/home")] == [
            "The user moved to Lisbon.",
            "The user lives in Berlin with two cats.",
        ]
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len([record for record in warned if f"127.0.0.1:{line.port}" in record.getMessage()]) == 1
    assert len(warned) == 1
    assert len([record for record in caplog.records if "have their memory back" in record.getMessage()]) == 1


IMPATIENT = RecallPolicy(deadline=0.3)


async def is_too_slow_for(talk: Conversation, memory: PersistentMemory) -> None:
    """Run turns until memory has noticed that its server is too slow."""
    for number in range(10):
        await talk.turn(f"this is message number {number}")
        if memory._engine.data.connection.breaker.is_open:
            return
    pytest.fail("It never noticed.")


async def test_a_slow_server_gets_everything_in_the_background(line: Line, namespace: str) -> None:
    line.delay = 0.2  # more than half of the deadline, so it never counts as back
    line.mode = "slow"
    async with through(line, namespace, policy=IMPATIENT) as memory:
        talk = Conversation(memory)
        await is_too_slow_for(talk, memory)
        breaker = memory._engine.data.connection.breaker
        await talk.turn("my name is Sarah Connor")
        delivering = asyncio.ensure_future(is_delivered(memory, 60))
        turns = 0.0
        for text in ("I live in Berlin with two cats", "I prefer TypeScript", "I moved to Lisbon"):
            turns = max(turns, await talk.turn(text))
            await asyncio.sleep(1)
        await delivering
        assert turns < IMPATIENT.deadline
        assert breaker.is_open
        line.mode = "pass"
        assert [record.content for record in await messages(memory)] == talk.said[:-1]  # which is not captured yet
        facts = {record.content for record in await memory.profile.records()}
        assert facts == {
            "The user's name is Sarah Connor.",
            "The user moved to Lisbon.",
            "The user prefers TypeScript.",
        }


async def queue_messages(line: Line, namespace: str) -> list[str]:
    """Run a conversation while the server is down, and return its messages."""
    line.mode = "refuse"
    async with through(line, namespace) as memory:
        talk = Conversation(memory)
        await talk.turn("I live in Berlin with two cats")
        await talk.turn("I prefer TypeScript")
    return talk.said


async def test_close_stops_a_delivery_and_the_next_process_continues_it(line: Line, namespace: str) -> None:
    line.mode, line.delay = "slow", 0.2
    memory = through(line, namespace, policy=IMPATIENT)
    talk = Conversation(memory)
    await is_too_slow_for(talk, memory)
    await talk.turn("I live in Berlin with two cats")
    engine = memory._engine
    breaker, outbox = engine.data.connection.breaker, engine.data.outbox
    assert outbox is not None
    until = time.monotonic() + 20
    while memory._recorder.delivery._delivering._task is None:  # until the delivery starts
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
    started = time.monotonic()
    await memory.close()
    assert time.monotonic() - started < 3 + SLACK  # close() waits for a running call
    assert engine._data is None
    assert breaker._waiting == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await asyncio.to_thread(outbox.waits)
    claim = await asyncio.to_thread(outbox.claim)
    assert claim is not None
    await asyncio.to_thread(claim.release)
    line.mode = "pass"
    async with through(line, namespace) as memory:
        await memory.recall("cats")
        await is_delivered(memory)
        assert [record.content for record in await messages(memory)] == talk.said


@pytest.mark.parametrize("is_back_at_once", [True, False])
async def test_a_profile_memory_delivers_queued_messages(line: Line, namespace: str, is_back_at_once: bool) -> None:
    said = await queue_messages(line, namespace)
    if is_back_at_once:
        line.mode = "pass"
    store = ServerStore("127.0.0.1", line.port, timeout=3)
    async with ProfileMemory(namespace, store=store, embedding=words(), policy=POLICY) as profile:
        context = UnboundedChatCompletionContext([UserMessage(content="where do I live?", source="user")])
        await profile.update_context(context)
        if not is_back_at_once:
            breaker = profile._engine.data.connection.breaker
            until = time.monotonic() + 20
            while not breaker._waiting:
                assert time.monotonic() < until
                await asyncio.sleep(0.02)
            line.mode = "pass"
        await is_delivered(profile)
        facts = {record.content for record in await profile.records()}
        assert facts == {"The user lives in Berlin with two cats.", "The user prefers TypeScript."}
    async with through(line, namespace) as memory:
        assert [record.content for record in await messages(memory)] == said


async def test_forget_also_deletes_queued_messages(line: Line, namespace: str) -> None:
    await queue_messages(line, namespace)
    line.mode = "pass"
    async with through(line, namespace, "another") as memory:
        assert await memory.forget(containing="Berlin", everywhere=True) == 3
        assert [record.content for record in await memory.profile.records()] == ["The user prefers TypeScript."]
    await queue_messages(line, namespace)
    line.mode = "pass"
    async with through(line, namespace, "another") as memory:
        await memory.clear()
        await memory.recall("cats")
        await memory.flush()
        assert await memory.count() == 0


async def test_the_command_line_delivers_no_queued_messages(
    line: Line, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with through(line, namespace) as memory:
        await memory.remember("Has two dogs")
    await queue_messages(line, namespace)
    line.mode = "pass"
    caplog.clear()
    arguments = ["list", "-n", namespace, "--server", f"127.0.0.1:{line.port}"]
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Has two dogs" in result.stdout
    assert caplog.messages == []
    outbox = memory._engine.data.outbox
    assert outbox is not None
    assert await asyncio.to_thread(outbox.waits)


async def test_a_server_that_comes_and_goes(line: Line, namespace: str) -> None:
    async def flap() -> None:
        while True:
            for mode, seconds in (("refuse", 0.3), ("pass", 0.5), ("hang", 0.3), ("pass", 0.7)):
                line.mode = mode  # type: ignore[assignment]
                await asyncio.sleep(seconds)

    async with through(line, namespace) as memory:
        talk = Conversation(memory)
        flapping = asyncio.ensure_future(flap())
        for number in range(25):
            assert await talk.turn(f"I have a cat named Tom{number}") < DEADLINE + SLACK
            await asyncio.sleep(0.1)
        flapping.cancel()
        line.mode = "pass"
        await memory.flush()
        await is_delivered(memory)
        assert [record.content for record in await messages(memory)] == talk.said
        facts = Counter(record.content for record in await memory.profile.records(limit=100))
        assert facts == Counter(f"The user has a cat named Tom{number}." for number in range(25))


@pytest.mark.parametrize("mode", ["hang", "refuse"])
async def test_nothing_is_lost_when_the_server_is_gone_from_the_start(line: Line, namespace: str, mode: Mode) -> None:
    async with through(line, namespace) as memory:
        await Conversation(memory).turn("ok, go on please, my friend")
        await memory.flush()
    line.mode = mode
    async with through(line, namespace) as memory:
        talk = Conversation(memory)
        for text in ("ok, go on please, my friend", "I prefer TypeScript", "ok, go on please, my friend"):
            await talk.turn(text)
        line.mode = "pass"
        await is_back(memory)
        await talk.turn("that is all I wanted to say")
        await memory.flush()
        stored = [record.content for record in await messages(memory)]
        assert stored == ["ok, go on please, my friend", "That is noted, ok, go on please, my friend", *talk.said]
        assert [record.content for record in await memory.profile.records()] == ["The user prefers TypeScript."]


async def test_a_stream_is_kept_while_the_server_is_gone(line: Line, namespace: str) -> None:
    memory = through(line, namespace)
    await memory.remember("The user likes green tea")
    line.mode = "hang"
    replies = ["Berlin is a nice place to live.", "So is Lisbon, they say."]
    agent = AssistantAgent("assistant", model_client=ReplayChatCompletionClient(replies))
    tasks = ["I live in Berlin with two cats", "I moved to Lisbon last week"]
    for task in tasks:
        async for _ in memory.observe(agent.run_stream(task=task)):
            pass
    outbox = memory._engine.data.outbox
    assert outbox is not None
    said = [tasks[0], replies[0], tasks[1], replies[1]]
    assert [heard.text for heard in await asyncio.to_thread(outbox.messages)] == said
    line.mode = "pass"
    await memory.flush()
    assert [record.content for record in await messages(memory)] == said
    await memory.close()


@pytest.mark.usefixtures("quick_retries")
async def test_an_explicit_call_tries_the_server_and_ends_the_agents_outage(line: Line, namespace: str) -> None:
    async with through(line, namespace) as memory:
        talk = Conversation(memory)
        await memory.count()
        line.mode = "refuse"
        await talk.turn("I live in Berlin with two cats")
        assert memory._engine.data.connection.breaker.is_open
        for call in (memory.remember("x y z"), memory.recall("x"), memory.flush()):
            with pytest.raises(StoreUnavailableError, match=f"127.0.0.1:{line.port}.*autogen-memory share"):
                await call
        line.mode = "pass"
        await memory.remember("The user has two dogs")
        assert not memory._engine.data.connection.breaker.is_open
        await is_delivered(memory)
        assert "Berlin" in await memory.context("Where do I live?")


async def test_an_explicit_call_waits_out_a_restart(line: Line, namespace: str) -> None:
    async with through(line, namespace) as memory:
        line.mode = "refuse"
        call = asyncio.ensure_future(memory.remember("The user has two dogs"))
        await asyncio.sleep(0.5)
        line.mode = "pass"
        await call
        assert await memory.count() == 1


async def test_closing_does_not_wait_for_a_server_that_is_gone(line: Line, namespace: str) -> None:
    memory = through(line, namespace)
    await Conversation(memory).turn("my name is Sarah Connor")
    line.mode = "hang"
    await Conversation(memory).turn("I live in Berlin with two cats")
    started = time.monotonic()
    await memory.close()
    assert time.monotonic() - started < 3 + SLACK  # close() waits for a running call
    line.mode = "pass"
    async with through(line, namespace) as memory:
        await memory.recall("cats")
        await memory.flush()
        assert len(await messages(memory)) == 4


KILLED = """
import asyncio, os, signal, sys
sys.path[:0] = {path!r}
from test_server_faults import Conversation, Line
from toys import words
from autogen_persistent_memory import PersistentMemory, ServerStore, RecallPolicy

async def main():
    store = ServerStore("127.0.0.1", {port})
    memory = PersistentMemory("ann", session="s", store=store, embedding=words(), policy=RecallPolicy(deadline=1))
    talk = Conversation(memory)
    await talk.turn("I live in Berlin with two cats")
    await talk.turn("My password is hunter2!x and I prefer TypeScript")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def copy_outbox(home: Path, to: Path) -> Path:
    """Copy the outbox, which must be private, and return its folder."""
    files = list((home / ".autogen_memory" / "outbox").rglob("*.jsonl"))
    assert files
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert "hunter2" not in "".join(file.read_text() for file in files)
    shutil.copytree(files[0].parent, to)
    return files[0].parent


async def test_messages_queued_by_a_killed_process_are_delivered_by_the_next(tmp_path: Path, home: Path) -> None:
    port = free_port()
    paths = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    code = KILLED.format(path=paths, port=port)
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env={**os.environ, "HOME": str(home)})
    assert await killed.wait() == -signal.SIGKILL
    ended = time.time()
    folder = await asyncio.to_thread(copy_outbox, home, tmp_path / "copy")
    server = run_chroma(tmp_path / "server", port)
    await asyncio.to_thread((tmp_path / "server").mkdir)
    await asyncio.to_thread(server.__enter__)
    try:
        expected = [
            "I live in Berlin with two cats",
            "That is noted, I live in Berlin with two cats",
            "My password is [REDACTED:password] and I prefer TypeScript",
        ]
        for _ in range(2):  # the second time as if it was killed after storing and before removing
            store = ServerStore("127.0.0.1", port)
            async with PersistentMemory("ann", session="t", store=store, embedding=words()) as memory:
                await memory.recall("anything")
                await memory.flush()
                stored = [record for record in await memory.records(limit=50) if record.session == "s"]
                said = sorted((record for record in stored if record.kind == "interaction"), key=lambda r: r.created_at)
                assert [record.content for record in said] == expected
                assert all(record.created_at.timestamp() < ended for record in stored)
                facts = sorted(record.content for record in await memory.profile.records())
                assert facts == ["The user lives in Berlin with two cats.", "The user prefers TypeScript."]
            assert await asyncio.to_thread(os.listdir, folder) == ["lock"]
            await asyncio.to_thread(shutil.copytree, tmp_path / "copy", folder, dirs_exist_ok=True)
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


async def test_without_an_outbox_nothing_is_written_to_disk(line: Line, namespace: str, home: Path) -> None:
    store = ServerStore("127.0.0.1", line.port, timeout=1, outbox="")
    memory = through(line, namespace, store=store)
    talk = Conversation(memory)
    await talk.turn("my name is Sarah Connor")
    line.mode = "refuse"
    await talk.turn("I live in Berlin with two cats")
    assert await asyncio.to_thread(os.listdir, home) == []
    line.mode = "pass"
    await memory.flush()
    assert [record.content for record in await messages(memory)] == talk.said
    await memory.close()
