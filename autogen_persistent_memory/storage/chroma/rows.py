"""The stored format: a record as a row of Chroma, and a selection as a Chroma filter. Pure functions.

A row has the content as its document, and as metadata one JSON text `record` with all other fields, beside the few fields
that filters need. Every metadata key costs time: fifteen keys instead of five make reading four times slower.

Only the beginning of a long content is the document; the rest is compressed metadata. An embedded Chroma holds the
interpreter's lock while it indexes a document for full-text search, which nobody uses: half a second per megabyte. And until
it saves its index it reads everything again with each write, which takes as long if many characters are not ASCII.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from itertools import islice, product
from typing import Any

from ...core.checks import fold_kind
from ...core.records import MemoryRecord, Selection
from ..protocol import Stored
from .migrations import Metadata, up_to_date_stamp

_PREFIX = "apm"
_MOST_GUESSES = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIMES = ("created_at", "updated_at", "expires_at", "superseded_at")
_PLAIN = ("kind", "key", "source", "session", "sequence", "origin", "pinned", "superseded_by", "mime_type")
_LONGEST_ASCII, _LONGEST_OTHER = 16_000, 4_000
"""Characters of a document: those that are not ASCII take several times as long."""
_REST, _LENGTH = "rest", "length"
MOST_LISTED = 32_766 // 6
"""How many entries of a list Chroma can write: it writes all of them with one SQL statement, with six variables each."""
_DOCUMENT = "chroma:document"
"""The metadata key under which Chroma's database has the document of a row."""


def collection_name(namespace: str, table: str) -> str:
    """Return a valid Chroma name: a readable beginning, and the hash of the namespace, which makes it unique."""
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", namespace)[:40].strip("-_") or "x"
    return f"{_PREFIX}.{slug}.{hashlib.sha256(namespace.encode()).hexdigest()[:32]}.{table}"


def collection_metadata(namespace: str, table: str, embedding_id: str) -> Metadata:
    """Return the metadata of a new collection."""
    return up_to_date_stamp() | {"apm_namespace": namespace, "apm_shelf": table, "apm_embedding": embedding_id}


