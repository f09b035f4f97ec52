"""`autogen-memory`: its output, its changes and its exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import http.server
import json
import os
import pty
import re
import resource
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import ClassVar

import chromadb
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.replay import ReplayChatCompletionClient
from chromadb.config import Settings
from toys import word_vectors, words
from typer.testing import CliRunner, Result

from autogen_persistent_memory import (
    CallableEmbedding,
    EmbeddedStore,
    EmbeddingMismatchError,
    MemoryRecord,
    MiniLMEmbedding,
    PersistentMemory,
    ServerStore,
    StoreLockedError,
    TemporaryStore,
)
from autogen_persistent_memory.cli.app import app
from autogen_persistent_memory.cli.output import printable, to_json
from autogen_persistent_memory.text.embeddings import Embedding, as_options, is_local

TOY = ("--embedding", "toys:word_vectors", "--embedding-id", "toy-words")
SCRIPT = [sys.executable, "-m", "autogen_persistent_memory.cli"]
TESTS = str(Path(__file__).parents[1])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that every command uses."""
    folder = tmp_path / "store"
    monkeypatch.setenv("AUTOGEN_MEMORY_PATH", str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]))
    return folder


@pytest.fixture
def stocked(path: Path) -> dict[str, MemoryRecord]:
    """A store of the toy embedding: a profile with history, a conversation, a value, and another namespace."""
    return asyncio.run(stock(path))


async def stock(path: Path) -> dict[str, MemoryRecord]:
    async with PersistentMemory("ann", session="monday", store=EmbeddedStore(path), embedding=words()) as memory:
        records = {
            "berlin": await memory.remember("Lives in Berlin", key="home", tags=["where"]),
            "lisbon": await memory.remember("Lives in Lisbon", key="home", tags=["where"]),
            "tea": await memory.remember("Prefers green tea", kind="preference", tags=["drink", "hot"], source="ann"),
            "message": await memory.session.append("ann", "Shall we meet in the old harbour tomorrow?"),
        }
        await memory.session.append("assistant", "Gladly, at noon by the red lighthouse.")
        await memory.set("theme", {"dark": True})
    async with PersistentMemory("bob", store=EmbeddedStore(path), embedding=words()) as memory:
        await memory.remember("Plays chess")
    return records


def call(*arguments: str, input: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=input)


def done(*arguments: str, input: str | bytes | None = None) -> str:
    result = call(*arguments, input=input)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def objects(*arguments: str, input: str | bytes | None = None) -> list[dict[str, object]]:
    return [json.loads(line) for line in done(*arguments, "--json", input=input).splitlines()]


def refused(code: int, *arguments: str, input: str | bytes | None = None) -> str:
    result = call(*arguments, input=input)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert "Traceback" not in result.stderr
    return " ".join(re.sub("[│╭╮╰╯─]", "", result.stderr).split())


def test_reading_and_forgetting_need_no_embedding(stocked: dict[str, MemoryRecord], tmp_path: Path) -> None:
    done("namespaces")
    done("list", "-n", "ann")
    done("show", stocked["tea"].id, "-n", "ann")
    done("history", "home", "-n", "ann")
    done("sessions", "-n", "ann")
    done("values", "-n", "ann")
    done("stats")
    done("export", str(tmp_path / "all.jsonl"))
    done("snapshot", str(tmp_path / "copy"))
    done("doctor")
    done("compact", "-n", "ann")
    done("edit", stocked["tea"].id, "-n", "ann", "--tag", "cold")
    done("forget", stocked["tea"].id, "-n", "ann", "--yes")
    assert objects("namespaces")[0]["embedding"] == "toy-words"


def test_namespaces_are_listed_with_their_sizes(stocked: dict[str, MemoryRecord]) -> None:
    assert objects("namespaces") == [
        {"namespace": "ann", "memories": 2, "messages": 2, "embedding": "toy-words"},
        {"namespace": "bob", "memories": 1, "messages": 0, "embedding": "toy-words"},
    ]
    header, ann, bob = done("namespaces").splitlines()
    assert header.split() == ["namespace", "memories", "messages", "embedding"]
    assert (ann.split(), bob.split()) == (["ann", "2", "2", "toy-words"], ["bob", "1", "0", "toy-words"])


def test_namespaces_stats_and_list_count_the_same(path: Path) -> None:
    async def store() -> None:
        async with PersistentMemory("ann", session="monday", store=EmbeddedStore(path), embedding=words()) as memory:
            for home in ("Berlin", "Lisbon", "Porto"):
                await memory.remember(f"Lives in {home}", key="home")
            await memory.remember("Is on holiday", ttl=timedelta(days=1), at=datetime.now(timezone.utc) - timedelta(2))
            await memory.remember("Prefers tea", kind="preference")
            await memory.set("theme", "dark")
            for number in range(3):
                await memory.session.append("ann", f"This is message number {number}")

    asyncio.run(store())
    (counted,) = objects("namespaces")
    (stats,) = objects("stats")[0]["namespaces"]  # type: ignore[misc]
    assert {name: stats[name] for name in counted} == counted
    assert (counted["memories"], counted["messages"]) == (2, 3)
    assert len(listed()) == counted["memories"]
    assert len(listed("--messages")) == counted["messages"]
    assert sum(stats["kinds"].values()) == counted["memories"]
    assert (stats["history"], stats["values"], stats["sessions"]) == (2, 1, 1)


def listed(*arguments: str) -> list[object]:
    return [record["content"] for record in objects("list", "-n", "ann", *arguments)]


def all_listed() -> list[object]:
    """Return everything in the store, including messages and history."""
    return [*listed("--history"), *listed("--history", "--messages")]


