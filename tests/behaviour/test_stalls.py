"""No message stalls the event loop, whatever its length and content."""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import chromadb
import pytest
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage

from autogen_persistent_memory import EmbeddedStore, PersistentMemory
from autogen_persistent_memory.text.redaction import redact
from benchmarks.cost.megabytes import PATHS, TEXTS, Cost, as_message, cost_of

LONGEST_STALL = 0.1
OTHERS = [path for path in PATHS if path not in ("message", "afterwards")]
"""Ways into memory; each text takes one of them, in addition to a turn."""
CHOSEN = """
    one word, one word with y, base64, one line of words, one word in capitals, words of 65,000 letters, digits,
    hyphens, commas, Chinese, digits and spaces, half a million lines, a million line breaks, mixed line breaks,
    quotes, a million spaces, Arabic, combining marks, unicode spaces, full stops, ends of sentences,
    apostrophes, question marks, round brackets, mixed brackets, addresses, zero width, control characters,
    emoji, right to left, JSON in JSON, lists in lists, HTML, memory tags, Markdown table,
    code fences, requests, web addresses, I am, whole answers of the tools, passwords for, JWTs
"""
TABLE = [" ".join(name.split()) for name in re.split(r", (?!000)|,\n", CHOSEN)]


async def lowest_cost(measure: Callable[[int], Awaitable[Cost]]) -> Cost:
    """Return the lowest cost of three attempts: other work on the machine raises it."""
    cost = await measure(0)
    for attempt in (1, 2):
        if cost.stall >= LONGEST_STALL:
            cost = min(cost, await measure(attempt))
    return cost


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    """A store that stays open, with the model loaded."""
    store = EmbeddedStore(tmp_path_factory.mktemp("stalls"))
    keeper = PersistentMemory("keeper", store=store)
    asyncio.run(keeper.remember("Likes green tea"))
    yield store
    asyncio.run(keeper.close())


@pytest.mark.alone
@pytest.mark.parametrize(("name", "path"), [(name, OTHERS[at % len(OTHERS)]) for at, name in enumerate(TABLE)])
async def test_a_megabyte_does_not_stop_the_event_loop(name: str, path: str, store: EmbeddedStore) -> None:
    text = TEXTS[name]()

    async def measure(attempt: int) -> Cost:
        async with PersistentMemory(f"{name} {attempt}", session="s", store=store) as memory:
            await memory.remember("Likes green tea")
            turn = await cost_of(as_message(memory, text))
            others = [await cost_of(PATHS[other](memory, text)) for other in (path, "afterwards")]
            said = [record.content for record in await memory.session.messages()]
            assert redact(text.strip()) in said or name == "whole answers of the tools"
            return Cost(max(cost.stall for cost in (turn, *others)), turn.seconds)

    cost = await lowest_cost(measure)
    assert cost.stall < LONGEST_STALL
    assert cost.seconds < 4  # twice the deadline of a turn


@pytest.mark.parametrize("call", ["recall", "remember", "update_context", "clear"])
async def test_the_event_loop_does_not_wait_for_writers(memory: PersistentMemory, call: str) -> None:
    await memory.remember("Likes green tea")
    await memory.recall("tea")
    cache = await memory._engine.data.cache()
    is_held, may_go = threading.Event(), threading.Event()

    def write() -> None:
        with cache._lock.writing():
            is_held.set()
            may_go.wait(10)

    writer = threading.Thread(target=write)
    writer.start()
    await asyncio.to_thread(is_held.wait)
    context = UnboundedChatCompletionContext([UserMessage(content="Which tea do I like?", source="user")])
    work: dict[str, Callable[[], Awaitable[object]]] = {
        "recall": lambda: memory.recall("tea"),
        "remember": lambda: memory.remember("Likes black tea"),
        "update_context": lambda: memory.update_context(context),
        "clear": memory.clear,
    }
    waiting = asyncio.ensure_future(work[call]())
    begun = asyncio.get_running_loop().time()
    await asyncio.sleep(0.2)
    assert asyncio.get_running_loop().time() - begun < 5
    assert not waiting.done()
    may_go.set()
    await waiting
    writer.join()


async def test_a_message_of_three_megabytes_is_kept_whole_and_found_by_its_first(tmp_path: Path) -> None:
    minutes = "The vault is in Reykjavik. " + "We talked about the weather — and so on. " * 75_000
    async with PersistentMemory("ann", session="s", store=EmbeddedStore(tmp_path)) as memory:
        await as_message(memory, minutes)
        await memory.flush()
        assert (await memory.session.messages())[0].content == minutes.strip()
    async with PersistentMemory("ann", session="t", store=EmbeddedStore(tmp_path)) as memory:
        found = await memory.recall("vault Reykjavik", limit=1)
        assert found.hits[0].record.content == minutes.strip()

    def documents() -> list[str]:
        client = chromadb.PersistentClient(str(tmp_path))
        held = [text for collection in client.list_collections() for text in collection.get()["documents"] or []]
        client.close()
        return held

    assert max(map(len, await asyncio.to_thread(documents))) <= 16_000


@pytest.mark.parametrize("text", ['{"a":' * 5_000, '{"a":' + "[" * 5_000 + "]" * 5_000 + "}"])
async def test_json_that_is_too_deep_to_be_read_is_captured(memory: PersistentMemory, text: str) -> None:
    await as_message(memory, text)
    await memory.flush()
    assert (await memory.session.messages())[0].content == text
