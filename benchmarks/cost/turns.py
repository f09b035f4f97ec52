"""What memory adds to a turn of an agent: time, prompt tokens, messages."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from autogen_core.memory import ListMemory, Memory, MemoryContent, MemoryMimeType
from autogen_core.models import SystemMessage, UserMessage
from tqdm import tqdm

from autogen_persistent_memory.core.tokens import count_tokens
from benchmarks.lib.contestants import (
    CAPTURING,
    FLOOR,
    LISTED,
    NONE,
    OURS,
    THEIRS,
    EmbeddingName,
    agent_with,
    embed,
    ours,
    raw_query,
    run_task,
    scripted,
    their_collection,
    theirs,
)
from benchmarks.lib.corpus import QUESTIONS, Writer
from benchmarks.lib.measuring import Ask, Rounds, in_turns, milliseconds, ratio, typical
from benchmarks.lib.results import Bar, Cell, Section, Table
from benchmarks.lib.scales import Scale
from benchmarks.lib.stores import Stores, copy_of, facts_and_messages

ABOUT = (
    "An `AssistantAgent` with a scripted model. The systems take turns, some seconds after the stores were opened, "
    'when ours has read its vectors into RAM. "Added" is the time beyond that of an agent without memory that is '
    "asked the same. Both inject five memories per turn (ours without its similarity threshold). The floor embeds the "
    "question and sends one raw query to Chroma, with the `n_results` and `include` of our search. A moment after a "
    "turn ours writes how often memories were used; that slows down the system that is asked next. Capturing writes "
    "to disk in every turn, so it runs after the others and does not slow them down."
)
BARE = "no memory, beside what captures"
tokens_in = cache(count_tokens)


@dataclass(frozen=True)
class Prompts:
    """What a model was shown over all turns."""

    tokens: int
    last: int
    memory_messages: int

    @classmethod
    def of(cls, calls: Sequence[Mapping[str, Any]]) -> Prompts:
        tokens = [sum(tokens_in(str(message.content)) for message in call["messages"]) for call in calls]
        injected = [
            message
            for message in calls[-1]["messages"]
            if isinstance(message, SystemMessage) or (isinstance(message, UserMessage) and message.source == "memory")
        ]
        return cls(sum(tokens), tokens[-1], len(injected) - 1)  # the agent's own system message is none of memory's


@dataclass(frozen=True)
class Turns:
    """Of one number of memories: of each round the p50 and p95 that each adds, in ms, and the prompts of the last round."""

    embedding: EmbeddingName
    size: int
    p50: Rounds
    p95: Rounds
    prompts: Mapping[str, Prompts]

    def rows(self) -> list[list[Cell]]:
        without = typical(self.p50, NONE)
        return [
            [
                f"{self.size:,}, {'MiniLM' if self.embedding == 'minilm' else 'cheap'}",
                name,
                without if name == NONE else typical(self.p50, name),
                typical(self.p95, name),
                ratio(self.p50, name, FLOOR) if name not in (NONE, FLOOR) else None,
                *([prompts.tokens, prompts.last, prompts.memory_messages] if prompts else [None] * 3),
            ]
            for name in self.p50[0]
            for prompts in [self.prompts.get(name)]
        ]


async def measure_size(stores: Stores, scale: Scale, embedding: EmbeddingName, size: int) -> Turns:
    p50, p95 = [], []
    prompts: dict[str, Prompts] = {}
    writer = Writer(seed=size)
    with ExitStack() as copies:
        folder = stores.theirs(embedding, size)
        capturing = ours(copies.enter_context(copy_of(stores.ours(embedding, size))), embedding, capture=True)
        memories: dict[str, Memory | None] = {
            NONE: None,
            OURS: ours(stores.ours(embedding, size), embedding),
            CAPTURING: capturing,
            THEIRS: theirs(folder, embedding),
        }
        if size <= scale.listed:
            memories[LISTED] = await listed(size)
        for memory in filter(None, memories.values()):
            await memory.query("Warm up")
        collection = their_collection(folder)

        async def floor(question: str) -> None:
            raw_query(collection, embed(embedding, [question]))

        for used in memories.values():
            await run_task(agent_with(used, scripted(1)), writer.fill(QUESTIONS))
        await floor(writer.fill(QUESTIONS))
        await asyncio.sleep(scale.settling)
        for _ in tqdm(range(scale.rounds), desc=f"turns, {size:,} memories", leave=False, disable=None):
            models = {name: scripted(scale.turns) for name in (*memories, BARE)}
            agents = {name: agent_with(memories.get(name), model) for name, model in models.items()}
            ask: dict[str, Ask] = {name: partial(run_task, agent) for name, agent in agents.items()} | {FLOOR: floor}
            questions = writer.texts(QUESTIONS, scale.turns)
            seconds = await in_turns({name: ask[name] for name in ask if name not in (CAPTURING, BARE)}, questions)
            seconds |= await in_turns({name: ask[name] for name in (CAPTURING, BARE)}, questions)
            await capturing.flush()
            added = added_by(seconds)
            p50.append({name: milliseconds(taken) for name, taken in added.items()})
            p95.append({name: milliseconds(taken, 0.95) for name, taken in added.items()})
            prompts = {name: Prompts.of(model.create_calls) for name, model in models.items()}
        for memory in filter(None, memories.values()):
            await memory.close()
    return Turns(embedding, size, p50, p95, prompts)


def added_by(seconds: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """What each adds to the turn of an agent without memory that was asked along with it, turn by turn."""
    added: dict[str, Sequence[float]] = {}
    for name, taken in seconds.items():
        without = seconds[BARE if name == CAPTURING else NONE]
        if name in (NONE, FLOOR):
            added[name] = taken
        elif name != BARE:
            added[name] = [with_it - bare for with_it, bare in zip(taken, without, strict=True)]
    return added


async def listed(size: int) -> ListMemory:
    memory = ListMemory()
    for texts in facts_and_messages(size):
        for text in texts:
            await memory.add(MemoryContent(content=text, mime_type=MemoryMimeType.TEXT))
    return memory


def growth_rows(words: Sequence[Turns]) -> list[list[Cell]]:
    """How many times as long as at the smallest number of memories it takes."""
    return [[name, *(times_as_long(words[0], turns, name) for turns in words)] for name in (OURS, THEIRS, FLOOR)]


def times_as_long(before: Turns, after: Turns, name: str) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(late[name] / early[name] for early, late in zip(before.p50, after.p50, strict=True))


def bars(minilm: Turns, words: Sequence[Turns]) -> list[Bar]:
    smallest, largest = words[0], words[-1]
    growth = times_as_long(smallest, largest, OURS)
    at = f"at {minilm.size:,} memories"
    tokens = minilm.prompts[THEIRS].tokens / minilm.prompts[OURS].tokens
    return [
        Bar(f"turn cost {at} / embedding and one raw query", 1.3, ratio(minilm.p50, OURS, FLOOR), at_most=True),
        Bar(f"turn cost {at} / `ChromaDBVectorMemory`'s", 1.2, ratio(minilm.p50, OURS, THEIRS), at_most=True),
        Bar(f"turn cost at {largest.size:,} / at {smallest.size:,} (cheap embedding)", 2, growth, at_most=True),
        Bar("prompt tokens of all turns, theirs / ours, as many memories injected", 4, tokens, at_most=False),
    ]


def measure(scale: Scale, stores: Stores) -> Section:
    minilm = [asyncio.run(measure_size(stores, scale, "minilm", size)) for size in scale.minilm_sizes]
    words = [asyncio.run(measure_size(stores, scale, "words", size)) for size in scale.word_sizes]
    columns = [
        "memories, embedding",
        "",
        "added p50, ms",
        "p95, ms",
        "/ floor",
        "tokens in all",
        "in the last",
        "messages",
    ]
    curves = {
        f"{name}, {label}": [(turns.size, typical(turns.p50, name)) for turns in group]
        for label, group in (("MiniLM", minilm), ("cheap", words))
        for name in (OURS, CAPTURING, THEIRS, FLOOR)
    }
    table = Table(columns, [row for turns in minilm + words for row in turns.rows()])
    growth = Table(["times as long, cheap", *(f"{turns.size:,}" for turns in words)], growth_rows(words), "Growth")
    return Section("Turn cost", f"{scale.turns} turns. {ABOUT}", [table, growth], bars(minilm[-1], words), curves)