def test_memories_are_listed_newest_first_and_filtered(stocked: dict[str, MemoryRecord]) -> None:
    said = ["Gladly, at noon by the red lighthouse.", "Shall we meet in the old harbour tomorrow?"]
    assert listed() == ["Prefers green tea", "Lives in Lisbon"]
    assert listed("--messages") == listed("--kind", "interaction") == listed("--kind", " Interaction") == said
    assert listed("--kind", "interaction", "--kind", "fact") == [*said, "Lives in Lisbon"]
    assert listed("--history", "--kind", "fact") == ["Lives in Lisbon", "Lives in Berlin"]
    assert listed("--kind", "preference", "--kind", "fact") == ["Prefers green tea", "Lives in Lisbon"]
    assert listed("--tag", "drink", "--tag", "hot") == ["Prefers green tea"]
    assert listed("--tag", "drink", "--tag", "cold") == []
    assert listed("--session", "monday") == []
    assert listed("--messages", "--session", "monday", "--limit", "1") == said[:1]
    assert listed("--messages", "--session", "tuesday") == []
    assert listed("--offset", "1", "--limit", "2") == ["Lives in Lisbon"]
    assert listed("--containing", "e") == ["Prefers green tea", "Lives in Lisbon"]
    assert listed("--messages", "--containing", "harbour") == said[1:]
    assert listed("--containing", "i", "--limit", "1") == ["Lives in Lisbon"]
    assert "leave out --kind" in refused(2, "list", "-n", "ann", "--messages", "--kind", "fact")
    table = done("list", "-n", "ann", "--history")
    assert "replaced by" in table
    assert stocked["lisbon"].id[:8] in table


def test_search_prints_the_parts_of_each_score(stocked: dict[str, MemoryRecord]) -> None:
    first, *_ = objects("search", "Who prefers tea?", "-n", "ann", *TOY)
    record = first.pop("record")
    assert isinstance(record, dict)
    assert record["id"] == stocked["tea"].id
    assert list(first) == [
        *("score", "similarity", "recency", "frequency", "cosine", "keywords", "session", "neighbours", "speaker"),
        *("particulars", "question", "standing", "assistant"),
    ]
    header, best, *others = done("search", "Who prefers tea?", "-n", "ann", *TOY).splitlines()
    assert header.split() == ["score", "id", "content"]
    assert best.split(maxsplit=2)[1:] == [stocked["tea"].id[:8], "Prefers green tea"]
    assert any("ann: Shall we meet" in line for line in others)
    assert "similarity" not in "".join([best, *others])
    _, best, parts, *_ = done("search", "Who prefers tea?", "-n", "ann", "--explain", *TOY).splitlines()
    assert "Prefers green tea" in best
    assert re.fullmatch(
        r" +preference: similarity 0\.\d+ \(.*\+0\.\d+ cosine.*\), recency 0\.95, frequency 0\.00", parts
    )
    assert len(objects("search", "tea", "-n", "ann", "--limit", "2", *TOY)) == 2
    assert [hit["record"]["kind"] for hit in objects("search", "tea", "-n", "ann", "-k", "fact", *TOY)] == ["fact"]  # type: ignore[index]
    assert len(objects("search", "tea", "-n", "ann", "--min-score", "0.3", *TOY)) < 4


def test_search_at_a_time_in_the_past(stocked: dict[str, MemoryRecord]) -> None:
    then = (stocked["lisbon"].created_at - timedelta(microseconds=1)).isoformat()
    (hit,) = objects("search", "Where?", "-n", "ann", "--tag", "where", "--at", then, *TOY)
    assert hit["record"]["content"] == "Lives in Berlin"  # type: ignore[index]
    assert "Nothing in 'ann' matches" in refused(3, "search", "Where?", "-n", "ann", "--at", "2w", *TOY)


def test_show_and_history_accept_an_id_prefix(stocked: dict[str, MemoryRecord]) -> None:
    (shown,) = objects("show", stocked["berlin"].id[:8], "-n", "ann")
    assert (shown["content"], shown["superseded_by"]) == ("Lives in Berlin", stocked["lisbon"].id)
    assert shown["created_at"] == stocked["berlin"].created_at.isoformat()
    for name in ("home", stocked["berlin"].id, stocked["lisbon"].id[:10]):
        history = objects("history", name, "-n", "ann")
        assert [record["id"] for record in history] == [stocked["lisbon"].id, stocked["berlin"].id]
    assert "has no memory" in refused(3, "show", stocked["tea"].id[:3], "-n", "ann")
    assert "has no memory" in refused(3, "history", "nothing", "-n", "ann")


def test_an_ambiguous_id_prefix_is_a_usage_error(path: Path) -> None:
    from autogen_persistent_memory.core.records import draft

    async def store() -> None:
        async with PersistentMemory("ann", store=EmbeddedStore(path), embedding=words()) as memory:
            drafts = [draft("Has a cat", id="abcd-1"), draft("Has a dog", id="abcd-2")]
            await memory._engine.remember("profile", drafts)

    asyncio.run(store())
    assert "2 memories" in refused(2, "forget", "abcd", "-n", "ann", "--yes")
    assert objects("show", "abcd-1", "-n", "ann")[0]["content"] == "Has a cat"


def test_sessions_values_and_stats_list_the_contents(stocked: dict[str, MemoryRecord], path: Path) -> None:
    (session,) = objects("sessions", "-n", "ann")
    assert (session["name"], session["speakers"], session["messages"]) == ("monday", ["ann", "assistant"], 2)
    assert objects("values", "-n", "ann") == [{"key": "theme", "value": {"dark": True}}]
    assert 'theme  {"dark": true}' in done("values", "-n", "ann")
    (stats,) = objects("stats")
    assert stats["store"] == str(path)
    assert isinstance(stats["bytes"], int)
    ann, bob = stats["namespaces"]  # type: ignore[misc]
    assert ann == {
        "namespace": "ann",
        "memories": 2,
        "kinds": {"preference": 1, "fact": 1},
        "messages": 2,
        "sessions": 1,
        "history": 1,
        "values": 1,
        "embedding": "toy-words",
        "schema": 2,
    }
    assert bob["memories"] == 1
    assert [row["namespace"] for row in objects("stats", "-n", "bob")[0]["namespaces"]] == ["bob"]  # type: ignore[attr-defined]


