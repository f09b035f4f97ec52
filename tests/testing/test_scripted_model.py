"""The model that answers from a script."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage, UserMessage
from autogen_core.tools import FunctionTool

from autogen_persistent_memory import PersistentMemory, TemporaryStore, memory_tools
from autogen_persistent_memory.testing import Asked, ScriptedModel, ToolCall, word_embedding


async def ask(model: ChatCompletionClient, text: str = "Hi") -> CreateResult:
    return await model.create([UserMessage(content=text, source="user")])


def a_memory() -> PersistentMemory:
    return PersistentMemory("ann", session="today", store=TemporaryStore(), embedding=word_embedding())


async def test_the_script_is_answered_in_order_and_every_request_is_recorded() -> None:
    ready = CreateResult(finish_reason="stop", content="ready", usage=RequestUsage(1, 2), cached=True)
    model = ScriptedModel(["Hello!", ready])
    assert [(await ask(model, text)).content for text in ("one", "two")] == ["Hello!", "ready"]
    assert [asked.texts for asked in model.asked] == [["one"], ["two"]]
    assert (model.actual_usage(), model.total_usage()) == (RequestUsage(1, 2), RequestUsage(2, 3))


async def test_a_function_makes_the_answer_of_the_request() -> None:
    async def later(asked: Asked) -> ToolCall:
        await asyncio.sleep(0)
        return ToolCall("recall", {"query": asked.texts[-1]})

    model = ScriptedModel([lambda asked: asked.texts[-1].upper(), later, lambda asked: KeyError("made")])
    assert (await ask(model, "louder")).content == "LOUDER"
    (call,) = (await ask(model, "tea")).content
    assert (call.name, json.loads(call.arguments)) == ("recall", {"query": "tea"})  # type: ignore[union-attr]
    with pytest.raises(KeyError):
        await ask(model)


async def test_several_tools_are_called_at_once_with_ids_of_their_own() -> None:
    result = await ask(ScriptedModel([[ToolCall("one"), ToolCall("two", {"x": 1})]]))
    assert result.finish_reason == "function_calls"
    assert [(call.id, call.name, call.arguments) for call in result.content] == [  # type: ignore[union-attr]
        ("call-1", "one", "{}"),
        ("call-2", "two", '{"x": 1}'),
    ]


async def test_an_error_is_raised_and_the_script_goes_on() -> None:
    model = ScriptedModel([TimeoutError("too slow"), "Yes."])
    with pytest.raises(TimeoutError, match="too slow"):
        await ask(model)
    assert (await ask(model)).content == "Yes."


async def test_a_script_that_is_too_short_says_what_was_asked() -> None:
    with pytest.raises(AssertionError, match=r"no answer to request 1, which ends with 'What now\?'"):
        await ask(ScriptedModel(), "What now?")


async def test_a_script_may_be_endless() -> None:
    model = ScriptedModel(itertools.repeat("Yes."))
    assert {(await ask(model)).content for _ in range(5)} == {"Yes."}


@pytest.mark.parametrize("text", ["one two  three", "one", "", "ends with space "])
async def test_a_stream_says_the_same_in_pieces(text: str) -> None:
    model = ScriptedModel([text])
    *pieces, result = [piece async for piece in model.create_stream([UserMessage(content="Hi", source="user")])]
    assert "".join(map(str, pieces)) == text
    assert isinstance(result, CreateResult)
    assert result.content == text


async def test_an_agent_shows_its_memory_to_the_model() -> None:
    model = ScriptedModel(["Nice to meet you.", "TypeScript."])
    async with a_memory() as memory:
        for task in ("My name is Sarah and I prefer TypeScript.", "Which language do I prefer for the example?"):
            await AssistantAgent("assistant", model_client=model, memory=[memory]).run(task=task)
    assert model.asked[0].memory is None
    assert "The user prefers TypeScript." in str(model.asked[1].memory)


async def test_an_agent_calls_the_tools_of_the_script() -> None:
    model = ScriptedModel([ToolCall("remember", {"content": "Likes tea"}), "Noted."])
    async with a_memory() as memory:
        agent = AssistantAgent("assistant", model_client=model, tools=memory_tools(memory), reflect_on_tool_use=True)
        result = await agent.run(task="Remember that I like tea.")
        assert result.messages[-1].to_text() == "Noted."
        assert [record.content for record in await memory.profile.records()] == ["Likes tea"]
    assert "remember" in model.asked[0].tools


async def test_tools_are_recorded_by_name() -> None:
    model = ScriptedModel(["ok"])
    tool = FunctionTool(lambda: "x", description="does nothing", name="nothing")
    await model.create([], tools=[tool, tool.schema])
    assert model.asked[0].tools == ("nothing", "nothing")
    assert model.remaining_tokens([]) == 100_000
    assert model.capabilities == model.model_info
    await model.close()
