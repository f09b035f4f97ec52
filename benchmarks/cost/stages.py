"""Where the time of a turn goes, stage by stage, beside the floor: embedding the question and one raw query.

The stages are timed from outside, by putting a clock around what does the work. `SEAMS` names it; whoever moves it in the
package moves it here.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple

from tqdm import tqdm

from benchmarks.lib.contestants import (
    POLICY,
    agent_with,
    embed,
    our_largest_collection,
    ours,
    raw_query,
    run_task,
    scripted,
    their_collection,
)
from benchmarks.lib.corpus import QUESTIONS, Writer
from benchmarks.lib.measuring import Ask, in_turns
from benchmarks.lib.results import Cell, Section, Table
from benchmarks.lib.scales import Scale
from benchmarks.lib.stores import Stores

PACKAGE = "autogen_persistent_memory"
TURN = "update_context"
SEAMS = {
    TURN: [(f"{PACKAGE}.memories.protocol", "EngineMemory.update_context")],
    "what to ask": [(f"{PACKAGE}.conversation.turn", "question")],
    "embed": [(f"{PACKAGE}.text.minilm", "MiniLM.embed")],
    "keyword": [(f"{PACKAGE}.retrieval.cache", "RecordCache.ask")],
    "vector query": [
        (f"{PACKAGE}.retrieval.vector_index", "VectorIndex.nearest"),
        ("chromadb.api.models.Collection", "Collection.query"),
    ],
    "rank": [(f"{PACKAGE}.retrieval.cache", "RecordCache._with_signals"), (f"{PACKAGE}.retrieval.search", "rank")],
    "block": [(f"{PACKAGE}.conversation.turn", "render")],
    "context update": [(f"{PACKAGE}.conversation.turn", "place_block")],
}
ABOUT = (
    "The turns of an agent with ours, capture off. A clock around the code of a stage times it; two stages that run "
    "at once both count, so stages can add up to more than the turn. The rest is what no stage covers: switching "
    "between threads, choosing candidates, counting uses. Vectors are searched in RAM; raw queries go to one "
    "collection with all memories, and to ours."
)


class Span(NamedTuple):
    """When a stage was at work."""

    stage: str
    start: float
    end: float


class Clock:
    """Notes when the stages are at work, from whatever thread."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def around(self, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, timed."""
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
        """The spans of each turn, the turn's own first."""
        return [
            [turn, *(span for span in self.spans if span is not turn and turn.start <= span.start <= turn.end)]
            for turn in self.spans
            if turn.stage == TURN
        ]


@contextmanager
def clocks_at(clock: Clock) -> Iterator[None]:
    """Put the clock around every stage, for a while."""
    replaced: list[tuple[Any, str, Any]] = []
    try:
        for stage, seams in SEAMS.items():
            for module, path in seams:
                *owners, name = path.split(".")
                owner = importlib.import_module(module)
                for part in owners:
                    owner = getattr(owner, part)
                replaced.append((owner, name, getattr(owner, name)))
                setattr(owner, name, clock.around(stage, getattr(owner, name)))
        yield
    finally:
        for owner, name, work in replaced:
            setattr(owner, name, work)


def covered(spans: Iterable[Span]) -> float:
    """The ms in which at least one was at work."""
    seconds = 0.0
    until = 0.0
    for span in sorted(spans, key=lambda span: span.start):
        seconds += max(0.0, span.end - max(span.start, until))
        until = max(until, span.end)
    return 1000 * seconds


def by_stage(turn: Sequence[Span]) -> dict[str, float]:
    """What each stage took of a turn, in ms, the turn itself, and the rest."""
    whole, *parts = turn
    stages = {stage: covered(span for span in parts if span.stage == stage) for stage in SEAMS if stage != TURN}
    return {**stages, "rest": covered([whole]) - covered(parts), TURN: covered([whole])}


async def measure_turns(
    scale: Scale, stores: Stores, size: int
) -> tuple[list[dict[str, float]], dict[str, list[float]]]:
    """What each stage took, turn by turn, and the seconds of agents' turns and of the parts of the floor."""
    clock, writer = Clock(), Writer(seed=7)
    one, mine = their_collection(stores.theirs("minilm", size)), stores.ours("minilm", size)
    async with ours(mine, "minilm", policy=POLICY) as memory:
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
    with clocks_at(clock):
        await run_task(agent, question)


def measure(scale: Scale, stores: Stores) -> Section:
    size = scale.minilm_sizes[-1]
    turns, seconds = asyncio.run(measure_turns(scale, stores, size))
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
    return Section("Where the time goes", f"{size:,} memories, MiniLM. {ABOUT}", tables, curves=curves)
