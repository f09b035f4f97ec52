"""What a memory's content means, and what of it must not be stored. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from ..core.checks import decode_json, encode_json
from ..core.records import JSON, Draft, MemoryRecord
from .secrets import redact

_LONGEST_MEANING = 32_000
"""Characters of which a vector is made: more than most models read, and few enough for every function to read in a moment."""
Item = TypeVar("Item", Draft, MemoryRecord)


def meaning(item: Draft | MemoryRecord) -> str:
    """Return the text whose vector stands for a memory: its beginning, of JSON without its punctuation."""
    if item.mime_type != JSON or len(item.content) > _LONGEST_MEANING:
        return item.content[:_LONGEST_MEANING]
    return "; ".join(_leaves(decode_json(item.content), "")) or item.content


def redacted(item: Item) -> Item:
    """The memory without secrets in its content, tags and metadata; in JSON, only texts are looked at."""
    if item.mime_type == JSON:
        value = decode_json(item.content)
        clean = _redacted(value)
        content = item.content if clean == value else encode_json(clean, "JSON content")
    else:
        content = redact(item.content)
    tags = tuple(redact(tag) for tag in item.tags)
    return replace(item, content=content, tags=tags, metadata=_redacted(dict(item.metadata)))


def _leaves(value: object, path: str) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path} {key}".strip())
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    else:
        yield f"{path}: {value}"


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value
