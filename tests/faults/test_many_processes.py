"""Many processes on one Chroma server see each other's memories, lose none, and survive the server's end."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import free_port, run_chroma
from toys import words

from autogen_persistent_memory import PersistentMemory, ServerStore

PROLOGUE = f"""
import asyncio, json, sys, time
sys.path[:0] = {[str(Path(__file__).parent.parent)]!r}
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_persistent_memory import *
from toys import words
port, name, *numbers = sys.argv[1:]
store = ServerStore("127.0.0.1", int(port))
"""


async def start(code: str, *arguments: object) -> asyncio.subprocess.Process:
    """Start another Python that runs the code."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROLOGUE + code,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(os.environ),
        limit=2**24,
    )


async def said_by(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


REMEMBERS = """
async def main():
    memory = PersistentMemory(name, store=store, embedding=words())
    await memory.remember("Likes tea")
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        command, _, text = line.strip().partition(" ")
        await (memory.remember(text, key="drink") if command == "remember" else memory.forget(containing=text))
        print("done", flush=True)
    await memory.close()
asyncio.run(main())
"""


async def test_processes_see_each_other_by_meaning_at_once_and_by_words_within_two_seconds(
    chroma_server: tuple[str, int], namespace: str
) -> None:
    other = await start(REMEMBERS, chroma_server[1], namespace)
    assert await said_by(other) == "ready"
    assert other.stdin is not None

    async def tell(command: str) -> None:
        assert other.stdin is not None
        other.stdin.write(f"{command}\n".encode())
        assert await said_by(other) == "done"

    async with PersistentMemory(namespace, store=ServerStore(*chroma_server), embedding=words()) as memory:
        assert (await memory.recall("tea")).text == "- Likes tea"
        await tell("remember Drinks cold elderflower lemonade")
        told = time.monotonic()
        hit = (await memory.recall("elderflower", limit=1)).hits[0]
        assert hit.record.content == "Drinks cold elderflower lemonade"
        while hit.keywords == 0:
            is_late = time.monotonic() - told > 2
            hit = (await memory.recall("elderflower", limit=1)).hits[0]
            assert hit.keywords > 0 or not is_late
        await tell("remember Drinks hot chocolate")
        assert "elderflower" not in (await memory.recall("elderflower lemonade", limit=1)).text
        await tell("forget chocolate")
        assert "chocolate" not in (await memory.recall("hot chocolate")).text
    other.stdin.close()
    assert await other.wait() == 0


WRITES = """
async def main():
    memory = PersistentMemory(name, store=store, embedding=words())
    number, (writer, count) = 0, numbers
    while number < int(count):
        try:
            await memory.remember(f"w{writer} wrote n{number}")
        except StoreUnavailableError:
            continue  # said loudly; not acknowledged, so told again
        print(number, flush=True)
        number += 1
    await memory.close()
asyncio.run(main())
"""


async def killed_under_writers(folder: Path, kills: int, count: int) -> None:
    port, facts = free_port(), list[str]()
    writers = []
    for kill in range(kills + 1):
        server = run_chroma(folder, port)
        await asyncio.to_thread(server.__enter__)
        try:
            if not writers:
                writers = [await start(WRITES, port, f"team-{writer % 2}", writer, count) for writer in range(4)]
            for writer, process in enumerate(writers):
                for number in range(kill * count // (kills + 1), (kill + 1) * count // (kills + 1)):
                    assert int(await said_by(process)) == number
                    facts.append(f"w{writer} wrote n{number}")
            if kill == kills:
                assert [await process.wait() for process in writers] == [0] * 4
                await all_are_found(port, facts)
        finally:
            await asyncio.to_thread(server.__exit__, None, None, None)  # kill -9


async def all_are_found(port: int, facts: list[str]) -> None:
    for team in range(2):
        store = ServerStore("127.0.0.1", port)
        async with PersistentMemory(f"team-{team}", store=store, embedding=words()) as memory:
            mine = [fact for fact in facts if int(fact.split()[0][1:]) % 2 == team]
            stored = Counter(record.content for record in await memory.records(limit=100_000))
            assert stored == Counter(mine)
            for start_ in range(0, len(mine), 20):
                found = await memory.recall_many(mine[start_ : start_ + 20], limit=1)
                assert [recall.hits[0].record.content for recall in found] == mine[start_ : start_ + 20]


async def test_a_server_killed_under_four_writers_has_all_acknowledged_memories(tmp_path: Path) -> None:
    await killed_under_writers(tmp_path, kills=2, count=12)


@pytest.mark.soak
async def test_a_server_killed_many_times_under_four_writers(tmp_path: Path) -> None:
    await killed_under_writers(tmp_path, kills=20, count=2000)


AGENTS = """
async def agent(id, until, report):
    namespace = f"{name}/shared-{id % 5}" if id % 2 else f"{name}/{numbers[0]}-{id}"
    policy = RecallPolicy(deadline=60)
    memory = PersistentMemory(namespace, store=store, embedding=words(), policy=policy)
    turn = 0
    while time.monotonic() < until:
        fact = f"agent {numbers[0]}-{id} wrote number {turn}"
        context = UnboundedChatCompletionContext([UserMessage(content=f"{fact} in a message", source="user")])
        for what, call in (
            ("remember", lambda: memory.remember(fact)),
            ("recall", lambda: memory.recall(fact, limit=3)),
            ("turn", lambda: memory.update_context(context)),
            ("set", lambda: memory.set(f"{id}", turn)),
            ("get", lambda: memory.get(f"{id}")),
        ):
            started = time.monotonic()
            try:
                await call()
            except Exception as error:
                report["errors"].append(repr(error))
            else:
                report["seconds"].setdefault(what, []).append(time.monotonic() - started)
                if what == "remember":
                    report["facts"].setdefault(namespace, []).append(fact)
                if what == "turn":
                    report["said"].setdefault(namespace, []).append(f"{fact} in a message")
        turn += 1
    await memory.close()

async def main():
    report = {"errors": [], "seconds": {}, "facts": {}, "said": {}}
    async with PersistentMemory(f"{name}/first", store=store, embedding=words()) as memory:
        await memory.count()
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + float(numbers[2])
    await asyncio.gather(*(agent(id, until, report) for id in range(int(numbers[1]))))
    print(json.dumps(report), flush=True)
asyncio.run(main())
"""


RAW = """
import chromadb, threading, uuid
from toys import word_vectors

def write(number, until, taken):
    client = chromadb.HttpClient("127.0.0.1", int(port))
    collection = client.get_or_create_collection(f"{name}-{number}", embedding_function=None)
    started = 0
    while started < until:
        started = time.monotonic()
        collection.upsert(ids=[uuid.uuid4().hex], embeddings=word_vectors(["a text"]), documents=["a text"])
        taken.append(time.monotonic() - started)

print("ready", flush=True)
sys.stdin.readline()
taken, until = [], time.monotonic() + float(numbers[1])
threads = [threading.Thread(target=write, args=(number, until, taken)) for number in range(int(numbers[0]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(taken), flush=True)
"""


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[int]:
    running = run_chroma(folder)
    _, port = await asyncio.to_thread(running.__enter__)
    try:
        yield port
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


async def at_once(port: int, work: Sequence[tuple[object, ...]]) -> list[Any]:
    """Start processes, let them begin together, and return their reports."""
    workers = [await start(str(code), port, *arguments) for code, *arguments in work]
    for worker in workers:
        assert await said_by(worker) == "ready"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b"go\n")
    reports = [json.loads(await said_by(worker)) for worker in workers]
    assert [await worker.wait() for worker in workers] == [0] * len(workers)
    return reports


@pytest.mark.parametrize(
    ("processes", "agents", "seconds"), [(2, 6, 5), pytest.param(4, 25, 60, marks=pytest.mark.soak)]
)
async def test_many_agents_read_and_write_without_an_error(
    tmp_path: Path, processes: int, agents: int, seconds: int
) -> None:
    async with server(tmp_path) as port:
        work = [(AGENTS, "load", number, agents, seconds) for number in range(processes)]
        reports: list[dict[str, Any]] = await at_once(port, work)
        assert [error for report in reports for error in report["errors"]] == []
        facts, said = ({key: list[str]() for report in reports for key in report[part]} for part in ("facts", "said"))
        for report in reports:
            for part, all_ in (("facts", facts), ("said", said)):
                for key, texts in report[part].items():
                    all_[key] += texts
        for namespace in facts:
            store = ServerStore("127.0.0.1", port)
            async with PersistentMemory(namespace, store=store, embedding=words()) as memory:
                stored = [record.content for record in await memory.records(limit=1_000_000)]
                assert Counter(stored) == Counter(facts[namespace] + said[namespace])
        calls = 0
        for what in reports[0]["seconds"]:
            taken = sorted(taken for report in reports for taken in report["seconds"].get(what, []))
            calls += len(taken)
            p50, p95 = statistics.median(taken), taken[int(0.95 * len(taken))]
            print(f"{what:10} {len(taken):6} calls, p50 {1000 * p50:6.0f} ms, p95 {1000 * p95:6.0f} ms")
        print(f"{processes} processes x {agents} agents, {seconds} s: {calls / seconds:.0f} calls a second")
        alone = await at_once(port, [(RAW, f"alone-{number}", agents, seconds / 4) for number in range(processes)])
        upserts = sorted(taken for report in alone for taken in report)
        a_second, p50 = len(upserts) / (seconds / 4), statistics.median(upserts)
        print(f"Chroma alone, as many writers: {a_second:.0f} upserts a second, p50 {1000 * p50:.0f} ms")
