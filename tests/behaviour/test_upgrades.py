"""Data of version 0.1 (`tests/data/0.1`), and data written before a field existed, are read."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from autogen_core import ComponentModel
from autogen_core.tools import BaseTool
from toys import words

from autogen_persistent_memory import (
    MemoryRecord,
    PersistentMemory,
    ServerStore,
    TemporaryStore,
    import_memories,
    memory_tools,
)
from autogen_persistent_memory.storage.outbox import QueuedMessage, outbox_of

DATA = Path(__file__).parents[1] / "data" / "0.1"
LISBON, PORTO, QUESTION = (
    "30a87f5dc06a4621b47402d07fe7d8b8",
    "01c14c1381f34bdf8ade00fc5ff768fb",
    "fdedf815811f4588b5cf1686b2cae9d8",
)


async def imported(file: str) -> tuple[dict[str, MemoryRecord], object]:
    store = TemporaryStore()
    assert await import_memories(store, DATA / file, embedding=words(), progress=False) == 4
    async with PersistentMemory("ann", store=store, embedding=words(), capture=False) as memory:
        records = await memory.records(include_history=True)
        return {record.id: record for record in records}, await memory.get("theme")


async def test_an_export_of_version_0_1_is_imported_whole() -> None:
    records, theme = await imported("export.jsonl")
    assert theme == {"dark": True}
    assert records[LISBON] == MemoryRecord(
        id=LISBON,
        namespace="ann",
        content="Lives in Lisbon",
        tags=("home",),
        key="user/home",
        source="ann",
        created_at=datetime(2026, 3, 1, 12, tzinfo=timezone.utc),
        updated_at=datetime(2026, 3, 1, 12, tzinfo=timezone.utc),
        superseded_by=PORTO,
        superseded_at=datetime(2026, 3, 2, 12, tzinfo=timezone.utc),
    )
    assert records[PORTO].metadata == {"certain": True}
    assert (records[QUESTION].session, records[QUESTION].sequence) == ("monday", 1)


async def test_an_export_written_before_a_field_existed_is_imported_with_its_default() -> None:
    records, theme = await imported("export-fewer-fields.jsonl")
    assert theme == {"dark": True}
    written = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    bare = MemoryRecord(id=LISBON, namespace="ann", content="Lives in Lisbon", created_at=written, updated_at=written)
    assert replace(records[LISBON], sequence=None) == bare
    assert records.keys() == {LISBON, PORTO, QUESTION}


@pytest.fixture
def waiting(tmp_path: Path, chroma_server: tuple[str, int], namespace: str) -> Path:
    """Return an outbox with messages that version 0.1 queued for a server."""
    host, port = chroma_server
    box = outbox_of(str(tmp_path / "outbox"), (host, str(port), "default_tenant", "default_database", namespace))
    assert box is not None
    shutil.copytree(DATA / "outbox", box.folder)
    return box.folder


async def test_an_outbox_file_written_before_a_field_existed_is_delivered(
    waiting: Path, chroma_server: tuple[str, int], namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = ServerStore(*chroma_server, outbox=waiting.parent)
    async with PersistentMemory(namespace, session="tuesday", store=store, embedding=words()) as memory:
        await memory.recall("anything")
        await memory.flush()
        said = sorted((record for record in await memory.records() if record.kind == "interaction"), key=lambda r: r.id)
        facts = {record.content for record in await memory.profile.records()}
    assert [(record.id, record.content, record.origin) for record in said] == [
        ("a1", "I live in Porto.", "user"),
        ("a2", "Noted: Porto.", "agent"),
        ("b1", "I have two cats.", "user"),
        ("b2", "Noted: cats.", "agent"),
        ("c1", "The gate is B7.", "user"),
    ]
    assert {"The user lives in Porto.", "The user has two cats."} <= facts
    assert await asyncio.to_thread(os.listdir, waiting) == ["lock"]
    assert "cannot be read" not in caplog.text


def test_every_field_that_the_outbox_may_get_has_a_default() -> None:
    assert set(QueuedMessage._fields) - set(QueuedMessage._field_defaults) == {"id", "session", "source", "text", "at"}


def dumped_tools() -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = json.loads((DATA / "tools.json").read_text())
    return tools


def test_tools_dumped_by_version_0_1_are_loaded_and_dumped_under_their_public_names() -> None:
    for old in dumped_tools():
        tool: BaseTool[Any, Any] = BaseTool.load_component(ComponentModel.model_validate(old))
        new = tool.dump_component()
        assert old["provider"] == f"autogen_persistent_memory._tools.{type(tool).__name__}"
        assert new.provider == f"autogen_persistent_memory.{type(tool).__name__}"
        assert new.config["memory"]["config"]["embedding"] == old["config"]["memory"]["config"]["embedding"]
        assert (list(new.config["tags"]), new.config["limit"]) == (["ops"], 2)
        assert type(BaseTool.load_component(json.loads(new.model_dump_json()))) is type(tool)


def test_all_tools_are_dumped_under_the_package() -> None:
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=words())
    names = [tool.dump_component().provider for tool in memory_tools(memory)]  # type: ignore[union-attr]
    assert names == [f"autogen_persistent_memory.{name}Tool" for name in ("Remember", "Recall", "Forget")]
