"""Correct a memory in its place. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ..core.checks import MAX_KEY, check_flag, check_kind, check_tags, decode_json, require_text
from ..core.errors import PersistentMemoryError
from ..core.records import FACTS, JSON, MemoryRecord, check_content, listed


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
        raise ValueError("edit() needs something to change: content, kind, tags, pinned or key.")
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
    kind = record.kind if change.kind is None else change.kind
    pinned = record.pinned if change.pinned is None else change.pinned
    lifetime = lifetimes.get(kind)
    starts_again = (kind, pinned) != (record.kind, record.pinned)
    expires_at = None if pinned or lifetime is None else now + lifetime
    return replace(
        record,
        content=record.content if change.content is None else change.content,
        kind=kind,
        tags=record.tags if change.tags is None else change.tags,
        key=record.key if change.key is None else change.key or None,
        pinned=pinned,
        expires_at=expires_at if starts_again else record.expires_at,
        updated_at=record.updated_at if is_message else max(now, record.updated_at),
    )


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
