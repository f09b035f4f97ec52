"""The tools through AutoGen's own agents, with a scripted model that calls them."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallExecutionEvent, ToolCallSummaryMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, ComponentModel, FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, ModelInfo, RequestUsage
from autogen_core.tools import BaseTool
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import words

from autogen_persistent_memory import (
    TOOL_PROMPT,
    PersistentMemory,
    ProfileMemory,
    RecallPolicy,
    ServerStore,
    SessionMemory,
    TemporaryStore,
    export_memories,
    import_memories,
    memory_tools,
)
from autogen_persistent_memory.conversation.autogen_messages import without_answers

CALLING: ModelInfo = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "structured_output": False,
    "family": "unknown",
}


def call(name: str, **arguments: Any) -> CreateResult:
    return CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id=f"call-{name}", name=name, arguments=json.dumps(arguments))],
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
        cached=False,
    )


def model(*replies: str | CreateResult) -> ReplayChatCompletionClient:
    return ReplayChatCompletionClient(list(replies), model_info=CALLING)


async def run(tool: BaseTool[Any, Any], **arguments: Any) -> str:
    return str(await tool.run_json(arguments, CancellationToken()))


def by_name(tools: list[BaseTool[Any, Any]]) -> dict[str, BaseTool[Any, Any]]:
    return {tool.name: tool for tool in tools}


async def test_an_agent_remembers_recalls_and_forgets_by_calling_its_tools(memory: PersistentMemory) -> None:
    agent = AssistantAgent(
        "assistant",
        model(call("remember", content="The deployment runs on Fridays", kind="fact", tags=["ops"])),
        tools=memory_tools(memory),
        system_message=TOOL_PROMPT,
    )
    stored = (await agent.run(task="Please note when we deploy")).messages[-1]
    (record,) = await memory.profile.records()
    assert isinstance(stored, ToolCallSummaryMessage)
    assert stored.content == f"Memory stored (id: {record.id})"
    assert (record.content, record.tags, record.origin) == ("The deployment runs on Fridays", ("ops",), "tool")

    other = AssistantAgent(
        "other",
        model(call("recall", query="When is the deployment?"), call("forget", id=record.id), call("recall", query="?")),
        tools=memory_tools(memory),
    )
    recalled = (await other.run(task="When do we deploy?")).messages[-1]
    assert recalled.to_model_text() == f"- The deployment runs on Fridays (id: {record.id})"
    forgotten = (await other.run(task="Forget that")).messages[-1]
    assert forgotten.to_model_text() == f"Memory forgotten (id: {record.id})"
    assert (await other.run(task="And now?")).messages[-1].to_model_text() == "No relevant memories found."
    assert await memory.profile.count() == 0


def test_only_content_and_query_are_required_of_the_model(memory: PersistentMemory) -> None:
    schemas = {tool.name: tool.schema for tool in memory_tools(memory)}
    required = {name: schema.get("parameters", {}).get("required") for name, schema in schemas.items()}
    assert required == {"remember": ["content"], "recall": ["query"], "forget": ["id"]}
    assert all(schema.get("description", "").endswith(".") for schema in schemas.values())
    for schema in schemas.values():
        for argument in schema.get("parameters", {})["properties"].values():
            assert argument["type"]  # no unions, which some model APIs refuse
            assert argument["description"]


async def test_pinned_arguments_are_hidden_from_the_model_and_enforced(memory: PersistentMemory) -> None:
    await memory.remember("The review of the parser found three bugs", tags=["other"])
    tools = by_name(memory_tools(memory, kind="lesson", tags=["review"], limit=1))
    properties = {name: set(tool.schema.get("parameters", {})["properties"]) for name, tool in tools.items()}
    assert properties == {"remember": {"content"}, "recall": {"query"}, "forget": {"id"}}

    await run(tools["remember"], content="The review of the lexer failed", kind="fact", tags=["mine"])
    await run(tools["remember"], content="The review of the printer failed")
    lessons = await memory.profile.records(kinds=["lesson"])
    assert {record.tags for record in lessons} == {("review",)}
    assert len(lessons) == 2
    assert len((await run(tools["recall"], query="the review of the parser", limit=5)).splitlines()) == 1
    (foreign,) = await memory.profile.records(tags=["other"])
    assert "no memory with the id" in await run(tools["forget"], id=foreign.id)
    assert await memory.record(foreign.id) is not None


async def test_a_pinned_kind_wins_over_the_kind_of_the_rules(memory: PersistentMemory) -> None:
    tools = by_name(memory_tools(memory, kind="fact"))
    await run(tools["remember"], content="The user prefers tea")
    (record,) = await memory.profile.records()
    assert record.kind == "fact"
    assert record.id in await run(tools["recall"], query="Which does the user prefer, tea or coffee?")


async def test_a_memory_of_another_kind_than_the_pinned_one_stays_and_the_model_is_informed(
    memory: PersistentMemory,
) -> None:
    preference = await memory.remember("The user prefers tea", kind="preference")
    fact = await memory.remember("The build takes an hour")
    tools = by_name(memory_tools(memory, kind="lesson"))
    known = await run(tools["remember"], content="The user prefers tea.")
    assert known == f"Memory known already (id: {preference.id})"
    assert without_answers(known) == ""
    assert await run(tools["remember"], content="The build takes an hour") == f"Memory stored (id: {fact.id})"
    assert {record.id: record.kind for record in await memory.profile.records()} == {
        preference.id: "preference",
        fact.id: "lesson",
    }
    assert preference.id not in await run(tools["recall"], query="Which does the user prefer, tea or coffee?")
    assert "no memory with the id" in await run(tools["forget"], id=preference.id)


def test_only_allowed_tools_are_created(memory: PersistentMemory) -> None:
    assert [tool.name for tool in memory_tools(memory, allow=["recall"])] == ["recall"]
    assert [tool.name for tool in memory_tools(memory.profile, allow=("forget", "recall", "forget"))] == [
        "forget",
        "recall",
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"allow": ["erase"]}, "allow names erase; the tools are remember, recall, forget"),
        ({"allow": "recall"}, "allow"),
        ({"allow": []}, "allow"),
        ({"kind": " "}, "kind"),
        ({"tags": "review"}, "tags"),
        ({"limit": 0}, "limit"),
    ],
)
def test_invalid_arguments_of_the_developer_are_refused(
    memory: PersistentMemory, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        memory_tools(memory, **arguments)


def test_a_session_alone_has_no_tools() -> None:
    with pytest.raises(ValueError, match="PersistentMemory or a ProfileMemory, not a SessionMemory"):
        memory_tools(SessionMemory("user-42", "today", store=TemporaryStore()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("remember", {}, "arguments of remember are wrong (content: Field required)"),
        ("remember", {"content": None}, "content: Field required"),
        ("remember", {"content": "  "}, "content is empty"),
        ("remember", {"content": "x" * 20, "kind": ["a"]}, "kind: Input should be a valid string"),
        ("recall", {"query": "\n"}, "query is empty"),
        ("recall", {"query": "which?", "limit": -1}, "limit must be"),
        ("recall", {"query": "which?", "limit": "many"}, "limit: Input should be a valid integer"),
        ("forget", {"id": "0" * 32}, "no memory with the id 00000000000000000000000000000000"),
        ("forget", {"id": " "}, "id is empty"),
    ],
)
async def test_invalid_arguments_of_the_model_are_answered_with_a_sentence(
    memory: PersistentMemory, name: str, arguments: dict[str, Any], answer: str
) -> None:
    assert answer in await run(by_name(memory_tools(memory))[name], **arguments)
    assert await memory.count() == 0


async def test_models_substitutes_for_lists_and_defaults_are_accepted(memory: PersistentMemory) -> None:
    tools = by_name(memory_tools(memory))
    await run(tools["remember"], content="Standup is at nine", kind=" Temporary", tags="team, time", importance=5)
    (record,) = await memory.profile.records()
    assert (record.kind, record.tags) == ("temporary", ("team", "time"))
    assert record.id in await run(tools["recall"], query="When is standup?", tags=None, limit="3")


@pytest.mark.parametrize("copied", ["(id: {})", "id: {}", " {}\n"])
async def test_forget_accepts_an_id_as_recall_shows_it(memory: PersistentMemory, copied: str) -> None:
    record = await memory.remember("The deployment runs on Fridays")
    answer = await run(by_name(memory_tools(memory))["forget"], id=copied.format(record.id))
    assert answer == f"Memory forgotten (id: {record.id})"


async def test_the_forget_tool_cannot_reach_another_namespace() -> None:
    store = TemporaryStore()
    mine, theirs = (PersistentMemory(name, store=store, embedding=words()) for name in ("mine", "theirs"))
    record = await theirs.remember("Their own secret")
    assert "no memory with the id" in await run(by_name(memory_tools(mine))["forget"], id=record.id)
    assert await theirs.record(record.id) == record
    assert await run(by_name(memory_tools(mine))["recall"], query="Their own secret") == "No relevant memories found."


async def test_an_unreachable_memory_is_a_sentence_for_the_model_and_a_warning_for_the_developer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = PersistentMemory("user-42", store=ServerStore("127.0.0.1", 9, timeout=1), embedding=words())
    agent = AssistantAgent(
        "assistant",
        model(call("recall", query="Who am I?"), "I do not know."),
        tools=memory_tools(nowhere),
        reflect_on_tool_use=True,
    )
    result = await agent.run(task="Who am I?")
    (event,) = (message for message in result.messages if isinstance(message, ToolCallExecutionEvent))
    assert event.content[0].content.startswith("The memory could not do that: it cannot be reached just now.")
    assert result.messages[-1].to_model_text() == "I do not know."
    assert "The tool recall failed" in caplog.text


async def test_a_cancelled_call_is_cancelled(memory: PersistentMemory) -> None:
    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await memory_tools(memory)[0].run_json({"content": "Too late"}, token)


# Together with automatic memory


async def test_the_tool_does_not_store_captured_facts_again(memory: PersistentMemory) -> None:
    agent = AssistantAgent(
        "assistant",
        model(call("remember", content="User's name is Sarah"), call("remember", content="Sarah prefers TypeScript.")),
        tools=memory_tools(memory),
        memory=[memory],
    )
    await agent.run(task="My name is Sarah and I prefer TypeScript")
    await agent.run(task="Did you get that?")
    records = await memory.profile.records()
    assert sorted(record.content for record in records) == ["The user prefers TypeScript.", "The user's name is Sarah."]


@pytest.mark.parametrize(
    ("before", "note", "current"),
    [
        ("I live in Porto.", "The user lives in Lisbon", ["The user lives in Lisbon"]),
        (
            "I work at Acme.",
            "User works as a nurse at Beta.",
            ["The user works as a nurse.", "The user works at Beta."],
        ),
        (
            "I live in Porto.",
            "The user works at Beta. The user lives in Lisbon.",
            ["The user lives in Lisbon.", "The user works at Beta."],
        ),
        ("My name is Sarah.", "My name is Sarah", ["The user's name is Sarah."]),
        ("My name is Sarah.", "I am Claude, an AI", ["I am Claude, an AI", "The user's name is Sarah."]),
        ("I am a nurse.", "I am an AI assistant.", ["I am an AI assistant.", "The user is a nurse."]),
        ("I live in Porto.", "I live in Lisbon now", ["I live in Lisbon now"]),
        ("I have a dog named Rex.", "The user has a dog", ["The user has a dog named Rex."]),
        ("I have a dog named Rex.", "The user has a cat", ["The user has a cat", "The user has a dog named Rex."]),
        (
            "I live in Porto.",
            "The user lives in Porto since the embassy moved there",
            ["The user lives in Porto since the embassy moved there"],
        ),
    ],
)
async def test_a_note_supersedes_what_it_changes_and_loses_nothing(
    memory: PersistentMemory, before: str, note: str, current: list[str]
) -> None:
    await memory.extract(before)
    await run(by_name(memory_tools(memory))["remember"], content=note)
    assert sorted(record.content for record in await memory.profile.records()) == sorted(current)


async def test_tags_of_a_restated_note_are_kept(memory: PersistentMemory) -> None:
    await memory.extract("My name is Sarah")
    await run(by_name(memory_tools(memory))["remember"], content="The user's name is Sarah", tags=["vip"])
    (record,) = await memory.profile.records()
    assert "vip" in record.tags


async def test_results_of_the_tools_are_never_captured() -> None:
    """AutoGen sends a tool's result to the team as the agent's message."""
    memory = PersistentMemory("team", session="today", store=TemporaryStore(), embedding=words())
    await memory.remember("The deployment runs on Fridays", source="application")
    caller = AssistantAgent(
        "caller", model(call("recall", query="When is the deployment?")), tools=memory_tools(memory), memory=[memory]
    )
    listener = AssistantAgent("listener", ReplayChatCompletionClient(["On Fridays, then."]), memory=[memory])
    team = RoundRobinGroupChat([caller, listener], max_turns=2)
    async for _ in memory.observe(team.run_stream(task="When is the deployment of the web shop?")):
        pass
    await memory.flush()
    assert [(record.source, record.content) for record in await memory.session.messages()] == [
        ("user", "When is the deployment of the web shop?"),
        ("listener", "On Fridays, then."),
    ]


@pytest.mark.parametrize(
    "refused",
    [
        call("forget", id="0" * 32),
        call("remember"),
        call("recall", query=" "),
        call("forget", id="one\ntwo"),
    ],
)
async def test_refusals_of_the_tools_are_never_captured(refused: CreateResult) -> None:
    memory = PersistentMemory("team", session="today", store=TemporaryStore(), embedding=words())
    agent = AssistantAgent("assistant", model(refused, "So be it."), tools=memory_tools(memory), memory=[memory])
    async for _ in memory.observe(agent.run_stream(task="Forget the deployment of the web shop")):
        pass
    await agent.run(task="The deployment is on Friday.")
    await memory.flush()
    assert [record.content for record in await memory.session.messages()] == [
        "Forget the deployment of the web shop",
        "The deployment is on Friday.",
        "So be it.",
    ]


async def test_memories_recalled_by_a_tool_are_not_injected_again(memory: PersistentMemory) -> None:
    await memory.remember("The deployment runs on Fridays")
    client = model(call("recall", query="When is the deployment?"), "On Fridays.", "As I said.")
    agent = AssistantAgent("assistant", client, tools=memory_tools(memory), memory=[memory], reflect_on_tool_use=True)
    await agent.run(task="Look it up: when is the deployment?")
    await agent.run(task="Again: when is the deployment?")
    seen = client.create_calls[-1]["messages"]
    assert any(isinstance(message, FunctionExecutionResultMessage) for message in seen)
    text = "\n".join(str(message.content) for message in seen)
    assert text.count("The deployment runs on Fridays") == 1


async def test_the_recall_tool_counts_as_use_and_leaves_out_questions() -> None:
    memory = PersistentMemory("user-42", session="today", store=TemporaryStore(), embedding=words())
    record = await memory.remember("The deployment runs on Fridays")
    await memory.session.append("user", "When is the deployment?")
    answer = await run(by_name(memory_tools(memory))["recall"], query="deployment on Fridays")
    assert answer == f"- The deployment runs on Fridays (id: {record.id})"
    await memory.flush()
    found = await memory.record(record.id)
    assert found is not None
    assert found.uses == 1


async def test_a_recall_stays_within_the_budget() -> None:
    memory = PersistentMemory("user-42", store=TemporaryStore(), embedding=words(), policy=RecallPolicy(max_tokens=60))
    await memory.remember_many([f"Deployment number {number} ran on a Friday of the year" for number in range(5)])
    answer = await run(by_name(memory_tools(memory))["recall"], query="Which deployment ran on a Friday?", limit=5)
    assert 1 <= len(answer.splitlines()) < 5


# Components


async def test_tools_survive_being_dumped_and_loaded() -> None:
    memory = ProfileMemory("user-42", store=TemporaryStore(), embedding=words())
    record = await memory.remember("The deployment runs on Fridays", kind="fact", tags=["ops"])
    dumped = [tool.dump_component().model_dump_json() for tool in memory_tools(memory, tags=["ops"], limit=2)]
    loaded = by_name([BaseTool.load_component(ComponentModel.model_validate_json(text)) for text in dumped])
    assert set(loaded["recall"].schema.get("parameters", {})["properties"]) == {"query", "kind"}
    assert record.id in await run(loaded["recall"], query="When is the deployment?")
    await run(loaded["remember"], content="The deployment failed twice")
    assert {item.tags for item in await memory.records()} == {("ops",)}


async def test_forget_accepts_an_id_prefix(memory: PersistentMemory, memory_store: TemporaryStore) -> None:
    ids = ["abcdef01" + "0" * 24, "abcdef02" + "0" * 24, "12345678" + "0" * 24]
    source, export = TemporaryStore(), io.StringIO()
    async with PersistentMemory(memory.namespace, store=source, embedding=words()) as other:
        records = await other.remember_many([f"The user owns item{number}" for number in range(len(ids))])
        await export_memories(source, export, progress=False)
    lines = export.getvalue()
    for record, id in zip(records, ids, strict=True):
        lines = lines.replace(record.id, id)
    await import_memories(memory_store, io.StringIO(lines), embedding=words(), progress=False)
    (forget,) = memory_tools(memory, ["forget"])
    assert isinstance(forget, BaseTool)
    assert "2 memories begin with abcdef" in await run(forget, id="abcdef")
    for unknown in ("12345", "9999999", "12345679"):
        assert "no memory with the id" in await run(forget, id=unknown)
    assert await memory.count() == 3
    assert await run(forget, id="(id: 12345678)") == f"Memory forgotten (id: {ids[2]})"
    assert await run(forget, id="ABCDEF01") == f"Memory forgotten (id: {ids[0]})"
    assert await run(forget, id="abcdef") == f"Memory forgotten (id: {ids[1]})"
    assert await memory.count() == 0


async def test_an_id_prefix_matches_only_memories_the_tools_may_change(memory: PersistentMemory) -> None:
    record = await memory.remember("The build takes an hour", tags=["other"])
    old = await memory.remember("Lives in Berlin", key="home", tags=["mine"])
    await memory.remember("Lives in Lisbon", key="home", tags=["mine"])
    (forget,) = memory_tools(memory, ["forget"], tags=["mine"])
    assert isinstance(forget, BaseTool)
    assert "no memory with the id" in await run(forget, id=record.id[:8])
    assert "no memory with the id" in await run(forget, id=old.id[:8])
    assert await memory.record(record.id) is not None


async def test_a_kind_may_be_written_in_any_case(memory: PersistentMemory) -> None:
    tools = by_name(memory_tools(memory))
    await run(tools["remember"], content="Local files failed as a cache", kind=" Lesson")
    assert [record.kind for record in await memory.profile.records()] == ["lesson"]
    assert "Local files" in await run(tools["recall"], query="local files as a cache", kind="LESSON ")
    pinned = by_name(memory_tools(memory, kind=" Lesson "))
    assert "Local files" in await run(pinned["recall"], query="local files as a cache")
    dumped = pinned["recall"].dump_component()
    dumped.config["kind"] = " Lesson "
    loaded = BaseTool.load_component(dumped)
    assert loaded.dump_component().config["kind"] == "lesson"


async def test_lessons_are_marked_in_what_recall_answers(memory: PersistentMemory) -> None:
    lesson = await memory.remember("Local files failed as a cache", kind="lesson")
    fact = await memory.remember("The cache of the build is in Redis")
    (recall,) = memory_tools(memory, ["recall"])
    assert isinstance(recall, BaseTool)
    answer = await run(recall, query="cache files build")
    assert f"- Lessons (failed before, avoid): Local files failed as a cache (id: {lesson.id})" in answer
    assert f"- The cache of the build is in Redis (id: {fact.id})" in answer
    assert without_answers(answer) == ""
    assert "- Lessons (failed before, avoid): Local files" in (await memory.recall("cache files build")).text
