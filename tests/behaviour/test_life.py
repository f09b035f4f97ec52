"""Ten sessions of a user, each in a new process: what is stored, and what is recalled."""

import asyncio
import json
import sys
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_persistent_memory import EmbeddedStore, PersistentMemory

LIFE = json.loads((Path(__file__).parents[1] / "data" / "life.json").read_text("utf-8"))
MOST_JUNK = 0.1


async def live(path: str, number: int) -> None:
    """Run one session: an agent with memory and nothing else, with scripted polite replies."""
    messages = LIFE["sessions"][number]
    async with PersistentMemory("maya", store=EmbeddedStore(path)) as memory:
        client = ReplayChatCompletionClient(["Thank you for telling me that, I will keep it in mind."] * len(messages))
        agent = AssistantAgent("assistant", model_client=client, memory=[memory])
        for message in messages:
            await agent.run(task=message)


async def shown(memory: PersistentMemory, question: str) -> list[str]:
    context = UnboundedChatCompletionContext([UserMessage(content=question, source="user")])
    return [str(content.content) for content in (await memory.update_context(context)).memories.results]


async def test_ten_sessions_leave_the_important_memories_and_hardly_any_junk(tmp_path: Path) -> None:
    for number in range(len(LIFE["sessions"])):
        code = f"import asyncio, test_life; asyncio.run(test_life.live({str(tmp_path / 'store')!r}, {number}))"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=Path(__file__).parents[1])
        assert await process.wait() == 0
    async with PersistentMemory("maya", store=EmbeddedStore(tmp_path / "store"), capture=False) as memory:
        profile = [record.content for record in await memory.profile.records(limit=1000)]
        junk = [content for content in profile if not any(label in content for label in LIFE["worth_keeping"])]
        assert len(junk) <= MOST_JUNK * len(profile), junk
        wrong = []
        for asked in LIFE["asked"]:
            block = await shown(memory, asked["question"])
            outdated = [text for text in block if any(old in text for old in asked.get("never", ()))]
            if outdated or not any(asked["expect"] in text for text in block):
                wrong.append((asked["question"], asked["expect"], block))
        assert wrong == [], profile
