"""The documents are true: their code runs and does what they say."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path

import pytest
from autogen_ext.experimental.task_centric_memory._memory_bank import Memo
from autogen_ext.models.replay import ReplayChatCompletionClient
from chromadb.api.shared_system_client import SharedSystemClient
from documents import code_blocks, run, sections
from toys import chroma_words

from autogen_persistent_memory import PersistentMemory

DOCS = Path(__file__).parents[2] / "docs"
MIGRATING = sections((DOCS / "migrating.md").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the relative paths of the documents lead."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def run_section(title: str, *answers: str, blocks: int) -> tuple[dict[str, object], str]:
    """Run a section of the guide; what it defined last, and what the model saw first."""
    client = ReplayChatCompletionClient(list(answers))
    code = code_blocks(MIGRATING[title])
    assert len(code) == blocks
    defined: dict[str, object] = {}
    for block in code:
        defined = await run(block, client=client, my_embedding_function=chroma_words)
    calls = client.create_calls
    return defined, "\n".join(str(message.content) for message in calls[0]["messages"]) if calls else ""


async def contents() -> list[str]:
    async with PersistentMemory("user-42") as memory:
        return sorted(record.content for record in await memory.profile.records())


async def test_a_chromadb_vector_memory_is_taken_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, seen = await run_section("From `ChromaDBVectorMemory`", "Celsius.", blocks=2)
    assert "- The user wants temperatures in Celsius" in seen
    assert capsys.readouterr().out == "1 memories taken over\n"
    (record,) = await (memory := PersistentMemory("user-42")).profile.records()
    await memory.close()
    assert record.metadata == {"category": "units"}
    while "./chroma_db" in SharedSystemClient._identifier_to_system:  # which it leaves open
        SharedSystemClient._release_system("./chroma_db")


def stored_by_mem0() -> list[dict[str, object]]:
    """As its documentation shows what `get_all` gives."""
    return [
        {
            "id": "c190ab1a-a2f1-4f6f-914a-495e9a16b76e",
            "memory": "Likes the colour blue",
            "hash": "b8f4",
            "metadata": {"room": "kitchen"},
            "categories": ["preferences"],
            "created_at": "2025-07-06T17:25:18.754725-07:00",
            "updated_at": None,
            "user_id": "user-42",
        },
        {"id": "2", "memory": "Has two cats", "created_at": "2024-01-02T03:04:05Z", "metadata": None},
    ]


@pytest.mark.parametrize("shape", [list, lambda found: {"results": found}], ids=["list", "results"])
async def test_what_mem0_lists_is_taken_over(folder: Path, shape: type) -> None:
    (folder / "mem0.json").write_text(json.dumps(shape(stored_by_mem0())))
    _, seen = await run_section("From `Mem0Memory`", "Blue.", blocks=1)
    assert "- Likes the colour blue" in seen
    async with PersistentMemory("user-42") as memory:
        cats, blue = sorted(await memory.profile.records(), key=lambda record: record.created_at)
    assert (blue.tags, blue.metadata, blue.created_at.isoformat()) == (
        ("preferences",),
        {"room": "kitchen"},
        "2025-07-07T00:25:18.754725+00:00",
    )
    assert (cats.content, cats.created_at.year) == ("Has two cats", 2024)


async def test_the_insights_of_teachability_in_0_7_are_taken_over(folder: Path) -> None:
    memos = {
        "1": Memo(task="A riddle", insight="To tell liars from truth-tellers, ask what the other one would say."),
        "2": Memo(task=None, insight="Halibut is the user's favourite food"),
    }
    bank = folder / "memory_bank" / "default"
    bank.mkdir(parents=True)
    (bank / "uid_memo_dict.pkl").write_bytes(pickle.dumps(memos))
    _, seen = await run_section("From Teachability of AutoGen 0.7", "Ask.", "[]", "[]", blocks=1)
    assert "- To tell liars from truth-tellers, ask what the other one would say." in seen
    assert "avoid" not in seen
    assert {memo.insight for memo in memos.values()} <= set(await contents())


async def test_the_memos_of_teachability_in_0_2_are_taken_over(folder: Path) -> None:
    memos = {"1": ("Where does the dog sleep?", "The user's dog sleeps in the kitchen."), "2": ("Who?", "Ann.")}
    (folder / "tmp" / "teachable_agent_db").mkdir(parents=True)
    (folder / "tmp" / "teachable_agent_db" / "uid_text_dict.pkl").write_bytes(pickle.dumps(memos))
    _, seen = await run_section("From Teachability of AutoGen 0.2", "In the kitchen.", blocks=1)
    assert "- The user's dog sleeps in the kitchen." in seen
    assert {"The user's dog sleeps in the kitchen.", "Ann."} <= set(await contents())


async def test_hooks_become_memory_and_context_and_old_chats_are_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "user_proxy", "content": "I am allergic to nuts."},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "name": "assistant", "content": "I am allergic to cats."},
    ]
    (folder / "chat.json").write_text(json.dumps(chat))
    await run_section("From hooks of AutoGen 0.2", "Hello, Ann.", blocks=2)
    assert re.findall("allergic to .*", capsys.readouterr().out) == ["allergic to nuts."]
    assert "The user's name is Ann." in await contents()


async def test_a_memory_is_loaded_with_its_namespace_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEN_ALLOWED_PROVIDER_NAMESPACES", "mine")
    defined, _ = await run_section("AutoGen's next release", blocks=2)
    assert os.environ["AUTOGEN_ALLOWED_PROVIDER_NAMESPACES"] == "mine,autogen_persistent_memory"
    memory = defined["memory"]
    assert isinstance(memory, PersistentMemory)
    module, _, name = memory.dump_component().provider.rpartition(".")
    assert (module, name) == ("autogen_persistent_memory", "PersistentMemory")


def test_every_section_has_a_before_and_an_after_and_the_table_of_contents_leads_to_it() -> None:
    text = (DOCS / "migrating.md").read_text(encoding="utf-8")
    anchors = re.findall(r"\]\(#([\w-]+)\)", text[: text.index("\n## ")])
    assert anchors == [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in MIGRATING]
    for title, section in MIGRATING.items():
        if title.startswith("From"):
            assert "\nBefore: " in section
            assert "\nAfter" in section
            assert "What differs:" in section
