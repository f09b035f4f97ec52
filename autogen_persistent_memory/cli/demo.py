"""The command that shows what this is all about: an agent that remembers across two processes, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile

import typer

from ..core.errors import PersistentMemoryError
from ..memories.memory import PersistentMemory
from ..storage.stores import EmbeddedStore
from .commands import command
from .context import Shell

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
_TO_BE_REMEMBERED = {FRIDAY[0][0]: "TypeScript", FRIDAY[1][0]: "PostgreSQL"}


def add_demonstration(app: typer.Typer) -> None:
    """Add this command."""

    @command(app, "demo")
    def demo(shell: Shell) -> None:
        """See an agent remember across two processes; the model is scripted, and nothing is left behind."""
        with tempfile.TemporaryDirectory() as folder:
            for day in _DAYS:
                if not shell.as_json:
                    shell.printer.line(f"── {day} ──", style="bold")
                for line in _lines_of(day, folder):
                    if shell.as_json:
                        shell.printer.objects([{"day": day, **line}])
                    else:
                        shell.printer.line(f"{line['who']:>10}  {line['text']}")


def _lines_of(day: str, folder: str) -> list[dict[str, str]]:
    """What was said and remembered in a process of its own."""
    process = [sys.executable, "-m", __name__, day, folder]
    answer = subprocess.run(process, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if answer.returncode:
        raise PersistentMemoryError("The demonstration failed; the reason is printed above. Fix it and run it again.")
    return [json.loads(line) for line in answer.stdout.splitlines()]


async def live(day: str, folder: str) -> None:
    """A day in the life of an agent, as lines of JSON.

    Raises:
        PersistentMemoryError: Its memory failed, without which an agent would just go on.
    """
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.messages import MemoryQueryEvent
    from autogen_ext.models.replay import ReplayChatCompletionClient

    turns = _DAYS[day]
    async with PersistentMemory("user-42", store=EmbeddedStore(folder)) as memory:
        await memory.recall("Does it work?")  # which, unlike a turn, tells what is wrong
        client = ReplayChatCompletionClient([reply for _, reply in turns])
        agent = AssistantAgent("assistant", model_client=client, memory=[memory])
        known = {record.id for record in await memory.profile.records()}
        for question, _ in turns:
            _tell("user", question)
            recalled: list[str] = []
            result = await agent.run(task=question)
            learned = [record for record in await memory.profile.records() if record.id not in known]
            known |= {record.id for record in learned}
            for record in learned[::-1]:
                _tell("learns", record.content)
            for message in result.messages[1:]:
                if isinstance(message, MemoryQueryEvent):
                    recalled += [str(item.content) for item in message.content]
                    for content in recalled:
                        _tell("remembers", content)
                else:
                    _tell("assistant", message.to_text())
            wanted = _TO_BE_REMEMBERED.get(question, "")
            if wanted not in " ".join(recalled):
                raise PersistentMemoryError(f"Asked {question!r}, the agent did not remember {wanted!r}.")


def _tell(who: str, text: str) -> None:
    print(json.dumps({"who": who, "text": text}), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(live(*sys.argv[1:]))
    except PersistentMemoryError as error:
        sys.exit(str(error))
