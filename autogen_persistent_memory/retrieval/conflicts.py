"""What a new statement or an edit does to the known ones: restate, replace, end or correct them. Pure functions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from ..core.checks import MAX_KEY, MAX_TAGS, check_flag, check_kind, check_tags, decode_json, require_text
from ..core.errors import PersistentMemoryError
from ..core.records import FACTS, JSON, MemoryRecord, check_content, listed
from ..text.words import statement


class Resolved(NamedTuple):
    """What to write for some new records."""

    new: list[MemoryRecord]
    changed: list[MemoryRecord]
    outcome: list[MemoryRecord]
    """For each new record what it became: itself, or the known one that it restated."""


def resolve(
    new: Sequence[MemoryRecord],
    known: Iterable[MemoryRecord],
    now: datetime,
    ends: Mapping[str, Callable[[MemoryRecord], bool]] = {},
) -> Resolved:
    """Resolve new records, in order, against the known records that might say the same or have the same key.

    A new record whose id is known changes nothing. `ends` accepts, by the id of a new record, the memories that it ends.
    """
    before = {record.id: record for record in known}
    after = dict(before)
    saying: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for record in before.values():
        saying[_stated(record)].append(record.id)
    outcome: list[str] = []
    for newcomer in new:
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
    """Return the records that change because a record was just given its key."""
    others = {other.id: other for other in known if other.id != record.id}
    linked = [] if record.key is None else _linked(record.key, [*others.values(), record], now)
    return [other for other in linked if other != others.get(other.id, record)]


def _ended(
    by: MemoryRecord, records: Iterable[MemoryRecord], is_over: Callable[[MemoryRecord], bool]
) -> list[MemoryRecord]:
    """Return the memories that a statement ends, marked as superseded by it."""
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
    """Return one record for each key, and for each id: the newer statement.

    There are two after a crash between writing one and marking the other, and among what was believed at a past time if a
    statement was made again later.
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
    """Return whether a new record with the same statement is the same memory: by the same speaker, under the same key."""
    return (
        "interaction" not in (known.kind, newcomer.kind)
        and known.superseded_by is None
        and known.mime_type == newcomer.mime_type
        and may_be_same(known.source, newcomer.source)
        and may_be_same(known.key, newcomer.key)
    )


def may_be_same(one: str | None, other: str | None) -> bool:
    """Return whether two speakers, or two keys, may be the same: None may be any."""
    return one is None or other is None or one == other


def _merged(known: MemoryRecord, again: MemoryRecord, now: datetime) -> MemoryRecord:
    """Return the known record, stated again. Its wording stays; where other fields differ, the later one counts."""
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
    """Return the statements under a key, each but the newest marked as superseded by the next one.

    Expired ones are left out, and those whose successor was forgotten: they must not be linked again.
    """
    told = {record.id: record for record in records if record.key == key}
    chain = [
        record
        for record in told.values()
        if (record.superseded_by is None or record.superseded_by in told)
        and (record.expires_at is None or record.expires_at > now)
    ]
    chain.sort(key=lambda record: record.updated_at)  # stable: of two equally old ones the later one wins
    return [
        replace(older, superseded_by=newer.id, superseded_at=max(newer.updated_at, older.created_at))
        for older, newer in pairwise(chain)
    ]


class Changes(NamedTuple):
    """The new fields of a memory; None for those that stay."""

    content: str | None
    kind: str | None
    tags: tuple[str, ...] | None
    pinned: bool | None
    key: str | None
    """Empty to remove the key."""


def changes(*, content: object, kind: object, tags: object, pinned: object, key: object) -> Changes:
    """Check the arguments of `edit()`.

    Raises:
        ValueError: An argument is invalid, or all of them are None.
    """
    if all(value is None for value in (content, kind, tags, pinned, key)):
        raise ValueError("edit() needs to know what to change: content, kind, tags, pinned or key.")
    return Changes(
        content=None if content is None else check_content(content),
        kind=None if kind is None else check_kind(kind),
        tags=check_tags(tags, may_be_empty=True),
        pinned=None if pinned is None else check_flag(pinned, "pinned"),
        key=key if key in (None, "") else require_text(key, "key", MAX_KEY),
    )


def edited(
    record: MemoryRecord, change: Changes, now: datetime, lifetimes: Mapping[str, timedelta | None]
) -> MemoryRecord:
    """Return the record with its changes. If its kind or its pin changes, its lifetime starts now.

    Raises:
        PersistentMemoryError: It is a captured message, which stays as it was said; or it holds a JSON object, and the new
            content does not.
    """
    is_message = record.kind == "interaction"
    if is_message and (change.content, change.kind, change.key) != (None, None, None):
        raise PersistentMemoryError(
            f"The memory {record.id!r} is a captured message, which stays as it was said; only its tags and its pin can be "
            "changed. Forget it, or remember what is right instead."
        )
    if change.content is not None and record.mime_type == JSON:
        _check_json(record.id, change.content)
    given: dict[str, Any] = {name: value for name, value in change._asdict().items() if value is not None}
    changed = replace(record, **given)
    if (changed.kind, changed.pinned) != (record.kind, record.pinned):
        lifetime = lifetimes.get(changed.kind)
        changed = replace(changed, expires_at=None if changed.pinned or lifetime is None else now + lifetime)
    updated_at = record.updated_at if is_message else max(now, record.updated_at)
    return replace(changed, key=changed.key or None, updated_at=updated_at)


def without_fact(message: MemoryRecord, id: str) -> MemoryRecord:
    """Return a message without the fact that was corrected since: what it says of that fact no longer holds."""
    facts = [f"{fact} as told" if fact == id else fact for fact in listed(message, FACTS)]
    return replace(message, metadata={**message.metadata, FACTS: facts})


def _check_json(id: str, content: str) -> None:
    try:
        value: Any = decode_json(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise PersistentMemoryError(f"The memory {id!r} holds a JSON object; give it another one, not {content!r}.")
