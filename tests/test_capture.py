"""What is said is captured once, whatever way it is heard."""

import asyncio
from collections.abc import Sequence

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import MultiModalMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from autogen_core import FunctionCall, Image
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
from PIL import Image as Picture
from toys import words

from autogen_persistent_memory import PersistentMemory, TemporaryStore
from autogen_persistent_memory._capture import Ledger, Utterance, said_in, transcript

A, B, C = (Utterance("user", "one"), Utterance("bot", "two"), Utterance("user", "three"))


def told(found: Sequence[object]) -> list[str]:
    return [one.utterance.text for one in found]  # type: ignore[attr-defined]


def books(*stored: Utterance) -> Ledger:
    ledger = Ledger("s")
    ledger.load(stored)
    return ledger


def at_context(ledger: Ledger, place: object, *conversation: Utterance) -> list[str]:
    news, goes_on = place.news(conversation)  # type: ignore[attr-defined]
    return told(ledger.hear(place, news) if goes_on else ledger.hear_anew(place, news))  # type: ignore[arg-type]


def test_a_growing_conversation_is_captured_message_by_message() -> None:
    ledger = books()
    place = ledger.open()
    assert at_context(ledger, place, A) == ["one"]
    assert at_context(ledger, place, A, B, C) == ["two", "three"]
    assert at_context(ledger, place, A, B, C) == []
    assert at_context(ledger, place, A, B, C, A, A) == ["one", "one"]


def test_what_a_teammate_heard_too_is_captured_once() -> None:
    ledger = books()
    one, other = ledger.open(), ledger.open()
    assert at_context(ledger, one, A) == ["one"]
    assert at_context(ledger, other, A, B) == ["two"]
    assert at_context(ledger, one, A, B, C) == ["three"]
    assert at_context(ledger, other, A, B, C, A) == ["one"]
    assert at_context(ledger, one, A, B, C, A) == []


def test_what_was_stored_before_is_not_captured_again_when_it_is_loaded() -> None:
    ledger = books(A, B, C)
    assert at_context(ledger, ledger.open(), A, B, C, A) == ["one"]
    ledger = books(A, B, C)
    assert at_context(ledger, ledger.open(), B, C, Utterance("user", "new")) == ["new"]


def test_a_new_conversation_may_repeat_old_words() -> None:
    ledger = books(A, B)
    assert at_context(ledger, ledger.open(), A) == ["one"]


def test_a_context_that_is_set_back_is_known() -> None:
    ledger = books()
    place = ledger.open()
    at_context(ledger, place, A, B, C)
    assert at_context(ledger, place, A, B, Utterance("user", "four")) == ["four"]


def test_a_stream_and_a_context_hear_the_same() -> None:
    ledger = books()
    stream = ledger.open()
    assert told(ledger.hear(stream, [A])) == ["one"]
    context = ledger.open()
    context.news([A])
    assert told(ledger.hear_anew(context, [A])) == []
    assert told(ledger.hear(stream, [B])) == ["two"]
    assert at_context(ledger, context, A, B, A) == ["one"]
    assert told(ledger.hear(stream, [A])) == []


def test_the_same_words_have_the_same_id_in_every_process_and_another_the_second_time() -> None:
    first, second = books(), books()
    one, again = (first.hear(first.open(), [A, A]), second.hear(second.open(), [A, A]))
    assert [found.id for found in one] == [found.id for found in again]
    assert one[0].id != one[1].id


def test_only_what_people_and_agents_say_is_said() -> None:
    messages: list[LLMMessage] = [
        SystemMessage(content="You are helpful."),
        UserMessage(content='<memory id="abc">\nWhat you remember</memory>', source="memory"),
        UserMessage(content="Hello", source="user"),
        UserMessage(content=["See this", Image(Picture.new("RGB", (2, 2)))], source="user"),
        AssistantMessage(content=[FunctionCall(id="1", arguments="{}", name="f")], source="bot"),
        FunctionExecutionResultMessage(content=[FunctionExecutionResult(content="42", name="f", call_id="1")]),
        UserMessage(content="Skipped 3 messages.", source="System"),
        UserMessage(content="  ", source="user"),
        AssistantMessage(content="The answer is 42", source="bot"),
    ]
    said = [utterance.said for utterance in said_in(messages)]
    assert said == [("user", "Hello"), ("user", "See this"), ("bot", "The answer is 42")]


def test_a_transcript_may_have_many_shapes() -> None:
    result = TaskResult(messages=[TextMessage(content="Hi", source="user"), TextMessage(content="Hello", source="bot")])
    assert transcript(result, "user") == [Utterance(*said) for said in [("user", "Hi"), ("bot", "Hello")]]
    assert transcript("Hi", "ann") == [Utterance(*said) for said in [("ann", "Hi")]]
    assert transcript(["Hi", {"source": "bot", "content": "Hello"}], "user") == [
        Utterance(*said) for said in [("user", "Hi"), ("bot", "Hello")]
    ]
    assert transcript([UserMessage(content="Hi", source="ann")], "user") == [
        Utterance(*said) for said in [("ann", "Hi")]
    ]
    with pytest.raises(ValueError, match="A transcript is made of"):
        transcript([42], "user")  # type: ignore[list-item]


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
    bot = agent(memory, *answers, model_context=make_context())
    for number in range(5):
        await bot.run(task=f"Here is my question number {number}")
    expected = [
        line
        for number in range(5)
        for line in (f"user: Here is my question number {number}", f"bot: Here is my answer number {number}")
    ]
    assert await lines(memory) == expected
    assert await lines(memory) == expected
    await memory.close()


