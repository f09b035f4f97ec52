"""A whole team as JSON, dumped in one process and loaded in another, keeps its memory."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import MemoryQueryEvent, ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, memory_tools

MODEL = ModelInfo(vision=False, function_calling=True, json_output=False, structured_output=False, family="unknown")


def call(name: str, **arguments: Any) -> CreateResult:
    """Return a model's reply that calls a tool."""
    wish = FunctionCall(id="1", name=name, arguments=json.dumps(arguments))
    return CreateResult(finish_reason="function_calls", content=[wish], usage=RequestUsage(0, 0), cached=False)


def a_team(path: Path) -> RoundRobinGroupChat:
    """Return two agents, each with the team's memory and a private one; the first has the tools as well."""
    shared = PersistentMemory("team/x", session="talk", store=EmbeddedStore(path))
    scripts = {
        "ann": [
            call("remember", content="The release is on 14 July"),
            "Noted, Torvald.",
            call("recall", query="When is the release?"),
            "On 14 July, we are DONE",
        ],
        "bob": ["Good to know, indeed."] * 4,
    }
    members = [
        AssistantAgent(
            name,
            model_client=ReplayChatCompletionClient(replies, model_info=MODEL),
            memory=[PersistentMemory(f"team/x/{name}", session="talk", store=EmbeddedStore(path)), shared],
            tools=list(memory_tools(shared)) if name == "ann" else None,
            reflect_on_tool_use=name == "ann",
        )
        for name, replies in scripts.items()
    ]
    return RoundRobinGroupChat(members, termination_condition=TextMentionTermination("DONE") | MaxMessageTermination(3))


async def run(dump: str, task: str) -> None:
    """Load the team from JSON in a new process, ask it, and print the result as JSON."""
    team = Team.load_component(json.loads(dump))
    result = await team.run(task=task)
    for member in team._participants:  # type: ignore[attr-defined]
        for memory in member._memory:
            await memory.close()
    print(
        json.dumps(
            {
                "remembered": [
                    str(memory.content)
                    for message in result.messages
                    if isinstance(message, MemoryQueryEvent)
                    for memory in message.content
                ],
                "tools": [
                    done.content
                    for message in result.messages
                    if isinstance(message, ToolCallExecutionEvent)
                    for done in message.content
                ],
                "dump": json.loads(team.dump_component().model_dump_json()),
            }
        )
    )


async def in_a_new_process(dump: str, task: str) -> Any:
    code = f"import asyncio, test_team_components as t; asyncio.run(t.run({dump!r}, {task!r}))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=Path(__file__).parents[1], stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


async def test_a_team_loaded_from_json_remembers_in_a_new_process(tmp_path: Path) -> None:
    dump = a_team(tmp_path).dump_component().model_dump_json()
    monday = await in_a_new_process(dump, "My name is Torvald and I prefer oolong tea. When is the release?")
    assert monday["dump"] == json.loads(dump)  # the loaded team equals the dumped one
    assert monday["tools"][0].startswith("Memory stored (id: ")
    tuesday = await in_a_new_process(dump, "Which tea do I prefer, and when is the release?")
    assert "The user prefers oolong tea." in tuesday["remembered"]
    assert "The release is on 14 July" in tuesday["remembered"]
    async with PersistentMemory("team/x", store=EmbeddedStore(tmp_path), capture=False) as memory:
        assert len([record for record in await memory.profile.records() if "14 July" in record.content]) == 1
        said = [record.content for record in await memory.records(kinds=["interaction"], limit=100)]
    assert sum("Torvald" in text and "oolong" in text for text in said) == 1
