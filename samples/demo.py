"""An agent that remembers by itself: a conversation in one process, and a new agent in a second one.

Run `make demo`, or `python samples/demo.py`. The memories are deleted at the end; `python samples/demo.py FOLDER` keeps them in
a folder. The model is scripted, so that this needs no key and no network; samples/models.py says how to use a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
import sys
import tempfile

from autogen_agentchat.agents import AssistantAgent
from models import chosen, model
from showing import show, show_run

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
MODELS = {
    "script": "a scripted model (samples/models.py says how to use a real one)",
    "local": "a small model on this machine",
    "openai": "the OpenAI model",
}


async def monday(path: str) -> None:
    """Run the first process: a user tells the agent about herself and her work. Nothing is stored explicitly."""
    async with PersistentMemory("user-42", store=EmbeddedStore(path)) as memory:
        client = model([reply for _, reply in TOLD])
        agent = AssistantAgent("assistant", model_client=client, memory=[memory])
        for text, _ in TOLD:
            show("user", text)
            show("assistant", (await agent.run(task=text)).messages[-1].to_text())
        records = await memory.profile.records(include_history=True)
        for record in reversed(records):
            over = "  (superseded)" if record.superseded_by else ""
            show("remembered", f"{record.kind:<11} {record.content}{over}")


async def friday(path: str) -> None:
    """Run the second process: a new agent, which has never met Sarah."""
    async with PersistentMemory("user-42", store=EmbeddedStore(path)) as memory:
        client = model([reply for _, reply in QUESTIONS])
        agent = AssistantAgent("assistant", model_client=client, memory=[memory])
        for question, _ in QUESTIONS:
            await show_run(agent.run_stream(task=question), nothing=True)
            print()


def main() -> None:
    """Run both processes, one after the other, on one folder."""
    if len(sys.argv) == 3:
        asyncio.run({"monday": monday, "friday": friday}[sys.argv[1]](sys.argv[2]))
        return
    print(f"An AutoGen AssistantAgent with memory=[PersistentMemory('user-42')] and {MODELS[chosen()]}.\n")
    kept = sys.argv[1] if len(sys.argv) == 2 else None
    with contextlib.nullcontext(kept) if kept else tempfile.TemporaryDirectory() as folder:
        for day, title in (("monday", "Process 1, Monday"), ("friday", "Process 2, Friday: a new agent")):
            print(f"── {title} {'─' * (60 - len(title))}", flush=True)
            subprocess.run([sys.executable, __file__, day, folder], check=True)
            print()
    if kept:
        print(f"Look at the memories: autogen-memory list -n user-42 --path {shlex.quote(kept)}")
    else:
        print("The demo's memories are deleted; samples/README.md says how to keep them and look at them.")
    print("Your turn: save the script in README.md. Its memories will be in ~/.autogen_memory.")


if __name__ == "__main__":
    main()
