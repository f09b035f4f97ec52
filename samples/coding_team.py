"""A planner, a coder and a reviewer with a shared memory of their project, and a private one for the reviewer.

Run `python samples/coding_team.py`. A team works on Monday, and a new one on Friday. On Friday it knows what was decided and
what failed; the reviewer also has a private checklist, which the others never see.

The model is scripted; samples/models.py says how to use a real one.
"""

from __future__ import annotations

import asyncio
import tempfile

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from models import model
from showing import show_run

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, ProfileMemory

MONDAY = "Add a login. We decided to keep sessions in PostgreSQL, because of JSONB."
MONDAY_REPLIES = {
    "planner": "First a table for the sessions, then the form.",
    "coder": "The table is there, and the login form posts to /login.",
    "reviewer": "The login form crashed when the name was empty; it has to check its fields before it posts.",
}
FRIDAY = "Add a sign-up form. Where do we keep its sessions, and why did the login form crash?"
FRIDAY_REPLIES = {
    "planner": "In PostgreSQL, as decided. The login crashed on an empty name, so this form checks its fields first.",
    "coder": "Done: it checks its fields, and its sessions are in PostgreSQL.",
    "reviewer": "Good. One question from my checklist: how long may a name be?",
}


async def work(path: str, task: str, replies: dict[str, str]) -> None:
    """Run one day: a new team, with the memory of the days before."""
    store = EmbeddedStore(path)
    async with (
        # One memory for all: each message is captured once, and each agent gets the memories that fit.
        PersistentMemory("team/project-a", store=store) as project,
        # The private one is a namespace of its own. It need not capture the conversation: the project's does.
        ProfileMemory("team/project-a/reviewer", store=store) as checklist,
    ):
        await checklist.remember("Ask how long a text in a form may be.", kind="lesson")
        agents: list[ChatAgent | Team] = [
            AssistantAgent(
                name,
                model_client=model([reply]),
                memory=[checklist, project] if name == "reviewer" else [project],
                system_message=f"You are the {name} of a small team. Answer in one sentence.",
            )
            for name, reply in replies.items()
        ]
        team = RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(1 + len(agents)))
        await show_run(project.observe(team.run_stream(task=task)))


async def main() -> None:
    """Run two days, which share only the folder."""
    with tempfile.TemporaryDirectory() as folder:
        print("── Monday ──")
        await work(folder, MONDAY, MONDAY_REPLIES)
        print("\n── Friday: a new team ──")
        await work(folder, FRIDAY, FRIDAY_REPLIES)


if __name__ == "__main__":
    asyncio.run(main())
