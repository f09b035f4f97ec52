"""How much of the evidence for questions about long conversations is found: LoCoMo.

    python -m benchmarks.retrieval.locomo --data locomo10.json [--system ours --system autogen ...] [--limit 20] [--json]
    python -m benchmarks.retrieval.locomo --data locomo10.json --ages half-yesterday --limit 10 [--json]

Every turn of a conversation is one memory, with its speaker, session and date; a question's answer is in one or more
turns. Everything goes through the public API. With `--ages half-yesterday` half of the turns, always the same ones, are
dated yesterday: recent memories must not displace right ones, so our order is shown beside the order by relevance alone.
The result depends on `--limit`: relevance chooses that many memories, and confidence orders them. The data (CC BY-NC, not
part of this repository) is `locomo10.json` of the repository snap-research/locomo on GitHub.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.lib.scores import Question, Scores, compare, option_parser, report
from benchmarks.lib.systems import COMPARED, SYSTEMS, Item

CATEGORIES = {1: "1 multi-hop", 2: "2 temporal", 3: "3 open-domain", 4: "4 single-hop", 5: "5 adversarial"}
ADVERSARIAL = 5


def turns_of(conversation: dict[str, Any]) -> list[Item]:
    """Return the turns of a conversation, in order."""
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


def evidence_of(question: dict[str, Any]) -> set[str]:
    """Return the ids of the turns that answer a question. Some strings hold several, some are misspelt (D:11:26, D30:05)."""
    return {
        f"D{int(session)}:{int(turn)}"
        for text in question["evidence"]
        for session, turn in re.findall(r"D:?(\d+):(\d+)", text)
    }


def questions_of(questions: Sequence[dict[str, Any]], turns: Sequence[Item]) -> list[Question]:
    """Return the questions whose evidence is known. Adversarial ones are shown, but not counted."""
    known = {turn.id for turn in turns}
    return [
        Question(question["question"], wanted, CATEGORIES[category], counts=category != ADVERSARIAL)
        for question in questions
        for category in [question["category"]]
        if (wanted := evidence_of(question) & known)
    ]


def read(data: Path) -> Iterator[tuple[list[Item], list[Question]]]:
    """Yield the turns of each conversation, and the questions about it."""
    for sample in json.loads(data.read_text(encoding="utf-8")):
        turns = turns_of(sample["conversation"])
        yield turns, questions_of(sample["qa"], turns)


def half_yesterday(turns: Sequence[Item]) -> list[Item]:
    """Return the turns, with a random half of them, always the same, dated yesterday."""
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)
    chosen = set(Random(7).sample(range(len(turns)), len(turns) // 2))
    return [replace(turn, at=yesterday) if number in chosen else turn for number, turn in enumerate(turns)]


async def main(data: Path, systems: Sequence[str], *, limit: int, mixed_ages: bool, as_json: bool) -> None:
    results = {name: Scores(limit) for name in systems}
    conversations = list(read(data))
    for number, (turns, questions) in enumerate(conversations, start=1):
        compared = {name: SYSTEMS[name]() for name in systems}
        items = half_yesterday(turns) if mixed_ages else turns
        await compare(compared, items, questions, results, f"conversation {number} of {len(conversations)}")
    ages = ", half of the turns said yesterday" if mixed_ages else ""
    report(results, as_json=as_json, title=f"LoCoMo, {len(conversations)} conversations, categories 1 to 4{ages}")


if __name__ == "__main__":
    parser = option_parser(__doc__, locomo=True)
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="a system (default: several)")
    parser.add_argument("--limit", type=int, choices=[10, 20], default=20, help="how many memories to ask for")
    parser.add_argument("--ages", choices=["half-yesterday"], help="date half of the turns yesterday")
    arguments = parser.parse_args()
    mixed_ages = arguments.ages is not None
    systems = list(dict.fromkeys(arguments.system or (["ours", "relevance"] if mixed_ages else COMPARED)))
    asyncio.run(main(arguments.data, systems, limit=arguments.limit, mixed_ages=mixed_ages, as_json=arguments.json))
