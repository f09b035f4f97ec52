"""Automatic memory: statements become memories, ended facts end, secrets are not stored."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import words

from autogen_persistent_memory import (
    EmbeddedStore,
    Extractor,
    Fact,
    MemoryRecord,
    Message,
    PersistentMemory,
    PersistentMemoryError,
    RecallPolicy,
    TemporaryStore,
)
from autogen_persistent_memory.core.component_configs import RuleExtractorConfig


async def tell(memory: PersistentMemory, *sentences: str) -> None:
    """Tell each text to a new agent, so that only memory can know it later."""
    for sentence in sentences:
        client = ReplayChatCompletionClient(["Thank you for telling me that."])
        await AssistantAgent("assistant", model_client=client, memory=[memory]).run(task=sentence)


async def facts(memory: PersistentMemory) -> set[str]:
    return {record.content for record in await memory.profile.records()}


async def test_a_fact_is_known_in_the_same_turn_and_not_shown_beside_its_message(
    memory: PersistentMemory,
) -> None:
    context = UnboundedChatCompletionContext([UserMessage(content="I prefer TypeScript.", source="user")])
    assert (await memory.update_context(context)).memories.results == []
    (record,) = await memory.profile.records()
    assert (record.content, record.origin, record.source) == ("The user prefers TypeScript.", "extractor", "user")


async def test_a_repeated_fact_is_reinforced_and_stays_one_memory(memory: PersistentMemory) -> None:
    await tell(memory, "I prefer TypeScript.", "By the way, I prefer TypeScript.", "I prefer TypeScript.")
    (record,) = await memory.profile.records()
    assert record.content == "The user prefers TypeScript."
    assert record.uses >= 2


async def test_a_changed_fact_becomes_history(memory: PersistentMemory) -> None:
    await tell(memory, "I live in Berlin.", "I moved to Lisbon.")
    assert await facts(memory) == {"The user moved to Lisbon."}
    assert [record.content for record in await memory.history("user/home")] == [
        "The user moved to Lisbon.",
        "The user lives in Berlin.",
    ]
    old = (await memory.history("user/home"))[1]
    assert "Berlin" in (await memory.recall("home", at=old.created_at + timedelta(microseconds=1))).text


async def test_a_fact_can_end_without_a_successor(memory: PersistentMemory) -> None:
    await tell(memory, "I work at Acme.", "I am allergic to nuts.", "I no longer work at Acme.")
    assert await facts(memory) == {"The user no longer works at Acme.", "The user is allergic to nuts."}
    (ended,) = [record for record in await memory.profile.records(include_history=True) if record.superseded_by]
    assert ended.content == "The user works at Acme."


async def test_facts_that_can_be_several_are_not_overwritten(memory: PersistentMemory) -> None:
    told = ["I am allergic to nuts.", "I am allergic to pollen.", "I have a dog named Rex.", "I have a cat named Tom."]
    await tell(memory, *told)
    assert len(await facts(memory)) == 4


async def test_the_message_of_an_ended_fact_is_not_shown(memory: PersistentMemory) -> None:
    await tell(memory, "I live in Berlin with my books.", "I moved to Lisbon.")
    assert "Berlin" not in await memory.context("Where do I live with my books, in Berlin?")
    assert "Berlin" not in (await memory.recall("Where do I live with my books, in Berlin?")).text
    assert "I live in Berlin with my books." in [record.content for record in await memory.session.messages()]


async def test_forget_everywhere_deletes_the_messages(memory: PersistentMemory) -> None:
    await tell(memory, "I live in Berlin.", "I moved to Lisbon.", "I have a cat named Tom.")
    assert await memory.forget(key="user/home", everywhere=True) == 4
    await memory.flush()
    everything = [record.content for record in await memory.records(include_history=True, limit=100)]
    assert not any("Berlin" in content or "Lisbon" in content for content in everything)
    assert any("Tom" in content for content in everything)


async def test_a_forgotten_fact_is_not_extracted_again_from_its_message(memory: PersistentMemory) -> None:
    await tell(memory, "I have a cat named Tom.")
    assert await memory.forget(kinds=["fact"]) == 1
    assert "Tom" not in await memory.context("What is the name of my cat, Tom?")


SECRETS = ["My password is hunter2!x", "Use sk-abcdefghijklmnopqrstuvwxyz123456 for it", "Card 4111 1111 1111 1111"]


@pytest.mark.parametrize("secret", SECRETS)
async def test_secrets_are_redacted_before_anything_is_stored(memory: PersistentMemory, secret: str) -> None:
    await tell(memory, f"I live in Oslo. {secret}")
    await memory.remember(f"Note: {secret}", tags=[secret], metadata={"note": [secret]})
    await memory.flush()
    stored = [
        text
        for record in await memory.records(limit=100)
        for text in (record.content, *record.tags, str(dict(record.metadata)))
    ]
    assert sum("[REDACTED:" in content for content in stored) >= 4
    assert not any(word in content for content in stored for word in ("hunter2", "abcdefgh", "4111"))


async def test_secrets_are_kept_if_redaction_is_disabled() -> None:
    policy = RecallPolicy(redact=False)
    async with PersistentMemory("ann", store=TemporaryStore(), embedding=words(), policy=policy) as memory:
        assert (await memory.remember(SECRETS[0])).content == SECRETS[0]


async def test_a_namespace_evicts_old_messages_but_no_facts() -> None:
    policy = RecallPolicy(max_interactions=5)
    async with PersistentMemory("ann", session="s", store=TemporaryStore(), embedding=words(), policy=policy) as memory:
        await tell(memory, *(f"I have a cat named Tom{number}, and it is very sweet." for number in range(6)))
        await memory.flush()
        assert len(await memory.session.messages()) == 5
        assert len(await facts(memory)) == 6


async def test_messages_can_have_a_ttl() -> None:
    policy = RecallPolicy(lifetimes={"interaction": timedelta(days=30)})
    async with PersistentMemory("ann", session="s", store=TemporaryStore(), embedding=words(), policy=policy) as memory:
        await tell(memory, "I have a cat named Tom, and it is very sweet.")
        await memory.flush()
        message = (await memory.session.messages())[0]
        assert message.expires_at == message.created_at + timedelta(days=30)
        (fact,) = await memory.profile.records()
        assert fact.expires_at is None


async def test_no_facts_about_the_user_are_extracted_from_the_assistant(memory: PersistentMemory) -> None:
    client = ReplayChatCompletionClient(["I live in the cloud and I prefer Rust. My name is Bot."])
    agent = AssistantAgent("assistant", model_client=client, memory=[memory])
    await agent.run(task="Who are you?")
    await memory.flush()
    assert await facts(memory) == set()


async def test_without_an_extractor_messages_are_still_captured() -> None:
    async with PersistentMemory(
        "ann", session="s", store=TemporaryStore(), embedding=words(), extractor=None
    ) as memory:
        await tell(memory, "I have a cat named Tom.")
        await memory.flush()
        assert await facts(memory) == set()
        assert len(await memory.session.messages()) == 2


class Collector(Extractor):
    """An extractor that records its messages, and finds a fact in every message that tells one."""

    every = 4

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.failures = 0
        self.known: list[str] = []

    @property
    def config(self) -> RuleExtractorConfig:
        return RuleExtractorConfig()

    async def extract_later(self, messages: Sequence[Message], known: Sequence[MemoryRecord]) -> list[Fact]:
        if self.failures:
            self.failures -= 1
            raise PersistentMemoryError("The model is busy. Try again.")
        self.batches.append([message.text for message in messages])
        self.known = [record.content for record in known]
        return [Fact(content=f"Learned that {message.text}") for message in messages if message.by_user]


def studying(store: TemporaryStore | EmbeddedStore, collector: Collector, session: str = "s") -> PersistentMemory:
    return PersistentMemory("ann", session=session, store=store, embedding=words(), extractor=collector)


async def test_the_model_reads_messages_in_background_batches_and_the_rest_at_flush() -> None:
    collector = Collector()
    async with studying(TemporaryStore(), collector) as memory:
        await tell(memory, *(f"this is the story number {number}" for number in range(5)))
        await memory.flush()
        assert [len(batch) for batch in collector.batches] == [4, 4, 2]
        assert len(await facts(memory)) == 5


async def test_messages_a_model_failed_to_read_are_retried(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    collector.failures = 1
    async with studying(TemporaryStore(), collector) as memory:
        await tell(memory, *(f"this is the story number {number}" for number in range(4)))
        await memory.flush()
        assert len(await facts(memory)) == 4
    assert "The model is busy" in caplog.text


async def test_a_flush_does_not_wait_for_a_model_that_hangs_and_its_facts_come_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released = asyncio.Event()

    class Hung(Collector):
        async def extract_later(self, messages: Sequence[Message], known: Sequence[MemoryRecord]) -> list[Fact]:
            await released.wait()
            return await super().extract_later(messages, known)

    collector = Hung()
    async with studying(TemporaryStore(), collector) as memory:
        await tell(memory, *(f"this is the story number {number}" for number in range(5)))
        monkeypatch.setattr("autogen_persistent_memory.memories.protocol.CLOSING_SECONDS", 0.05)
        await asyncio.wait_for(memory.flush(), 10)
        assert "models have not read all of it within 0.05 s" in caplog.text
        assert len(await memory.session.messages()) == 10
        monkeypatch.undo()
        released.set()
        await memory.flush()
        assert [len(batch) for batch in collector.batches] == [4, 4, 2]
        assert len(await facts(memory)) == 5


KILLED = """
import asyncio, os, signal, sys
sys.path.insert(0, {tests!r})
from test_writing import Collector, studying, tell
from autogen_persistent_memory import EmbeddedStore

async def main():
    memory = studying(EmbeddedStore({path!r}), Collector())
    await tell(memory, "this is the story of the first day", "this is the story of the second day")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_kill_between_capture_and_extraction_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    code = KILLED.format(tests=str(Path(__file__).parents[1]), path=str(tmp_path / "store"))
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await killed.wait() == -signal.SIGKILL
    collector = Collector()
    async with studying(EmbeddedStore(tmp_path / "store"), collector) as memory:
        await tell(memory, "this is the story of the third day")
        await memory.flush()
        read = [text for batch in collector.batches for text in batch]
        assert [text for text in read if "story" in text] == [
            "this is the story of the first day",
            "this is the story of the second day",
            "this is the story of the third day",
        ]
        assert len(await facts(memory)) == 3
    again = Collector()
    async with studying(EmbeddedStore(tmp_path / "store"), again) as memory:
        await tell(memory, "this is the story of the fourth day")
        await memory.flush()
        assert [text for batch in again.batches for text in batch if "story" in text] == [
            "this is the story of the fourth day"
        ]
