"""Every message is captured once, no matter how it arrives."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import MultiModalMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import AssistantMessage, CreateResult, RequestUsage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from PIL import Image as Picture
from pydantic import BaseModel
from toys import word_vectors, words

from autogen_persistent_memory import CallableEmbedding, PersistentMemory, RecallPolicy, TemporaryStore
from autogen_persistent_memory.runtime.threads import in_thread


def user(text: str) -> UserMessage:
    return UserMessage(content=text, source="user")


def agent(memory: PersistentMemory, *answers: str, name: str = "bot", **options: object) -> AssistantAgent:
    client = ReplayChatCompletionClient(list(answers))
    return AssistantAgent(name, model_client=client, memory=[memory], **options)  # type: ignore[arg-type]


async def lines(memory: PersistentMemory) -> list[str]:
    await memory.flush()
    return [f"{record.source}: {record.content}" for record in await memory.session.messages()]


def a_memory(store: TemporaryStore | None = None, session: str = "s", **options: object) -> PersistentMemory:
    return PersistentMemory(
        "ann",
        session=session,
        store=store or TemporaryStore(),
        embedding=words(),
        **options,  # type: ignore[arg-type]
    )


CONTEXTS = [
    UnboundedChatCompletionContext,
    lambda: BufferedChatCompletionContext(buffer_size=2),
    lambda: HeadAndTailChatCompletionContext(head_size=1, tail_size=2),
    lambda: TokenLimitedChatCompletionContext(ReplayChatCompletionClient([]), token_limit=50),
]


@pytest.mark.parametrize("make_context", CONTEXTS)
async def test_an_agents_conversation_is_captured_with_its_last_reply(
    make_context: type[ChatCompletionContext],
) -> None:
    memory = a_memory()
    answers = [f"Here is my answer number {number}" for number in range(5)]
    assistant = agent(memory, *answers, model_context=make_context())
    for number in range(5):
        await assistant.run(task=f"Here is my question number {number}")
    expected = [
        line
        for number in range(5)
        for line in (f"user: Here is my question number {number}", f"bot: Here is my answer number {number}")
    ]
    assert await lines(memory) == expected
    assert await lines(memory) == expected
    await memory.close()


async def test_repeated_messages_are_captured_every_time() -> None:
    memory = a_memory()
    assistant = agent(memory, *["Certainly, here you go"] * 3)
    for _ in range(3):
        await assistant.run(task="Go on with the next one please")
    assert await lines(memory) == ["user: Go on with the next one please", "bot: Certainly, here you go"] * 3
    await memory.close()


async def test_a_team_is_captured_once_with_its_speakers() -> None:
    memory = a_memory()
    team = RoundRobinGroupChat(
        [
            agent(memory, "Ada thinks it works", "Ada is done", name="ada"),
            agent(memory, "Bob thinks so too", name="bob"),
        ],
        termination_condition=MaxMessageTermination(4),
    )
    await team.run(task="Does the engine work?")
    assert await lines(memory) == [
        "user: Does the engine work?",
        "ada: Ada thinks it works",
        "bob: Bob thinks so too",
        "ada: Ada is done",
    ]
    await memory.close()


async def test_observe_and_the_agents_memory_capture_nothing_twice() -> None:
    memory = a_memory()
    ada = agent(memory, "Ada thinks it works", "Ada is done", "Ada thinks it brakes", "Ada is done", name="ada")
    bob = agent(memory, "Bob thinks so too", "Bob thinks so too", name="bob")
    team = RoundRobinGroupChat([ada, bob], termination_condition=MaxMessageTermination(4))
    result = await Console(memory.observe(team.run_stream(task="Does the engine work?")))
    assert isinstance(result, TaskResult)
    first = ["user: Does the engine work?", "ada: Ada thinks it works", "bob: Bob thinks so too", "ada: Ada is done"]
    assert await lines(memory) == first
    await team.reset()
    await Console(memory.observe(team.run_stream(task="Does the brake work as well?")))
    second = ["user: Does the brake work as well?", "ada: Ada thinks it brakes", *first[2:]]
    assert await lines(memory) == first + second
    await memory.close()


async def lookup(city: str) -> str:
    """Look up the weather."""
    return f"It is sunny in {city} today"


async def test_a_tools_summary_is_captured_from_the_stream() -> None:
    memory = a_memory()
    call = CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="1", name="lookup", arguments='{"city": "Oslo"}')],
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
        cached=False,
    )
    info = {"vision": False, "function_calling": True, "json_output": False, "family": "x", "structured_output": False}
    client = ReplayChatCompletionClient([call], model_info=info)  # type: ignore[arg-type]
    assistant = AssistantAgent("bot", model_client=client, tools=[lookup], memory=[memory])
    async for _ in memory.observe(assistant.run_stream(task="How is the weather in Oslo?")):
        pass
    assert await lines(memory) == ["user: How is the weather in Oslo?", "bot: It is sunny in Oslo today"]
    await memory.close()


class Answer(BaseModel):
    thoughts: str
    verdict: str


async def test_a_structured_reply_is_captured_once() -> None:
    memory = a_memory()
    reply = '{"thoughts": "It seems to be sunny", "verdict": "sunny"}'
    client = ReplayChatCompletionClient([reply])
    assistant = AssistantAgent("bot", model_client=client, memory=[memory], output_content_type=Answer)
    async for _ in memory.observe(assistant.run_stream(task="How is the weather in Oslo?")):
        pass
    assert len(await lines(memory)) == 2
    await memory.close()


async def test_a_multimodal_message_is_captured_by_its_text() -> None:
    memory = a_memory()
    picture = Image(Picture.new("RGB", (2, 2)))
    assistant = agent(memory, "It shows a small red square")
    assistant._model_client._model_info["vision"] = True  # type: ignore[attr-defined]
    message = MultiModalMessage(content=["What does this picture show?", picture], source="user")
    async for _ in memory.observe(assistant.run_stream(task=message)):
        pass
    assert (await lines(memory))[0] == "user: What does this picture show?"
    await memory.close()


async def test_a_conversation_continued_in_a_new_process_is_not_captured_again() -> None:
    store = TemporaryStore()
    memory = a_memory(store)
    assistant = agent(memory, "First answer to Ann", "Second answer to Ann")
    await assistant.run(task="First question of Ann")
    await assistant.run(task="Second question of Ann")
    state = await assistant.save_state()
    await memory.close()
    again = a_memory(store)
    assistant = agent(again, "Third answer to Ann")
    await assistant.load_state(state)
    await assistant.run(task="Third question of Ann")
    assert len(await lines(again)) == 6
    assert len(set(await lines(again))) == 6
    await again.close()


async def test_short_messages_keep_their_place_but_are_never_recalled() -> None:
    memory = a_memory()
    assistant = agent(memory, "Ok", "The meeting with Bob is on Friday at ten")
    await assistant.run(task="Thanks!")
    await assistant.run(task="When is the meeting with Bob?")
    assert (await lines(memory))[:2] == ["user: Thanks!", "bot: Ok"]
    assert "Thanks" not in (await memory.recall("Thanks!", limit=50)).text
    assert "Friday" in (await memory.recall("meeting with Bob", limit=50)).text
    await memory.close()


async def test_nothing_is_captured_with_capture_off() -> None:
    memory = a_memory(capture=False)
    assistant = agent(memory, "Hello Ann, nice to meet you")
    async for _ in memory.observe(assistant.run_stream(task="My name is Ann and I live in Oslo")):
        pass
    await memory.flush()
    assert await memory.count() == 0
    await memory.close()


async def test_messages_that_arrive_during_a_write_are_stored_when_the_stream_ends() -> None:
    storing, released = threading.Event(), threading.Event()

    def slow_vectors(texts: list[str]) -> list[list[float]]:
        storing.set()
        released.wait(10)
        return word_vectors(texts)

    async def stream() -> AsyncIterator[TextMessage]:
        yield TextMessage(content="The first of two messages.", source="planner")
        await in_thread(storing.wait)
        yield TextMessage(content="The second of two messages.", source="scout")
        released.set()

    slow = CallableEmbedding(slow_vectors, id="slow-words")
    async with PersistentMemory("ann", session="s", store=TemporaryStore(), embedding=slow, extractor=None) as memory:
        async for _ in memory.observe(stream()):
            pass
        assert [message.source for message in await memory.session.messages()] == ["planner", "scout"]


async def test_injected_memories_are_never_captured() -> None:
    memory = a_memory()
    await memory.remember("Ann drinks green tea with honey", kind="preference")
    assistant = agent(memory, "You like green tea, I believe")
    await assistant.run(task="Which green tea do I drink with honey?")
    assert all("<memory" not in line and "drinks green tea" not in line for line in await lines(memory))
    assert [record.content for record in await memory.records(kinds=["preference", "fact"])] == [
        "Ann drinks green tea with honey"
    ]
    await memory.close()


async def test_a_finished_transcript_can_be_captured() -> None:
    memory = a_memory()
    facts = await memory.extract(
        [
            {"source": "user", "content": "My name is Ann and I live in Oslo."},
            {"source": "bot", "content": "Nice to meet you, Ann!"},
        ]
    )
    assert {fact.key for fact in facts} == {"user/name", "user/home"}
    assert len(await lines(memory)) == 2
    assert await memory.extract("I prefer tea over coffee.") != []
    await memory.close()


async def test_one_question_to_agents_at_the_same_time_is_captured_once() -> None:
    memory = a_memory()
    bots = [agent(memory, f"My answer is number {number}", name=f"bot{number}") for number in range(3)]
    await asyncio.gather(*(bot.run(task="What is your answer, all of you?") for bot in bots))
    assert sorted(await lines(memory)) == [
        *(f"bot{number}: My answer is number {number}" for number in range(3)),
        "user: What is your answer, all of you?",
    ]
    await memory.close()


async def test_the_same_words_to_agents_in_turn_are_different_questions() -> None:
    memory = a_memory()
    for _ in range(3):
        await agent(memory, "Certainly, here you go").run(task="Go on with the next one please")
    assert await lines(memory) == ["user: Go on with the next one please", "bot: Certainly, here you go"] * 3
    await memory.close()


@pytest.mark.parametrize("task", ["Go on with the next one please", "Go on with number {} please"])
async def test_a_reset_loses_nothing(task: str) -> None:
    memory = a_memory()
    assistant = agent(memory, *["Certainly, here you go"] * 3)
    expected = []
    for number in range(3):
        await assistant.run(task=task.format(number))
        await assistant.on_reset(CancellationToken())
        expected += [f"user: {task.format(number)}", "bot: Certainly, here you go"]
    assert await lines(memory) == expected
    await memory.close()


async def test_a_team_that_is_reset_and_asked_the_same_is_captured_again() -> None:
    memory = a_memory()
    ada = agent(memory, *["Ada thinks it works"] * 3, name="ada")
    bob = agent(memory, *["Bob thinks so too"] * 3, name="bob")
    team = RoundRobinGroupChat([ada, bob], termination_condition=MaxMessageTermination(3))
    for _ in range(3):
        await team.run(task="Does the engine work?")
        await team.reset()
    assert (
        await lines(memory) == ["user: Does the engine work?", "ada: Ada thinks it works", "bob: Bob thinks so too"] * 3
    )
    await memory.close()


async def test_a_team_continued_in_a_new_process_is_not_captured_again() -> None:
    store = TemporaryStore()

    async def talk(task: str, number: int, state: Any = None) -> Any:
        async with a_memory(store) as memory:
            ada = agent(memory, f"Ada says her thing number {number}", name="ada")
            bob = agent(memory, f"Bob says his thing number {number}", name="bob")
            team = RoundRobinGroupChat([ada, bob], termination_condition=MaxMessageTermination(3))
            if state is not None:
                await team.load_state(state)
            await team.run(task=task)
            return await team.save_state()

    state = await talk("Does the engine work, you two?", 1)
    await talk("And does the brake work now?", 2, state)
    memory = a_memory(store)
    assert await lines(memory) == [
        "user: Does the engine work, you two?",
        "ada: Ada says her thing number 1",
        "bob: Bob says his thing number 1",
        "user: And does the brake work now?",
        "ada: Ada says her thing number 2",
        "bob: Bob says his thing number 2",
    ]
    await memory.close()


async def test_the_same_question_to_agents_that_share_a_memory_is_captured_twice() -> None:
    memory = a_memory()
    one = agent(memory, "Hello from the first one", "A summary by the first", name="one")
    other = agent(memory, "Hello from the second one", "A summary by the second", name="other")
    for assistant in (one, other):
        await assistant.run(task=f"Hello, agent {assistant.name}, how are you?")
    for assistant in (one, other):
        await assistant.run(task="Please summarise the report for me")
    assert [line for line in await lines(memory) if "summar" in line] == [
        "user: Please summarise the report for me",
        "one: A summary by the first",
        "user: Please summarise the report for me",
        "other: A summary by the second",
    ]
    await memory.close()


async def test_two_memories_of_one_session_on_one_agent_capture_once() -> None:
    store = TemporaryStore()
    one, other = a_memory(store), a_memory(store)
    client = ReplayChatCompletionClient(["First reply of the bot", "Second reply of the bot"])
    assistant = AssistantAgent("bot", model_client=client, memory=[one, other])
    await assistant.run(task="First question of Ann")
    await assistant.run(task="Second question of Ann")
    await other.flush()
    assert len(await lines(one)) == 4
    await one.close()
    await other.close()


async def test_no_facts_are_extracted_from_old_messages_of_a_loaded_conversation() -> None:
    store = TemporaryStore()

    async def day(task: str, state: dict[str, Any] | None = None) -> dict[str, Any]:
        async with PersistentMemory("ann", store=store, embedding=words()) as memory:
            assistant = agent(memory, "Thank you for telling me that")
            if state is not None:
                await assistant.load_state(state)
            await assistant.run(task=task)
            return dict(await assistant.save_state())

    monday = await day("I live in Oslo.")
    await day("I moved to Lisbon.")
    await day("Hello, it is me again today.", monday)
    async with PersistentMemory("ann", store=store, embedding=words(), capture=False) as memory:
        assert [record.content for record in await memory.profile.records()] == ["The user moved to Lisbon."]


async def test_a_forgotten_message_is_not_captured_again() -> None:
    memory = a_memory()
    assistant = agent(memory, "Noted: your phone is 555-1234.", "Hello again, dear Ann")
    await assistant.run(task="My phone number is 555-1234.")
    await memory.forget(containing="555-1234", everywhere=True)
    await memory.flush()
    await memory.close()
    await assistant.run(task="Hello, it is me again today.")
    await memory.flush()
    assert all("555" not in record.content for record in await memory.records(limit=100, include_history=True))
    assert len(await lines(memory)) == 2
    await memory.close()


async def test_clear_also_drops_messages_that_are_not_stored_yet() -> None:
    memory = a_memory()
    assistant = agent(memory, "Noted: you live in Oslo.", "Hello again, dear Ann")
    await assistant.run(task="I live in Oslo.")
    await memory.clear()
    await memory.flush()
    assert await memory.count() == 0
    await assistant.run(task="Hello, it is me again today.")
    assert await lines(memory) == ["user: Hello, it is me again today.", "bot: Hello again, dear Ann"]
    await memory.close()


async def test_a_repeated_message_is_captured_even_if_an_earlier_one_was_forgotten() -> None:
    store = TemporaryStore()
    memory = a_memory(store)
    assistant = agent(memory, *["Certainly, here you go"] * 3)
    for _ in range(3):
        await assistant.run(task="Go on with the next one please")
    await memory.flush()
    await memory.forget((await memory.session.messages())[0].id)
    await memory.close()
    again = a_memory(store)
    await agent(again, "Here it is, once more").run(task="Go on with the next one please")
    assert len(await lines(again)) == 7
    await again.close()


async def test_messages_of_a_cancelled_turn_are_captured_with_the_next() -> None:
    memory = a_memory()
    context = UnboundedChatCompletionContext([user("I live in Oslo, where it rains.")])
    await memory.recall("warm up")
    release = threading.Event()
    busy = [asyncio.create_task(in_thread(lambda: release.wait(10))) for _ in range(8)]
    await asyncio.sleep(0)
    updating = asyncio.create_task(memory.update_context(context))
    await asyncio.wait({updating}, timeout=0.1)
    updating.cancel()
    release.set()
    await asyncio.gather(*busy)
    await memory.update_context(context)
    assert await lines(memory) == ["user: I live in Oslo, where it rains."]
    assert await memory.profile.count() == 1
    await memory.close()


async def test_nothing_is_lost_with_several_agents_at_once() -> None:
    memory = a_memory()
    bots = [agent(memory, f"Answer to question number {number}", name=f"bot{number}") for number in range(8)]
    await asyncio.gather(*(bot.run(task=f"This is question number {number}") for number, bot in enumerate(bots)))
    assert len(await lines(memory)) == 16
    await memory.close()


async def test_messages_missed_because_of_the_deadline_are_captured_later() -> None:
    class Slow(CallableEmbedding):
        async def load(self) -> None:
            await opened.wait()

    opened = asyncio.Event()
    policy = RecallPolicy(deadline=0.1, opening_deadline=0.1)
    embedding = Slow(word_vectors, id="x")
    memory = PersistentMemory("ann", session="s", store=TemporaryStore(), embedding=embedding, policy=policy)
    context = UnboundedChatCompletionContext([UserMessage(content="I live in Berlin with two cats", source="user")])
    await memory.update_context(context)
    await context.add_message(AssistantMessage(content="Berlin is a nice place to live", source="assistant"))
    opened.set()
    await context.add_message(UserMessage(content="and my name is Sarah Connor", source="user"))
    await memory.update_context(context)
    await memory.flush()
    assert [record.content for record in await memory.session.messages()] == [
        "I live in Berlin with two cats",
        "Berlin is a nice place to live",
        "and my name is Sarah Connor",
    ]
    await memory.close()
