"""The command `demo`: an agent that remembers across two processes, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile

from ..core.errors import PersistentMemoryError
from ..memories.memory import PersistentMemory
from ..storage.stores import EmbeddedStore
from .context import CommandContext

MONDAY = [
    ("Hi, I am Sarah, and I prefer TypeScript.", "Nice to meet you, Sarah!"),
    ("We decided to use SQLite because it needs no server.", "A fine choice to start with."),
    ("We migrated from SQLite to PostgreSQL, because of JSONB.", "PostgreSQL it is."),
]
FRIDAY = [
    ("Which language should the example use?", "TypeScript, as you prefer it."),
    ("Which database do we use?", "PostgreSQL, because of JSONB."),
    ("What is the weather like on Mars?", "Cold and dusty."),
]
_DAYS = {"Monday": MONDAY, "Friday, in a new process": FRIDAY}
_EXPECTED = {FRIDAY[0][0]: "TypeScript", FRIDAY[1][0]: "PostgreSQL"}


def demo(context: CommandContext) -> None:
    """Watch an agent remember across two processes, with a scripted model and a temporary store."""
    with tempfile.TemporaryDirectory() as folder:
        for day in _DAYS:
            if not context.as_json:
                context.printer.line(f"── {day} ──", style="bold")
            for line in _run_day(day, folder):
                if context.as_json:
                    context.printer.objects([{"day": day, **line}])
                else:
                    context.printer.line(f"{line['who']:>10}  {line['text']}")


def _run_day(day: str, folder: str) -> list[dict[str, str]]:
    """Run a day in a process of its own, and return what was said and remembered."""
    process = [sys.executable, "-m", __name__, day, folder]
    answer = subprocess.run(process, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if answer.returncode:
        raise PersistentMemoryError("The demonstration failed; the reason is printed above.")
    return [json.loads(line) for line in answer.stdout.splitlines()]


async def converse(day: str, folder: str) -> None:
    """Run a day's conversation with a new agent, print it as JSON lines, and fail if the agent did not remember."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.messages import MemoryQueryEvent
    from autogen_ext.models.replay import ReplayChatCompletionClient

    turns = _DAYS[day]
    async with PersistentMemory("user-42", store=EmbeddedStore(folder)) as memory:
        await memory.recall("Does it work?")  # unlike a turn, this raises if the memory fails
        client = ReplayChatCompletionClient([reply for _, reply in turns])
        agent = AssistantAgent("assistant", model_client=client, memory=[memory])
        known = {record.id for record in await memory.profile.records()}
        for question, _ in turns:
            _print_line("user", question)
            recalled: list[str] = []
            result = await agent.run(task=question)
            learned = [record for record in await memory.profile.records() if record.id not in known]
            known |= {record.id for record in learned}
            for record in learned[::-1]:
                _print_line("learns", record.content)
            for message in result.messages[1:]:
                if isinstance(message, MemoryQueryEvent):
                    recalled += [str(item.content) for item in message.content]
                    for content in recalled:
                        _print_line("remembers", content)
                else:
                    _print_line("assistant", message.to_text())
            wanted = _EXPECTED.get(question, "")
            if wanted not in " ".join(recalled):
                raise PersistentMemoryError(f"Asked {question!r}, the agent did not remember {wanted!r}.")


def _print_line(who: str, text: str) -> None:
    print(json.dumps({"who": who, "text": text}), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(converse(*sys.argv[1:]))
    except PersistentMemoryError as error:
        sys.exit(str(error))
