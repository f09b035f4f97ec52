"""A store of many kinds of memories, and ways to damage its database."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

from stocked import open_memory, stock, told

from autogen_persistent_memory import MemoryRecord
from autogen_persistent_memory.maintenance.salvage.salvage import _open_damaged

DATABASE = "chroma.sqlite3"
PAGE = 4096
SAVED_EVERY = 50
ROWS = 2 * SAVED_EVERY + 20
NAMESPACES = ("ann", "team/bob")
LONG = "A long story about boats. " * 400
VALUES = {"colour": "green", "list": ["x" * 1000] * 5}
Contents = dict[str, dict[str, Any]]


def make_whole(path: Path) -> Path:
    """Make a store of two namespaces with short and long memories, with and without history, messages and values."""

    async def fill() -> None:
        for namespace in NAMESPACES:
            await stock(path, ROWS, saved_every=SAVED_EVERY, namespace=namespace)
            async with open_memory(path, namespace) as memory:
                await memory.remember(LONG, kind="note", tags=["long", "boats"], metadata={"pages": 3})
                await memory.remember("Lives in Berlin", key="home")
                await memory.remember("Lives in Lisbon", key="home")
                for number in range(5):
                    await memory.session.append("user", f"This is message {number} about the weather in {number} towns")
                await memory.remember_many({"content": told(number), "kind": "rumour"} for number in range(500, 560))
                await memory.forget(kinds=["rumour"])
                await memory.remember("Plays chess")
                for name, value in VALUES.items():
                    await memory.set(name, value)

    with patch("autogen_persistent_memory.storage.chroma.values._CHUNK", 2000):
        asyncio.run(fill())
    return path


async def contents(path: Path, namespaces: Sequence[str] = NAMESPACES) -> Contents:
    """Return all contents, by namespace."""
    found: Contents = {}
    for namespace in namespaces:
        async with open_memory(path, namespace) as memory:
            records = await memory.records(limit=1000, include_history=True)
            messages = await memory.session.messages()
            values = {f"value:{name}": value for name, value in (await memory.values()).items()}
            found[namespace] = {record.id: record for record in (*records, *messages)} | values
    return found


def overwrite(path: Path, page: int, filling: bytes = bytes(PAGE)) -> None:
    with (path / DATABASE).open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(filling)


def root_of(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path / DATABASE)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        return int(root)


def leaves_of(path: Path, table: str) -> list[int]:
    """Return the pages of a table that hold rows."""
    with _open_damaged(path) as database:
        return list(database._trees[table].pages)


def told_in(contents: Contents) -> list[MemoryRecord]:
    return [item for items in contents.values() for item in items.values() if isinstance(item, MemoryRecord)]
