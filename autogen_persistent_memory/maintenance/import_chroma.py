"""Taking over the memories of AutoGen's `ChromaDBVectorMemory`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any

from ..core.checks import decode_json, encode_json
from ..core.records import MARKDOWN, TEXT, Draft, draft, stable_id
from ..retrieval.engine import Engine
from ..runtime.progress import Progress, progress_of
from .foreign import ForeignRow, foreign_rows

logger = logging.getLogger("autogen_persistent_memory")

_MIME_TYPES = {
    "MemoryMimeType.TEXT": TEXT,
    "MemoryMimeType.MARKDOWN": MARKDOWN,
    "MemoryMimeType.JSON": TEXT,  # it stored the dict as Python shows it, in lower case, which is no JSON
}
_TIME_NAMES = ("created_at", "timestamp")
_EARLIEST = datetime(2000, 1, 1, tzinfo=timezone.utc)
_IN_MILLISECONDS = 1e11
_TICK = timedelta(microseconds=1)
_SECOND = 1_000_000
_MOST_NAMED = 10


async def take_over(engine: Engine, path: str, collection: str, progress: Progress) -> int:
    """Store the memories of a foreign collection in the profile, those that are there already excepted; how many."""
    merged = await _merged_before(engine, collection)
    keeps_in, now, taken, blank, start = engine.holdings.connection.keeps_in, engine.clock(), 0, 0, 0
    refused: dict[str, str] = {}
    newly_merged: dict[str, str] = {}
    async with (
        foreign_rows(path, collection, keeps_in) as (total, pages),
        progress_of(total, "Importing", progress) as done,
    ):
        async for page in pages:
            drafts, no_memories = _drafts(page, collection, start, total, now)
            refused |= no_memories
            known = await _known(engine, list(drafts), merged)
            new = {id: draft for id, draft in drafts.items() if id not in known}
            records = await engine.remember("profile", list(new.values()))
            newly_merged |= {id: record.id for id, record in zip(new, records, strict=True) if id != record.id}
            blank += len(page) - len(drafts) - len(no_memories)
            taken, start = taken + len(new), start + len(page)
            done(len(page))
    if newly_merged:
        await engine.values.put("import", collection, encode_json(merged | newly_merged, "merged ids"))
    if blank:
        logger.warning("%d memories of the collection %r are blank and were not imported.", blank, collection)
    if refused:
        logger.warning(
            "%d memories of the collection %r cannot be stored and were not imported; they stay where they are. By their ids "
            "there: %s",
            len(refused),
            collection,
            "; ".join(f"{id!r}: {reason}" for id, reason in islice(refused.items(), _MOST_NAMED)),
        )
    return taken


async def _merged_before(engine: Engine, collection: str) -> dict[str, str]:
    """The memories of the collection that only restated another, each with that other one's id."""
    text = await engine.values.get("import", collection)
    return {} if text is None else decode_json(text)


async def _known(engine: Engine, ids: Sequence[str], merged: Mapping[str, str]) -> set[str]:
    """Which of these memories are there, by themselves or as what they were merged into."""
    wanted = {*ids, *(merged[id] for id in ids if id in merged)}
    there = {record.id for record in await engine.find(list(wanted), ["profile"])}
    return {id for id in ids if id in there or merged.get(id) in there}


def _drafts(
    page: Sequence[ForeignRow], collection: str, start: int, total: int, now: datetime
) -> tuple[dict[str, Draft], dict[str, str]]:
    """Return the rows of a page as memories, by the id each is to have, and why rows cannot be one, by their own ids.

    Those without a text are left out. Where nothing tells their time they are of now, each a little later than the one
    before, so that their order stays.
    """
    drafts: dict[str, Draft] = {}
    refused: dict[str, str] = {}
    for number, row in enumerate(page, start=start):
        if not row.document or not row.document.strip():
            continue
        id, latest = stable_id("chroma", collection, row.id), now - max(total - number, 0) * _TICK
        try:
            drafts[id] = _draft(id, row, latest, number % _SECOND * _TICK)
        except ValueError as error:
            refused[row.id] = str(error)
    return drafts, refused


def _draft(id: str, row: ForeignRow, latest: datetime, offset: timedelta) -> Draft:
    """A row as a memory, of the time its metadata tells, else when it was added, which is known to the second.

    What `ChromaDBVectorMemory` put into the caller's metadata is taken out again.
    """
    metadata = dict(row.metadata)
    mime_type = _MIME_TYPES.get(str(metadata.get("mime_type")))
    if mime_type is not None:
        del metadata["mime_type"]
    added = latest if row.added_at is None else min(row.added_at + offset, latest)
    at = _told_time(metadata, latest) or added
    return draft(row.document, metadata=metadata, at=at, mime_type=mime_type or TEXT, id=id)


def _told_time(metadata: Mapping[str, Any], latest: datetime) -> datetime | None:
    """The time that the caller's own metadata tells, if it is one: ISO 8601, or seconds or milliseconds since 1970."""
    for name in _TIME_NAMES:
        time = _as_time(metadata.get(name))
        if time is not None and _EARLIEST <= time <= latest:
            return time
    return None


def _as_time(value: object) -> datetime | None:
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value.replace("Z", "+00:00"))
            return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > _IN_MILLISECONDS else value, timezone.utc)
    except (ValueError, OverflowError, OSError):
        pass
    return None