def namespace_of(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the namespace a collection belongs to, or None if it is not one of ours."""
    namespace = (metadata or {}).get("apm_namespace")
    return namespace if isinstance(namespace, str) else None


def owner_by_name(name: str) -> tuple[str, str] | None:
    """Return namespace and table of a collection that lost its metadata, if they can be guessed; the hash proves a guess."""
    prefix, slug, _, table = name.split(".") if name.count(".") == 3 else ("", "", "", "")
    if prefix != _PREFIX:
        return None
    first, *words = slug.split("-")
    for marks in islice(product("-/.:@ ", repeat=len(words)), _MOST_GUESSES):
        namespace = first + "".join(mark + word for mark, word in zip(marks, words))
        if collection_name(namespace, table) == name:
            return namespace, table
    return None


def stored_of(metadata: Mapping[str, Any] | None) -> Stored | None:
    """Return the description of a collection, or None if it is not one of ours, or an unfinished copy."""
    if not metadata or namespace_of(metadata) is None or metadata.get("apm_unfinished"):
        return None
    return Stored(*(metadata[f"apm_{name}"] for name in ("namespace", "shelf", "embedding", "schema")))


def is_ours(name: str, metadata: Mapping[str, Any] | None) -> bool:
    """Return whether this package made a collection, even if its metadata is lost."""
    return name.startswith(f"{_PREFIX}.") or namespace_of(metadata) is not None


def to_metadata(record: MemoryRecord) -> Metadata:
    """Return the metadata of a record's row, all but the rest of its content. None makes Chroma drop a key's old value."""
    fields: dict[str, Any] = {name: getattr(record, name) for name in _PLAIN}
    fields |= {name: _to_microseconds(getattr(record, name)) for name in _TIMES}
    fields |= {"tags": list(record.tags), "metadata": dict(record.metadata)}
    return {
        "record": json.dumps({name: value for name, value in fields.items() if value not in (None, [], {})}),
        "kind": record.kind,
        "tags": list(record.tags[:MOST_LISTED]) or None,  # a recovered record may have more, and must not block others
        "key": record.key,
        "session": record.session,
        "expires_at": fields["expires_at"],
        "superseded": True if record.superseded_by else None,
        "superseded_by": record.superseded_by,
        **to_usage(record),
    }


def to_row(record: MemoryRecord, *, new: bool) -> tuple[str, Metadata]:
    """Return the document and the metadata of a record's row.

    A `new` row is without keys that do not apply: dropping them takes time. One that replaces another has them all.
    """
    content = record.content
    longest = _LONGEST_ASCII if content.isascii() else _LONGEST_OTHER
    rest = content[longest:]
    packed = base64.b64encode(zlib.compress(rest.encode("utf-8"))).decode("ascii") if rest else None
    metadata = to_metadata(record) | {_REST: packed, _LENGTH: len(content) if rest else None}
    return content[:longest], {name: value for name, value in metadata.items() if value is not None or not new}


def to_usage(record: MemoryRecord) -> Metadata:
    """Return the part of the metadata that counts uses."""
    return {"uses": record.uses or None, "last_used_at": _to_microseconds(record.last_used_at)}


def to_record(namespace: str, id: str, document: str | None, metadata: Mapping[str, Any]) -> MemoryRecord:
    """Return the record of a row."""
    fields: dict[str, Any] = json.loads(metadata["record"])
    fields |= {name: _from_microseconds(fields[name]) for name in _TIMES if name in fields}
    fields["tags"] = tuple(fields.get("tags", ()))
    fields["kind"] = fold_kind(fields["kind"])
    return MemoryRecord(
        id=id,
        namespace=namespace,
        content=whole_text(document, metadata),
        uses=metadata.get("uses") or 0,
        last_used_at=_from_microseconds(metadata.get("last_used_at")),
        **fields,
    )


def whole_text(document: str | None, metadata: Mapping[str, Any]) -> str:
    """Return the content of a row: its document, and the compressed rest.

    Raises:
        ValueError: The rest is damaged or lost.
    """
    rest = metadata.get(_REST)
    try:
        text = (document or "") + (zlib.decompress(base64.b64decode(rest)).decode("utf-8") if rest else "")
    except zlib.error as error:
        raise ValueError(f"The rest of the text cannot be decompressed: {error}.") from error
    if len(text) < metadata.get(_LENGTH, 0):
        raise ValueError(f"Of {metadata[_LENGTH]} characters only {len(text)} are left.")
    return text


def readable(metadata: Metadata, document: str | None) -> Metadata:
    """Return the metadata of a row that cannot be read as a record any more, with its whole text uncompressed."""
    if _REST in metadata:
        with contextlib.suppress(ValueError):
            others = {name: value for name, value in metadata.items() if name not in (_REST, _LENGTH)}
            return others | {_DOCUMENT: whole_text(document, metadata)}
    return metadata


def to_where(selection: Selection, *, thorough: bool = True) -> Metadata | None:
    """Return a filter that everything passes that matches the selection, and little else.

    A filter makes Chroma visit every row. So one that is not `thorough` leaves to `Selection.matches` what few rows fail.
    """
    clauses: list[Metadata] = []
    if selection.kinds is not None:
        clauses.append({"kind": {"$in": [spelling for kind in selection.kinds for spelling in _spellings(kind)]}})
    clauses += [{"tags": {"$contains": tag}} for tag in selection.tags or ()]
    equal = {name: getattr(selection, name) for name in ("session", "key", "superseded_by")}
    clauses += [{name: value} for name, value in equal.items() if value is not None]
    if selection.expired_at is not None:
        clauses.append({"expires_at": {"$lte": _to_microseconds(selection.expired_at)}})
    if selection.current_at is not None and thorough:
        clauses.append({"superseded": {"$ne": True}})
    if not clauses:
        return None
    return clauses[0] if len(clauses) == 1 else {"$and": clauses}


def _spellings(kind: str) -> list[str]:
    """Return how version 0.1, which did not fold kinds, may have stored one."""
    return list(dict.fromkeys((kind, kind.capitalize(), kind.title(), kind.upper())))


def _to_microseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - _EPOCH) // timedelta(microseconds=1)


def _from_microseconds(count: int | None) -> datetime | None:
    return None if count is None else _EPOCH + timedelta(microseconds=count)
