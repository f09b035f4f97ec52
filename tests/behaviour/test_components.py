"""AutoGen's declarative components: dumped as JSON and loaded as equal objects."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.memory import Memory
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import word_vectors, words

from autogen_persistent_memory import (
    CallableEmbedding,
    ChromaEmbedding,
    CloudStore,
    EmbeddedStore,
    MiniLMEmbedding,
    PersistentMemory,
    ProfileMemory,
    RecallPolicy,
    ServerStore,
    SessionMemory,
    TemporaryStore,
    register_embedding,
)

STORES = [
    EmbeddedStore("some/folder"),
    EmbeddedStore(),
    ServerStore("memory.example", 8443, True, tenant="t", database="d", timeout=3.5, token_env="TOKEN_VARIABLE"),
    ServerStore(port=9000, headers_env={"X-Key": "KEY_VARIABLE"}),
    CloudStore("t", "d", api_key_env="MY_KEY"),
    CloudStore(),
    TemporaryStore(),
]
EMBEDDINGS = [
    MiniLMEmbedding(2, cache_size=7),
    ChromaEmbedding("openai", model_name="text-embedding-3-small", api_key_env_var="OPENAI_API_KEY"),
    words(),
]
POLICY = RecallPolicy(
    limit=3,
    lifetimes={"context": timedelta(days=1), "x": timedelta(seconds=90)},
    user_sources=frozenset({"boss", "user"}),
    guard_words=(),
    headings={"fact": "Fakten"},
    query="fixed",
    placement="system",
    strict=True,
)
MEMORIES = [
    *(PersistentMemory("prod/ann", session="monday", store=store, policy=POLICY) for store in STORES),
    *(ProfileMemory("ann", store=TemporaryStore(), embedding=embedding) for embedding in EMBEDDINGS),
    SessionMemory("ann", "monday", store=TemporaryStore(), policy=POLICY),
    PersistentMemory("ann", extractor=None, capture=False),
    PersistentMemory("ann"),
]


def through_json(memory: Memory) -> Any:
    text = json.dumps(memory.dump_component().model_dump())
    return Memory.load_component(json.loads(text))


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: type(memory).__name__)
def test_a_memory_survives_json_with_store_scope_embedding_and_policy(memory: Any) -> None:
    again = through_json(memory)
    assert type(again) is type(memory)
    assert again.namespace == memory.namespace
    assert again.dump_component().config["store"] == memory.dump_component().config["store"]
    assert again.dump_component().config["embedding"] == memory.dump_component().config["embedding"]
    assert again.policy == memory.policy
    assert again.dump_component() == memory.dump_component()


def test_scope_is_kept_and_a_session_named_by_time_stays_new() -> None:
    assert through_json(SessionMemory("ann", "monday")).session == "monday"
    assert through_json(PersistentMemory("ann", session="monday")).session.session == "monday"
    unnamed = PersistentMemory("ann")
    assert through_json(unnamed).session.session != unnamed.session.session


async def test_the_same_temporary_store_is_the_same_data() -> None:
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=words())
    await memory.remember("Likes tea")
    assert await through_json(memory).count() == 1
    assert await PersistentMemory("ann", store=TemporaryStore(), embedding=words()).count() == 0


def test_no_secret_is_in_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TOKEN_VARIABLE", "KEY_VARIABLE", "MY_KEY", "CHROMA_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, "s3cr3t")
    for memory in MEMORIES:
        assert "s3cr3t" not in memory.dump_component().model_dump_json()


def test_only_a_registered_function_can_be_dumped_and_loaded() -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return word_vectors(texts)

    memory = ProfileMemory("ann", embedding=CallableEmbedding(embed, id="mine"))
    with pytest.raises(ValueError, match=r"'mine' has no name .* register_embedding\(name, function\)"):
        memory.dump_component()
    register_embedding("my function", embed)
    dumped = memory.dump_component()
    assert dumped.config["embedding"] == {"type": "callable", "function": "my function", "id": "mine"}
    assert through_json(memory)._engine.embedding._fn is embed
    register_embedding("my function", word_vectors)  # as if a notebook's cell is run again
    assert Memory.load_component(dumped)._engine.embedding._fn is word_vectors  # type: ignore[attr-defined]
    for name, fn in ((" ", embed), ("x", "toys:word_vectors")):
        with pytest.raises(ValueError, match=r"name|fn must be a function"):
            register_embedding(name, fn)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "function",
    ["subprocess:getoutput", "os:system", "builtins:eval", "toys:short_vectors", "autogen_persistent_memory"],
)
def test_a_configuration_runs_no_code(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.getoutput", pytest.fail)
    dumped = ProfileMemory("ann", store=TemporaryStore(), embedding=words()).dump_component()
    dumped.config["embedding"]["function"] = function
    with pytest.raises(ValueError, match=re.escape(f"call register_embedding({function!r}, your_function)")):
        Memory.load_component(json.loads(dumped.model_dump_json()))


def test_a_configuration_imports_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_module.py").write_text("raise SystemExit('the code of a configuration ran')")
    monkeypatch.syspath_prepend(tmp_path)
    dumped = ProfileMemory("ann", embedding=words()).dump_component()
    dumped.config["embedding"]["function"] = "planted_module:embed"
    with pytest.raises(ValueError, match="is not registered"):
        Memory.load_component(dumped)


@pytest.mark.parametrize("options", [{"trust_remote_code": True}, {"kwargs": {"a": [{"Trust_Remote_Code": 1}]}}])
def test_a_configuration_cannot_load_a_models_remote_code(options: dict[str, Any]) -> None:
    trusting = ChromaEmbedding("sentence_transformer", model_name="x", device="cpu", **options)
    dumped = ProfileMemory("ann", embedding=trusting).dump_component()
    with pytest.raises(ValueError, match="cannot ask for trust_remote_code"):
        Memory.load_component(dumped)


def test_an_unknown_field_in_a_configuration_is_refused() -> None:
    model = ProfileMemory("ann").dump_component()
    model.config["colour"] = "red"
    with pytest.raises(ValueError, match="colour"):
        Memory.load_component(model)


async def test_an_agent_and_a_team_are_loaded_with_their_memories() -> None:
    memory = PersistentMemory("ann", session="s", store=TemporaryStore(), embedding=words())
    await memory.remember("Likes green tea")

    def an_agent(name: str) -> AssistantAgent:
        return AssistantAgent(name, model_client=ReplayChatCompletionClient(["ok"] * 5), memory=[memory])

    agent = AssistantAgent.load_component(json.loads(an_agent("solo").dump_component().model_dump_json()))
    result = await agent.run(task="green tea?")
    assert any("Likes green tea" in str(message) for message in result.messages)

    team = RoundRobinGroupChat([an_agent("one"), an_agent("two")], termination_condition=MaxMessageTermination(5))
    loaded = Team.load_component(json.loads(team.dump_component().model_dump_json()))
    result = await loaded.run(task="green tea?")
    assert sum(type(message).__name__ == "MemoryQueryEvent" for message in result.messages) == 4
