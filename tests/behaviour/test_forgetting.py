"""Forgotten memories are also gone from saved states, summaries, and what models are still reading."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import BaseChatMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import words

from autogen_persistent_memory import (
    EmbeddedStore,
    Extractor,
    Fact,
    MemoryRecord,
    Message,
    PersistentMemory,
    ProfileMemory,
    RecallPolicy,
    TemporaryStore,
)
from autogen_persistent_memory.conversation.team_resume import from_text
from autogen_persistent_memory.conversation.traces import FORGOTTEN
from autogen_persistent_memory.core.component_configs import NoExtractorConfig

TASK = "Where is my parcel with the code word Bluebird?"
INFO: Any = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False, "family": "x"}


def lookup(number: str) -> str:
    """Look up an order."""
    return f"Order {number} ships to 5 Elm Street."


def calling(**arguments: str) -> CreateResult:
    call = FunctionCall(id="call-1", name="lookup", arguments=json.dumps(arguments))
    usage = RequestUsage(0, 0)
    thought = "BLUEBIRD is the number to look up."
    return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False, thought=thought)


def a_memory(store: Any, session: str = "monday", **options: Any) -> PersistentMemory:
    options = {"extractor": None, **options}
    return PersistentMemory("ann", session=session, store=store, embedding=words(), **options)


def a_team(memory: PersistentMemory, *replies: str | CreateResult) -> RoundRobinGroupChat:
    """A clerk with a tool, and a blueberry picker, whose name must not be treated as a secret."""
    clerk = ReplayChatCompletionClient([calling(number="bluebird"), "Bluebird ships tomorrow."], model_info=INFO)
    picker = ReplayChatCompletionClient(list(replies) or ["Good news."], model_info=INFO)
    return RoundRobinGroupChat(
        [
            AssistantAgent("clerk", clerk, tools=[lookup], memory=[memory], reflect_on_tool_use=True),
            AssistantAgent("bluebird_picker", picker, memory=[memory]),
        ],
        max_turns=2,
    )


async def stored_state(memory: PersistentMemory, session: str = "monday") -> Any:
    text = await memory._engine.values.get("state", session)
    assert text is not None
    return from_text(text)


def texts(value: Any) -> list[str]:
    """Return all texts of a state, without names and ids."""
    if isinstance(value, Mapping):
        fixed = ("id", "source", "name", "type", "call_id")
        return [text for key, item in value.items() if key not in fixed for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def calls_and_results(state: Any) -> list[tuple[str, str]]:
    """Return the ids in a state's tool calls and their results, in order."""
    if isinstance(state, Mapping):
        own = [(kind, state[key]) for key, kind in (("arguments", "call"), ("call_id", "result")) if key in state]
        found = [(kind, state["id"] if kind == "call" else value) for kind, value in own]
        return found + [pair for item in state.values() for pair in calls_and_results(item)]
    return [pair for item in state for pair in calls_and_results(item)] if isinstance(state, list) else []


async def continue_team(path: str) -> None:
    """Load the team in another process and continue it; return the texts of its state, what was said and what was captured."""
    async with a_memory(EmbeddedStore(path)) as memory:
        team = a_team(memory, "Good news.")
        loaded = await memory.session.load(team)
        result = await team.run(task="And now?")
        said = [message.to_text() for message in result.messages if isinstance(message, BaseChatMessage)]
        await memory.session.save(team)
        await memory.flush()
        captured = [record.content for record in await memory.session.messages()]
        print(json.dumps({"loaded": loaded, "said": said, "captured": captured, "state": await team.save_state()}))


async def in_a_new_process(path: Path) -> Any:
    code = f"import asyncio, test_forgetting; asyncio.run(test_forgetting.continue_team({str(path)!r}))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=Path(__file__).parents[1], stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


