"""Whether a fact is found by a question that shares no content word with it.

    python -m benchmarks.retrieval.paraphrase [--system ours --system minilm ...] [--json]

195 profile facts of fifteen domains and a question each, written for this benchmark (data/paraphrase.jsonl).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from benchmarks.lib.scores import Question, Scores, compare, option_parser, report
from benchmarks.lib.systems import COMPARED, SYSTEMS, Item

DATA = Path(__file__).parents[1] / "data" / "paraphrase.jsonl"


def read_facts() -> tuple[list[Item], list[Question]]:
    """Return the facts, and a question for each."""
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    facts = [Item(id=row["id"], text=row["fact"], kind=row["kind"]) for row in rows]
    return facts, [Question(row["question"], {row["id"]}, row["domain"]) for row in rows]


async def main(systems: list[str], as_json: bool) -> None:
    facts, questions = read_facts()
    results = {name: Scores() for name in systems}
    await compare({name: SYSTEMS[name]() for name in systems}, facts, questions, results, "questions")
    report(results, as_json=as_json, title=f"{len(facts)} paraphrased profile facts")


if __name__ == "__main__":
    parser = option_parser(__doc__)
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="a system (default: several)")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.system or COMPARED, arguments.json))