async def test_repeated_words_are_captured_as_often_as_they_are_said() -> None:
    memory = a_memory()
    bot = agent(memory, *["Certainly, here you go"] * 3)
    for _ in range(3):
        await bot.run(task="Go on with the next one please")
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


async def test_observing_and_remembering_capture_nothing_twice() -> None:
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
    bot = AssistantAgent("bot", model_client=client, tools=[lookup], memory=[memory])
    async for _ in memory.observe(bot.run_stream(task="How is the weather in Oslo?")):
        pass
    assert await lines(memory) == ["user: How is the weather in Oslo?", "bot: It is sunny in Oslo today"]
    await memory.close()


async def test_a_multimodal_message_is_captured_by_its_text() -> None:
    memory = a_memory()
    picture = Image(Picture.new("RGB", (2, 2)))
    bot = agent(memory, "It shows a small red square")
    bot._model_client._model_info["vision"] = True  # type: ignore[attr-defined]
    message = MultiModalMessage(content=["What does this picture show?", picture], source="user")
    async for _ in memory.observe(bot.run_stream(task=message)):
        pass
    assert (await lines(memory))[0] == "user: What does this picture show?"
    await memory.close()


async def test_a_conversation_that_goes_on_in_a_new_process_is_not_captured_again() -> None:
    store = TemporaryStore()
    memory = a_memory(store)
    bot = agent(memory, "First answer to Ann", "Second answer to Ann")
    await bot.run(task="First question of Ann")
    await bot.run(task="Second question of Ann")
    state = await bot.save_state()
    await memory.close()
    again = a_memory(store)
    bot = agent(again, "Third answer to Ann")
    await bot.load_state(state)
    await bot.run(task="Third question of Ann")
    assert len(await lines(again)) == 6
    assert len(set(await lines(again))) == 6
    await again.close()


async def test_short_messages_keep_their_place_but_are_never_recalled() -> None:
    memory = a_memory()
    bot = agent(memory, "Ok", "The meeting with Bob is on Friday at ten")
    await bot.run(task="Thanks!")
    await bot.run(task="When is the meeting with Bob?")
    assert (await lines(memory))[:2] == ["user: Thanks!", "bot: Ok"]
    assert "Thanks" not in (await memory.recall("Thanks!", limit=50)).text
    assert "Friday" in (await memory.recall("meeting with Bob", limit=50)).text
    await memory.close()


async def test_nothing_is_captured_if_nobody_wants_it() -> None:
    memory = a_memory(capture=False)
    bot = agent(memory, "Hello Ann, nice to meet you")
    async for _ in memory.observe(bot.run_stream(task="My name is Ann and I live in Oslo")):
        pass
    await memory.flush()
    assert await memory.count() == 0
    await memory.close()


async def test_what_was_injected_is_never_captured() -> None:
    memory = a_memory()
    await memory.remember("Ann drinks green tea with honey", kind="preference")
    bot = agent(memory, "You like green tea, I believe")
    await bot.run(task="Which green tea do I drink with honey?")
    assert all("<memory" not in line and "drinks green tea" not in line for line in await lines(memory))
    assert [record.content for record in await memory.records(kinds=["preference", "fact"])] == [
        "Ann drinks green tea with honey"
    ]
    await memory.close()


async def test_a_finished_transcript_can_be_fed_in() -> None:
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


async def test_agents_asked_at_the_same_time_hear_one_question() -> None:
    memory = a_memory()
    bots = [agent(memory, f"My answer is number {number}", name=f"bot{number}") for number in range(3)]
    await asyncio.gather(*(bot.run(task="What is your answer, all of you?") for bot in bots))
    assert sorted(await lines(memory)) == [
        *(f"bot{number}: My answer is number {number}" for number in range(3)),
        "user: What is your answer, all of you?",
    ]
    await memory.close()


async def test_one_agent_after_the_other_hears_another_question_though_the_words_are_the_same() -> None:
    memory = a_memory()
    for _ in range(3):
        await agent(memory, "Certainly, here you go").run(task="Go on with the next one please")
    assert await lines(memory) == ["user: Go on with the next one please", "bot: Certainly, here you go"] * 3
    await memory.close()


async def test_several_agents_at_once_lose_nothing() -> None:
    memory = a_memory()
    bots = [agent(memory, f"Answer to question number {number}", name=f"bot{number}") for number in range(8)]
    await asyncio.gather(*(bot.run(task=f"This is question number {number}") for number, bot in enumerate(bots)))
    assert len(await lines(memory)) == 16
    await memory.close()
