"""What memory adds to a turn of an agent (time, prompt tokens, messages), and how much of it each stage takes."""

from __future__ import annotations

import asyncio
import inspect
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial, wraps
from pkgutil import resolve_name
from typing import Any, NamedTuple
from unittest.mock import patch

from autogen_core.memory import ListMemory, Memory, MemoryContent, MemoryMimeType
from autogen_core.models import SystemMessage, UserMessage
from tqdm import tqdm

from autogen_persistent_memory.core.tokens import count_tokens
from benchmarks.lib.report import Bar, Cell, Section, Table
from benchmarks.lib.stores import QUESTIONS, Scale, Stores, Writer, copy_of, facts_and_messages
from benchmarks.lib.systems import (
    CAPTURING,
    FLOOR,
    LISTED,
    NONE,
    OURS,
    THEIRS,
    EmbeddingName,
    agent_with,
    embed,
    our_largest_collection,
    ours,
    raw_query,
    run_task,
    scripted,
    their_collection,
    theirs,
)
from benchmarks.lib.timing import Ask, Rounds, in_turns, milliseconds, ratio, typical

ABOUT = (
    "An `AssistantAgent` with a scripted model, in turns with the other systems, some seconds after the stores were opened, when "
    "ours has read its vectors into RAM. Added is the time of a turn minus that of an agent without memory for the same question. "
    "Both inject five memories a turn (ours without its threshold of relevance). The floor embeds the question and sends one raw "
    "query to Chroma, with the `n_results` and `include` of our own search. Ours counts the use of memories a moment after a turn, "
    "which slows the system that is measured then. The capturing memory, which writes to disk in every turn, is measured after the "
    "others, so that its writes do not delay them."
)
ABOUT_STAGES = (
    "An agent's turns with ours, without capture. Every stage is timed by a clock around its functions; of two stages at the same "
    "time both are counted, so their sum can exceed the turn. The rest is what no stage covers: moving work between threads, choosing "
    "candidates, counting the use of memories. Vectors are searched in RAM; raw queries go to one collection with all memories, and "
    "to ours."
)
PACKAGE = "autogen_persistent_memory"
TURN = "update_context"
SEAMS = {
    TURN: [f"{PACKAGE}.memories.protocol.EngineMemory.update_context"],
    "what to ask": [f"{PACKAGE}.conversation.turn.question"],
    "embed": [f"{PACKAGE}.text.minilm.MiniLM.embed"],
    "keyword": [f"{PACKAGE}.retrieval.cache.RecordCache.ask"],
    "vector query": [
        f"{PACKAGE}.retrieval.vector_index.VectorIndex.nearest",
        "chromadb.api.models.Collection.Collection.query",
    ],
    "rank": [f"{PACKAGE}.retrieval.cache.RecordCache._with_signals", f"{PACKAGE}.retrieval.search.rank"],
    "block": [f"{PACKAGE}.conversation.turn.render"],
    "context update": [f"{PACKAGE}.conversation.turn.place_block"],
}
"""The functions of each stage, which are wrapped with a clock; if one moves in the package, change it here."""
BARE = "no memory, beside the capturing one"
tokens_in = cache(count_tokens)


@dataclass(frozen=True)
class Prompts:
    """The prompts of all turns."""

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
        return cls(sum(tokens), tokens[-1], len(injected) - 1)  # without the agent's own system message


@dataclass(frozen=True)
class Turns:
    """For one number of memories: the p50 and p95 that each system adds, in ms, by round, and the last round's prompts."""

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
    """Return the seconds that each system adds to the same turn of an agent without memory."""
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


def times_as_long(before: Turns, after: Turns, name: str) -> float:
    """Return how many times as long it takes with more memories: the median of the rounds' ratios."""
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
    rows = [[name, *(times_as_long(words[0], turns, name) for turns in words)] for name in (OURS, THEIRS, FLOOR)]
    growth = Table(["times as long, cheap", *(f"{turns.size:,}" for turns in words)], rows, "Growth")
    return Section("Turn cost", f"{scale.turns} turns. {ABOUT}", [table, growth], bars(minilm[-1], words), curves)


class Span(NamedTuple):
    """One run of a stage."""

    stage: str
    start: float
    end: float


