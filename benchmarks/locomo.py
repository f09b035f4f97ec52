"""How much of the evidence for questions about long conversations is found: LoCoMo.

    python benchmarks/locomo.py --data locomo10.json [--system ours --system autogen ...] [--json]

Every turn of a conversation is one memory, with its speaker, session and date; a question's answer is in one or more
turns. Everything goes through the public API. The data (CC BY-NC, not part of this repository) is `locomo10.json` of
the repository snap-research/locomo on GitHub.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from retrieval import Question, Scores, ask, report
from systems import SYSTEMS, Item

CATEGORIES = {1: "1 multi-hop", 2: "2 temporal", 3: "3 open-domain", 4: "4 single-hop", 5: "5 adversarial"}


def turns_of(conversation: dict[str, Any]) -> list[Item]:
    """The turns of a conversation, in order."""
    sessions = sorted((key for key in conversation if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:]))
    return [
        Item(
            id=turn["dia_id"],
            text=turn["text"],
            kind="interaction",
            speaker=turn["speaker"],
            session=session,
            at=datetime.strptime(conversation[f"{session}_date_time"], "%I:%M %p on %d %B, %Y").replace(
                tzinfo=timezone.utc
            ),
        )
        for session in sessions
        for turn in conversation[session]
        if turn["text"].strip()
    ]


def questions_of(questions: list[dict[str, Any]], turns: list[Item]) -> list[Question]:
    """The questions whose evidence is known. Adversarial ones are shown apart, and not counted."""
    known = {turn.id for turn in turns}
    asked = []
    for question in questions:
        wanted = {id for evidence in question["evidence"] for id in re.split(r"[;,\s]+", evidence)} & known
        if wanted:
            category = question["category"]
            asked.append(Question(question["question"], wanted, CATEGORIES[category], counts=category != 5))
    return asked


async def main(conversations: list[dict[str, Any]], systems: list[str], as_json: bool) -> None:
    results = {name: Scores() for name in systems}
    for number, sample in enumerate(conversations, start=1):
        turns = turns_of(sample["conversation"])
        questions = questions_of(sample["qa"], turns)
        for name in systems:
            system = SYSTEMS[name]()
            await system.store(turns)
            await system.find("warm up", 1)
            await ask(system, questions, results[name], f"{name}: conversation {number} of {len(conversations)}")
            await system.close()
    report(results, as_json=as_json, title=f"LoCoMo, {len(conversations)} conversations, categories 1 to 4")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the LoCoMo file")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="which system (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    conversations = json.loads(arguments.data.read_text(encoding="utf-8"))
    asyncio.run(main(conversations, arguments.system or list(SYSTEMS), arguments.json))
