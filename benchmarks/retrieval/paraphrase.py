"""Whether a fact is found by a question that shares no content word with it.

    python -m benchmarks.retrieval.paraphrase [--system ours --system minilm ...] [--json]

195 profile facts of fifteen domains and a question each, written for this benchmark (data/paraphrase.jsonl).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from pathlib import Path

from benchmarks.lib.metrics import Question, Scores, ask, report
from benchmarks.lib.systems import COMPARED, SYSTEMS, Item

DATA = Path(__file__).parents[1] / "data" / "paraphrase.jsonl"


def read_facts() -> tuple[list[Item], list[Question]]:
    """The facts, and a question for each."""
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    facts = [Item(id=row["id"], text=row["fact"], kind=row["kind"]) for row in rows]
    return facts, [Question(row["question"], {row["id"]}, row["domain"]) for row in rows]


async def main(systems: list[str], as_json: bool) -> None:
    facts, questions = read_facts()
    results = {name: Scores() for name in systems}
    compared = {name: SYSTEMS[name]() for name in systems}
    for system in compared.values():
        await system.store(facts)
    await ask(compared, questions, results, "questions")
    for system in compared.values():
        await system.close()
    report(results, as_json=as_json, title=f"{len(facts)} paraphrased profile facts")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="which system (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.system or COMPARED, arguments.json))