def test_markup_and_escape_sequences_in_stored_text_are_not_interpreted(path: Path) -> None:
    nasty = "[bold red]x[/] :smile: \x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe\nnext line"
    done("add", nasty, "-n", "ann", *TOY)
    (record,) = objects("list", "-n", "ann")
    assert record["content"] == nasty
    as_json, table = done("list", "-n", "ann", "--json"), done("list", "-n", "ann")
    whole = done("show", str(record["id"]), "-n", "ann")
    for printed in (as_json, table, whole):
        assert not set(printed) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert r"[bold red]x[/] :smile: \x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe next line" in table
    assert len(table.splitlines()) == 2
    assert re.search(r"exe\n +next line\n", whole)
    assert "\x1b" not in refused(3, "show", "\x1b[31m", "-n", "ann")


def test_long_texts_are_cut_only_in_tables(path: Path) -> None:
    done("add", "word " * 500, "-n", "ann", *TOY)
    assert max(map(len, done("list", "-n", "ann").splitlines())) < 300
    (record,) = objects("list", "-n", "ann")
    assert record["content"] == "word " * 500


@pytest.mark.parametrize("text", ["plain", "zwj 👩‍👩‍👧", "tab\tand\nline"])
def test_harmless_text_is_printed_unchanged(text: str) -> None:
    assert printable(text) == text
    assert json.loads(to_json({"text": text})) == {"text": text}


def test_add_sets_every_field_of_a_memory(path: Path) -> None:
    (record,) = objects(
        *(
            "add",
            "Is in Lisbon",
            "-n",
            "ann",
            "--kind",
            "context",
            "-t",
            "a",
            "-t",
            "b",
            "--key",
            "now",
            "--ttl",
            "12h",
        ),
        *("--source", "ann", "--session", "s", "--at", "2026-01-02T03:04", *TOY),
    )
    assert (record["kind"], record["tags"], record["key"]) == ("context", ["a", "b"], "now")
    assert (record["source"], record["session"]) == ("ann", "s")
    assert record["created_at"] == "2026-01-02T03:04:00+00:00"
    assert record["expires_at"] == "2026-01-02T15:04:00+00:00"
    (pinned,) = objects("add", "Stays", "-n", "ann", "--kind", "temporary", "--pinned", *TOY)
    assert (pinned["pinned"], pinned["expires_at"]) == (True, None)


def test_add_stores_every_line_of_stdin(path: Path) -> None:
    done("add", "-", "-n", "ann", *TOY, input="\ufeffHas two cats\n\n  Trinkt gern Grüntee \r\n")
    assert sorted(map(str, listed())) == ["Has two cats", "Trinkt gern Grüntee"]
    assert "UTF-8" in refused(2, "add", "-", "-n", "ann", *TOY, input=b"\xff\xfe")
    assert "empty" in refused(2, "add", "-", "-n", "ann", *TOY, input="\n\n")
    assert "one memory" in refused(2, "add", "-", "-n", "ann", "--key", "k", *TOY, input="a b\nc d\n")
    assert len(listed()) == 2


def test_edit_changes_a_memory_in_place(stocked: dict[str, MemoryRecord]) -> None:
    id = stocked["tea"].id
    (record,) = objects("edit", id[:8], "-n", "ann", "--content", "Prefers black tea", "--pinned", *TOY)
    assert (record["id"], record["content"], record["pinned"]) == (id, "Prefers black tea", True)
    (record,) = objects("edit", id, "-n", "ann", "--tag", "", "--kind", "fact", "--key", "drink", "--unpinned")
    assert (record["tags"], record["kind"], record["key"], record["pinned"]) == ([], "fact", "drink", False)
    (record,) = objects("edit", id, "-n", "ann", "--key", "", "--content", "-", *TOY, input="Drinks\nwater\n")
    assert (record["key"], record["content"]) == (None, "Drinks\nwater")
    assert "what to change" in refused(2, "edit", id, "-n", "ann")
    assert "has no memory" in refused(3, "edit", "nothing", "-n", "ann", "--kind", "fact")
    assert "no current memory" in refused(1, "edit", stocked["berlin"].id, "-n", "ann", "--kind", "lesson")
    assert "as it was said" in refused(1, "edit", stocked["message"].id, "-n", "ann", "--content", "No", *TOY)


def forgotten(*selectors: str) -> object:
    """Return how many memories of Ann were forgotten."""
    (told,) = objects("forget", "-n", "ann", *selectors, "--yes")
    return told["forgotten"]


def test_forget_deletes_only_the_selected_memories(stocked: dict[str, MemoryRecord]) -> None:
    nothing = {"history": 0, "messages": 0, "states": [], "summaries": [], "values": [], "unclear": []}
    reached = {"states": [], "summaries": []}
    assert objects("forget", "-n", "ann", "--tag", "hot", "--yes") == [{"forgotten": 1, **reached, "left": nothing}]
    assert forgotten("--key", "home", "--everywhere") == 2
    assert len(all_listed()) == 2
    assert forgotten("--containing", "HARBOUR", "--session", "monday") == 1
    assert "no such memories" in refused(3, "forget", "-n", "ann", "--before", "2w", "--kind", "interaction", "--yes")
    assert "Say what to forget" in refused(2, "forget", "-n", "ann", "--yes")
    assert "leave out" in refused(2, "forget", "-n", "ann", "--all", "--tag", "hot", "--yes")
    assert done("forget", "-n", "ann", "--all", "--yes") == "Forgotten: all.\n"
    assert [row["namespace"] for row in objects("namespaces")] == ["bob"]


