"""Check arguments: types, limits, names and JSON. Each check returns the value, or raises a ValueError that names it.

The limits protect the other records of a namespace: Chroma cannot write a list of 5,462 tags with one SQL statement, and
then fails on everything that is written after it. What an older version stored beyond these limits stays readable.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from .errors import NamespaceError

MAX_CONTENT = 1 << 20
"""Characters of a memory. A captured message may be longer: it is stored whole, and indexed up to this length."""
MAX_TAGS = 64
MAX_TAG = 256
MAX_KEY = 512
"""Characters of the key of a memory or a value."""
MAX_KIND = 128
MAX_SOURCE = 512
MAX_NAME = 512
"""Characters of the name of a namespace or a session."""
MAX_METADATA = 100_000
"""Characters of a record's metadata, as JSON."""
MAX_VALUE = 1 << 25
"""Characters of a value, as JSON. Must fit into a line of an export."""
MAX_DEPTH = 64
"""Levels to which metadata, values and JSON content may be nested."""
MAX_LINE_BYTES = 1 << 27
"""Bytes that an import reads of one line, so that a file without line ends does not fill the RAM."""
MAX_COUNT = 1_000_000
MAX_LIFETIME = timedelta(days=365_000)
_EARLIEST, _LATEST = datetime(2, 1, 1), datetime(8000, 1, 1)


def require_text(value: object, name: str, most: int | None = None, remedy: str = "Shorten it.") -> str:
    """Return a text that is not blank, has at most `most` characters and can be stored as UTF-8, or raise a ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text (a str), not {type(value).__name__}.")
    if not value.strip():
        raise ValueError(f"{name} is empty or blank; give it at least one visible character.")
    if most is not None and len(value) > most:
        raise ValueError(f"{name} has {len(value):,} characters; at most {most:,} are allowed. {remedy}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} holds half of a surrogate pair at position {error.start}, which is not a character and cannot be "
            "stored. Decode the text with errors='replace' first."
        ) from None
    return value


def without_lone_surrogates(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate, which cannot be stored. Pairs become the character they encode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def optional_text(value: object, name: str, most: int | None = None) -> str | None:
    """Check a text as `require_text` does, or return None for None."""
    return None if value is None else require_text(value, name, most)


def fold_kind(kind: str) -> str:
    """Return a kind as it is stored and compared: trimmed, in lower case."""
    return kind.strip().casefold()


def check_kind(value: object, name: str = "kind") -> str:
    return fold_kind(require_text(value, name, MAX_KIND))


def check_kinds(value: object, name: str = "kinds") -> tuple[str, ...] | None:
    """Return a list of kinds, folded and without repeats, or None."""
    kinds = check_words(value, name)
    return None if kinds is None else tuple(dict.fromkeys(map(fold_kind, kinds)))


def check_tags(value: object, name: str = "tags", *, may_be_empty: bool = False) -> tuple[str, ...] | None:
    """Return tags without repeats, or None."""
    tags = check_words(value, name, may_be_empty=may_be_empty, most=MAX_TAG)
    if tags is not None and len(tags) > MAX_TAGS:
        raise ValueError(
            f"{name} has {len(tags):,} entries; at most {MAX_TAGS} are allowed. Keep those that you filter by."
        )
    return tags


def check_words(
    value: object, name: str, *, may_be_empty: bool = False, most: int | None = None
) -> tuple[str, ...] | None:
    """Return a list of words without repeats, each of at most `most` characters, or None."""
    if value is None:
        return None
    if value in ([], (), set(), frozenset()) and not may_be_empty:
        raise ValueError(f"{name} is an empty list, which could mean all or none; leave it out to mean all.")
    if isinstance(value, str) or not isinstance(value, (Sequence, set, frozenset)):
        raise ValueError(f"{name} must be a list of strings, such as {name}=['a', 'b'], not {value!r}.")
    words = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
    return tuple(dict.fromkeys(require_text(word, f"each of {name}", most) for word in words))


def check_time(value: object, name: str) -> datetime | None:
    """Return a timezone-aware datetime in UTC, or None."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise ValueError(f"{name} must be a datetime, not {type(value).__name__}.")
    if value.utcoffset() is None:
        raise ValueError(
            f"{name}={value.isoformat()} has no timezone, so it could be any of 24 moments. "
            "Use datetime.now(timezone.utc) or .replace(tzinfo=...)."
        )
    if not _EARLIEST <= value.replace(tzinfo=None) <= _LATEST:
        raise ValueError(f"{name}={value.isoformat()} is out of range; use a year between 2 and 8000.")
    return value.astimezone(timezone.utc)


