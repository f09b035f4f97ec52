"""What many users and many agents cost: one user's recall among many, and how long the event loop stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from autogen_core.memory import Memory
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from tqdm import tqdm

from benchmarks.cost.writes import add_to
from benchmarks.lib.report import Bar, Cell, Section, Table
from benchmarks.lib.stores import FACTS, QUESTIONS, Scale, Stores, Writer, copy_of
from benchmarks.lib.systems import (
    CAPTURING,
    NONE,
    OURS,
    POLICY,
    THEIRS,
    agent_with,
    embed,
    ours,
    run_task,
    scripted,
    their_collection,
    theirs,
)
from benchmarks.lib.timing import Ask, in_turns, milliseconds, ratio, seconds_until, stalls_during, typical

ABOUT_USERS = (
    "Each user has a namespace. The alternative is one collection with as many memories, each with its user as metadata, and "
    "filtered queries: with `ChromaDBVectorMemory.query(where=...)`, and with Chroma alone. Cheap embedding."
)
ABOUT_STALLS = (
    "A task that asks to be woken every millisecond notes how late it is. MiniLM, stores on disk. All agents run their turns "
    "at once; agents without memory stall the loop, too. Memory alone: as many model contexts, updated with `update_context`. "
    "Writing: `add`, by as many tasks, each of which yields to the others after every memory."
)
QUESTIONS_EACH = 5
FIRST, FILTERED, FILTERED_RAW = "ours, a user's first", f"{THEIRS}, filtered", "Chroma alone, filtered"
READING, ALONE, WRITING = "agents' turns", "memory alone, reading", "writing"
Work = Callable[[Any, Writer, int], Awaitable[None]]
Works = Mapping[str, tuple[Work, Mapping[str, Memory | None]]]


async def users_round(scale: Scale, stores: Stores, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the p50 and p95 of each system, in ms."""
    folder = stores.theirs("words", scale.word_sizes[-1])
    collection, filtered = their_collection(folder), theirs(folder, "words")
    await filtered.query("Warm up")
    writer = Writer(seed=5 + number)
    seconds: dict[str, list[float]] = {FIRST: [], OURS: [], FILTERED: [], FILTERED_RAW: []}
    async with ours(stores.users, "words", namespace="keeps-the-store-open") as keeper:
        await keeper.recall("Warm up")
        step = scale.users // scale.users_asked
        for user in tqdm(range(number % step, scale.users, step), desc="users", leave=False, disable=None):
            name = f"user-{user}"
            async with ours(stores.users, "words", namespace=name) as memory:
                seconds[FIRST].append(await seconds_until(memory.recall(writer.fill(QUESTIONS))))
                asked: dict[str, Ask] = {
                    OURS: memory.recall,
                    FILTERED: partial(filtered.query, where={"user": name}),
                    FILTERED_RAW: partial(query_filtered, collection, name),
                }
                taken = await in_turns(asked, writer.texts(QUESTIONS, QUESTIONS_EACH))
                for system, of_system in taken.items():
                    seconds[system] += of_system
    await filtered.close()
    p50 = {system: milliseconds(taken) for system, taken in seconds.items()}
    return p50, {system: milliseconds(taken, 0.95) for system, taken in seconds.items()}


async def query_filtered(collection: Any, user: str, question: str) -> None:
    vectors = embed("words", [question])
    collection.query(query_embeddings=vectors, n_results=POLICY.limit, where={"user": user})


def measure_users(scale: Scale, stores: Stores) -> Section:
    rounds = [asyncio.run(users_round(scale, stores, number)) for number in range(scale.rounds)]
    p50, p95 = [of_round[0] for of_round in rounds], [of_round[1] for of_round in rounds]
    rows: list[list[Cell]] = [[name, typical(p50, name), typical(p95, name), ratio(p50, name, OURS)] for name in p50[0]]
    among = f"{scale.users:,} users × {scale.memories_of_user}"
    bar = Bar(
        f"one user's recall among {among}: filtered collection / ours", 10, ratio(p50, FILTERED, OURS), at_most=False
    )
    about = f"{scale.word_sizes[-1]:,} memories in the one collection, {among} in ours. {ABOUT_USERS}"
    return Section("Many users", about, [Table(["", "p50, ms", "p95, ms", "/ ours"], rows)], [bar])


