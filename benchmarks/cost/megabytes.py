"""How long the event loop stands still for messages of a megabyte that are made to be slow to read.

python -m benchmarks.cost.megabytes [--only NAME]... [--path PATH]... [--json]
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from autogen_core import CancellationToken, FunctionCall
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, FunctionExecutionResult, FunctionExecutionResultMessage, UserMessage
from autogen_core.tools import BaseTool

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, memory_tools
from benchmarks.lib.scores import option_parser
from benchmarks.lib.systems import agent_with, run_task, scripted
from benchmarks.lib.timing import stalls_during

SIZE = 1_000_000
"""Bytes of a text in UTF-8."""
_random = random.Random(14)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _filled(unit: str, begin: str = "", end: str = "") -> str:
    """Return a megabyte of a repeated unit."""
    count = (SIZE - len((begin + end).encode())) // len(unit.encode("utf-8", "surrogatepass"))
    return begin + unit * count + end


def _nested(opening: str, closing: str) -> str:
    count = SIZE // len(opening + closing)
    return opening * count + closing * count


def _drawn(make: Callable[[], str], between: str = " ") -> str:
    """Return a megabyte of different units."""
    units: list[str] = []
    size = 0
    while size < SIZE - 200:
        units.append(make())
        size += len((units[-1] + between).encode())
    return between.join(units)


def _word() -> str:
    return "".join(_random.choices(_LETTERS, k=_random.randint(2, 10)))


def _letters(first: int, last: int) -> Callable[[], str]:
    return lambda: "".join(chr(_random.randint(first, last)) for _ in range(_random.randint(2, 9)))


TEXTS: Mapping[str, Callable[[], str]] = {
    "one word": lambda: _filled("a"),
    "one word with y": lambda: _filled("ay"),
    "one word in capitals": lambda: _filled("Ab"),
    "words of 65,000 letters": lambda: _filled("ingly" * 13_000 + " "),
    "base64": lambda: base64.b64encode(_random.randbytes(SIZE * 3 // 4 - 3)).decode(),
    "hexadecimal": lambda: _random.randbytes(SIZE // 2).hex(),
    "digits": lambda: _filled("4111"),
    "digits and spaces": lambda: _filled("4 1 1 1 "),
    "one line of words": lambda: _drawn(_word),
    "different names": lambda: _drawn(lambda: _word().capitalize()),
    "sentences": lambda: _drawn(lambda: " ".join(_word() for _ in range(9)).capitalize() + "."),
    "half a million lines": lambda: _filled("a\n"),
    "a million line breaks": lambda: _filled("\n", "Begin", "end"),
    "mixed line breaks": lambda: _filled("\r\n\r\u2028\n\x85\x0b", "Begin", "end"),
    "a million spaces": lambda: _filled(" ", "I am", "here"),
    "unicode spaces": lambda: _filled("\u00a0\u2003\u3000\u202f ", "I am", "here"),
    "full stops": lambda: _filled(".", "I am"),
    "ends of sentences": lambda: _filled("I. "),
    "question marks": lambda: _filled("?", "Am I"),
    "hyphens": lambda: _filled("-", "I am "),
    "hyphened words": lambda: _filled("so-"),
    "commas": lambda: _filled(",", "I like"),
    "lists": lambda: _filled("tea, ", "I like "),
    "quotes": lambda: _filled('"', "I am "),
    "apostrophes": lambda: _filled("'", "I am "),
    "contractions": lambda: _filled("it's 'not' "),
    "round brackets": lambda: _nested("(", ")"),
    "mixed brackets": lambda: _nested("[{(<", ">)}]"),
    "at signs": lambda: _filled("@", "user"),
    "addresses": lambda: _filled("ann@b.c,@user "),
    "zero width": lambda: _filled("\u200b", "I am", "here"),
    "zero width between letters": lambda: _filled("a\u200d"),
    "combining marks": lambda: _filled("\u0301\u0316", "a"),
    "accents in words": lambda: _filled("e\u0301a\u0316 "),
    "control characters": lambda: _filled("".join(map(chr, range(32))), "I am", "here"),
    "emoji": lambda: _filled("\U0001f600"),
    "families of emoji": lambda: _filled("\U0001f468\u200d\U0001f469\u200d\U0001f467"),
    "Chinese": lambda: _drawn(_letters(0x4E00, 0x9FFF), ""),
    "Chinese sentences": lambda: _filled("我叫小明，我喜欢喝茶。"),
    "Korean": lambda: _drawn(_letters(0xAC00, 0xD7A0)),
    "Arabic": lambda: _drawn(_letters(0x0621, 0x064A)),
    "right to left": lambda: _filled("\u202eאבג\u202c"),
    "ligatures": lambda: _filled("\ufdfa"),
    "JSON": lambda: (
        json.dumps({f"key {n}": {"value": n, "text": "I am here"} for n in range(20_000)})[: SIZE - 1] + "}"
    ),
    "JSON in JSON": lambda: _filled('{"a":'),
    "lists in lists": lambda: '{"a":' + _nested("[", "]")[3:-3] + "}",
    "HTML": lambda: _filled('<div class="a"><p>I am <b>here</b></p></div>'),
    "tags": lambda: _filled("<"),
    "memory tags": lambda: _filled("<m e m o r y "),
    "Markdown table": lambda: _filled("| a | b | c |\n|---|---|---|\n"),
    "code fences": lambda: _filled("```\n"),
    "open code fences": lambda: _filled("``` ", "I am "),
    "backticks": lambda: _filled("`a"),
    "code": lambda: _filled("def am(i):\n    return {i: '= 1'};\n"),
    "log": lambda: _filled("2026-01-02 03:04:05 ERROR [main] a.b.C - I am lost: java.lang.Error\n"),
    "web addresses": lambda: _filled("https://user:pass@example.com/a/b?c=d&e=f#g "),
    "one web address": lambda: _filled("a/b.", "https://"),
    "schemes": lambda: _filled("a+", "https://"),
    "I am": lambda: _filled("I am "),
    "I am a": lambda: _filled("I am a ", "", "teacher"),
    "facts": lambda: _drawn(lambda: f"I like {_word()} and my {_word()} is {_word()}."),
    "requests": lambda: _filled("please "),
    "answers of the tools": lambda: _filled("- (id: "),
    "whole answers of the tools": lambda: _filled(f"- tea (id: {'0123456789abcdef' * 2})\n"),
    "a transcript": lambda: _filled("User: I am Ann.\nAssistant: Hello.\n"),
    "passwords": lambda: _filled("password is "),
    "passwords for": lambda: _filled("password for a a a "),
    "tokens": lambda: _filled("token: "),
    "private keys": lambda: _filled("-----BEGIN PRIVATE KEY-----\n"),
    "JWTs": lambda: _filled("eyJ-"),
    "API keys": lambda: _filled("sk-"),
    "bank accounts": lambda: _filled("GB82 WEST 1234 5698 7654 32 "),
    "seed phrases": lambda: _filled("seed phrase: ab cd efg "),
    "TERMINATE": lambda: _filled("TERMINATE "),
    "memories": lambda: _filled("remember that "),
}
"""The texts, by what they are made of."""


class Cost(NamedTuple):
    """What some work cost, in seconds."""

    stall: float
    """The longest stall of the event loop."""
    seconds: float


Path = Callable[[PersistentMemory, str], Awaitable[object]]


async def as_message(memory: PersistentMemory, text: str) -> None:
    await run_task(agent_with(memory, scripted(1)), text)


async def as_reply(memory: PersistentMemory, text: str) -> None:
    agent = agent_with(memory, scripted(2, text))
    for question in ("Which tea do I like?", "And which coffee?"):
        await run_task(agent, question)


async def as_tool_result(memory: PersistentMemory, text: str) -> None:
    call = AssistantMessage(content=[FunctionCall(id="1", name="read", arguments="{}")], source="assistant")
    result = FunctionExecutionResult(content=text, name="read", call_id="1", is_error=False)
    question = UserMessage(content="Which tea do I like?", source="user")
    messages = [question, call, FunctionExecutionResultMessage(content=[result])]
    await memory.update_context(UnboundedChatCompletionContext(messages))


async def by_tools(memory: PersistentMemory, text: str) -> None:
    remember, recall, _ = (tool for tool in memory_tools(memory) if isinstance(tool, BaseTool))
    await remember.run_json({"content": text}, CancellationToken())
    await recall.run_json({"query": text}, CancellationToken())


async def afterwards(memory: PersistentMemory, text: str) -> None:
    """Finish background work, and run a turn that can recall everything."""
    await memory.flush()
    await as_message(memory, "What did I say I am, have and like?")


PATHS: Mapping[str, Path] = {
    "message": as_message,
    "reply": as_reply,
    "remember": lambda memory, text: memory.remember(text),
    "recall": lambda memory, text: memory.recall(text),
    "context": lambda memory, text: memory.context(text),
    "tool result": as_tool_result,
    "tools": by_tools,
    "extract": lambda memory, text: memory.extract(text),
    "afterwards": afterwards,
}
"""The ways of a text into memory."""


async def cost_of(work: Awaitable[object]) -> Cost:
    """Measure some work."""
    begun = time.perf_counter()
    stalls = await stalls_during(work, own=True)
    return Cost(max(stalls), time.perf_counter() - begun)


async def measure(name: str, paths: list[str]) -> dict[str, Cost]:
    text = TEXTS[name]()
    costs: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        memory = PersistentMemory("ann", session="today", store=EmbeddedStore(folder))
        await memory.remember("Likes green tea")
        await as_message(memory, "Which tea do I like? I am Ann.")
        await memory.flush()
        if paths == ["without memory"]:
            return {"without memory": await cost_of(run_task(agent_with(None, scripted(1)), text))}
        for path in paths:
            try:
                costs[path] = await cost_of(PATHS[path](memory, text))
            except Exception as error:
                print(f"{name}, {path}: {error!r:.300}", file=sys.stderr)
        await memory.close()
    return costs


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--only", action="append", choices=list(TEXTS), help="a text; may be repeated")
    parser.add_argument(
        "--path", action="append", choices=[*PATHS, "without memory"], help="a way into memory; may be repeated"
    )
    given = parser.parse_args()
    paths = given.path or list(PATHS)
    results: dict[str, dict[str, Cost]] = {}
    if not given.json:
        print(f"| stall / total, ms | {' | '.join(paths)} |\n| --- |{' ---: |' * len(paths)}")
    for name in given.only or TEXTS:
        costs = results[name] = asyncio.run(measure(name, paths))
        if not given.json:
            cells = [
                f"{1000 * costs[path].stall:.0f} / {1000 * costs[path].seconds:.0f}" if path in costs else "-"
                for path in paths
            ]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    if given.json:
        as_objects = {name: {path: cost._asdict() for path, cost in costs.items()} for name, costs in results.items()}
        print(json.dumps(as_objects))


if __name__ == "__main__":
    main()
