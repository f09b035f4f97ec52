"""Whether a real language model answers from memory: 20 questions about what it was told in an earlier process.

    python -m benchmarks.retrieval.llm [--first N] [--limit N] [--unseen] [--show] [--json]

The model is SmolLM2-135M (samples/local_model.py), the smallest there is, through AutoGen's own OpenAI client. In one
process a user tells an `AssistantAgent(memory=[PersistentMemory(...)])` twenty things, in natural sentences and one
conversation (data/llm.jsonl). In a second process a new agent is asked about each, once with that memory and once without.
An answer is right if it contains one of the expected words. The facts are arbitrary, so that nobody can guess them. Nothing
is captured while questions are asked, so that no answer influences the next.

Other memories beside the right one easily mislead a model this small, so the block holds one memory; the default of the package
is `--limit 5`. Settings were compared on the first twenty questions; `--unseen` asks twenty others, which were written after
that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import MemoryQueryEvent
from tqdm import tqdm

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, RecallPolicy
from benchmarks.lib.scores import option_parser

BENCHMARKS = Path(__file__).parents[1]
sys.path.insert(0, str(BENCHMARKS.parent / "samples"))

from local_model import LocalModel, local_model, missing  # noqa: E402

DATA = {False: BENCHMARKS / "data" / "llm.jsonl", True: BENCHMARKS / "data" / "llm_unseen.jsonl"}
USER = "torvald"
PROMPT = "You are a helpful assistant. Answer briefly."
MAX_TOKENS = 60


def is_right(answer: str, expected: Sequence[str]) -> bool:
    """Return whether one of the expected words is in the answer."""
    return any(re.search(rf"\b{re.escape(word)}\b", answer, re.IGNORECASE) for word in expected)


def agent_with(model: LocalModel, memory: PersistentMemory | None = None) -> AssistantAgent:
    client = model.client(max_tokens=MAX_TOKENS)
    return AssistantAgent(
        "assistant", model_client=client, system_message=PROMPT, memory=None if memory is None else [memory]
    )


async def tell(path: str, rows: Sequence[dict[str, Any]]) -> None:
    """Run the first process: a conversation in which the user tells everything."""
    async with local_model() as model, PersistentMemory(USER, store=EmbeddedStore(path)) as memory:
        agent = agent_with(model, memory)
        for row in tqdm(rows, "telling", file=sys.stderr, disable=not sys.stderr.isatty()):
            await agent.run(task=row["told"])


async def ask(path: str, rows: Sequence[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Run the second process: ask new agents every question, with memory and without."""
    policy = RecallPolicy(limit=limit)
    answers = []
    async with (
        local_model() as model,
        PersistentMemory(USER, store=EmbeddedStore(path), policy=policy, capture=False) as memory,
    ):
        for row in tqdm(rows, "asking", file=sys.stderr, disable=not sys.stderr.isatty()):
            remembering = await agent_with(model, memory).run(task=row["asked"])
            blank = await agent_with(model).run(task=row["asked"])
            answers.append(
                {**row, "remembered": recalled(remembering), "with": reply(remembering), "without": reply(blank)}
            )
    return answers


def reply(result: TaskResult) -> str:
    return " ".join(result.messages[-1].to_text().split())  # type: ignore[union-attr]


def recalled(result: TaskResult) -> list[str]:
    """Return the injected memories."""
    events = [message for message in result.messages if isinstance(message, MemoryQueryEvent)]
    return [str(content.content) for event in events for content in event.content]


def in_new_process(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.retrieval.llm", *arguments]
    return subprocess.run(command, cwd=BENCHMARKS.parent, stdout=subprocess.PIPE, text=True, check=True).stdout


def judge(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = [
        {
            **row,
            "right with": is_right(row["with"], row["expected"]),
            "right without": is_right(row["without"], row["expected"]),
            "remembered it": any(is_right(text, row["expected"]) for text in row["remembered"]),
        }
        for row in answers
    ]
    return {
        "benchmark": "a real model with and without memory",
        "questions": len(rows),
        "right with memory": sum(row["right with"] for row in rows),
        "right without memory": sum(row["right without"] for row in rows),
        "in the block": sum(row["remembered it"] for row in rows),
        "rows": rows,
    }


def report(figures: dict[str, Any], show: bool) -> None:
    def cell(row: dict[str, Any], way: str) -> str:
        text = row[way] if len(row[way]) <= 46 else row[way][:45] + "…"
        return f"{'✓' if row[f'right {way}'] else '✗'} {text:46}"

    print(f"{'question':47} {'expected':13} {'with memory':48} without memory")
    for row in figures["rows"]:
        print(f"{row['asked']:47} {row['expected'][0]:13} {cell(row, 'with')} {cell(row, 'without')}")
        for text in row["remembered"] if show else ():
            print(f"    {text}")
    print(
        f"\nright with memory {figures['right with memory']} of {figures['questions']}, "
        f"without {figures['right without memory']}; the fact was in the block {figures['in the block']} times"
    )


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--first", type=int, help="only the first N questions")
    parser.add_argument("--limit", type=int, default=1, help="how many memories may be in the block")
    parser.add_argument("--unseen", action="store_true", help="the questions that were not used to choose settings")
    parser.add_argument("--show", action="store_true", help="print the injected memories")
    parser.add_argument("--process", choices=["tell", "ask"], help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if (lacking := missing()) is not None:
        sys.exit(lacking)
    rows = [json.loads(line) for line in DATA[options.unseen].read_text("utf-8").splitlines()][: options.first]
    if options.process == "tell":
        asyncio.run(tell(options.path, rows))
        return
    if options.process == "ask":
        print(json.dumps(asyncio.run(ask(options.path, rows, options.limit))))
        return
    given = [item for name in ("first", "limit") if (n := getattr(options, name)) for item in (f"--{name}", str(n))]
    given += ["--unseen"] if options.unseen else []
    with tempfile.TemporaryDirectory() as folder:
        in_new_process("--process", "tell", "--path", folder, *given)
        figures = judge(json.loads(in_new_process("--process", "ask", "--path", folder, *given)))
    if options.json:
        print(json.dumps(figures))
    else:
        report(figures, options.show)


if __name__ == "__main__":
    main()
