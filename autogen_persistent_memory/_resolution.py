"""What a new statement does to what is known: restate it, replace it, or stand beside it. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from ._lexical import statement
from ._records import MemoryRecord


@dataclass(frozen=True, slots=True)
class Resolved:
    """What has to be written so that the newcomers are known."""

    new: list[MemoryRecord]
    changed: list[MemoryRecord]
    outcome: list[MemoryRecord]
    """For each newcomer the record it became: itself, or the one it restated."""


def resolve(newcomers: Sequence[MemoryRecord], known: Iterable[MemoryRecord], now: datetime) -> Resolved:
    """Take in newcomers, in order, beside the current records that might say the same or have the same key."""
    before = {record.id: record for record in known}
    after = dict(before)
    saying: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for record in before.values():
        saying[statement(record.content)].append(record.id)
    outcome: list[str] = []
    for newcomer in newcomers:
        said = statement(newcomer.content)
        restated = next((after[id] for id in saying[said] if _is_restated(after[id], newcomer)), None)
        if restated is None:
            record = newcomer
            saying[said].append(record.id)
        else:
            record = _merged(restated, newcomer, now)
        after[record.id] = record
        if record.key is not None:
            after.update((other.id, other) for other in _superseded(record.key, after.values()))
        outcome.append(record.id)
    return Resolved(
        new=[record for id, record in after.items() if id not in before],
        changed=[record for id, record in after.items() if id in before and record != before[id]],
        outcome=[after[id] for id in outcome],
    )


def _is_restated(known: MemoryRecord, newcomer: MemoryRecord) -> bool:
    """Whether a newcomer that makes the same statement is the same memory: by the same speaker, for the same slot."""
    return (
        "interaction" not in (known.kind, newcomer.kind)
        and known.superseded_by is None
        and known.mime_type == newcomer.mime_type
        and _agree(known.source, newcomer.source)
        and _agree(known.key, newcomer.key)
    )


def _agree(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def _merged(known: MemoryRecord, again: MemoryRecord, now: datetime) -> MemoryRecord:
    """The known record, stated again: what is new in the restatement is kept, its wording is not."""
    pinned = known.pinned or again.pinned
    lasting = pinned or known.expires_at is None or again.expires_at is None
    outlived = known.expires_at is not None and (again.expires_at is None or again.expires_at > known.expires_at)
    sharper = known.kind == "fact" and again.expires_at is None
    return replace(
        known,
        kind=again.kind if outlived or sharper else known.kind,
        key=known.key or again.key,
        source=known.source or again.source,
        tags=tuple(dict.fromkeys((*known.tags, *again.tags))),
        metadata={**known.metadata, **again.metadata},
        pinned=pinned,
        expires_at=None if lasting else max(filter(None, (known.expires_at, again.expires_at))),
        updated_at=max(known.updated_at, again.updated_at),
        uses=known.uses + 1,
        last_used_at=now,
    )


def _superseded(key: str, records: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """All but the newest statement under a key, marked as replaced by the next one."""
    chain = [record for record in records if record.key == key and record.superseded_by is None]
    chain.sort(key=lambda record: record.updated_at)  # stable: of two equally old ones the later newcomer wins
    return [
        replace(older, superseded_by=newer.id, superseded_at=max(newer.created_at, older.created_at))
        for older, newer in pairwise(chain)
    ]