def test_forget_names_messages_and_saved_states_that_it_does_not_delete(
    stocked: dict[str, MemoryRecord], path: Path
) -> None:
    async def talk() -> None:
        async with PersistentMemory("ann", session="friday", store=EmbeddedStore(path), embedding=words()) as memory:
            agent = AssistantAgent("a", ReplayChatCompletionClient(["Fine."]), memory=[memory])
            await agent.run(task="Is there a red LIGHTHOUSE?")
            await memory.session.save(agent)
            await memory.set("walk", "to the lighthouse")
            await memory.remember("Likes the lighthouse")

    asyncio.run(talk())
    left = (
        "Not deleted, but containing it: 2 captured messages, 1 saved state; --everywhere includes them. "
        "Values that contain it are kept: walk."
    )
    by_text = ("forget", "-n", "ann", "--containing", "Lighthouse")
    assert done(*by_text, "--dry-run") == f"Would forget: 1.\n{left}\n"
    assert done(*by_text, "--yes") == f"Forgotten: 1.\n{left}\n"
    assert refused(3, *by_text, "--yes") == f"Error: 'ann' has no such memories. Nothing was deleted. {left}"
    (told,) = objects(*by_text, "--everywhere", "--dry-run")
    assert (told["would_forget"], told["states"]) == (2, ["friday"])
    assert "2 memories of 'ann', and its mentions in 1 state of saved conversations" in refused(
        2, *by_text, "--everywhere"
    )
    assert done(*by_text, "--everywhere", "--yes") == (
        "Forgotten: 2.\nSaved conversations that mention it: 1 state.\nValues that contain it are kept: walk.\n"
        "Not included: exports, snapshots, backups, and agents that are running.\n"
    )
    assert "lighthouse" not in done("list", "-n", "ann", "--history").casefold()
    assert "--everywhere" not in refused(3, *by_text, "--yes")


def test_list_containing_ignores_case(stocked: dict[str, MemoryRecord]) -> None:
    assert listed("--containing", "LISBON") == ["Lives in Lisbon"]


def test_a_dry_run_of_forget_only_counts(stocked: dict[str, MemoryRecord]) -> None:
    assert objects("forget", "-n", "ann", "--key", "home", "--everywhere", "--dry-run")[0]["would_forget"] == 2
    assert done("forget", "-n", "ann", "--tag", "hot", "--dry-run") == "Would forget: 1.\n"
    assert "leave out --dry-run" in refused(2, "forget", "-n", "ann", "--all", "--dry-run")
    assert "no such memories" in refused(3, "forget", "-n", "ann", "--tag", "cold", "--dry-run")
    assert len(all_listed()) == 5


def test_deleting_a_session_deletes_its_state_and_keeps_memories_learned_from_it(
    stocked: dict[str, MemoryRecord], path: Path
) -> None:
    async def save(session: str) -> None:
        async with PersistentMemory("ann", session=session, store=EmbeddedStore(path), embedding=words()) as memory:
            await memory.session.save(AssistantAgent("a", ReplayChatCompletionClient(["Fine."])))
            await memory.remember("Likes the harbour", session=session)

    async def load() -> bool:
        async with PersistentMemory("ann", session="monday", store=EmbeddedStore(path), embedding=words()) as memory:
            return await memory.session.load(AssistantAgent("a", ReplayChatCompletionClient(["Fine."])))

    asyncio.run(save("monday"))
    asyncio.run(save("tuesday"))
    delete = ("sessions", "-n", "ann", "--delete")
    assert objects(*delete, "monday", "--dry-run") == [
        {"session": "monday", "messages": 2, "state": True, "dry_run": True}
    ]
    assert len(objects("sessions", "-n", "ann")) == 2
    assert done(*delete, "monday", "--yes") == (
        "Deleted the conversation 'monday' of 'ann', 2 messages and its saved state.\n"
    )
    assert [session["name"] for session in objects("sessions", "-n", "ann")] == ["tuesday"]
    assert listed() == ["Likes the harbour", "Prefers green tea", "Lives in Lisbon"]
    assert not asyncio.run(load())
    assert "has no conversation 'monday'" in refused(3, *delete, "monday", "--yes")
    assert objects(*delete, "tuesday", "--yes") == [
        {"session": "tuesday", "messages": 0, "state": True, "dry_run": False}
    ]
    assert "belong to --delete" in refused(2, "sessions", "-n", "ann", "--yes")


@pytest.mark.parametrize(
    "command",
    [
        "forget -n ann --tag hot",
        "forget -n ann --all",
        "sessions -n ann --delete monday",
        "reembed -n ann --embedding minilm",
        "doctor --repair",
    ],
)
def test_destructive_commands_need_confirmation(stocked: dict[str, MemoryRecord], command: str) -> None:
    assert "--yes" in refused(2, *command.split(), input="y\n")
    assert len(all_listed()) == 5