async def test_a_saved_team_with_tool_calls_forgets_and_continues_in_a_new_process(tmp_path: Path) -> None:
    async with a_memory(EmbeddedStore(tmp_path)) as memory:
        await memory.remember("The code word of the parcel is bluebird")
        team = a_team(memory)
        async for _ in memory.observe(team.run_stream(task=TASK), save=team):
            pass
        before = await stored_state(memory)
        assert sum("bluebird" in text.casefold() for text in texts(before)) > 10
        forgotten = await memory.forget(containing="BlueBird", everywhere=True)
        assert forgotten == 1 + 2  # the memory, the question and the answer
        assert (forgotten.messages, forgotten.traces.states) == (2, ("monday",))
        after = await stored_state(memory)
        assert [text for text in texts(after) if "bluebird" in text.casefold()] == []
        assert calls_and_results(after) == calls_and_results(before) != []
        assert list(after["agent_states"]) == list(before["agent_states"])
        assert await memory.forget(containing="bluebird", everywhere=True) == 0
    again = await in_a_new_process(tmp_path)
    assert again["loaded"]
    assert again["said"][0] == "And now?"
    assert again["captured"] == ["Good news.", "And now?", *again["said"][1:]]
    assert FORGOTTEN in texts(again["state"])


async def test_the_block_in_a_saved_agent_is_emptied_and_filled_again() -> None:
    store = TemporaryStore()
    memory = a_memory(store)
    record = await memory.remember("Likes green tea with <memory of> honey " + "and " * 200 + "a secret bluebird")
    agent = AssistantAgent("clerk", ReplayChatCompletionClient(["Fine."]), memory=[memory])
    await agent.run(task="What about green tea with honey?")
    await memory.session.save(agent)
    assert any("Likes green tea" in text for text in texts(await stored_state(memory)))
    await memory.forget(containing="secret bluebird", everywhere=True)
    assert not any("Likes green tea" in text for text in texts(await stored_state(memory)))
    await memory.remember("Likes green apples")
    client = ReplayChatCompletionClient(["Fine."])
    agent = AssistantAgent("clerk", client, memory=[memory])
    assert await memory.session.load(agent)
    await agent.run(task="What about green apples?")
    blocks = [m.content for m in client.create_calls[0]["messages"] if str(m.content).startswith("<memory")]
    assert len(blocks) == 1
    assert "Likes green apples" in blocks[0]
    assert record.content[:20] not in blocks[0]


async def test_a_memory_forgotten_by_id_or_key_is_blanked_in_messages_and_blocks() -> None:
    for selectors in ({"id": None}, {"key": "user/name"}, {"kinds": ["fact"]}):
        memory = a_memory(TemporaryStore(), extractor="rules")
        agent = AssistantAgent("clerk", ReplayChatCompletionClient(["Hello.", "Fine."]), memory=[memory])
        await agent.run(task="My name is Sarah.")
        await agent.run(task="What is the name of the user?")
        await memory.session.save(agent)
        assert await memory.session.append("user", "Is it cold outside?")
        (fact,) = await memory.profile.records()
        if "id" in selectors:
            selectors = {"id": fact.id}
        forgotten = await memory.forget(**selectors, everywhere=True)  # type: ignore[arg-type]
        assert (forgotten, forgotten.messages, forgotten.traces.states) == (2, 1, ("monday",)), selectors
        said = texts(await stored_state(memory))
        assert not any("Sarah" in text for text in said)
        assert {"Hello.", "What is the name of the user?"} <= set(said)


async def test_forgetting_a_session_blanks_its_state_and_no_other() -> None:
    store, policy = TemporaryStore(), RecallPolicy(kind_min_similarity={"interaction": 0})
    memories = [a_memory(store, session, policy=policy) for session in ("monday", "tuesday")]
    for memory in memories:
        await (team := a_team(memory)).run(task=TASK)
        await memory.session.save(team)
    tuesday = said_in_thread(await stored_state(memories[1], "tuesday"))
    forgotten = await memories[0].forget(session="monday", everywhere=True)
    assert (forgotten, forgotten.messages) == (3, 3)
    state = await stored_state(memories[0])
    assert said_in_thread(state) == [FORGOTTEN] * 4
    assert calls_and_results(state)
    # On Tuesday the same was said again and stays; only its recall from Monday is blanked.
    assert said_in_thread(await stored_state(memories[1], "tuesday")) == tuesday
    assert forgotten.traces.states == ("monday", "tuesday")