class Clock:
    """Notes when stages run, in any thread."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def around(self, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""
        if inspect.iscoroutinefunction(work):

            @wraps(work)
            async def timed_async(*arguments: Any, **keywords: Any) -> Any:
                with self._noting(stage):
                    return await work(*arguments, **keywords)

            return timed_async

        @wraps(work)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            with self._noting(stage):
                return work(*arguments, **keywords)

        return timed

    @contextmanager
    def _noting(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.spans.append(Span(stage, started, time.perf_counter()))

    def turns(self) -> list[list[Span]]:
        """Return the spans of each turn, the turn's own first."""
        return [
            [turn, *(span for span in self.spans if span is not turn and turn.start <= span.start <= turn.end)]
            for turn in self.spans
            if turn.stage == TURN
        ]


def covered(spans: Iterable[Span]) -> float:
    """Return the ms in which at least one of the spans ran."""
    seconds = 0.0
    until = 0.0
    for span in sorted(spans, key=lambda span: span.start):
        seconds += max(0.0, span.end - max(span.start, until))
        until = max(until, span.end)
    return 1000 * seconds


def by_stage(turn: Sequence[Span]) -> dict[str, float]:
    """Return the ms of each stage of a turn, of the rest, and of the whole turn."""
    whole, *parts = turn
    stages = {stage: covered(span for span in parts if span.stage == stage) for stage in SEAMS if stage != TURN}
    return {**stages, "rest": covered([whole]) - covered(parts), TURN: covered([whole])}


async def stages_and_floor(
    scale: Scale, stores: Stores, size: int
) -> tuple[list[dict[str, float]], dict[str, list[float]]]:
    """Return the ms of each stage, turn by turn, and the seconds of agents' turns and of the parts of the floor."""
    clock, writer = Clock(), Writer(seed=7)
    one, mine = their_collection(stores.theirs("minilm", size)), stores.ours("minilm", size)
    async with ours(mine, "minilm") as memory:
        await memory.recall("Warm up")
        part = our_largest_collection(mine)
        vectors: dict[str, Any] = {}

        async def embed_alone(question: str) -> None:
            vectors[question] = embed("minilm", [question])

        async def query_one(question: str) -> None:
            raw_query(one, vectors[question])

        async def query_part(question: str) -> None:
            raw_query(part, vectors[question])

        seconds: dict[str, list[float]] = {}
        for _ in tqdm(range(scale.rounds), desc="stages", leave=False, disable=None):
            agent, bare = (agent_with(used, scripted(scale.turns)) for used in (memory, None))
            for question in writer.texts(QUESTIONS, scale.turns):
                await embed_alone(question)
                asked: dict[str, Ask] = {
                    "agent's turn": partial(timed_turn, agent, clock),
                    "agent's turn without memory": partial(run_task, bare),
                    "embed": embed_alone,
                    "raw query, all in one": query_one,
                    "raw query, our larger collection": query_part,
                }
                for name, taken in (await in_turns(asked, [question])).items():
                    seconds.setdefault(name, []).extend(taken)
    return [by_stage(turn) for turn in clock.turns()], seconds


async def timed_turn(agent: Any, clock: Clock, question: str) -> None:
    """Run a turn while the clock is around the functions of all stages."""
    with ExitStack() as patches:
        for stage, functions in SEAMS.items():
            for name in functions:
                patches.enter_context(patch(name, clock.around(stage, resolve_name(name))))
        await run_task(agent, question)


def measure_stages(scale: Scale, stores: Stores) -> Section:
    size = scale.minilm_sizes[-1]
    turns, seconds = asyncio.run(stages_and_floor(scale, stores, size))
    p50 = {stage: statistics.median(turn[stage] for turn in turns) for stage in turns[0]}
    alone = {name: 1000 * statistics.median(taken) for name, taken in seconds.items()}
    floor = alone["embed"] + alone["raw query, all in one"]
    stages: list[list[Cell]] = [[stage, took, 100 * took / p50[TURN], took / floor] for stage, took in p50.items()]
    parts: list[list[Cell]] = [[name, took, took / floor] for name, took in alone.items()]
    parts.append(["floor: embed + raw query, all in one", floor, 1.0])
    tables = [
        Table(["stage", "p50, ms", "% of update_context", "/ floor"], stages, "Stages of a turn"),
        Table(["", "p50, ms", "/ floor"], parts, "In the same run, in turns"),
    ]
    curves = {"stages": [(number, took) for number, (stage, took) in enumerate(p50.items())]}
    return Section("Where the time goes", f"{size:,} memories, MiniLM. {ABOUT_STAGES}", tables, curves=curves)
