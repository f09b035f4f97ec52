"""What each part of the ranking is worth: the same questions, with one part left out or one constant changed at a time.

    python -m benchmarks.retrieval.ablation --data locomo10.json [--facts N] [--json]

The questions are those of LoCoMo and of the paraphrased facts: a change that helps one may harm the other. A part with a
weight in `RecallPolicy` is left out by setting it to 0. The rewriting of questions to the first person ("Where did Ann go?"
is embedded as "Where did I go?") has no weight: it is left out by an embedding that gets the original question. Constants
inside the package are patched during the search.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from autogen_persistent_memory import CallableEmbedding, MiniLMEmbedding, RecallPolicy, TemporaryStore
from autogen_persistent_memory.core.records import SIGNALS
from autogen_persistent_memory.retrieval import keyword_index, search
from autogen_persistent_memory.text.minilm import load_minilm
from benchmarks.lib.report import Table
from benchmarks.lib.scores import Question, Scores, compare, option_parser
from benchmarks.lib.systems import Item, Ours, System
from benchmarks.retrieval.locomo import read
from benchmarks.retrieval.paraphrase import read_facts

Results = dict[str, Scores]

WEIGHTS = {f"without {signal.name}": signal.weight for signal in SIGNALS if signal.weight is not None}
CONSTANTS: dict[str, tuple[ModuleType, dict[str, float]]] = {
    "words not sharpened": (keyword_index, {"_SHARPNESS": 1.0}),
    "words sharpened to 4": (keyword_index, {"_SHARPNESS": 4.0}),
    "BM25 k1 1.5, b 0.75": (keyword_index, {"_K1": 1.5, "_B": 0.75}),
    "words without turns around": (
        keyword_index,
        {"_PREVIOUS": 0.0, "_BEFORE_THAT": 0.0, "_NEXT": 0.0, "_ANSWERED": 0.0},
    ),
    "words without answers": (keyword_index, {"_ANSWERED": 0.0}),
    "1 candidate by words": (search, {"_BY_WORDS": 1}),
    "200 candidates by words": (search, {"_BY_WORDS": 200}),
}
COLUMNS = ["R@10", "1 multi-hop", "2 temporal", "3 open-domain", "4 single-hop", "MRR", "facts hit@1", "facts hit@5"]


class WithoutFirstPerson(Ours):
    """This package, without rewriting questions to the first person."""

    def __init__(self, store: TemporaryStore) -> None:
        self._question = ""
        super().__init__(store=store, embedding=CallableEmbedding(self._embed, id=MiniLMEmbedding.id))

    async def find(self, question: str, limit: int) -> list[str]:
        self._question = question
        return await super().find(question, limit)

    def _embed(self, texts: list[str]) -> Any:
        return load_minilm(None).embed([self._question])


class Patched(Ours):
    """This package with other constants."""

    def __init__(
        self, store: TemporaryStore, embedding: MiniLMEmbedding, module: ModuleType, values: Mapping[str, float]
    ) -> None:
        super().__init__(store=store, embedding=embedding)
        self._module, self._values = module, values

    async def find(self, question: str, limit: int) -> list[str]:
        with patch.multiple(self._module, **self._values):
            return await super().find(question, limit)


def variants(store: TemporaryStore) -> dict[str, System]:
    """Return this package as it is, and with each of the changes: all on one store, and with one cache of vectors."""
    embedding = MiniLMEmbedding()

    def by(policy: RecallPolicy) -> Ours:
        return Ours(store=store, embedding=embedding, policy=policy)

    return {
        "as it is": by(RecallPolicy()),
        **{name: by(RecallPolicy(**{weight: 0.0})) for name, weight in WEIGHTS.items()},
        "without first person": WithoutFirstPerson(store),
        "30 candidates, not 100": by(RecallPolicy(candidates=30)),
        **{name: Patched(store, embedding, module, values) for name, (module, values) in CONSTANTS.items()},
    }


async def measure(items: Sequence[Item], questions: Sequence[Question], results: Results, title: str) -> None:
    """Ask every variant for the same items, which are stored once."""
    systems = variants(TemporaryStore())
    for name in systems:
        results.setdefault(name, Scores())
    await compare(systems, items, questions, results, title, stored_by=["as it is"])


async def main(data: Path, facts_asked: int | None) -> dict[str, dict[str, float]]:
    """Return the figures of each variant."""
    turns: Results = {}
    facts: Results = {}
    conversations = list(read(data))
    for number, (items, questions) in enumerate(conversations, start=1):
        await measure(items, questions, turns, f"conversation {number} of {len(conversations)}")
    stated, asked = read_facts()
    await measure(stated, asked[:facts_asked], facts, "facts")
    found = {
        way: {name.removeprefix("R@10 "): figure for name, figure in scores.summary().items()}
        | {f"facts {name}": figure for name, figure in facts[way].summary().items()}
        for way, scores in turns.items()
    }
    return {way: {column: figures[column] for column in COLUMNS} for way, figures in found.items()}


if __name__ == "__main__":
    parser = option_parser(__doc__, locomo=True)
    parser.add_argument("--facts", type=int, help="ask only for the first N facts")
    arguments = parser.parse_args()
    found = asyncio.run(main(arguments.data, arguments.facts))
    if arguments.json:
        print(json.dumps({"benchmark": "ablation", "ways": found}, indent=2))
    else:
        print(f"\n{Table(['', *COLUMNS], [[way, *figures.values()] for way, figures in found.items()]).text()}")
