"""How long the event loop stands still while agents read and write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from autogen_core.memory import Memory
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from tqdm import tqdm

from benchmarks.cost.writes import add_to
from benchmarks.lib.contestants import CAPTURING, NONE, OURS, THEIRS, agent_with, ours, run_task, scripted, theirs
from benchmarks.lib.corpus import FACTS, QUESTIONS, Writer
from benchmarks.lib.measuring import milliseconds, ratio, stalls_during, typical
from benchmarks.lib.results import Bar, Cell, Section, Table
from benchmarks.lib.scales import Scale
from benchmarks.lib.stores import Stores, copy_of

ABOUT = (
    "A task sleeps for a millisecond at a time and records how late it wakes up. MiniLM, stores on disk. The turns of "
    "all agents run at once; agents without memory stall the loop too. Memory alone: the same number of model "
    "contexts, updated with `update_context`. Writing: `add`, by the same number of tasks, which yield to others "
    "after each."
)
READING, ALONE, WRITING = "agents' turns", "memory alone, reading", "writing"
Work = Callable[[Memory | None, int], Awaitable[object]]


@dataclass(frozen=True)
class Stalls:
    """Of each contestant the longest and the p99 stall, in ms."""

    longest: Mapping[str, float]
    p99: Mapping[str, float]


class Load:
    """The work of some agents at once, with other words every time."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._writer = Writer(seed=6)

    async def run_agents(self, memory: Memory | None, agents: int) -> None:
        async def talk(number: int) -> None:
            agent = agent_with(memory, scripted(self._turns), f"agent_{number}")
            for question in self._writer.texts(QUESTIONS, self._turns):
                await run_task(agent, question)

        await asyncio.gather(*(talk(number) for number in range(agents)))

    async def update_contexts(self, memory: Memory | None, agents: int) -> None:
        assert memory is not None

        async def read() -> None:
            context = UnboundedChatCompletionContext()
            for question in self._writer.texts(QUESTIONS, self._turns):
                await context.add_message(UserMessage(content=question, source="user"))
                await memory.update_context(context)
                await asyncio.sleep(0)

        await asyncio.gather(*(read() for _ in range(agents)))

    async def write(self, memory: Memory | None, agents: int) -> None:
        assert memory is not None

        async def write() -> None:
            for text in self._writer.texts(FACTS, self._turns):
                await add_to(memory, text)

        await asyncio.gather(*(write() for _ in range(agents)))


async def measure_round(
    works: Mapping[str, tuple[Work, Mapping[str, Memory | None]]], agents: int
) -> dict[str, Stalls]:
    found: dict[str, Stalls] = {}
    for title, (work, memories) in works.items():
        stalls = {name: await stalls_during(work(memory, agents)) for name, memory in memories.items()}
        found[title] = Stalls(
            {name: milliseconds(of, 1) for name, of in stalls.items()},
            {name: milliseconds(of, 0.99) for name, of in stalls.items()},
        )
    return found


async def measure_rounds(scale: Scale, stores: Stores) -> Section:
    size = min(scale.minilm_sizes, key=lambda size: abs(size - 1_000))
    with ExitStack() as copies:
        our_folder, capturing_folder = (copies.enter_context(copy_of(stores.ours("minilm", size))) for _ in range(2))
        mine, capturing = ours(our_folder, "minilm"), ours(capturing_folder, "minilm", capture=True)
        other = theirs(copies.enter_context(copy_of(stores.theirs("minilm", size))), "minilm")
        both: dict[str, Memory | None] = {OURS: mine, THEIRS: other}
        for memory in (mine, capturing, other):
            await memory.query("Warm up")
        load = Load(scale.agent_turns)
        works: dict[str, tuple[Work, Mapping[str, Memory | None]]] = {
            READING: (load.run_agents, {**both, CAPTURING: capturing, NONE: None}),
            ALONE: (load.update_contexts, both),
            WRITING: (load.write, both),
        }
        await measure_round(works, 1)
        rounds = {
            agents: [
                await measure_round(works, agents)
                for _ in tqdm(range(scale.rounds), desc=f"stalls, {agents} agents", leave=False, disable=None)
            ]
            for agents in (1, scale.agents)
        }
        for memory in (mine, capturing, other):
            await memory.close()
    rows: list[list[Cell]] = []
    for agents, found in rounds.items():
        for title in works:
            longest, p99 = ([getattr(of_round[title], field) for of_round in found] for field in ("longest", "p99"))
            for name in longest[0]:
                against = ratio(longest, THEIRS, name) if name != THEIRS else None
                rows.append([f"{title}, {agents}", name, typical(longest, name), typical(p99, name), against])
    many = rounds[scale.agents]
    bars = [
        Bar(f"longest stall with {scale.agents} agents {what}: theirs / ours", limit, figure, at_most=False)
        for what, title, limit in (("reading", READING, 20), ("writing", WRITING, 10))
        for figure in [ratio([of_round[title].longest for of_round in many], THEIRS, OURS)]
    ]
    table = Table(["agents", "", "longest, ms", "p99, ms", "theirs / it"], rows)
    return Section("Event loop", f"{size:,} memories. {ABOUT}", [table], bars)


def measure(scale: Scale, stores: Stores) -> Section:
    return asyncio.run(measure_rounds(scale, stores))
