"""A group chat that is stopped in the middle, and continues in a new process.

Run `python samples/resume_group_chat.py`. The first process saves the team after every turn, and crashes when two of three
agents have spoken. The second process builds the same team and loads its state: it is the third agent's turn. Finally a new
agent joins, and gets the conversation from memory.

The model is scripted; samples/models.py says how to use a real one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import RoundRobinGroupChat
from models import model
from showing import show, show_run

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, RecallPolicy, SessionMemory

TASK = "Plan a day out for twelve people. We have 600 euros."
BEFORE = [
    "I suggest a hike to the lake, and lunch at the mill.",
    "The mill has a table for twelve at noon; the bus leaves at nine.",
]
AFTER = [
    "Lunch is 25 a head and the bus 120 in all: that makes 420, so we can afford it.",
    "Then it is settled: bus at nine, hike, lunch at the mill at noon.",
]


async def talk(path: str, replies: list[str]) -> None:
    """Run as many turns as there are replies, in a new session `day-out` or in the one that another process started."""
    patient = RecallPolicy(deadline=20)  # wait for a busy machine instead of storing later
    async with PersistentMemory("team/day-out", session="day-out", store=EmbeddedStore(path), policy=patient) as memory:
        client = model(replies)
        agents: list[ChatAgent | Team] = [
            AssistantAgent(name, model_client=client, system_message=f"You are the {name}. Answer in one sentence.")
            for name in ("planner", "scout", "treasurer")
        ]
        # One turn a run, so that the team can be saved after each.
        team = RoundRobinGroupChat(agents, max_turns=1)
        task = None if await memory.session.load(team) else TASK
        for said in await memory.session.messages():
            show(f"({said.source}", f"{said.content})")  # from the process before
        for _ in replies:
            await show_run(memory.observe(team.run_stream(task=task), save=team))
            task = None  # the next run continues
        if replies is BEFORE:
            os._exit(9)  # a crash: nothing is closed, nothing is flushed


async def join(path: str) -> None:
    """Let a new agent join, without a state to load: a `SessionMemory` injects the conversation, within its budget."""
    async with SessionMemory("team/day-out", "day-out", store=EmbeddedStore(path)) as session:
        agent = AssistantAgent("guest", model_client=model(["At nine, by bus."]), memory=[session])
        await show_run(agent.run_stream(task="When and how do we leave?"))


def main() -> None:
    """Run both processes, one after the other, on one folder."""
    if len(sys.argv) == 3:
        asyncio.run(talk(sys.argv[2], {"before": BEFORE, "after": AFTER}[sys.argv[1]]))
        return
    with tempfile.TemporaryDirectory() as folder:
        print("── The first process ──", flush=True)
        ended = subprocess.run([sys.executable, __file__, "before", folder], check=False)
        print(f"\n── It died ({ended.returncode}); the second process ──", flush=True)
        subprocess.run([sys.executable, __file__, "after", folder], check=True)
        print("\n── A guest ──")
        asyncio.run(join(folder))


if __name__ == "__main__":
    main()
