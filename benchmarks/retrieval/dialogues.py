"""Whether the right memory comes up in a conversation, also when the latest message alone does not say what it is about.

    python -m benchmarks.retrieval.dialogues [--together] [--half even|odd] [--first N] [--json]

68 short conversations of six kinds, each with the memories of its user (data/dialogues.jsonl, written for this benchmark):
messages that refer back or are very short, that stand for themselves or change the topic, teammates that chatter after the
user's question, long tool output. A conversation is replayed into a model context, then `update_context` is called: what
counts is which memories the model would see, and in what order. Beside our way to ask, in the same run: the literally last
message (as AutoGen's own memories do), the user's last message, and everything that was said.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, LLMMessage, UserMessage
from tqdm import tqdm

from autogen_persistent_memory import MiniLMEmbedding, PersistentMemory, RecallPolicy, TemporaryStore

DATA = Path(__file__).parents[1] / "data" / "dialogues.jsonl"


@dataclass(frozen=True)
class Dialogue:
    """A conversation, what the user's memory holds, and which of it the next answer needs."""

    id: str
    kind: str
    memories: Sequence[str]
    turns: Sequence[tuple[str, str]]
    expected: set[str]

    @property
    def messages(self) -> list[LLMMessage]:
        return [
            AssistantMessage(content=text, source=source)
            if source == "assistant"
            else UserMessage(content=text, source=source)
            for source, text in self.turns
        ]


def last_line(dialogue: Dialogue) -> str:
    return dialogue.turns[-1][1]


def last_of_user(dialogue: Dialogue) -> str:
    return next(text for source, text in reversed(dialogue.turns) if source == "user")


def everything(dialogue: Dialogue) -> str:
    return "\n".join(text for _, text in dialogue.turns)


WAYS: dict[str, Callable[[Dialogue], str | None]] = {
    "ours": lambda dialogue: None,
    "user's last": last_of_user,
    "last line": last_line,
    "everything": everything,
}


@dataclass
class Scores:
    """What one way to ask brought before the model, dialogue by dialogue."""

    injected: list[float] = field(default_factory=list)
    first: list[bool] = field(default_factory=list)
    among_three: list[bool] = field(default_factory=list)
    unexpected: list[int] = field(default_factory=list)

    def add(self, shown: Sequence[str], expected: set[str]) -> None:
        self.injected.append(len(expected & set(shown)) / len(expected))
        self.first.append(bool(expected & set(shown[:1])))
        self.among_three.append(bool(expected & set(shown[:3])))
        self.unexpected.append(len(set(shown) - expected))

    def summary(self) -> dict[str, float]:
        """The figures, shares in per cent."""
        return {
            "injected": 100 * statistics.mean(self.injected),
            "hit@1": 100 * statistics.mean(self.first),
            "hit@3": 100 * statistics.mean(self.among_three),
            "unexpected": statistics.mean(self.unexpected),
        }


Results = dict[str, dict[str, Scores]]


async def converse(dialogue: Dialogue, memory: PersistentMemory) -> list[str]:
    """The memories that the model sees after this conversation, in their order."""
    context = UnboundedChatCompletionContext(initial_messages=dialogue.messages)
    return [str(memory.content) for memory in (await memory.update_context(context)).memories.results]


async def main(dialogues: Sequence[Dialogue], *, together: bool) -> Results:
    """Ask in every way; the scores by way and kind.

    Each conversation has a memory of its own, fresh for each way, so that nothing is reinforced by another. Together,
    all conversations share one, in which use does not count for the same reason.
    """
    results: Results = {way: defaultdict(Scores) for way in WAYS}
    everyone = [content for dialogue in read(None, None) for content in dialogue.memories]
    store, embedding = TemporaryStore(), MiniLMEmbedding()
    for way, query in WAYS.items():
        for dialogue in tqdm(dialogues, desc=way, disable=None):
            policy = RecallPolicy(query=query(dialogue), frequency_weight=0.0 if together else 0.2)
            namespace = way if together else f"{way}/{dialogue.id}"
            async with PersistentMemory(
                namespace, store=store, embedding=embedding, policy=policy, capture=False
            ) as memory:
                if not together or dialogue is dialogues[0]:
                    await memory.remember_many(everyone if together else dialogue.memories)
                shown = await converse(dialogue, memory)
            for kind in (dialogue.kind, "all"):
                results[way][kind].add(shown, dialogue.expected)
    return results


def read(half: str | None, first: int | None) -> list[Dialogue]:
    """The dialogues of a half; our rules were made with the even ones in view, the odd ones were held out."""
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    chosen = {"even": rows[::2], "odd": rows[1::2], None: rows}[half][:first]
    return [
        Dialogue(
            id=row["id"],
            kind=row["kind"],
            memories=row["memories"],
            turns=[(turn["source"], turn["text"]) for turn in row["turns"]],
            expected={row["memories"][index] for index in row["expected"]},
        )
        for row in chosen
    ]


def report(results: Results, *, title: str, as_json: bool) -> None:
    """Print the figures of all ways, by kind."""
    summaries = {way: {kind: scores.summary() for kind, scores in by_kind.items()} for way, by_kind in results.items()}
    if as_json:
        print(json.dumps({"benchmark": title, "ways": summaries}, indent=2))
        return
    print(f"\n{title}")
    print(f"{'':<28}" + "".join(f"{way:>13}" for way in summaries))
    kinds = sorted(next(iter(summaries.values())), key=lambda kind: (kind != "all", kind))
    for kind in kinds:
        for figure in ("injected", "hit@1", "hit@3", "unexpected"):
            row = "".join(f"{summary[kind][figure]:>13.1f}" for summary in summaries.values())
            print(f"{kind + ' ' + figure:<28}{row}")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--together", action="store_true", help="all memories in one namespace, not one per dialogue")
    parser.add_argument("--half", choices=["even", "odd"], help="only the dialogues of even or of odd index")
    parser.add_argument("--first", type=int, help="only so many dialogues")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    dialogues = read(arguments.half, arguments.first)
    results = asyncio.run(main(dialogues, together=arguments.together))
    where = "all memories together" if arguments.together else "each with its own memories"
    report(results, title=f"{len(dialogues)} dialogues, {where}", as_json=arguments.json)
