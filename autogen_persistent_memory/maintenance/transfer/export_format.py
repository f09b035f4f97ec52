"""What is exported, as lines of JSON. Pure functions.

The first line is a `Header`, the last one an `End`, without which a file was cut off. In between every namespace
begins with a line that says which embedding made its vectors; its memories and values follow, one a line.

A memory that was written before there was a field has the field's default. A field that nobody knows is refused, so that
nothing is lost in silence: a version that writes new ones raises `FORMAT_VERSION`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any, TypeVar, get_args

from ...core import checks as limits
from ...core.checks import (
    MAX_KEY,
    MAX_SOURCE,
    check_flag,
    check_kind,
    check_metadata,
    check_namespace,
    check_session,
    check_tags,
    decode_json,
    encode_json,
    optional_text,
    require_text,
)
from ...core.errors import PersistentMemoryError, SchemaVersionError
from ...core.records import JSON, MIME_TYPES, MemoryRecord, Origin
from ...runtime.threads import importing
from ...storage.chroma.migrations import schema_version
from ...storage.protocol import TABLES, Entry, Space, TableName
from ...text.embeddings import Vector

T = TypeVar("T")
FORMAT = "autogen-persistent-memory"
FORMAT_VERSION = 1
_MAX_WHOLE = 2**53


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself."""

    count: int
    """How many memories and values follow, or so: others may have written meanwhile."""


@dataclass(frozen=True, slots=True)
class NamespaceLine:
    """A namespace begins."""

    namespace: str
    embeddings: Mapping[TableName, str]
    """The ids of the embeddings that made the vectors of its tables."""


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A memory, on a table."""

    table: TableName
    record: MemoryRecord
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class ValueLine:
    """A value, a saved state or a mark of a namespace."""

    namespace: str
    space: Space
    name: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class End:
    """Nothing follows."""

    count: int


Line = Header | NamespaceLine | RecordLine | ValueLine | End


def to_line(line: Line) -> str:
    """A line of the file, with its end."""
    return json.dumps(_to_json(line), ensure_ascii=False, separators=(",", ":")) + "\n"


def _to_json(line: Line) -> dict[str, Any]:
    if isinstance(line, RecordLine):
        record = {item.name: _plain(getattr(line.record, item.name)) for item in fields(MemoryRecord)}
        vector = {} if line.vector is None else {"vector": _packed(line.vector)}
        return {"type": "record", "shelf": line.table, **record, **vector}
    if isinstance(line, ValueLine):
        at = {} if line.entry.at is None else {"at": _plain(line.entry.at)}
        place = {"namespace": line.namespace, "space": line.space, "name": line.name}
        return {"type": "value", **place, **at, **_readable(line.entry.text)}
    if isinstance(line, NamespaceLine):
        return {"type": "namespace", "namespace": line.namespace, "embeddings": dict(line.embeddings)}
    if isinstance(line, Header):
        header = {"format": FORMAT, "version": FORMAT_VERSION, "schema": schema_version()}
        return {"type": "header", **header, "count": line.count}
    return {"type": "end", "count": line.count}


def from_line(text: str | bytes) -> Line:
    """What a line says.

    Raises:
        ValueError: What is wrong with it.
        SchemaVersionError: A newer version wrote it.
    """
    if len(text) > limits.MAX_LINE_BYTES:
        raise ValueError(f"it is longer than {limits.MAX_LINE_BYTES:,} bytes")
    try:
        line = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(line, dict):
        raise ValueError(f"it is not a JSON object, but {type(line).__name__}")
    kind = line.pop("type", None)
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise ValueError(f"its type is {kind!r}, and must be one of {', '.join(_READERS)}")
    try:
        return read(_Fields(line))
    except PersistentMemoryError as error:
        if isinstance(error, ValueError):
            raise ValueError(str(error)) from None
        raise


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


class _Fields:
    """The fields of a line, of which each must be known, and taken once."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def take(self, name: str, check: Callable[[Any, str], T]) -> T:
        if name not in self._given:
            raise ValueError(f"it has no {name}")
        return check(self._given.pop(name), name)

    def take_if_there(self, name: str, check: Callable[[Any, str], T]) -> T | None:
        return self.take(name, check) if name in self else None

    def end(self) -> None:
        if self._given:
            raise ValueError(f"it has unknown fields: {', '.join(self._given)}")


def _header(given: _Fields) -> Header:
    if given.take("format", _anything) != FORMAT:
        raise ValueError(f"it is not an export of {FORMAT}")
    version = given.take("version", _whole_number)
    if version > FORMAT_VERSION:
        raise SchemaVersionError(
            f"The export has format {version}; this version of {FORMAT} reads up to {FORMAT_VERSION}. Nothing was "
            f"imported. Upgrade it with: pip install --upgrade {FORMAT}"
        )
    return Header(given.take("count", _whole_number))