def check_metadata(value: object) -> dict[str, Any]:
    """Return a copy of a caller's metadata, which must be storable as JSON."""
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"metadata must be a mapping, not {type(value).__name__}.")
    metadata: dict[str, Any] = decode_json(encode_json(dict(value or {}), "metadata", MAX_METADATA))
    return metadata


def check_flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}.")
    return value


def check_count(value: object, name: str, *, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
        raise ValueError(f"{name} must be a whole number from {least} to {MAX_COUNT:,}, not {value!r}.")
    return value


def check_share(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, not {value!r}.")
    return float(value)


def check_namespace(value: object) -> str:
    return _check_name(value, "namespace")


def check_session(value: object) -> str:
    return _check_name(value, "session")


def _check_name(value: object, what: str) -> str:
    """Return the name of a namespace or session, or raise a NamespaceError."""
    example = "such as 'user-42' or 'prod/acme/user-42'"
    if not isinstance(value, str):
        raise NamespaceError(f"A {what} must be a str, {example}, not {type(value).__name__}.")
    if not value:
        raise NamespaceError(f"The {what} is empty; give it a name, {example}.")
    if len(value) > MAX_NAME:
        raise NamespaceError(
            f"The {what} has {len(value):,} characters; at most {MAX_NAME} are allowed. "
            "Use a shorter one, such as a hash of it."
        )
    for position, character in enumerate(value):
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise NamespaceError(
                f"The {what} {value!r} has the control character U+{ord(character):04X} at position {position}; "
                "remove it."
            )
    for part in value.split("/"):
        if part in ("", ".", ".."):
            raise NamespaceError(
                f"The {what} {value!r} has an empty part, '.', '..', or a '/' at an end. "
                f"Use names joined by single slashes, {example}."
            )
        if part != part.strip():
            raise NamespaceError(f"The {what} {value!r} has white space around {part.strip()!r}; strip it first.")
    return value


def encode_json(value: object, name: str, most: int | None = None, *, halves: bool = False) -> str:
    """Return the value as JSON text from which `decode_json` makes an equal value of the same types.

    A value that would come back changed is refused. With `halves`, texts may hold half of a surrogate pair, which is escaped.
    """
    if _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"{name} is nested more than {MAX_DEPTH} deep, or contains itself. Flatten it.")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if without_lone_surrogates(text) != text:
            if not halves:
                raise ValueError("it holds half of a surrogate pair, which is not a character")
            text = json.dumps(value, allow_nan=False)
        same = _same(json.loads(text), value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} cannot be stored as JSON: {error}.") from None
    if not same:
        raise ValueError(
            f"{name} would come back changed from JSON: use only dicts with string keys, lists, strings, numbers, "
            "True, False and None (no tuples, no sets, no other keys)."
        )
    if most is not None and len(text) > most:
        raise ValueError(
            f"{name} has {len(text):,} characters as JSON; at most {most:,} are allowed. Store large data "
            "elsewhere, and its location here."
        )
    return text


def decode_json(text: str) -> Any:
    """Return the value that `encode_json` encoded."""
    return json.loads(text)


def _is_deeper(value: object, most: int) -> bool:
    """Return whether dicts and lists are nested deeper. Each is visited once per level, so one that contains itself is too."""
    level = [value]
    for _ in range(most + 1):
        inner = {id(item): item for item in level if isinstance(item, (dict, list))}
        level = [part for item in inner.values() for part in (item.values() if isinstance(item, dict) else item)]
        if not inner:
            return False
    return True


def _same(stored: object, given: object) -> bool:
    if isinstance(given, dict):
        return (
            isinstance(stored, dict)
            and stored.keys() == given.keys()
            and all(_same(stored[key], given[key]) for key in given)
        )
    if isinstance(given, list):
        return isinstance(stored, list) and len(stored) == len(given) and all(map(_same, stored, given))
    return type(stored) is type(given) and stored == given
