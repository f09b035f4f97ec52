"""How retrieval is scored: systems that answer the same questions in turns, and the table of their figures."""

from __future__ import annotations

import argparse
import json
import logging
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from benchmarks.lib.report import Table
from benchmarks.lib.systems import Item, System
from benchmarks.lib.timing import milliseconds

DEPTHS = (5, 10, 20)


@dataclass
class Scores:
    """What one system found, question by question."""

    limit: int = max(DEPTHS)
    """How many memories a question asks for."""
    recall: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    hit: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    reciprocal_rank: list[float] = field(default_factory=list)
    ndcg: list[float] = field(default_factory=list)
    by_category: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: list[float] = field(default_factory=list)

    def add(self, found: Sequence[str], wanted: set[str], category: str, *, counts: bool = True) -> None:
        """Add what was found for a question; one that does not count is only shown under its category."""
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
        """Return the figures: shares in per cent, times in milliseconds."""
        return {
            **{f"R@{depth}": 100 * statistics.mean(self.recall[depth]) for depth in DEPTHS if depth <= self.limit},
            **{f"hit@{depth}": 100 * statistics.mean(self.hit[depth]) for depth in (1, 5)},
            "MRR": 100 * statistics.mean(self.reciprocal_rank),
            "NDCG@10": 100 * statistics.mean(self.ndcg),
            **{f"R@10 {name}": 100 * statistics.mean(self.by_category[name]) for name in sorted(self.by_category)},
            "p50 ms": milliseconds(self.seconds),
            "p95 ms": milliseconds(self.seconds, 0.95),
        }


@dataclass(frozen=True)
class Question:
    """A question, and the ids of the memories that answer it."""

    text: str
    wanted: set[str]
    category: str
    counts: bool = True


async def compare(
    systems: Mapping[str, System],
    items: Sequence[Item],
    questions: Sequence[Question],
    results: Mapping[str, Scores],
    title: str,
    stored_by: Sequence[str] | None = None,
) -> None:
    """Store the items in all systems (or in those that the others share), ask every question of each, and close them.

    All systems answer a question before the next is asked, so that a busy machine slows all of them alike; each time another
    system is first, since the later ones find warm caches.
    """
    names = list(systems)
    for name in stored_by or names:
        await systems[name].store(items)
    for system in systems.values():
        await system.find("warm up", 1)
    for number, question in enumerate(tqdm(questions, desc=title, disable=None)):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            started = time.perf_counter()
            found = await systems[name].find(question.text, results[name].limit)
            results[name].seconds.append(time.perf_counter() - started)
            results[name].add(found, question.wanted, question.category, counts=question.counts)
    for system in systems.values():
        await system.close()


def report(results: Mapping[str, Scores], *, as_json: bool, title: str) -> None:
    """Print the figures of all systems side by side, and if the floor was measured the ratio of the times to its own."""
    summaries = {name: scores.summary() for name, scores in results.items()}
    if "floor" in summaries:
        floor = summaries["floor"]["p50 ms"]
        summaries = {name: {**summary, "p50 / floor": summary["p50 ms"] / floor} for name, summary in summaries.items()}
    if as_json:
        print(json.dumps({"benchmark": title, "systems": summaries}, indent=2))
        return
    rows = [[row, *(summary[row] for summary in summaries.values())] for row in next(iter(summaries.values()))]
    print(f"\n{Table(['', *summaries], rows, title).text()}")


def option_parser(description: str | None, *, locomo: bool = False) -> argparse.ArgumentParser:
    """Return a parser with `--json`, and `--data` if the script needs LoCoMo's file; warnings are silenced."""
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    if locomo:
        parser.add_argument("--data", type=Path, required=True, help="the LoCoMo file")
    return parser
