"""Writes schema-N.zip: a small store of everything this version can store, and beside it what must be found there.

Run once for each schema, by the version that introduced it, from the root of the repository; then it never changes:

    PYTHONPATH=.:tests python tests/data/stores/make.py
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import zipfile
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from toys import words

from autogen_persistent_memory import EmbeddedStore, MemoryRecord, PersistentMemory
from autogen_persistent_memory.storage.chroma.migrations import schema_version

SOME_TIME_AGO = datetime(2025, 11, 3, 9, 30, 15, 123456, tzinfo=timezone.utc)
STATE = {"type": "TeamState", "agents": {"coder": {"messages": ["naïve ✓"] * 30_000}}}  # takes several rows
NAMESPACES = ("prod/acme/user-42", "bob")


class Team:
    """What can save its state and load it again."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    async def save_state(self) -> dict[str, Any]:
        return self.state

    async def load_state(self, state: Any) -> None:
        self.state = dict(state)


def plain(record: MemoryRecord) -> dict[str, Any]:
    """All that a record says, as JSON."""
    return json.loads(json.dumps(asdict(record), default=lambda time: time.isoformat()))


async def contents(memory: PersistentMemory) -> dict[str, Any]:
    """All that is stored in a namespace, through the public surface."""
    records = await memory.records(limit=1000, include_history=True)
    team = Team({})
    return {
        "records": sorted((plain(record) for record in records), key=lambda record: record["id"]),
        "values": await memory.values(),
        "history": [record.content for record in await memory.history("drink")],
        "messages": [[record.source, record.content] for record in await memory.session.messages()],
        "has_state": await memory.session.load(team),
        "state": team.state,
    }


async def write(memory: PersistentMemory) -> None:
    for number, kind in enumerate(("fact", "preference", "decision", "lesson", "context", "temporary", "recipe")):
        await memory.remember(
            f"The {kind} number {number} is ünïcode ✓",
            kind=kind,
            tags=["a", "user:alice"],
            ttl=timedelta(days=300_000),
            source="Ann",
            metadata={"nested": {"list": [1, 2.5, None, True, "x"]}, "kind": "clash"},
            at=SOME_TIME_AGO + timedelta(hours=number),
        )
    await memory.remember("Never deploy on Fridays", pinned=True)
    await memory.remember("The minutes: " + "naïve ✓ " * 30_000)  # longer than a document
    for drink in ("tea", "coffee", "cocoa"):
        await memory.remember(f"Favourite drink is {drink}", key="drink")
    for source, text in (
        ("user", "Where do we keep the plan for the launch?"),
        ("planner", "On the wall."),
        ("user", "ok"),
    ):
        await memory.session.append(source, text)
    await memory.session.save(Team(STATE))
    await memory.recall("favourite drink", limit=1, reinforce=True)
    for key, value in {"theme": "dark", "count": 5, "flags": [True, None, 1.5], "long": "✓" * 300_000}.items():
        await memory.set(key, value)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        expected = {}
        for namespace in NAMESPACES:
            memory = PersistentMemory(
                namespace, session="kick-off", store=EmbeddedStore(store), embedding=words(), extractor=None
            )
            async with memory:
                await write(memory)
                await memory.flush()
                expected[namespace] = await contents(memory)
        target = Path(__file__).with_name(f"schema-{schema_version()}.zip")
        with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for file in sorted(path for path in store.rglob("*") if path.is_file()):
                if not file.name.startswith("autogen_memory."):
                    archive.write(file, Path("store") / file.relative_to(store))
            archive.writestr("expected.json", json.dumps(expected))
        print(f"{target}: {target.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    asyncio.run(main())
