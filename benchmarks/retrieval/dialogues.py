"""Whether the right memory is injected in a conversation, also when the last message alone does not say what it is about.

    python -m benchmarks.retrieval.dialogues [--together] [--half even|odd] [--first N] [--json]

68 short conversations of six kinds, each with the memories of its user (data/dialogues.jsonl, written for this benchmark):
messages that refer back, very short ones, ones that stand alone or change the topic, teammates who talk after the user's
question, long tool output. A conversation is replayed into a model context, then `update_context` is called: the memories
that the model would see are scored, with their order. The same run compares our query with the last message (which AutoGen's
own memories use), the user's last message, and the whole conversation.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, LLMMessage, UserMessage
from tqdm import tqdm

from autogen_persistent_memory import MiniLMEmbedding, PersistentMemory, RecallPolicy, TemporaryStore
from benchmarks.lib.report import Table
from benchmarks.lib.scores import option_parser

DATA = Path(__file__).parents[1] / "data" / "dialogues.jsonl"


@dataclass(frozen=True)
class Dialogue:
    """A conversation, the user's memories, and those that the next answer needs."""

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


WAYS: dict[str, Callable[[Dialogue], str | None]] = {
    "ours": lambda dialogue: None,
    "user's last": lambda dialogue: next(text for source, text in reversed(dialogue.turns) if source == "user"),
    "last line": lambda dialogue: dialogue.turns[-1][1],
    "everything": lambda dialogue: "\n".join(text for _, text in dialogue.turns),
}
"""What memory is asked."""


@dataclass
class Scores:
    """What one kind of query injected, dialogue by dialogue."""

    injected: list[float] = field(default_factory=list)
    best: list[bool] = field(default_factory=list)
    among_three: list[bool] = field(default_factory=list)
    unexpected: list[int] = field(default_factory=list)

    def add(self, shown: Sequence[str], expected: set[str]) -> None:
        self.injected.append(len(expected & set(shown)) / len(expected))
        self.best.append(bool(expected & set(shown[:1])))
        self.among_three.append(bool(expected & set(shown[:3])))
        self.unexpected.append(len(set(shown) - expected))

    def summary(self) -> dict[str, float]:
        """Return the figures; shares in per cent."""
        return {
            "injected": 100 * statistics.mean(self.injected),
            "hit@1": 100 * statistics.mean(self.best),
            "hit@3": 100 * statistics.mean(self.among_three),
            "unexpected": statistics.mean(self.unexpected),
        }


Results = dict[str, dict[str, Scores]]


async def converse(dialogue: Dialogue, memory: PersistentMemory) -> list[str]:
    """Return the memories that the model sees after this conversation, in order."""
    context = UnboundedChatCompletionContext(initial_messages=dialogue.messages)
    return [str(memory.content) for memory in (await memory.update_context(context)).memories.results]


async def main(dialogues: Sequence[Dialogue], *, together: bool) -> Results:
    """Run all kinds of query, and return their scores by the kind of dialogue.

    Each dialogue has a new memory for each query, so that no query reinforces memories for another. With `together`
    all dialogues share one memory, in which use does not count, for the same reason.
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
    """Return the dialogues of a half. Our rules were developed on the even ones; the odd ones were held out."""
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
    """Print the figures of all queries, by kind of dialogue."""
    summaries = {way: {kind: scores.summary() for kind, scores in by_kind.items()} for way, by_kind in results.items()}
    if as_json:
        print(json.dumps({"benchmark": title, "ways": summaries}, indent=2))
        return
    kinds = sorted(next(iter(summaries.values())), key=lambda kind: (kind != "all", kind))
    rows = [
        [f"{kind} {figure}", *(summary[kind][figure] for summary in summaries.values())]
        for kind in kinds
        for figure in ("injected", "hit@1", "hit@3", "unexpected")
    ]
    print(f"\n{Table(['', *summaries], rows, title).text()}")


if __name__ == "__main__":
    parser = option_parser(__doc__)
    parser.add_argument("--together", action="store_true", help="all memories in one namespace, not one per dialogue")
    parser.add_argument("--half", choices=["even", "odd"], help="only the dialogues of even or of odd index")
    parser.add_argument("--first", type=int, help="only the first N dialogues")
    arguments = parser.parse_args()
    dialogues = read(arguments.half, arguments.first)
    results = asyncio.run(main(dialogues, together=arguments.together))
    where = "all memories together" if arguments.together else "each with its own memories"
    report(results, title=f"{len(dialogues)} dialogues, {where}", as_json=arguments.json)
