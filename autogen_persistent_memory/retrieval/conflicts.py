"""What a new statement does to what is known: restate it, replace it, or stand beside it. Pure functions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from ..core.checks import MAX_TAGS, decode_json
from ..core.records import JSON, MemoryRecord
from ..text.words import statement


class Resolved(NamedTuple):
    """What has to be written so that the newcomers are known."""

    new: list[MemoryRecord]
    changed: list[MemoryRecord]
    outcome: list[MemoryRecord]
    """For each newcomer the record it became: itself, or the one it restated."""


def resolve(
    newcomers: Sequence[MemoryRecord],
    known: Iterable[MemoryRecord],
    now: datetime,
    ends: Mapping[str, Callable[[MemoryRecord], bool]] = {},
) -> Resolved:
    """Take in newcomers, in order, beside the known records that might say the same or have the same key.

    Those that are known by their id already change nothing. `ends` tells for the id of a newcomer what it puts an end to.
    """
    before = {record.id: record for record in known}
    after = dict(before)
    saying: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for record in before.values():
        saying[_stated(record)].append(record.id)
    outcome: list[str] = []
    for newcomer in newcomers:
        if newcomer.id in after:
            outcome.append(newcomer.id)
            continue
        said = _stated(newcomer)
        restated = next((after[id] for id in saying[said] if _is_restated(after[id], newcomer)), None)
        if restated is None:
            record = newcomer
            saying[said].append(record.id)
        else:
            record = _merged(restated, newcomer, now)
        after.pop(record.id, None)  # so that it comes last
        after[record.id] = record
        if record.key is not None:
            after.update((other.id, other) for other in _linked(record.key, after.values(), now))
        if newcomer.id in ends:
            after.update((other.id, other) for other in _ended(record, after.values(), ends[newcomer.id]))
        outcome.append(record.id)
    return Resolved(
        new=[record for id, record in after.items() if id not in before],
        changed=[record for id, record in after.items() if id in before and record != before[id]],
        outcome=[after[id] for id in outcome],
    )


def successions(record: MemoryRecord, known: Iterable[MemoryRecord], now: datetime) -> list[MemoryRecord]:
    """What becomes of the known statements under the key of a record that was given it just now."""
    others = {other.id: other for other in known if other.id != record.id}
    linked = [] if record.key is None else _linked(record.key, [*others.values(), record], now)
    return [other for other in linked if other != others.get(other.id, record)]


def _ended(
    by: MemoryRecord, records: Iterable[MemoryRecord], is_over: Callable[[MemoryRecord], bool]
) -> list[MemoryRecord]:
    """The memories that are over by a statement, marked as superseded by it."""
    return [
        replace(record, superseded_by=by.id, superseded_at=max(by.updated_at, record.created_at))
        for record in records
        if record.id != by.id
        and record.superseded_by is None
        and record.kind != "interaction"
        and record.created_at <= by.updated_at
        and is_over(record)
    ]


def newest_first(records: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """Return the records by when they were last stated, the newest first."""
    return sorted(records, key=lambda record: (record.updated_at, record.sequence or 0), reverse=True)


def newest_of_each_key(records: Sequence[MemoryRecord]) -> Sequence[MemoryRecord]:
    """One record for each key, and for each id: the newer statement counts.

    There are two where a crash came between writing one and marking the other, and among what was believed at a past
    time where a statement was made again later.
    """
    slots = [record.id if record.key is None else (record.key,) for record in records]
    if len(set(slots)) == len(records):
        return records
    newest: dict[str | tuple[str], MemoryRecord] = {}
    for slot, record in zip(slots, records, strict=True):
        if slot not in newest or record.created_at > newest[slot].created_at:
            newest[slot] = record
    return list(newest.values())


def _stated(record: MemoryRecord) -> tuple[str, ...]:
    if record.mime_type == JSON:
        return (json.dumps(decode_json(record.content), sort_keys=True),)
    return statement(record.content)


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
    """The known record, stated again. Its wording stays; where both say something else of it, the later one counts."""
    older, later = sorted((known, again), key=lambda record: record.updated_at)
    pinned = known.pinned or again.pinned
    lasting = pinned or known.expires_at is None or again.expires_at is None
    outlived = known.expires_at is not None and (again.expires_at is None or again.expires_at > known.expires_at)
    sharper = known.kind == "fact" and again.expires_at is None
    in_session = later if later.session is not None else older
    return replace(
        known,
        kind=again.kind if outlived or sharper else known.kind,
        key=known.key or again.key,
        source=known.source or again.source,
        session=in_session.session,
        sequence=in_session.sequence,
        tags=tuple(dict.fromkeys((*known.tags, *again.tags)))[: max(MAX_TAGS, len(known.tags))],
        metadata={**older.metadata, **later.metadata},
        pinned=pinned,
        expires_at=None if lasting else max(filter(None, (known.expires_at, again.expires_at))),
        created_at=min(known.created_at, again.created_at),
        updated_at=later.updated_at,
        uses=known.uses + 1,
        last_used_at=now,
    )


def _linked(key: str, records: Iterable[MemoryRecord], now: datetime) -> list[MemoryRecord]:
    """The statements under a key, each but the newest marked as superseded by the next one.

    Left out are expired ones, and those whose successor was forgotten: nothing new may hang on them.
    """
    told = {record.id: record for record in records if record.key == key}
    chain = [
        record
        for record in told.values()
        if (record.superseded_by is None or record.superseded_by in told)
        and (record.expires_at is None or record.expires_at > now)
    ]
    chain.sort(key=lambda record: record.updated_at)  # stable: of two equally old ones the later newcomer wins
    return [
        replace(older, superseded_by=newer.id, superseded_at=max(newer.updated_at, older.created_at))
        for older, newer in pairwise(chain)
    ]