def _namespace_line(given: _Fields) -> NamespaceLine:
    line = NamespaceLine(given.take("namespace", _namespace), given.take("embeddings", _embeddings))
    given.end()
    return line


def _record_line(given: _Fields) -> RecordLine:
    table = given.take("shelf", _table)
    known = {name: given.take(name, check) for name, check in _FIELDS.items() if name in given or name in _REQUIRED}
    record = MemoryRecord(**{"updated_at": known["created_at"], **known})
    if record.mime_type == JSON:
        decode_json(record.content)
    line = RecordLine(table, record, given.take_if_there("vector", _unpacked))
    given.end()
    return line


def _value_line(given: _Fields) -> ValueLine:
    namespace, space, name = (
        given.take("namespace", _namespace),
        given.take("space", _one_of(get_args(Space))),
        given.take("name", _at_most(MAX_KEY)),
    )
    at = given.take_if_there("at", _optional_time)
    text = given.take_if_there("text", require_text)
    line = ValueLine(namespace, space, name, Entry(given.take("value", encode_json) if text is None else text, at))
    given.end()
    return line


def _end(given: _Fields) -> End:
    line = End(given.take("count", _whole_number))
    given.end()
    return line


_READERS: dict[str, Callable[[_Fields], Line]] = {
    "header": _header,
    "namespace": _namespace_line,
    "record": _record_line,
    "value": _value_line,
    "end": _end,
}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def _readable(text: str) -> dict[str, Any]:
    """The value that a text encodes; or the text itself, where that would not come back the same."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        if encode_json(value, "the value") == text:
            return {"value": value}
    except (ValueError, RecursionError):
        pass
    return {"text": text}


def _packed(vector: Vector) -> str:
    with importing:
        import numpy as np

    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode("ascii")


def _unpacked(value: object, name: str) -> Vector:
    with importing:
        import numpy as np

    try:
        numbers = np.frombuffer(base64.b64decode(require_text(value, name), validate=True), dtype="<f4")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} is not the base64 text of 32-bit numbers: {error}") from None
    if len(numbers) == 0 or not np.isfinite(numbers).all():
        raise ValueError(f"{name} holds no numbers, or some that are not finite")
    return [float(number) for number in numbers]


def _anything(value: object, name: str) -> object:
    return value


def _whole_number(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_WHOLE:
        raise ValueError(f"{name} must be a whole number from 0, not {value!r}")
    return value


def _optional(check: Callable[[Any, str], T]) -> Callable[[Any, str], T | None]:
    return lambda value, name: None if value is None else check(value, name)


def _one_of(choices: tuple[Any, ...]) -> Callable[[Any, str], Any]:
    def check(value: object, name: str) -> Any:
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    return check


def _namespace(value: object, name: str) -> str:
    return check_namespace(value)


def _session(value: object, name: str) -> str:
    return check_session(value)


def _table(value: object, name: str) -> TableName:
    table: TableName = _one_of(TABLES)(value, name)
    return table


def _embeddings(value: object, name: str) -> Mapping[TableName, str]:
    return {
        _table(table, "each shelf"): require_text(id, "each embedding") for table, id in _object(value, name).items()
    }


def _object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON object, not {value!r}")
    return value


def _at_most(most: int) -> Callable[[Any, str], str]:
    return lambda value, name: require_text(value, name, most)


def _tags(value: object, name: str) -> tuple[str, ...]:
    return check_tags(value, name, may_be_empty=True) or ()


def _metadata(value: object, name: str) -> dict[str, Any]:
    return check_metadata(_object(value, name))


def _time(value: object, name: str) -> datetime:
    text = require_text(value, name)
    try:
        time = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
        if time.tzinfo is not None:
            return time.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must be a time with its timezone, such as 2026-03-01T12:00:00+00:00, not {text!r}")


_optional_time = _optional(_time)

_FIELDS: Mapping[str, Callable[[Any, str], Any]] = {
    "id": require_text,
    "namespace": _namespace,
    "content": require_text,
    "kind": check_kind,
    "tags": _tags,
    "key": _optional(_at_most(MAX_KEY)),
    "source": _optional(_at_most(MAX_SOURCE)),
    "session": _optional(_session),
    "sequence": _optional(_whole_number),
    "origin": _one_of(get_args(Origin)),
    "created_at": _time,
    "updated_at": _time,
    "expires_at": _optional_time,
    "last_used_at": _optional_time,
    "uses": _whole_number,
    "pinned": check_flag,
    "superseded_by": optional_text,
    "superseded_at": _optional_time,
    "mime_type": _one_of(MIME_TYPES),
    "metadata": _metadata,
}
_REQUIRED = ("id", "namespace", "content", "created_at")