def said_in_thread(state: Any) -> list[str]:
    thread = state["agent_states"]["RoundRobinGroupChatManager"]["message_thread"]
    return [message["content"] for message in thread if isinstance(message["content"], str)]


async def test_forgetting_by_kind_does_not_blank_other_messages_with_the_text() -> None:
    memory = a_memory(TemporaryStore())
    await memory.remember("The code word is bluebird", kind="note")
    await (team := a_team(memory)).run(task=TASK)
    await memory.session.save(team)
    forgotten = await memory.forget(containing="bluebird", kinds=["note"], everywhere=True)
    assert forgotten == 1
    said = texts(await stored_state(memory))
    assert TASK in said
    assert not any("The code word is bluebird" in text for text in said)


async def test_a_dry_run_finds_everything_and_changes_nothing() -> None:
    memory = a_memory(TemporaryStore())
    await memory.remember("The code word is bluebird")
    await memory.set("notes", ["ask for the BLUEBIRD"])
    await (team := a_team(memory)).run(task=TASK)
    await memory.session.save(team)
    await memory.flush()
    state = await stored_state(memory)
    trial = await memory.forget(containing="bluebird", everywhere=True, dry_run=True)
    assert (trial, trial.messages) == (3, 2)
    assert (trial.traces.states, trial.traces.values) == (("monday",), ("notes",))
    assert await stored_state(memory) == state
    assert await memory.forget(containing="bluebird", everywhere=True) == trial


async def test_what_is_not_deleted_is_named_without_repeating_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "autogen_persistent_memory")
    memory = a_memory(TemporaryStore())
    await memory.remember("The code word is Straße 7")
    await memory.set("notes", {"where": "STRASSE 7"})
    await memory.set("theme", "dark")
    assert (await memory.forget(containing="strasse 7", everywhere=True)).traces.values == ("notes",)
    assert await memory.get("notes") == {"where": "STRASSE 7"}
    did, left = [record for record in caplog.records if "orgotten" in record.getMessage()]
    assert (did.levelno, left.levelno) == (logging.INFO, logging.WARNING)
    assert "exports, snapshots and backups" in did.getMessage()
    assert "'notes'" in left.getMessage()
    assert "asse" not in caplog.text


async def test_a_large_state_is_blanked_and_a_damaged_one_is_named(caplog: pytest.LogCaptureFixture) -> None:
    memory = a_memory(TemporaryStore())
    agent = AssistantAgent("clerk", ReplayChatCompletionClient(["Fine. " + "x" * 100_000]))
    await agent.run(task=TASK)
    await memory.session.save(agent)
    await memory._engine.values.put("state", "broken", "zlib:nonsense")
    assert str(await memory._engine.values.get("state", "monday")).startswith("zlib:")
    forgotten = await memory.forget(containing="bluebird", everywhere=True)
    assert (forgotten, forgotten.traces.states, forgotten.traces.unclear) == (0, ("monday",), ("broken",))
    assert TASK not in texts(await stored_state(memory))
    assert "'broken'" in caplog.text


async def test_secrets_that_are_only_in_a_state_are_forgotten() -> None:
    memory = a_memory(TemporaryStore())
    secret = "sk-proj-" + "a1B2c3D4" * 6
    agent = AssistantAgent("clerk", ReplayChatCompletionClient(["Fine."]), memory=[memory])
    await agent.run(task=f"My API key is {secret} and it works.")
    await memory.session.save(agent)
    assert secret in "".join(texts(await stored_state(memory)))
    await memory.flush()
    (message, _) = await memory.session.messages()
    await memory.forget(message.id, everywhere=True)
    assert secret not in "".join(texts(await stored_state(memory)))


