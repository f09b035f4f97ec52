"""No message is missed: after pictures, with lone surrogates, and from users of any name."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, MultiModalMessage, TextMessage, UserInputRequestedEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, Image
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_core.models import ModelInfo, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture
from toys import conversation, words

from autogen_persistent_memory import (
    MiniLMEmbedding,
    ModelExtractor,
    PersistentMemory,
    RecallPolicy,
    SessionMemory,
    TemporaryStore,
    memory_tools,
)
from autogen_persistent_memory.conversation.session_recap import ENDING_MESSAGES, EVERY
from autogen_persistent_memory.core.checks import without_lone_surrogates

SEES = ModelInfo(vision=True, function_calling=True, json_output=True, family="unknown", structured_output=False)
HALF = "\ud800"


def a_memory(store: TemporaryStore | None = None, **options: Any) -> PersistentMemory:
    options.setdefault("embedding", words())
    return PersistentMemory("ann", session="s", store=store or TemporaryStore(), **options)


def agent(memory: PersistentMemory | None, *answers: str, name: str = "bot") -> AssistantAgent:
    client = ReplayChatCompletionClient(list(answers), model_info=SEES)
    return AssistantAgent(name, model_client=client, memory=None if memory is None else [memory])


async def ask(assistant: AssistantAgent, memory: PersistentMemory, task: str | BaseChatMessage, observed: bool) -> None:
    if not observed:
        await assistant.run(task=task)
        return
    async for _ in memory.observe(assistant.run_stream(task=task)):
        pass


async def lines(memory: PersistentMemory) -> list[str]:
    await memory.flush()
    return [f"{record.source}: {record.content}" for record in await memory.session.messages()]


async def facts(memory: PersistentMemory) -> list[str]:
    await memory.flush()
    return sorted(record.content for record in await memory.profile.records())


# After a message without words


def picture() -> MultiModalMessage:
    return MultiModalMessage(content=[Image(Picture.new("RGB", (2, 2)))], source="user")


SILENT: list[Callable[[], BaseChatMessage]] = [picture, lambda: TextMessage(content=" \n", source="user")]


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("silent", SILENT, ids=["picture", "blank"])
async def test_the_reply_to_a_message_without_words_is_captured(
    silent: Callable[[], BaseChatMessage], observed: bool
) -> None:
    memory = a_memory()
    assistant = agent(memory, "It shows a red bicycle", "You left it in Lisbon", "Another red bicycle", "Good bye")
    for task in (silent(), "Where did I leave it?", silent(), "Thank you for looking"):
        await ask(assistant, memory, task, observed)
    assert await lines(memory) == [
        "bot: It shows a red bicycle",
        "user: Where did I leave it?",
        "bot: You left it in Lisbon",
        "bot: Another red bicycle",
        "user: Thank you for looking",
        "bot: Good bye",
    ]
    await memory.close()


@pytest.mark.parametrize("finish", [PersistentMemory.flush, PersistentMemory.close])
@pytest.mark.parametrize("silent", SILENT, ids=["picture", "blank"])
async def test_the_last_reply_is_captured_even_after_a_message_without_words(
    silent: Callable[[], BaseChatMessage], finish: Callable[[PersistentMemory], Any]
) -> None:
    store = TemporaryStore()
    keeper = a_memory(store)  # a store in RAM lives until its last memory is closed
    await keeper.count()
    memory = a_memory(store)
    await agent(memory, "It shows a red bicycle").run(task=silent())
    await finish(memory)
    await memory.close()
    assert await lines(keeper) == ["bot: It shows a red bicycle"]
    await keeper.close()


async def test_a_team_that_is_shown_a_picture_is_captured_once() -> None:
    memory = a_memory()
    ada = agent(memory, "Ada sees a bicycle", "Ada is done", name="ada")
    bob = agent(memory, "Bob sees a tricycle", name="bob")
    team = RoundRobinGroupChat([ada, bob], termination_condition=MaxMessageTermination(4))
    await team.run(task=picture())
    assert await lines(memory) == ["ada: Ada sees a bicycle", "bob: Bob sees a tricycle", "ada: Ada is done"]
    await memory.close()


# With a lone surrogate, half of a character


@given(st.text(st.characters() | st.characters(categories=["Cs"])))
def test_a_repaired_text_can_be_encoded_and_differs_only_in_lone_surrogates(text: str) -> None:
    without_lone_surrogates(text).encode("utf-8")
    assert without_lone_surrogates(without_lone_surrogates(text)) == without_lone_surrogates(text)
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert without_lone_surrogates(text) == whole


def test_surrogate_pairs_are_joined() -> None:
    assert without_lone_surrogates("\ud83d\ude00") == "😀"
    assert without_lone_surrogates(f"a{HALF}b\udfff") == "a\ufffdb\ufffd"
    assert without_lone_surrogates("\ufeff\ud800") == "\ufeff\ufffd"


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("embedding", [words, MiniLMEmbedding])
async def test_a_lone_surrogate_does_not_disable_memory_for_a_turn(
    embedding: Callable[[], Any], observed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    memory = a_memory(embedding=embedding())
    assistant = agent(memory, f"Nice {HALF} to meet you", "In Oslo", "In Oslo, as I said")
    await memory.remember("Ann lives in a red house")
    await ask(assistant, memory, f"I live in Oslo {HALF}, in a red house.", observed)
    context = await assistant.model_context.get_messages()
    assert any("Ann lives in a red house" in str(message.content) for message in context)
    await ask(assistant, memory, "Where do I live\udcff, in a red house?", observed)
    assert (await lines(memory))[:2] == [
        "user: I live in Oslo \ufffd, in a red house.",
        "bot: Nice \ufffd to meet you",
    ]
    assert "The user lives in Oslo" in "\n".join(await facts(memory))
    assert "Oslo" in (await memory.recall("Where does the user live? Oslo")).text
    assert not [record for record in caplog.records if record.name == "autogen_persistent_memory"]
    await memory.close()


async def test_a_lone_surrogate_in_a_name_or_a_transcript_is_replaced() -> None:
    memory = a_memory()
    await memory.extract(
        [TextMessage(content="I live in Oslo", source="user"), {"source": HALF, "content": f"Hm{HALF}"}]
    )
    assert await lines(memory) == ["user: I live in Oslo", "\ufffd: Hm\ufffd"]

    async def stream() -> AsyncIterator[BaseChatMessage]:
        yield TextMessage(content=f"A whole sentence{HALF}", source=f"ann{HALF}")

    async for _ in memory.observe(stream()):
        pass
    assert (await lines(memory))[-1] == "ann\ufffd: A whole sentence\ufffd"
    await memory.close()


async def test_a_team_with_a_lone_surrogate_in_its_messages_is_saved_and_loaded() -> None:
    memory = a_memory()
    assistant = agent(None, f"Nice{HALF} to meet you")
    await assistant.run(task=f"I am Ann{HALF}")
    await memory.session.save(assistant)
    again = agent(None)
    assert await memory.session.load(again)
    assert await again.save_state() == await assistant.save_state()
    await memory.close()


async def test_extraction_and_summaries_survive_a_lone_surrogate_from_the_model() -> None:
    client = ReplayChatCompletionClient(['{"facts": [{"content": "The user lives in Oslo \\ud800."}]}'])
    found = await ModelExtractor(client).extract_later(conversation("user: I live in Oslo \ufffd."), [])
    assert [fact.content for fact in found] == ["The user lives in Oslo \ufffd."]
    summarizer = ReplayChatCompletionClient([f"They talked{HALF} about Oslo"])
    session = SessionMemory("ann", "s", store=TemporaryStore(), embedding=words(), summarizer=summarizer)
    for number in range(EVERY + ENDING_MESSAGES):
        await session.append("user", f"Message number {number} about Oslo")
    await session.flush()
    newcomer = AssistantAgent("bot", model_client=ReplayChatCompletionClient(["Yes"]), memory=[session])
    await newcomer.run(task="What did we talk about?")
    shown = "\n".join(str(message.content) for message in await newcomer.model_context.get_messages())
    assert "They talked\ufffd about Oslo" in shown
    await session.close()


EXPLICIT: dict[str, Callable[[PersistentMemory], Any]] = {
    "content": lambda memory: memory.remember(f"a{HALF}"),
    "tag": lambda memory: memory.remember("a", tags=[HALF]),
    "key": lambda memory: memory.remember("a", key=HALF),
    "kind": lambda memory: memory.remember("a", kind=HALF),
    "source": lambda memory: memory.remember("a", source=HALF),
    "session": lambda memory: memory.remember("a", session=HALF),
    "metadata": lambda memory: memory.remember("a", metadata={"a": HALF}),
    "metadata key": lambda memory: memory.remember("a", metadata={HALF: "a"}),
    "many": lambda memory: memory.remember_many(["a", HALF]),
    "add": lambda memory: memory.add(MemoryContent(content=HALF, mime_type=MemoryMimeType.TEXT)),
    "add JSON": lambda memory: memory.add(MemoryContent(content={"a": HALF}, mime_type=MemoryMimeType.JSON)),
    "recall": lambda memory: memory.recall(f"where {HALF}"),
    "recall by kind": lambda memory: memory.recall("where", kinds=[HALF]),
    "query": lambda memory: memory.query(f"where {HALF}"),
    "context": lambda memory: memory.context(f"where {HALF}"),
    "record": lambda memory: memory.record(HALF),
    "records": lambda memory: memory.records(tags=[HALF]),
    "history": lambda memory: memory.history(HALF),
    "edit": lambda memory: memory.edit(HALF, content="b"),
    "forget": lambda memory: memory.forget(HALF),
    "forget containing": lambda memory: memory.forget(containing=HALF),
    "set": lambda memory: memory.set(HALF, 1),
    "set value": lambda memory: memory.set("a", [HALF]),
    "get": lambda memory: memory.get(HALF),
    "delete": lambda memory: memory.delete(HALF),
    "append": lambda memory: memory.session.append("user", HALF),
    "append source": lambda memory: memory.session.append(HALF, "a"),
}


@pytest.mark.parametrize("call", EXPLICIT)
async def test_explicit_calls_refuse_lone_surrogates(memory: PersistentMemory, call: str) -> None:
    with pytest.raises(ValueError, match=r"surrogate|control character U\+D800"):
        await EXPLICIT[call](memory)
    await memory.close()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("remember", {"content": f"The user lives in Oslo{HALF}"}),
        ("remember", {"content": "The user lives in Oslo", "tags": [HALF]}),
        ("recall", {"query": f"where{HALF}"}),
        ("forget", {"id": HALF}),
    ],
)
async def test_tools_answer_a_model_that_writes_a_lone_surrogate(
    memory: PersistentMemory, tool: str, arguments: dict[str, Any]
) -> None:
    (one,) = memory_tools(memory, [tool])  # type: ignore[list-item]
    answer = await one.run_json(arguments, CancellationToken())  # type: ignore[union-attr]
    answer.encode("utf-8")
    assert answer.startswith(("Memory stored", "No relevant memories", "The memory could not do that"))
    await memory.close()


# From users of any name


def test_the_names_of_the_user_are_those_that_autogen_uses() -> None:
    assert RecallPolicy().user_sources == {"user", "user_proxy", "human"}
    old = RecallPolicy().model_dump() | {"user_sources": ["user"]}
    assert RecallPolicy.model_validate(old).user_sources == {"user"}


@pytest.mark.parametrize("name", ["user_proxy", "human"])
async def test_a_user_proxy_with_a_usual_name_is_learned_from_without_a_stream(name: str) -> None:
    memory = a_memory()
    await agent(memory, "Nice to meet you").run(task=TextMessage(content="My name is Ann", source=name))
    assert await facts(memory) == ["The user's name is Ann."]
    (said, _) = await memory.session.messages()
    assert said.origin == "user"
    await memory.close()


async def test_a_transcript_without_speakers_is_the_users() -> None:
    memory = a_memory()
    await memory.extract("My name is Ann")
    assert await lines(memory) == ["user: My name is Ann"]
    await memory.close()


def proxy(name: str, *said: str) -> UserProxyAgent:
    waiting = iter(said)

    async def answer(prompt: str, token: CancellationToken | None = None) -> str:
        return next(waiting)

    return UserProxyAgent(name, input_func=answer)


def team_of(*members: Any, messages: int) -> RoundRobinGroupChat:
    return RoundRobinGroupChat(list(members), termination_condition=MaxMessageTermination(messages))


@pytest.mark.parametrize("pause", [0.0, 0.05])
@pytest.mark.parametrize("has_memory", [True, False])
async def test_a_stream_shows_which_agent_is_asked_for_input(has_memory: bool, pause: float) -> None:
    """Also if the stream is read slowly: agents may get the answer before the reader sees who was asked."""
    memory = a_memory()
    bot = agent(memory if has_memory else None, "Who are you?", "Nice to meet you, my name is Bob")
    team = team_of(bot, proxy("ann", "My name is Ann, and I live in Oslo"), messages=4)
    async for _ in memory.observe(team.run_stream(task="Say hello please")):
        await asyncio.sleep(pause)
    assert await facts(memory) == ["The user lives in Oslo.", "The user's name is Ann."]
    said = {record.content: record for record in await memory.session.messages()}
    assert [(record.source, record.origin) for record in said.values()] == [
        ("user", "user"),
        ("bot", "agent"),
        ("ann", "user"),
        ("bot", "agent"),
    ]
    told = said["My name is Ann, and I live in Oslo"]
    assert sorted(told.metadata["apm:facts"]) == sorted(record.id for record in await memory.profile.records())
    await memory.close()


async def test_a_model_extractor_treats_the_agent_that_is_asked_for_input_as_the_user() -> None:
    client = ReplayChatCompletionClient(['{"facts": [{"content": "The user lives in Oslo."}]}'])
    memory = a_memory(extractor=ModelExtractor(client, rules=False))
    bot = agent(memory, "Where do you live?", "Oslo is a fine place")
    team = team_of(bot, proxy("ann", "I have lived in Oslo for years"), messages=4)
    async for _ in memory.observe(team.run_stream(task="Say hello please")):
        await asyncio.sleep(0.05)
    assert await facts(memory) == ["The user lives in Oslo."]
    await memory.close()


async def test_later_turns_recall_for_the_agent_that_was_asked_for_input() -> None:
    memory = a_memory()
    await memory.remember("The gate code of the office is bluebird")
    bot = agent(memory, "Ask me something", "Let me see", "It is bluebird")
    team = team_of(bot, proxy("ann", "What is the gate code of the office?", "Thanks"), messages=3)
    async for _ in memory.observe(team.run_stream(task="Hello there")):
        pass
    # The session knows the name now, so her question is recalled for even after a teammate's messages.
    later = agent(memory, "It is bluebird")
    await later.model_context.add_message(UserMessage(content="What is the gate code of the office?", source="ann"))
    await later.model_context.add_message(UserMessage(content="Shall I look at zebras?", source="carl"))
    await memory.update_context(later.model_context)
    shown = "\n".join(str(message.content) for message in await later.model_context.get_messages())
    assert "bluebird" in shown
    await memory.close()


async def test_memories_of_the_same_session_share_who_was_asked_for_input() -> None:
    store = TemporaryStore()
    observer, other = a_memory(store), a_memory(store)
    bot = agent(other, "Who are you?", "Nice to meet you")
    team = team_of(bot, proxy("ann", "My name is Ann"), messages=4)
    async for _ in observer.observe(team.run_stream(task="Say hello please")):
        pass
    await agent(other, "Fine").run(task=TextMessage(content="I live in Oslo", source="ann"))
    assert await facts(other) == ["The user lives in Oslo.", "The user's name is Ann."]
    await observer.close()
    await other.close()


async def test_other_sessions_and_agents_are_not_treated_as_the_user() -> None:
    memory = a_memory()
    bot = agent(memory, "My name is Bob, and I live in Rome", "I live in Paris")
    team = team_of(bot, proxy("ann", "My name is Ann"), messages=4)
    async for _ in memory.observe(team.run_stream(task="Say hello please")):
        pass
    assert await facts(memory) == ["The user's name is Ann."]
    elsewhere = PersistentMemory("carl", store=TemporaryStore(), embedding=words())
    await agent(elsewhere, "Fine").run(task=TextMessage(content="I live in Oslo", source="ann"))
    assert await facts(elsewhere) == []
    await memory.close()
    await elsewhere.close()


async def test_a_finished_run_shows_who_was_asked_for_input() -> None:
    said: Sequence[Any] = [
        TextMessage(content="Who are you?", source="bot"),
        UserInputRequestedEvent(request_id="1", source="ann"),
        TextMessage(content="My name is Ann", source="ann"),
    ]
    memory = a_memory()
    found = await memory.extract(TaskResult(messages=said))
    assert [fact.content for fact in found] == ["The user's name is Ann."]
    await memory.close()
