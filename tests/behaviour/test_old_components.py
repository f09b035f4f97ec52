"""Agents, teams, tools and memories that version 0.1 dumped as JSON load, say the same when dumped again, and remember."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_core import Component, ComponentModel
from autogen_core.memory import Memory
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_persistent_memory import PersistentMemory, TemporaryStore

DUMPED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "0.1" / "components.json").read_text())
MEMORIES: list[dict[str, Any]] = DUMPED["memories"]


def changed(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield where the new JSON lacks something that the old one says. New fields are fine."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            if name not in new:
                yield f"{path}/{name} is gone"
            else:
                yield from changed(value, new[name], f"{path}/{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new)):
            yield from changed(*pair, f"{path}/{index}")
    elif old != new and not path.endswith(("/provider", "/description")):
        yield f"{path}: {old!r} became {new!r}"


def as_json(component: Component[Any]) -> Any:
    return json.loads(component.dump_component().model_dump_json(exclude_none=True))


@pytest.mark.parametrize("old", MEMORIES, ids=[old["label"] for old in MEMORIES])
def test_a_memory_keeps_its_store_scope_embedding_policy_and_extractor(
    old: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("CHROMA_TOKEN", "TENANT", "CHROMA_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, "for this test")
    memory: Any = Memory.load_component(ComponentModel.model_validate(old))
    assert list(changed(old["config"], as_json(memory)["config"])) == []


def test_an_agent_keeps_its_memory_and_its_tools() -> None:
    agent = AssistantAgent.load_component(ComponentModel.model_validate(DUMPED["agent"]))
    assert list(changed(DUMPED["agent"]["config"], as_json(agent)["config"])) == []


async def test_a_team_of_0_1_remembers() -> None:
    team: Any = Team.load_component(ComponentModel.model_validate(DUMPED["team"]))
    assert list(changed(DUMPED["team"]["config"], as_json(team)["config"])) == []
    await team.run(task="My name is Sarah and I prefer TypeScript.")
    async with PersistentMemory("ann", store=TemporaryStore("old")) as memory:
        client = ReplayChatCompletionClient(["TypeScript."])
        agent = AssistantAgent("newcomer", model_client=client, memory=[memory])
        await agent.run(task="Which language should the example use?")
        assert "prefers TypeScript" in str(client.create_calls[0]["messages"])
        await memory.clear()
