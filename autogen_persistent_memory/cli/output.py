"""What commands print: tables for people, one JSON object a line for programs. Stored text is shown, never obeyed."""

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
_LONGEST_CELL = 200
_PIPE_WIDTH = 10_000
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, with which a text could move the cursor or colour the terminal, and those that turn its direction."""

Row = Sequence[object]


class Printer:
    """Prints results on stdout, and everything else on stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._console = Console(highlight=False, emoji=False, markup=False, soft_wrap=False)
        if not self._console.is_terminal:
            self._console.width = _PIPE_WIDTH  # whoever reads it has no edge to wrap at

    def table(self, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Print a table."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold", min_width=len(column))
        for row in rows:
            table.add_row(*(Text(one_line(cell)) for cell in row))
        self._print(table)

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print what something is, a line for each of its sides that is not empty; texts keep their lines."""
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in ((name, shown(value)) for name, value in pairs):
            if text:
                table.add_row(name, Text(text))
        self._print(table)

    def line(self, text: str, style: str = "") -> None:
        """Print a line."""
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


def note(text: str) -> None:
    """Say something on stderr."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def asked(question: str) -> bool | None:
    """Whether the user says yes, or None where there is no terminal to ask at."""
    if not sys.stdin.isatty():
        return None
    sys.stderr.write(printable(f"{question} [y/N] "))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def printable(text: str) -> str:
    """A text that does nothing to the terminal but appear on it."""
    return _UNSAFE.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}", text
    )


def one_line(value: object) -> str:
    """A value in a cell of a table: on one line, and not too long."""
    text = " ".join(shown(value).split())
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1].rstrip() + "…"


def shown(value: object) -> str:
    """A value as people read it."""
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
    """JSON on one line, safe to look at."""
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def fields_of(item: Any) -> dict[str, Any]:
    """A record, or another of our frozen things, with its own names."""
    return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_records(printer: Printer, records: Sequence[MemoryRecord]) -> None:
    """Print memories, a line each."""
    if printer.as_json:
        printer.objects(map(fields_of, records))
        return
    columns = ["id", "kind", "content", "tags", "source", "written"]
    rows: list[Row] = [
        (record.id[:SHORT_ID], record.kind, record.content, record.tags, record.source, record.created_at)
        for record in records
    ]
    if records and all(record.kind == MESSAGE for record in records):  # whose lines are long
        columns = ["id", "source", "content", "written"]
        rows = [(record.id[:SHORT_ID], record.source, record.content, record.created_at) for record in records]
    if any(record.superseded_by for record in records):
        columns.append("replaced by")
        rows = [(*row, (record.superseded_by or "")[:SHORT_ID]) for row, record in zip(rows, records)]
    printer.table(columns, rows)