async def run_agent(memory: Memory | None, writer: Writer, turns: int) -> None:
    agent = agent_with(memory, scripted(turns))
    for question in writer.texts(QUESTIONS, turns):
        await run_task(agent, question)


async def update_context(memory: Memory, writer: Writer, turns: int) -> None:
    context = UnboundedChatCompletionContext()
    for question in writer.texts(QUESTIONS, turns):
        await context.add_message(UserMessage(content=question, source="user"))
        await memory.update_context(context)
        await asyncio.sleep(0)


async def write(memory: Memory, writer: Writer, turns: int) -> None:
    for text in writer.texts(FACTS, turns):
        await add_to(memory, text)


async def at_once(work: Work, memory: Memory | None, writer: Writer, turns: int, agents: int) -> None:
    await asyncio.gather(*(work(memory, writer, turns) for _ in range(agents)))


async def stalls_round(works: Works, writer: Writer, turns: int, agents: int) -> dict[str, dict[str, list[float]]]:
    """Return the stalls of each system during the work of some agents at once, with other texts every time."""
    return {
        title: {
            name: await stalls_during(at_once(work, memory, writer, turns, agents)) for name, memory in memories.items()
        }
        for title, (work, memories) in works.items()
    }


async def stalls_rounds(scale: Scale, stores: Stores, size: int) -> dict[int, list[dict[str, dict[str, list[float]]]]]:
    """Return the rounds by number of agents."""
    writer = Writer(seed=6)
    with ExitStack() as copies:
        our_folder, capturing_folder = (copies.enter_context(copy_of(stores.ours("minilm", size))) for _ in range(2))
        mine, capturing = ours(our_folder, "minilm"), ours(capturing_folder, "minilm", capture=True)
        other = theirs(copies.enter_context(copy_of(stores.theirs("minilm", size))), "minilm")
        both: dict[str, Memory | None] = {OURS: mine, THEIRS: other}
        for memory in (mine, capturing, other):
            await memory.query("Warm up")
        works: Works = {
            READING: (run_agent, {**both, CAPTURING: capturing, NONE: None}),
            ALONE: (update_context, both),
            WRITING: (write, both),
        }
        await stalls_round(works, writer, scale.agent_turns, 1)
        rounds = {
            agents: [
                await stalls_round(works, writer, scale.agent_turns, agents)
                for _ in tqdm(range(scale.rounds), desc=f"stalls, {agents} agents", leave=False, disable=None)
            ]
            for agents in (1, scale.agents)
        }
        for memory in (mine, capturing, other):
            await memory.close()
    return rounds


def measure_stalls(scale: Scale, stores: Stores) -> Section:
    size = min(scale.minilm_sizes, key=lambda size: abs(size - 1_000))
    rows: list[list[Cell]] = []
    bars: list[Bar] = []
    for agents, rounds in asyncio.run(stalls_rounds(scale, stores, size)).items():
        for title, limit in ((READING, 20), (ALONE, None), (WRITING, 10)):
            longest, p99 = (
                [{name: milliseconds(stalls, share) for name, stalls in found[title].items()} for found in rounds]
                for share in (1, 0.99)
            )
            for name in longest[0]:
                against = ratio(longest, THEIRS, name) if name != THEIRS else None
                rows.append([f"{title}, {agents}", name, typical(longest, name), typical(p99, name), against])
            if limit is not None and agents == scale.agents:
                what = (
                    f"longest stall with {agents} agents {'reading' if title == READING else 'writing'}: theirs / ours"
                )
                bars.append(Bar(what, limit, ratio(longest, THEIRS, OURS), at_most=False))
    table = Table(["agents", "", "longest, ms", "p99, ms", "theirs / it"], rows)
    return Section("Event loop", f"{size:,} memories. {ABOUT_STALLS}", [table], bars)