def test_a_store_is_exported_and_imported_through_a_pipe(
    stocked: dict[str, MemoryRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = done("export")
    assert all(json.loads(line)["type"] for line in exported.splitlines())
    monkeypatch.setenv("AUTOGEN_MEMORY_PATH", str(tmp_path / "other"))
    assert objects("import", "-", "--rename", "ann=team/ann", *TOY, input=exported) == [{"imported": 7}]
    assert objects("import", "-", "--rename", "ann=team/ann", input=exported) == [{"imported": 0}]
    assert [row["namespace"] for row in objects("namespaces")] == ["bob", "team/ann"]
    file = tmp_path / "bob.jsonl"
    assert objects("export", str(file), "-n", "bob", "--vectors") == [{"exported": 1, "file": str(file)}]
    assert '"vector"' in file.read_text()
    assert "no namespace" in refused(1, "export", "-n", "carl")
    assert "OLD=NEW" in refused(2, "import", str(file), "--rename", "bob")
    assert "cannot be read" in refused(1, "import", str(tmp_path / "nowhere.jsonl"))


def test_a_snapshot_can_be_opened_as_a_store(
    stocked: dict[str, MemoryRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copied,) = objects("snapshot", str(tmp_path / "copy"))
    assert copied["folder"] == str(tmp_path / "copy")
    everything = all_listed()
    monkeypatch.setenv("AUTOGEN_MEMORY_PATH", str(tmp_path / "copy"))
    assert all_listed() == everything
    assert "not empty" in refused(2, "snapshot", str(tmp_path / "copy"))


def test_the_doctor_finds_and_repairs(stocked: dict[str, MemoryRecord], path: Path) -> None:
    assert done("doctor") == "Nothing is wrong.\n"
    assert objects("doctor") == []
    orphan = path / "00000000-0000-0000-0000-000000000000"
    orphan.mkdir()
    (orphan / "header.bin").write_bytes(b"x")
    result = call("doctor", "--json")
    assert (result.exit_code, json.loads(result.stdout)["problem"]) == (0, "orphaned index")  # which is harmless
    (report,) = objects("doctor", "--repair", "--yes")
    assert report["left"] == []
    assert Path(str(report["backup"])).is_dir()
    assert done("doctor", "--repair", "--yes").startswith("There was nothing to repair.")

    client = chromadb.PersistentClient(str(path), settings=Settings(anonymized_telemetry=False))
    client.create_collection("apm.lost.profile", embedding_function=None)
    client.close()
    result = call("doctor", "--json")
    assert (result.exit_code, json.loads(result.stdout)["problem"]) == (1, "orphaned collection")


def test_the_doctor_recovers_documents_from_a_damaged_store(stocked: dict[str, MemoryRecord], path: Path) -> None:
    everything = all_listed()
    with (path / "chroma.sqlite3").open("r+b") as file:
        file.write(bytes(4096))
    assert f"autogen-memory doctor --repair --path {path}" in refused(1, "list", "-n", "ann")
    result = call("doctor")
    assert (result.exit_code, "A repair recovers the documents" in result.stdout) == (1, True)
    assert "--embedding module:function --embedding-id 'toy-words'" in refused(1, "doctor", "--repair", "--yes")
    (report,) = objects("doctor", "--repair", "--yes", *TOY)
    assert (report["recovered"], report["missing"], report["left"]) == (7, 0, [])
    assert all_listed() == everything
    assert done("doctor") == "Nothing is wrong.\n"


def test_reembed_recomputes_vectors_with_another_embedding(stocked: dict[str, MemoryRecord]) -> None:
    other = ("--embedding", "toys:short_vectors", "--embedding-id", "toy-short")
    assert objects("reembed", "-n", "ann", *other, "--yes") == [{"embedded": 5, "embedding": "toy-short"}]
    assert "toy-short" in refused(1, "search", "tea", "-n", "ann", *TOY)
    assert objects("search", "tea", "-n", "ann", *other)[0]["record"]["id"] == stocked["tea"].id  # type: ignore[index]
    assert objects("compact", "-n", "ann") == [{"compacted": 5}]
    assert objects("namespaces")[0]["embedding"] == "toy-short"


def test_the_embedding_mismatch_error_names_the_command_that_fixes_it(
    stocked: dict[str, MemoryRecord], path: Path
) -> None:
    async def refused_with(embedding: Embedding) -> list[str]:
        with pytest.raises(EmbeddingMismatchError) as refusal:
            await PersistentMemory("ann", store=EmbeddedStore(path), embedding=embedding).open()
        (command,) = re.findall("`autogen-memory (.*?)`", str(refusal.value))
        return shlex.split(command)

    own = asyncio.run(refused_with(CallableEmbedding(word_vectors, id="my vectors")))
    assert own == [*["reembed", "--namespace", "ann", "--embedding", "module:function", "--embedding-id"], "my vectors"]
    assert objects(*("toys:word_vectors" if word == "module:function" else word for word in own), "--yes") == [
        {"embedded": 5, "embedding": "my vectors"}
    ]
    ours = asyncio.run(refused_with(MiniLMEmbedding()))
    assert objects(*ours, "--yes") == [{"embedded": 5, "embedding": "all-MiniLM-L6-v2"}]
    of_chroma = as_options('chroma/openai {"model_name": "text-embedding-3-small"}')
    assert shlex.split(of_chroma) == ["--embedding", 'chroma:openai {"model_name": "text-embedding-3-small"}']


def test_an_embedding_that_does_not_match_is_refused(stocked: dict[str, MemoryRecord]) -> None:
    wrong = ("--embedding", "toys:word_vectors", "--embedding-id", "other")
    assert "were embedded with 'toy-words', this memory uses 'other'" in refused(
        1, "search", "tea", "-n", "ann", *wrong
    )
    assert "--embedding module:function" in refused(1, "search", "tea", "-n", "ann")
    assert "--embedding-id" in refused(2, "search", "tea", "-n", "ann", "--embedding", "toys:word_vectors")
    assert "belongs to --embedding" in refused(2, "search", "tea", "-n", "ann", "--embedding-id", "x")
    assert "cannot be imported" in refused(2, "search", "tea", "-n", "ann", "--embedding", "toys:nothing")
    assert "write minilm, chroma:NAME or module:function" in refused(
        2, "search", "tea", "-n", "ann", "--embedding", "nonsense"
    )
    assert "JSON object" in refused(2, "search", "tea", "-n", "ann", "--embedding", "chroma:openai [1]")
    assert "knows no embedding function" in refused(1, "add", "tea", "-n", "new", "--embedding", "chroma:nothing")


class Sink(http.server.BaseHTTPRequestHandler):
    """An embedding server that keeps the texts it receives."""

    sent: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
        self.sent.extend(texts)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(word_vectors(texts)).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def sink(path: Path) -> Iterator[str]:
    """The id of an embedding that sends texts to a server, and a store with a lost vector whose metadata names it."""
    Sink.sent.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        id = f'chroma/huggingface_server {{"url": "http://127.0.0.1:{server.server_port}"}}'
        asyncio.run(_stock_for(path, CallableEmbedding(word_vectors, id=id)))
        yield id
        server.shutdown()


async def _stock_for(path: Path, embedding: Embedding) -> None:
    async with PersistentMemory("ann", store=EmbeddedStore(path), embedding=embedding) as memory:
        await memory.remember("Prefers green tea", kind="preference")


def test_metadata_in_a_store_cannot_make_a_command_send_texts_away(sink: str, tmp_path: Path) -> None:
    name = shlex.split(as_options(sink))
    for command in (("search", "my secret question"), ("add", "my secret")):
        refusal = refused(1, *command, "-n", "ann")
        assert "only the store's metadata names" in refusal
        assert as_options(sink) in refusal
    id = str(objects("list", "-n", "ann")[0]["id"])
    assert "To allow that, add --embedding" in refused(1, "edit", id, "-n", "ann", "--content", "my secret")
    done("edit", id, "-n", "ann", "--tag", "drink")
    done("compact", "-n", "ann")  # which does not embed
    done("export", str(tmp_path / "all.jsonl"))
    renamed = ("import", str(tmp_path / "all.jsonl"), "--rename", "ann=bob")
    assert "To allow that, add --embedding" in refused(1, *renamed)
    assert Sink.sent == []
    assert objects("search", "tea", "-n", "ann", *name)[0]["record"]["id"] == id  # type: ignore[index]
    assert Sink.sent == ["tea"]
    done(*renamed, *name)
    assert Sink.sent == ["tea", "Prefers green tea"]


def test_metadata_in_a_store_cannot_make_a_repair_send_texts_away(sink: str, path: Path) -> None:
    done("export", str(path.parent / "all.jsonl"))
    with (path / "chroma.sqlite3").open("r+b") as database:
        database.truncate((path / "chroma.sqlite3").stat().st_size - 4096)
    assert "To allow that, add --embedding" in refused(1, "doctor", "--repair", "--yes")
    assert Sink.sent == []
    done("doctor", "--repair", "--yes", *shlex.split(as_options(sink)))
    assert Sink.sent == ["Prefers green tea"]


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1)])
def test_the_user_is_asked_on_a_terminal_before_texts_are_sent_away(sink: str, answer: str, code: int) -> None:
    terminal, inside = pty.openpty()
    try:
        os.write(terminal, answer.encode())
        command = [*SCRIPT, "search", "tea", "-n", "ann"]
        result = subprocess.run(command, stdin=inside, capture_output=True, text=True, timeout=60)
    finally:
        os.close(terminal)
        os.close(inside)
    assert result.returncode == code, result.stderr
    assert f"embedded with {sink}, which may send them to another machine" in result.stderr
    assert Sink.sent == (["tea"] if code == 0 else [])


