"""The lines of an export: JSON objects, validated by Pydantic. Pure functions.

The first line is a `Header`, the last an `End`; a file without an `End` was cut off. In between, every namespace begins
with a line that names the embeddings of its vectors; its memories and values follow, one per line.

A field that a line lacks because an earlier version wrote it gets the default of `MemoryRecord`. An unknown field is
refused, so that no data is lost silently: a version that writes new fields must raise `FORMAT_VERSION`.

Annotations are evaluated as they stand here, without `from __future__`: Pydantic would have to compile each of them.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from typing_extensions import Required, TypedDict

from ...core import checks
from ...core.errors import SchemaVersionError
from ...core.records import JSON, MIME_TYPES, MemoryRecord, Origin
from ...runtime.threads import importing
from ...storage.chroma.migrations import schema_version
from ...storage.protocol import Entry, Space, TableName
from ...text.embeddings import Vector

FORMAT = "autogen-persistent-memory"
FORMAT_VERSION = 1


def _checked(check: Callable[[Any, str], object]) -> PlainValidator:
    """Validate a field with one of our own checks, whose messages name the field and the remedy."""

    def validate(value: Any, info: Any) -> object:
        return check(value, info.field_name or "")

    return PlainValidator(validate)


def _time(value: object, name: str) -> datetime:
    text = checks.require_text(value, name)
    try:
        time = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
        if time.tzinfo is not None:
            return time.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must be a time with its timezone, such as 2026-03-01T12:00:00+00:00, not {text!r}")


def _unpacked(value: object, name: str) -> Vector:
    with importing:
        import numpy as np

    try:
        numbers = np.frombuffer(base64.b64decode(checks.require_text(value, name), validate=True), dtype="<f4")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} is not the base64 text of 32-bit numbers: {error}") from None
    if len(numbers) == 0 or not np.isfinite(numbers).all():
        raise ValueError(f"{name} holds no numbers, or some that are not finite")
    return [float(number) for number in numbers]


_Text = Annotated[str, _checked(checks.require_text)]
_Key = Annotated[str, _checked(partial(checks.require_text, most=checks.MAX_KEY))]
_Namespace = Annotated[str, PlainValidator(checks.check_namespace)]
_Count = Annotated[int, Field(strict=True, ge=0, le=2**53)]
_Time = Annotated[datetime, _checked(_time)]
_CLOSED = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Header:
    """The first line: what the file is."""

    count: _Count
    """How many memories and values follow, roughly: other processes may have written during the export."""


@dataclass(frozen=True, slots=True)
class NamespaceLine:
    """The line with which a namespace begins."""

    __pydantic_config__ = _CLOSED
    namespace: _Namespace
    embeddings: Mapping[TableName, _Text]
    """The ids of the embeddings that made the vectors of its tables."""


@dataclass(frozen=True, slots=True)
class RecordLine:
    table: TableName
    record: MemoryRecord
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class ValueLine:
    """A value, saved state or mark of a namespace."""

    namespace: str
    space: Space
    name: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class End:
    """The last line."""

    __pydantic_config__ = _CLOSED
    count: _Count


Line = Header | NamespaceLine | RecordLine | ValueLine | End


class _RecordFields(TypedDict, total=False):
    """The fields of a record's line; one that an earlier version did not write is left out."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    shelf: Required[TableName]
    id: Required[_Text]
    namespace: Required[_Namespace]
    content: Required[_Text]
    kind: Annotated[str, _checked(checks.check_kind)]
    tags: Annotated[
        tuple[str, ...], _checked(lambda value, name: checks.check_tags(value, name, may_be_empty=True) or ())
    ]
    key: _Key | None
    source: Annotated[str, _checked(partial(checks.require_text, most=checks.MAX_SOURCE))] | None
    session: Annotated[str, PlainValidator(checks.check_session)] | None
    sequence: _Count | None
    origin: Origin
    created_at: Required[_Time]
    updated_at: _Time
    expires_at: _Time | None
    last_used_at: _Time | None
    uses: _Count
    pinned: Annotated[bool, Field(strict=True)]
    superseded_by: _Text | None
    superseded_at: _Time | None
    mime_type: Literal[MIME_TYPES]  # type: ignore[valid-type]
    metadata: Annotated[dict[str, Any], Field(strict=True), AfterValidator(checks.check_metadata)]
    vector: Annotated[Vector, _checked(_unpacked)]


