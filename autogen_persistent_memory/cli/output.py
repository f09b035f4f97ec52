"""What commands print: tables for people, one JSON object a line for programs, and control characters always escaped."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..core.records import MemoryRecord

SHORT_ID = 8
MESSAGE = "interaction"
"""The kind of captured messages."""
_CELL_LENGTH = 200
_PIPE_WIDTH = 10_000
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, which could move the cursor or colour the terminal, and marks that change the text's direction."""

Row = Sequence[object]


class Printer:
    """Prints results on stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._console = Console(highlight=False, emoji=False, markup=False, soft_wrap=False)
        if not self._console.is_terminal:
            self._console.width = _PIPE_WIDTH  # a pipe has no edge to wrap at

    def table(self, columns: Sequence[str], rows: Iterable[Row]) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold", min_width=len(column))
        for row in rows:
            table.add_row(*(Text(one_line(cell)) for cell in row))
        self._print(table)

    def rows(self, columns: Sequence[str], objects: Sequence[Mapping[str, Any]]) -> None:
        """Print objects, as JSON or as the rows of a table."""
        if self.as_json:
            self.objects(objects)
        else:
            self.table(columns, [tuple(item.values()) for item in objects])

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print names and values, a line each, without the empty ones; texts keep their line breaks."""
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in ((name, shown(value)) for name, value in pairs):
            if text:
                table.add_row(name, Text(text))
        self._print(table)

    def records(self, records: Sequence[MemoryRecord]) -> None:
        """Print memories, a line each."""
        if self.as_json:
            self.objects(map(fields_of, records))
            return
        columns = ["id", "kind", "content", "tags", "source", "written"]
        if records and all(record.kind == MESSAGE for record in records):  # whose texts are long
            columns = ["id", "source", "content", "written"]
        if any(record.superseded_by for record in records):
            columns.append("replaced by")
        self.table(columns, ([_cells(record)[column] for column in columns] for record in records))

    def line(self, text: str, style: str = "") -> None:
        self._print(Text(printable(text), style=style))

    def objects(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Print JSON objects, one a line."""
        for item in objects:
            sys.stdout.write(to_json(item) + "\n")
        sys.stdout.flush()

    def _print(self, what: Table | Text) -> None:
        with self._console.capture() as captured:
            self._console.print(what)
        for line in captured.get().splitlines():
            sys.stdout.write(line.rstrip() + "\n")
        sys.stdout.flush()


def note(text: str, end: str = "\n") -> None:
    """Print a text on stderr."""
    sys.stderr.write(printable(text) + end)
    sys.stderr.flush()


def confirmed(question: str) -> bool | None:
    """Ask on the terminal and return whether the user said yes, or None if there is no terminal."""
    if not sys.stdin.isatty():
        return None
    note(f"{question} [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def printable(text: str) -> str:
    r"""Escape the control characters of a text.

    >>> printable("\x1b[31mred")
    '\\x1b[31mred'
    """
    return _UNSAFE.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}", text
    )


def one_line(value: object) -> str:
    """Format a value for a table's cell: on one line, cut to 200 characters."""
    text = " ".join(shown(value).split())
    return text if len(text) <= _CELL_LENGTH else text[: _CELL_LENGTH - 1].rstrip() + "…"


def shown(value: object) -> str:
    """Format a value for people."""
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, Mapping):
        return printable(json.dumps(value, ensure_ascii=False)) if value else ""
    if isinstance(value, (list, tuple)):
        return printable(", ".join(map(str, value)))
    return printable(str(value))


def to_json(value: object) -> str:
    """Format a value as JSON on one line, with its control characters escaped."""
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def fields_of(item: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without descending into them."""
    return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _cells(record: MemoryRecord) -> dict[str, object]:
    return {
        **fields_of(record),
        "id": record.id[:SHORT_ID],
        "written": record.created_at,
        "replaced by": (record.superseded_by or "")[:SHORT_ID],
    }