@pytest.mark.parametrize(
    ("id", "local"),
    [
        ("all-MiniLM-L6-v2", True),
        ("chroma/default", True),
        ("chroma/onnx_mini_lm_l6_v2", True),
        ('chroma/default {"x": 1}', False),
        ("chroma/openai", False),
        ('chroma/ollama {"url": "http://localhost:11434"}', False),
        ('chroma/sentence_transformer {"model_name": "all-MiniLM-L6-v2"}', False),
        ("chroma/one of next year", False),
        ("toy-words", False),
    ],
)
def test_only_local_embeddings_are_used_without_confirmation(id: str, local: bool) -> None:
    assert is_local(id) is local


def test_the_recorded_embedding_is_used_if_its_id_suffices(path: Path) -> None:
    done("add", "Prefers TypeScript", "-n", "ann")
    assert objects("namespaces")[0]["embedding"] == "all-MiniLM-L6-v2"
    assert objects("search", "Which programming language?", "-n", "ann")[0]["record"]["content"] == "Prefers TypeScript"  # type: ignore[index]
    assert "were embedded with 'all-MiniLM-L6-v2'" in refused(1, "add", "More", "-n", "ann", *TOY)


def test_not_found_and_usage_errors_have_different_exit_codes(stocked: dict[str, MemoryRecord]) -> None:
    assert "has no namespace 'carl'. It has ann, bob." in refused(3, "list", "-n", "carl")
    assert "has no namespace 'carl'" in refused(3, "stats", "-n", "carl")
    assert "Nothing in 'ann' matches" in refused(3, "search", "tea", "-n", "ann", "--kind", "lesson", *TOY)
    assert "Missing option" in refused(2, "list")
    assert "No such command" in refused(2, "nonsense")
    assert "has an empty part" in refused(2, "list", "-n", "a//b")
    assert "'soon' is not a duration; write 7d, 12h or 90m" in refused(
        2, "add", "x y", "-n", "ann", "--ttl", "soon", *TOY
    )
    assert "or an age such as" in refused(2, "search", "x", "-n", "ann", "--at", "yesterday", *TOY)
    assert "or an age such as" in refused(2, "search", "x", "-n", "ann", "--at", "999999w", *TOY)
    assert "HOST:PORT" in refused(2, "list", "-n", "ann", "--server", "localhost")
    assert "not both" in refused(2, "list", "-n", "ann", "--server", "localhost:1", "--path", "x")
    assert "belong to --server" in refused(2, "list", "-n", "ann", "--ssl")


def test_reading_commands_create_no_store(path: Path, home: Path) -> None:
    for command in ("namespaces", "stats", "doctor", "export", "list -n ann", "forget -n ann --all --yes"):
        assert "There is no store in" in refused(3, *command.split())
    assert not path.exists()
    assert list(home.iterdir()) == []


