"""Metrics of retrieval, and the table that shows them for several systems."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tqdm import tqdm

from benchmarks.lib.systems import System

DEPTHS = (5, 10, 20)
WIDTH = 13


@dataclass
class Scores:
    """What one system found, question by question."""

    asked_for: int = max(DEPTHS)
    """How many memories a question asks for."""
    recall: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    hit: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    reciprocal_rank: list[float] = field(default_factory=list)
    ndcg: list[float] = field(default_factory=list)
    by_category: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: list[float] = field(default_factory=list)

    def add(self, found: Sequence[str], wanted: set[str], category: str, *, counts: bool = True) -> None:
        """Note what was found for a question; one that does not count shows up only under its category."""
        self.by_category[category].append(len(wanted & set(found[:10])) / len(wanted))
        if not counts:
            return
        for depth in (1, *DEPTHS):
            right = len(wanted & set(found[:depth]))
            self.recall[depth].append(right / len(wanted))
            self.hit[depth].append(float(right > 0))
        ranks = [rank for rank, id in enumerate(found, start=1) if id in wanted]
        self.reciprocal_rank.append(1 / ranks[0] if ranks else 0.0)
        gain = sum(1 / math.log2(rank + 1) for rank in ranks if rank <= 10)
        self.ndcg.append(gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(10, len(wanted)) + 1)))

    def summary(self) -> dict[str, float]:
        """The figures, shares in per cent, times in milliseconds."""
        ordered = sorted(self.seconds)
        return {
            **{f"R@{depth}": 100 * statistics.mean(self.recall[depth]) for depth in DEPTHS if depth <= self.asked_for},
            **{f"hit@{depth}": 100 * statistics.mean(self.hit[depth]) for depth in (1, 5)},
            "MRR": 100 * statistics.mean(self.reciprocal_rank),
            "NDCG@10": 100 * statistics.mean(self.ndcg),
            **{f"R@10 {name}": 100 * statistics.mean(self.by_category[name]) for name in sorted(self.by_category)},
            "p50 ms": 1000 * ordered[len(ordered) // 2],
            "p95 ms": 1000 * ordered[int(len(ordered) * 0.95)],
        }


@dataclass(frozen=True)
class Question:
    """A question, and the ids of what answers it."""

    text: str
    wanted: set[str]
    category: str
    counts: bool = True


async def ask(
    systems: Mapping[str, System], questions: Sequence[Question], results: Mapping[str, Scores], title: str
) -> None:
    """Put each question to all systems in turn, so that what else the machine does slows all of them alike.

    A different one begins each time: who comes later finds what the first has warmed.
    """
    names = list(systems)
    for system in systems.values():
        await system.find("warm up", 1)
    for number, question in enumerate(tqdm(questions, desc=title, disable=None)):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            started = time.perf_counter()
            found = await systems[name].find(question.text, results[name].asked_for)
            results[name].seconds.append(time.perf_counter() - started)
            results[name].add(found, question.wanted, question.category, counts=question.counts)


def summaries_of(results: Mapping[str, Scores]) -> dict[str, dict[str, float]]:
    """The figures of each system; where retrieval by Chroma alone was measured, also the times beside its own."""
    summaries = {name: scores.summary() for name, scores in results.items()}
    if "floor" in summaries:
        floor = summaries["floor"]["p50 ms"]
        summaries = {name: {**summary, "p50 / floor": summary["p50 ms"] / floor} for name, summary in summaries.items()}
    return summaries


def report(results: Mapping[str, Scores], *, as_json: bool, title: str) -> None:
    """Print the figures of all systems, one beside the other."""
    summaries = summaries_of(results)
    if as_json:
        print(json.dumps({"benchmark": title, "systems": summaries}, indent=2))
        return
    print(f"\n{title}")
    print(f"{'':<22}" + "".join(f"{name:>{WIDTH}}" for name in summaries))
    for row in next(iter(summaries.values())):
        places = 2 if row == "p50 / floor" else 1
        print(f"{row:<22}" + "".join(f"{summary[row]:>{WIDTH}.{places}f}" for summary in summaries.values()))
