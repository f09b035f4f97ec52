"""An agent that remembers by itself: a conversation in one process, its memory in a second one.

Run `make demo`, or `python samples/demo.py`. The model is scripted, so that this needs no key and no network; with
OPENAI_API_KEY set it is a real one (OPENAI_MODEL chooses which).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import textwrap

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MemoryQueryEvent
from autogen_core.models import ChatCompletionClient

from autogen_persistent_memory import EmbeddedStore, PersistentMemory

TOLD = [
    ("Hi, I am Sarah. I am building a web shop, and I prefer TypeScript.", "Nice to meet you, Sarah!"),
    ("We decided to use SQLite because it needs no server.", "A fine choice to start with."),
    (
        "We tried caching sessions in local files but it failed because two workers overwrote each other.",
        "I see; let us not do that again.",
    ),
    ("We migrated from SQLite to PostgreSQL, because of JSONB.", "PostgreSQL it is."),
]
QUESTIONS = [
    ("Which language should the example use?", "TypeScript, Sarah, as you like it."),
    ("Which database do we store the sessions in?", "PostgreSQL, as you decided; local files failed before."),
    ("What is the weather like on Mars?", "Cold and dusty."),
]


def model(replies: list[str]) -> ChatCompletionClient:
    """A real model if there is a key for one, else a script."""
    if os.environ.get("OPENAI_API_KEY"):
        from autogen_ext.models.openai import OpenAIChatCompletionClient

        return OpenAIChatCompletionClient(model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"))
    from autogen_ext.models.replay import ReplayChatCompletionClient

    return ReplayChatCompletionClient(replies)


async def monday(path: str) -> None:
    """The first process: somebody tells the agent about themselves and their work. Nothing is stored by hand."""
    async with PersistentMemory("user-42", store=EmbeddedStore(path)) as memory:
        client = model([reply for _, reply in TOLD])
        agent = AssistantAgent("assistant", model_client=client, memory=[memory])
        for text, _ in TOLD:
            show("user", text)
            show("assistant", str(getattr((await agent.run(task=text)).messages[-1], "content", "")))
        records = await memory.profile.records(include_history=True)
        for record in reversed(records):
            over = "  (superseded)" if record.superseded_by else ""
            show("remembered", f"{record.kind:<11} {record.content}{over}")


async def friday(path: str) -> None:
    """The second process: a new agent that has never seen Sarah."""
    async with PersistentMemory("user-42", store=EmbeddedStore(path)) as memory:
        client = model([reply for _, reply in QUESTIONS])
        agent = AssistantAgent("assistant", model_client=client, memory=[memory])
        for question, _ in QUESTIONS:
            await say(agent, question)
            print()


async def say(agent: AssistantAgent, text: str) -> None:
    """One turn, with what memory put before the model."""
    show("user", text)
    result = await agent.run(task=text)
    recalled = [memory for event in result.messages if isinstance(event, MemoryQueryEvent) for memory in event.content]
    for memory in recalled:
        details = memory.metadata or {}
        show("injected", f"{details['kind']:<11} {memory.content!s}  (score {details['score']:.2f})")
    if not recalled:
        show("injected", "nothing: no memory is relevant")
    show("assistant", str(getattr(result.messages[-1], "content", "")))


def show(who: str, text: str) -> None:
    """A line of the conversation."""
    colours = {"user": "36", "assistant": "32", "injected": "33", "remembered": "33"}
    colour = colours.get(who) if sys.stdout.isatty() and "NO_COLOR" not in os.environ else None
    label = f"{who:>11}"
    lines = textwrap.wrap(text, 92) or [""]
    print((f"\033[{colour}m{label}\033[0m" if colour else label), f"\n{'':>12}".join(lines), flush=True)


def main() -> None:
    """Run both processes, one after the other, on one folder."""
    if len(sys.argv) == 3:
        asyncio.run({"monday": monday, "friday": friday}[sys.argv[1]](sys.argv[2]))
        return
    which = (
        "the OpenAI model"
        if os.environ.get("OPENAI_API_KEY")
        else "a scripted model (set OPENAI_API_KEY for a real one)"
    )
    print(f"An AutoGen AssistantAgent with memory=[PersistentMemory('user-42')] and {which}.\n")
    with tempfile.TemporaryDirectory() as folder:
        for day, title in (("monday", "Process 1, Monday"), ("friday", "Process 2, Friday: a new agent")):
            print(f"── {title} {'─' * (60 - len(title))}", flush=True)
            subprocess.run([sys.executable, __file__, day, folder], check=True)
            print()
    print("Your turn: README.md shows the three lines. Your memories will live in ~/.autogen_memory.")


if __name__ == "__main__":
    main()