def test_the_store_is_named_before_or_after_the_command(
    stocked: dict[str, MemoryRecord], path: Path, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    done("--path", elsewhere, "add", "Has two cats", "-n", "cat", *TOY)
    assert [row["namespace"] for row in objects("namespaces", "--path", elsewhere)] == ["cat"]
    assert json.loads(done("--path", elsewhere, "--json", "namespaces"))["namespace"] == "cat"
    assert [row["namespace"] for row in objects("--path", elsewhere, "namespaces", "--path", str(path))] == [
        "ann",
        "bob",
    ]


def test_the_namespace_may_be_in_the_environment(
    stocked: dict[str, MemoryRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGEN_MEMORY_NAMESPACE", "bob")
    assert [record["content"] for record in objects("list")] == ["Plays chess"]


def test_commands_work_on_a_server_as_on_a_folder(chroma_server: tuple[str, int], path: Path, namespace: str) -> None:
    server = ("--server", "{}:{}".format(*chroma_server))
    (record,) = objects("add", "Has two cats", "-n", namespace, *server, *TOY)
    assert objects("search", "cats", "-n", namespace, *server, *TOY)[0]["record"]["id"] == record["id"]  # type: ignore[index]
    assert objects("stats", "-n", namespace, *server)[0]["bytes"] is None
    assert objects("edit", str(record["id"]), "-n", namespace, "--tag", "pets", *server)[0]["tags"] == ["pets"]
    assert '"Has two cats"' in done("export", "-n", namespace, *server)
    assert "use export" in refused(2, "snapshot", "copy", *server)
    assert "Only a folder" in refused(2, "share", *server)
    assert "NO_SUCH_TOKEN" in refused(1, "list", "-n", namespace, *server, "--token-env", "NO_SUCH_TOKEN")
    assert objects("forget", "-n", namespace, "--containing", "cats", "--yes", *server)[0]["forgotten"] == 1
    assert not path.exists()


def test_reading_commands_never_evict_messages() -> None:
    from autogen_persistent_memory.cli.context import _POLICY

    assert _POLICY.max_interactions is None


def test_a_memory_without_an_embedding_can_neither_write_vectors_nor_create_collections() -> None:
    from autogen_persistent_memory import EmbeddingMismatchError, PersistentMemoryError
    from autogen_persistent_memory.cli.embedding import UnknownEmbedding

    async def write() -> None:
        store = TemporaryStore()
        async with PersistentMemory("ann", store=store, embedding=UnknownEmbedding()) as memory:
            with pytest.raises(PersistentMemoryError, match="your own code"):
                await memory.remember("Has two cats")
        connection = store.connect()
        table = connection.table("ann", "profile", "")
        record = MemoryRecord(id="1", namespace="ann", content="x", created_at=NOW, updated_at=NOW)
        with pytest.raises(EmbeddingMismatchError, match="without an embedding"):
            await table.put([record], [[1.0]])
        assert await connection.inventory() == []
        await connection.close()

    asyncio.run(write())


NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)


# In a process of its own


def start(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*SCRIPT, *arguments], **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})  # type: ignore[call-overload, no-any-return]


def test_a_closed_pipe_ends_the_command_quietly(path: Path) -> None:
    done("add", "-", "-n", "ann", *TOY, input="".join(f"Memory number {n} {'x' * 400}\n" for n in range(250)))
    for command in ("list -n ann --limit 250 --json", "export"):
        process = start(*command.split())
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(60)) == (b"", 141), command
        process.stderr.close()


def test_output_to_pipes_is_utf8_without_colours_in_any_locale(path: Path) -> None:
    done("add", "Trinkt Grüntee ☕", "-n", "ann", *TOY)
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "FORCE_COLOR": ""}
    answer = subprocess.run([*SCRIPT, "list", "-n", "ann"], capture_output=True, env=environment, check=True)
    assert "Trinkt Grüntee ☕" in answer.stdout.decode()
    assert b"\x1b" not in answer.stdout
    assert answer.stderr == b""


def test_an_interrupt_exits_with_130(path: Path) -> None:
    process = start("add", "-", "-n", "ann", *TOY, stdin=subprocess.PIPE)
    assert process.stdin is not None
    with process:
        waiting = Path(f"/proc/{process.pid}/wchan")
        while process.poll() is None and "pipe" not in waiting.read_text():  # until it reads its stdin
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, b"Interrupted.\n")


def test_the_user_is_asked_for_confirmation_on_a_terminal(stocked: dict[str, MemoryRecord]) -> None:
    for answer, code in (("n", 1), ("y", 0)):
        outside, inside = pty.openpty()
        try:
            os.write(outside, f"{answer}\n".encode())
            process = start("forget", "-n", "ann", "--tag", "hot", stdin=inside)
            stdout, stderr = process.communicate(timeout=60)
        finally:
            os.close(outside)
            os.close(inside)
        assert process.returncode == code
        assert b"Delete 1 memory of 'ann' for good?" in stderr
        assert stdout == (b"Forgotten: 1.\n" if code == 0 else b"")


def on_a_terminal(*arguments: str, columns: int = 80, **environment: str) -> bytes:
    """Return what a command prints on a terminal of a width."""
    outside, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", **environment}
    process = start(*arguments, stdout=inside, stderr=inside, env=variables)
    os.close(inside)
    text = b""
    try:
        while part := os.read(outside, 4096):
            text += part
    except OSError:  # how Linux reports that the other side is closed
        pass
    os.close(outside)
    assert process.wait(60) == 0, text
    return text


def lines_on_a_terminal(*arguments: str) -> list[str]:
    printed = on_a_terminal(*arguments, NO_COLOR="1").decode()
    return re.sub(r"\x1b\[[\d;]*m", "", printed).splitlines()


def test_tables_of_captured_data_fit_a_terminal_of_80_columns(path: Path) -> None:
    replies = [f"For number {number} I would take the train to the old harbour. " * 4 for number in range(3)]

    async def converse() -> None:
        async with PersistentMemory("ann", store=EmbeddedStore(path)) as memory:
            client = ReplayChatCompletionClient(replies)
            assistant = AssistantAgent("assistant", model_client=client, memory=[memory])
            for number in range(3):
                await assistant.run(task=f"I live in Lisbon. How do I get to the old harbour, route number {number}?")

    asyncio.run(converse())
    assert max(map(len, lines_on_a_terminal("stats"))) <= 80
    for command in ("search harbour", "search harbour --explain", "list", "list --messages"):
        plain = lines_on_a_terminal(*command.split(), "-n", "ann")
        assert max(map(len, plain)) <= 80, command
        header, first, *others = plain
        start_of_content = header.index("content")
        width = max(len(line) for line in [first, *others]) - start_of_content
        assert width >= 30, command  # otherwise a text is a column of single words
        assert len(plain) < 40, command