class _ValueFields(TypedDict, total=False):
    """The fields of a value's line: its `value`, or its `text` where the value would not come back the same."""

    __pydantic_config__ = _CLOSED  # type: ignore[misc]
    namespace: Required[_Namespace]
    space: Required[Space]
    name: Required[_Key]
    at: _Time | None
    value: Annotated[Any, _checked(checks.encode_json)]
    text: _Text


def _check_format(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("format") != FORMAT:
        raise ValueError(f"it is not an export of {FORMAT}")
    version = given.get("version")
    if type(version) is not int or version < 0:
        raise ValueError(f"version must be a whole number, not {version!r}")
    if version > FORMAT_VERSION:
        raise SchemaVersionError(
            f"The export has format {version}; this version of {FORMAT} reads up to {FORMAT_VERSION}. Nothing was "
            f"imported. Upgrade it with: pip install --upgrade {FORMAT}"
        )
    return given


def _record_line(given: Any) -> RecordLine:
    table, vector = given.pop("shelf"), given.pop("vector", None)
    record = MemoryRecord(**{"updated_at": given["created_at"], **given})
    if record.mime_type == JSON:
        try:
            checks.decode_json(record.content)
        except ValueError as error:
            raise ValueError(f"its content is not {JSON}, which its mime_type promises: {error}") from None
    return RecordLine(table, record, vector)


def _value_line(given: Any) -> ValueLine:
    if ("value" in given) == ("text" in given):
        raise ValueError("it must have either a value or its text")
    text = given["value"] if "value" in given else given["text"]
    return ValueLine(given["namespace"], given["space"], given["name"], Entry(text, given.get("at")))


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_LINES: Mapping[str, TypeAdapter[Any]] = {
    "header": TypeAdapter(Annotated[Header, BeforeValidator(_check_format)]),
    "namespace": TypeAdapter(NamespaceLine),
    "record": TypeAdapter(Annotated[_RecordFields, AfterValidator(_record_line)]),
    "value": TypeAdapter(Annotated[_ValueFields, AfterValidator(_value_line)]),
    "end": TypeAdapter(End),
}


def from_line(text: str | bytes) -> Line:
    """Return what a line says, or raise a ValueError with what is wrong with it, for a newer version a SchemaVersionError."""
    if len(text) > checks.MAX_LINE_BYTES:
        raise ValueError(f"it is longer than {checks.MAX_LINE_BYTES:,} bytes")
    try:
        line = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(line, dict):
        raise ValueError(f"it is not a JSON object, but {type(line).__name__}")
    kind = line.pop("type", None)
    adapter = _LINES.get(kind) if isinstance(kind, str) else None
    if adapter is None:
        raise ValueError(f"its type is {kind!r}, and must be one of {', '.join(_LINES)}")
    try:
        found: Line = adapter.validate_python(line)
    except ValidationError as error:
        raise ValueError(_reason(error)) from None
    return found


def _reason(error: ValidationError) -> str:
    """Return what is wrong with a line, in the words of its first problem."""
    problems = error.errors(include_url=False)
    first = problems[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "missing":
        return f"it has no {name}"
    if first["type"] in _UNKNOWN:
        return f"it has unknown fields: {', '.join(str(one['loc'][0]) for one in problems if one['type'] in _UNKNOWN)}"
    return f"{first['msg'].replace('Input should be', f'{name} must be')}, not {repr(first['input'])[:200]}"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def to_line(line: Line) -> str:
    """Return a line of the file, with its line end."""
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


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def _readable(text: str) -> dict[str, Any]:
    """Return the value that a text encodes, or the text itself where the value would not come back the same."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        if checks.encode_json(value, "the value") == text:
            return {"value": value}
    except (ValueError, RecursionError):
        pass
    return {"text": text}


def _packed(vector: Vector) -> str:
    with importing:
        import numpy as np

    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode("ascii")
