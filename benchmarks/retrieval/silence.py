"""When memory should inject nothing: how often it injects needlessly, and how often too little, by threshold of similarity.

    python -m benchmarks.retrieval.silence --data locomo10.json [--json] [--plot silence.svg]

Messages: questions about one LoCoMo conversation, asked of the memory of another, should inject nothing; questions about
the conversation itself should keep at least one right memory, if the best ten hold one. Facts: the facts of
data/paraphrase.jsonl make two profiles, of seven and eight domains; each question is asked of the profile that holds its fact,
and of the other. Beside the curves: what the block contains with default settings.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from tqdm import tqdm

from autogen_persistent_memory import RecallPolicy
from benchmarks.lib.report import Table, chart
from benchmarks.lib.scores import Question, option_parser
from benchmarks.lib.systems import Item, Ours
from benchmarks.retrieval.locomo import read
from benchmarks.retrieval.paraphrase import read_facts

FOREIGN = 600
TEN = 10
MESSAGE_THRESHOLDS = [step / 100 for step in range(30, 71, 2)]
FACT_THRESHOLDS = [step / 1000 for step in range(50, 501, 25)]


@dataclass
class Outcome:
    """For each question the similarity that counts, and whether the block contains a memory with default settings."""

    answerable: list[float] = field(default_factory=list)
    """For each question with a right memory among the best ten: the similarity of the most similar right one."""
    foreign: list[float] = field(default_factory=list)
    """For each question without a right memory: the similarity of the most similar one."""
    answered: list[bool] = field(default_factory=list)
    disturbed: list[bool] = field(default_factory=list)

    def curve(self, thresholds: Iterable[float]) -> list[dict[str, float]]:
        """Return by threshold, in per cent, the questions that keep a right memory, and those that get a wrong one."""
        return [
            {
                "threshold": threshold,
                "kept": share(similarity >= threshold for similarity in self.answerable),
                "foreign": share(similarity >= threshold for similarity in self.foreign),
            }
            for threshold in thresholds
        ]

    def summary(self, thresholds: Iterable[float], default: float) -> dict[str, Any]:
        (at_default,) = self.curve([default])
        return {
            "answerable questions": len(self.answerable),
            "foreign questions": len(self.foreign),
            "default": at_default,
            "block": {"kept": share(self.answered), "foreign": share(self.disturbed)},
            "curve": self.curve(thresholds),
        }


def share(of: Iterable[bool]) -> float:
    held = list(of)
    return 100 * sum(held) / len(held) if held else 0.0


class Asked(Ours):
    """This package, and what it would inject."""

    async def right(self, question: Question, outcome: Outcome) -> None:
        """Ask a question that the memory can answer."""
        hits = await self._memory.recall(question.text, limit=TEN)
        right = [hit for hit in hits if hit.record.metadata["item"] in question.wanted]
        if right:
            outcome.answerable.append(max(hit.similarity for hit in right))
            block = await self._memory.context(question.text)
            outcome.answered.append(any(" ".join(hit.record.content.split()) in block for hit in right))

    async def foreign(self, question: Question, outcome: Outcome) -> None:
        """Ask a question that the memory cannot answer."""
        hits = await self._memory.recall(question.text, limit=TEN)
        outcome.foreign.append(max((hit.similarity for hit in hits), default=0.0))
        outcome.disturbed.append(bool(await self._memory.context(question.text)))


async def filled(groups: Sequence[Sequence[Item]]) -> list[Asked]:
    """Return a memory for each group of items."""
    memories = [Asked() for _ in groups]
    for memory, items in zip(memories, groups, strict=True):
        await memory.store(items)
    return memories


async def ask_messages(data: Path) -> Outcome:
    """Ask the questions about each conversation of its memory, and some of them of the memory of another one."""
    turns, questions = zip(*read(data), strict=True)
    memories = await filled(turns)
    outcome = Outcome()
    own = [(about, question) for about, asked in enumerate(questions) for question in asked if question.counts]
    for about, question in tqdm(own, desc="messages: answerable", disable=None):
        await memories[about].right(question, outcome)
    random = Random(7)
    for about, question in tqdm(random.sample(own, min(FOREIGN, len(own))), desc="messages: foreign", disable=None):
        other = random.choice([number for number in range(len(memories)) if number != about])
        await memories[other].foreign(question, outcome)
    for memory in memories:
        await memory.close()
    return outcome


async def ask_facts() -> Outcome:
    """Ask each question of the profile that holds its fact, and of the profile with the other domains."""
    rows = list(zip(*read_facts(), strict=True))
    domains = sorted({question.category for _, question in rows})
    halves = [[row for row in rows if domains.index(row[1].category) % 2 == half] for half in (0, 1)]
    memories = await filled([[fact for fact, _ in half] for half in halves])
    outcome = Outcome()
    for half, memory, other in zip(halves, memories, reversed(memories), strict=True):
        for _, question in tqdm(half, desc="facts", disable=None):
            await memory.right(question, outcome)
            await other.foreign(question, outcome)
    for memory in memories:
        await memory.close()
    return outcome


async def main(data: Path) -> dict[str, dict[str, Any]]:
    policy = RecallPolicy()
    messages, facts = await ask_messages(data), await ask_facts()
    return {
        "messages": messages.summary(MESSAGE_THRESHOLDS, policy.least_similarity("interaction")),
        "facts": facts.summary(FACT_THRESHOLDS, policy.min_similarity),
    }


def report(results: dict[str, dict[str, Any]]) -> None:
    for name, result in results.items():
        questions = f"{result['answerable questions']} answerable and {result['foreign questions']} foreign questions"
        points = {point["threshold"]: point for point in [*result["curve"], result["default"]]}
        rows = [
            [f"{at:.3f}{' (default)' if at == result['default']['threshold'] else ''}", point["kept"], point["foreign"]]
            for at, point in sorted(points.items())
        ]
        rows.append(["in the block", result["block"]["kept"], result["block"]["foreign"]])
        columns = ["least similarity", "answerable kept", "foreign injecting"]
        print(f"\n{Table(columns, rows, f'{name}: {questions}').text()}")


def plot(results: dict[str, dict[str, Any]], picture: Path) -> None:
    """Draw the curves."""
    figure, panels = chart(2, "silence", figsize=(11, 4.2), sharey=True)
    for panel, (name, result) in zip(panels, results.items(), strict=True):
        at, default = [point["threshold"] for point in result["curve"]], result["default"]
        for line, colour, label in (
            ("kept", "#1a7f37", "answerable: a right memory is kept"),
            ("foreign", "#c0392b", "foreign: anything is injected"),
        ):
            panel.plot(at, [point[line] for point in result["curve"]], color=colour, linewidth=2, label=label)
            panel.plot(default["threshold"], default[line], "o", color=colour)
            panel.annotate(
                f"{default[line]:.1f} %",
                (default["threshold"], default[line]),
                xytext=(6, 5) if line == "kept" else (-6, -13),
                textcoords="offset points",
                horizontalalignment="left" if line == "kept" else "right",
                color=colour,
            )
        panel.axvline(default["threshold"], color="#888888", linewidth=1, linestyle="--")
        panel.set(title=f"{name}, default {default['threshold']:.2f}", xlabel="least similarity", ylim=(0, 112))
    panels[0].set_ylabel("share of questions, %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    parser = option_parser(__doc__, locomo=True)
    parser.add_argument("--plot", type=Path, help="draw the curves into this SVG file")
    arguments = parser.parse_args()
    if arguments.plot and find_spec("matplotlib") is None:
        sys.exit("The picture needs matplotlib: pip install --group benchmarks (or: pip install matplotlib)")
    results = asyncio.run(main(arguments.data))
    if arguments.json:
        print(json.dumps({"benchmark": "silence", **results}, indent=2))
    else:
        report(results)
    if arguments.plot:
        plot(results, arguments.plot)