def test_output_on_a_terminal_is_coloured_unless_no_color_is_set(path: Path) -> None:
    printed = {}
    for no_colour in ("", "1"):
        printed[no_colour] = on_a_terminal("--help", NO_COLOR=no_colour)
    colour = re.compile(rb"\x1b\[(\d+;)*3\d")
    assert colour.search(printed[""])
    assert not colour.search(printed["1"])


Serving = tuple[subprocess.Popen[bytes], dict[str, object]]


@contextlib.contextmanager
def served(*, limit: str = "true") -> Iterator[Serving]:
    """Run a server on the folder, after a shell command; yield it with what it printed when it was ready."""
    command = shlex.join([*SCRIPT, "share", "--port", "0", "--json"])
    process = subprocess.Popen(
        ["sh", "-c", f"{limit} && exec {command}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline() or b"{}")
        assert told, process.communicate()
        try:
            yield process, told
        finally:
            for pid in (process.pid, int(told["pid"])):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


@pytest.fixture
def serving(stocked: dict[str, MemoryRecord]) -> Iterator[Serving]:
    with served() as server:
        yield server


def test_share_serves_a_folder_until_interrupted(serving: Serving, path: Path) -> None:
    process, told = serving
    port = int(str(told["port"]))
    assert told["store"] == f'ServerStore("127.0.0.1", {port})'

    async def look(store: EmbeddedStore | ServerStore) -> list[str]:
        async with PersistentMemory("ann", store=store, embedding=words()) as memory:
            return [record.content for record in await memory.profile.records()]

    assert asyncio.run(look(ServerStore("127.0.0.1", port))) == ["Prefers green tea", "Lives in Lisbon"]
    with pytest.raises(StoreLockedError, match="autogen-memory share"):
        asyncio.run(look(EmbeddedStore(path)))
    assert "is in use by process" in refused(1, "share", "--port", "0")
    assert "is in use by process" in refused(1, "list", "-n", "ann")
    assert len(objects("list", "-n", "ann", "--server", f"127.0.0.1:{port}")) == 2
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert asyncio.run(look(EmbeddedStore(path))) == ["Prefers green tea", "Lives in Lisbon"]


def test_a_server_that_outlives_its_command_keeps_the_folder_locked(
    serving: Serving,
) -> None:
    process, told = serving
    process.kill()
    process.wait()
    assert f"is in use by process {told['pid']} (chroma) on" in refused(1, "list", "-n", "ann")


def ended(process: subprocess.Popen[bytes]) -> str:
    """Interrupt a command, and return its stderr."""
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.wait(60) == 0
    return process.stderr.read().decode()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux tells the limits of another process")
def test_share_raises_the_limit_of_open_files(stocked: dict[str, MemoryRecord]) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with served(limit="ulimit -Sn 1024") as (process, told):
        assert resource.prlimit(int(str(told["pid"])), resource.RLIMIT_NOFILE) == (most, most)
        assert ended(process) == ""


def test_share_warns_about_a_low_limit_of_open_files(stocked: dict[str, MemoryRecord]) -> None:
    with served(limit="ulimit -Sn 512 && ulimit -Hn 1024") as (process, _):
        said = ended(process)
    assert "may open only 1024 files, enough for about 256 collections" in said
    assert "ulimit -Hn" in said


def test_serve_points_to_share_and_creates_nothing(path: Path) -> None:
    assert "moved to `autogen-memory share`" in refused(2, "serve")
    assert "moved to `autogen-memory share`" in refused(2, "serve", "--port", "9000", "--path", str(path))
    assert "│ serve " not in done("--help")
    assert not path.exists()


def test_share_refuses_a_port_in_use(path: Path, chroma_server: tuple[str, int]) -> None:
    assert "in use. Choose another with --port" in refused(1, "share", "--port", str(chroma_server[1]))


def test_the_demo_remembers_and_leaves_no_files(path: Path, home: Path) -> None:
    lines = [json.loads(line) for line in done("demo", "--json").splitlines()]
    friday = [(line["who"], line["text"]) for line in lines if line["day"].startswith("Friday")]
    assert ("remembers", "The user prefers TypeScript.") in friday
    assert ("remembers", "The user's team migrated from SQLite to PostgreSQL, because of JSONB.") in friday
    assert [who for who, _ in friday[-2:]] == ["user", "assistant"]
    assert not path.exists()
    assert list(home.iterdir()) == []


def test_the_version_is_that_of_the_package() -> None:
    from autogen_persistent_memory import __version__

    assert done("--version") == f"autogen-memory {__version__}\n"
    assert "--version" not in done("list", "--help")


def test_a_pinned_memory_cannot_have_a_ttl(path: Path) -> None:
    told = refused(2, "add", "Likes tea", "-n", "ann", "--ttl", "7d", "--pinned", *TOY)
    assert "--ttl" in told
    assert "--pinned" in told
    assert not path.exists()


BROKEN = {
    "no model": {"onnxruntime.py": "raise ImportError('no onnxruntime here')"},
    "nothing recalled": {
        "sitecustomize.py": "import autogen_persistent_memory.conversation.turn as turn\n"
        "async def update(self, context): return ()\n"
        "turn.Turn.update = update"
    },
}


@pytest.mark.parametrize("broken", BROKEN)
def test_the_demo_fails_if_memory_fails(broken: str, tmp_path: Path) -> None:
    for name, code in BROKEN[broken].items():
        (tmp_path / name).write_text(code)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    answer = subprocess.run([*SCRIPT, "demo"], env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 1, answer.stdout
    assert answer.stderr.splitlines()[-1].startswith("Error: The demonstration failed")