async def test_a_summary_is_deleted_even_if_its_messages_are_gone() -> None:
    memory = a_memory(TemporaryStore())
    for session, text in (("monday", "They spoke of a Bluebird."), ("tuesday", "They spoke of tea.")):
        await memory._engine.values.put("summary", session, json.dumps({"text": text, "up_to": 3}))
    forgotten = await memory.forget(containing="bluebird", everywhere=True)
    assert (forgotten, forgotten.traces.summaries) == (0, ("monday",))
    assert await memory._engine.values.names("summary") == ["tuesday"]


async def test_forget_containing_ignores_case_and_keeps_messages() -> None:
    memory = a_memory(TemporaryStore())
    await memory.remember("Likes BLUEBIRDS")
    await memory.session.append("user", "I like bluebirds.")
    forgotten = await memory.forget(containing="bluebird")
    assert (forgotten, forgotten.messages) == (1, 0)
    assert len(await memory.session.messages()) == 1


async def test_a_profile_forgets_everywhere_including_the_last_message() -> None:
    store = TemporaryStore()
    memory = a_memory(store)
    agent = AssistantAgent("clerk", ReplayChatCompletionClient(["Your word is bluebird."]), memory=[memory])
    await agent.run(task="What is my word?")
    assert await memory.profile.forget(containing="bluebird", everywhere=True) == 1
    await memory.close()
    assert [record.content for record in await memory.session.messages()] == ["What is my word?"]
    await memory.session.append("user", "bluebird!")
    profile = ProfileMemory("ann", store=store, embedding=words())
    assert await profile.forget(containing="bluebird", everywhere=True) == 1


class Slow(Extractor):
    """A slow model that repeats what it read."""

    every = 2

    def __init__(self) -> None:
        self.reads, self.released = asyncio.Event(), asyncio.Event()
        self.read: list[list[str]] = []

    @property
    def config(self) -> NoExtractorConfig:
        return NoExtractorConfig()

    async def extract_later(self, messages: Sequence[Message], known: Sequence[MemoryRecord]) -> list[Fact]:
        self.read.append([message.text for message in messages])
        self.reads.set()
        await self.released.wait()
        return [Fact(f"The user said: {message.text}", "fact") for message in messages if message.by_user]


async def test_nothing_is_learned_from_a_message_forgotten_while_a_model_reads_it() -> None:
    slow = Slow()
    store = TemporaryStore()
    memory = a_memory(store, extractor=slow)
    told = ["The word is bluebird.", "The tea is green.", "The sofa is blue."]
    extracting = asyncio.create_task(memory.extract(told))
    await slow.reads.wait()
    await a_memory(store, "tuesday").forget(containing="bluebird", everywhere=True)  # another memory in this process
    slow.released.set()
    await extracting
    await memory.flush()
    assert sorted(record.content for record in await memory.profile.records()) == [
        f"The user said: {text}" for text in told[:0:-1]
    ]
    assert slow.read == [told[:2], told[1:2], told[2:]]


async def test_a_state_saved_during_forget_is_not_lost() -> None:
    memory = a_memory(TemporaryStore(), policy=RecallPolicy())
    values = memory._engine.values
    await values.put("state", "monday", json.dumps({"content": "old"}))
    changed: list[str] = []

    def change(text: str) -> str:
        changed.append(text)
        loop.call_soon_threadsafe(saving.set)
        return json.dumps({"content": "revised"})

    loop, saving = asyncio.get_running_loop(), asyncio.Event()
    revising = asyncio.create_task(values.revise("state", "monday", change))
    await saving.wait()
    await values.put("state", "monday", json.dumps({"content": "new"}))
    await revising
    assert await values.get("state", "monday") == json.dumps({"content": "new"})
