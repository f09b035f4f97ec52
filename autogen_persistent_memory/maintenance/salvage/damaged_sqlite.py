"""Read the tables of a damaged SQLite file, page by page. Pure functions.

Any page may be missing, cut short or overwritten, so nothing that is read is trusted. The format is described in
https://sqlite.org/fileformat2.html
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from mmap import mmap
from typing import Any

_MAGIC = b"SQLite format 3\0"
_FILE_HEADER, _PAGE_HEADER = 100, 12
_USUAL_PAGE_SIZE = 4096
INDEX_INNER, TABLE_INNER, INDEX_LEAF, TABLE_LEAF = _KINDS = 2, 5, 10, 13
_INNER = (INDEX_INNER, TABLE_INNER)
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_CONSTANTS = {0: None, 8: 0, 9: 1}
_FLOAT, _FIRST_LONG = 7, 12
_OVERWRITTEN = bytes(8)
"""Eight zero bytes occur in no text, so a text that holds them was overwritten."""

Shape = Sequence[str]
"""For each column the types it may hold: (n)one, (i)nteger, (f)loat, (t)ext, (b)ytes."""


class Lost(Enum):
    """Stands for a value that cannot be read."""

    LOST = "lost"


Value = int | float | str | bytes | Lost | None
Bytes = bytes | mmap
Row = tuple[Any, ...]
"""Values, each of which may be `Lost.LOST`."""
Range = tuple[float, float]
"""Row numbers: above the first, up to the second."""
_LETTERS: dict[type, str] = {type(None): "n", int: "i", float: "f", str: "t", bytes: "b"}


class SqliteFile:
    """A file as pages, any of which may be missing, cut short or overwritten."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        header = data[:_FILE_HEADER] if data[: len(_MAGIC)] == _MAGIC else b""
        size = int.from_bytes(header[16:18], "big")
        self._page_size = 65536 if size == 1 else size if size >= 512 else _USUAL_PAGE_SIZE
        self.usable = self._page_size - int.from_bytes(header[20:21], "big")
        self._first_unused = int.from_bytes(header[32:36], "big")
        self.unused_count = int.from_bytes(header[36:40], "big") if header else None
        self.page_count = -(-len(data) // self._page_size)

    def page(self, number: int) -> Page:
        """Return a page of a tree; of kind 0 if it is none."""
        data = self._content(number)
        at = _FILE_HEADER if number == 1 else 0
        kind = data[at] if len(data) >= at + _PAGE_HEADER else 0
        first = at + (_PAGE_HEADER if kind in _INNER else _PAGE_HEADER - 4)
        count = int.from_bytes(data[at + 3 : at + 5], "big")
        pointers = data[first : first + 2 * count]
        if kind not in _KINDS or len(pointers) < 2 * count:
            return Page(self, number, 0, b"", (), 0)
        last_child = int.from_bytes(data[first - 4 : first], "big")
        return Page(self, number, kind, data, struct.unpack(f">{count}H", pointers), last_child)

    def chain(self, number: int) -> Iterator[bytes]:
        """Yield the contents of a chain of pages, in which the first four bytes of each page name the next."""
        seen: set[int] = set()
        while number not in seen and (content := self._content(number)[: self.usable]):
            seen.add(number)
            yield content[4:]
            if len(content) < self.usable:
                return
            number = int.from_bytes(content[:4], "big")

    def unused_pages(self) -> set[int]:
        """Return the pages of the free list: the chain of its trunk pages, and the leaves that they list."""
        unused: set[int] = set()
        number = self._first_unused
        while number and number not in unused:
            unused.add(number)
            content = self._content(number)
            words = struct.iter_unpack(">I", content[: len(content) // 4 * 4])
            number, count, *listed = (*(word for (word,) in words), 0, 0)
            unused.update(listed[:count])
        return unused

    def _content(self, number: int) -> bytes:
        """Return what is left of a page; a page of zeros counts as empty."""
        data = self._data[(number - 1) * self._page_size : number * self._page_size] if number > 0 else b""
        return data if any(data) else b""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a tree; of kind 0 if it cannot be read."""

    file: SqliteFile
    number: int
    kind: int
    data: bytes
    cells: tuple[int, ...]
    """Where the cells begin."""
    last_child: int

    def belongs_to(self, shape: Shape | None) -> bool:
        """Return whether it can be a page of a tree whose rows have this shape; None means any shape."""
        if shape is None or self.kind == TABLE_INNER or not self.cells:
            return self.kind != 0
        return any(self.rows(shape))

    def children(self, numbers: Range) -> Iterator[tuple[int, Range]]:
        """Yield the pages below it, each with the range of its row numbers, which all lie in `numbers`."""
        above, last = numbers
        for cell in self.cells if self.kind in _INNER else ():
            child = int.from_bytes(self.data[cell : cell + 4], "big")
            try:
                until = _varint(self.data, cell + 4)[0] if self.kind == TABLE_INNER else last
            except IndexError:
                child, until = 0, last
            yield child, (above, until)
            above = until if self.kind == TABLE_INNER else above
        if self.kind in _INNER:
            yield self.last_child, (above, last)

    def rows(self, shape: Shape) -> Iterator[tuple[int, Row]]:
        """Yield its rows of this shape with their numbers; 0 in an index, where a row holds its number itself."""
        for cell in self.cells if self.kind != TABLE_INNER else ():
            try:
                size, at = _varint(self.data, cell + 4 if self.kind == INDEX_INNER else cell)
                number, at = _varint(self.data, at) if self.kind == TABLE_LEAF else (0, at)
                row = _decoded(self._payload(at, size))
                row += (None,) * (len(shape) - len(row))  # columns added to the table later
            except (IndexError, ValueError):
                continue
            if _fits(row, shape):
                yield number, row

    def _payload(self, at: int, size: int) -> bytes:
        """Return what is left of a row that begins here and may continue on overflow pages."""
        usable = self.file.usable
        most = usable - 35 if self.kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return self.data[at : at + size]
        least = (usable - 12) * 32 // 255 - 23
        here = least + (size - least) % (usable - 4)
        end = at + (here if here <= most else least)
        payload = bytearray(self.data[at:end])
        for part in self.file.chain(int.from_bytes(self.data[end : end + 4], "big")):
            payload += part
            if len(payload) >= size:
                break
        return bytes(payload[:size])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins there, and where it ends."""
    number = 0
    for last in range(at, at + 8):
        number = number << 7 | data[last] & 0x7F
        if data[last] < 0x80:
            return number, last + 1
    return number << 8 | data[at + 8], at + 9


def _decoded(payload: bytes) -> Row:
    """Return the values of a row, whose types are listed at its beginning; a list that is cut short is an IndexError."""
    end, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    row: list[Value] = []
    for kind in kinds:
        size = (kind - _FIRST_LONG) // 2 if kind >= _FIRST_LONG else _SIZES[kind]
        row.append(_value(kind, payload[at : at + size]) if at + size <= len(payload) else Lost.LOST)
        at += size
    return tuple(row)


def _value(kind: int, data: bytes) -> Value:
    if kind >= _FIRST_LONG:
        return _text(data) if kind % 2 else data
    if kind == _FLOAT:
        return float(struct.unpack(">d", data)[0])
    return _CONSTANTS[kind] if kind in _CONSTANTS else int.from_bytes(data, "big", signed=True)


def _text(data: bytes) -> str | Lost:
    """Return a text, unless part of it was overwritten."""
    try:
        return data.decode() if _OVERWRITTEN not in data else Lost.LOST
    except UnicodeDecodeError:
        return Lost.LOST


def _fits(row: Row, shape: Shape) -> bool:
    return len(row) == len(shape) and all(
        value is Lost.LOST or _LETTERS[type(value)] in letters for value, letters in zip(row, shape)
    )


_SCHEMA = ("t", "t", "t", "i", "tn")
_ANY_NUMBER: Range = (float("-inf"), float("inf"))


@dataclass(frozen=True)
class Table:
    """The rows of a table by their numbers, and the ranges in which rows may be missing."""

    rows: dict[int, Row]
    gaps: Sequence[Range]

    def lacks(self, number: int) -> bool:
        """Return whether a row of this number may have existed and cannot be read completely."""
        if number in self.rows:
            return Lost.LOST in self.rows[number]
        before = bisect_left(self.gaps, (number,)) - 1
        return before >= 0 and number <= self.gaps[before][1]


class DamagedDatabase:
    """The tables and indexes of a damaged file that have these names and shapes."""

    def __init__(self, data: Bytes, shapes: Mapping[str, Shape]) -> None:
        self._file = SqliteFile(data)
        self._shapes = shapes
        self._reached: set[int] = set()
        self._unused = self._file.unused_pages()
        self.knows_what_was_deleted = len(self._unused) == self._file.unused_count
        """Whether the free list is complete; otherwise deleted rows may be mistaken for strays."""
        schema = self._read(self._tree(1, _SCHEMA), _SCHEMA)
        roots = {row[1]: row[3] for row in schema.rows.values()}
        self._trees = {name: self._tree(roots.get(name), shape) for name, shape in shapes.items()}
        for name in roots.keys() - shapes.keys():  # so that their pages do not count as strays
            self._tree(roots[name], None)

    def table(self, name: str, *, strays: bool = True) -> Table:
        """Return the rows of a table, with or without those on pages that its tree does not reach."""
        return self._read(self._trees[name], self._shapes[name], strays=strays)

    def index(self, name: str) -> Iterator[Row]:
        """Yield the entries of an index, each ending with the number of its row; the row may have been deleted."""
        shape = self._shapes[name]
        for number in (*self._trees[name].pages, *self._strays(shape, (INDEX_LEAF, INDEX_INNER))):
            yield from (row for _, row in self._file.page(number).rows(shape))

    def remnants(self, name: str) -> Iterator[tuple[int, Row]]:
        """Yield rows with their numbers from pages outside of any tree; most of them were deleted long ago."""
        shape = self._shapes[name]
        for number in (*self._strays(shape, (TABLE_LEAF,)), *self._unused):
            yield from self._file.page(number).rows(shape)

    def _read(self, tree: _Tree, shape: Shape, *, strays: bool = True) -> Table:
        rows: dict[int, Row] = {}
        gaps = list(tree.gaps)
        for number, numbers in tree.pages.items():
            page = self._file.page(number)
            found = dict(page.rows(shape))
            rows |= found
            if len(found) < len(page.cells):
                gaps.append(numbers)
        table = Table(rows, _joined(gaps))
        for number in self._strays(shape, (TABLE_LEAF,)) if strays and gaps else ():
            found = dict(self._file.page(number).rows(shape))
            rows |= {key: row for key, row in found.items() if key not in rows and table.lacks(key)}
        return table

    def _tree(self, root: Value, shape: Shape | None) -> _Tree:
        tree = _Tree()
        waiting: list[tuple[Value, Range]] = [(root, _ANY_NUMBER)]
        while waiting:
            number, numbers = waiting.pop()
            page = self._file.page(number) if isinstance(number, int) and number not in self._reached else None
            if page is None or not page.belongs_to(shape):
                tree.gaps.append(numbers)
                continue
            self._reached.add(page.number)
            if page.kind != TABLE_INNER:
                tree.pages[page.number] = numbers
            waiting += page.children(numbers)
        return tree

    def _strays(self, shape: Shape, kinds: tuple[int, ...]) -> Iterator[int]:
        """Yield the pages of these kinds and this shape that are neither free nor reached through a tree."""
        for number in range(2, self._file.page_count + 1):
            if number not in self._reached and number not in self._unused:
                page = self._file.page(number)
                if page.kind in kinds and page.belongs_to(shape):
                    yield number


@dataclass
class _Tree:
    pages: dict[int, Range] = field(default_factory=dict)
    """The pages that hold rows, with the range of their numbers."""
    gaps: list[Range] = field(default_factory=list)


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges in order, overlapping ones merged."""
    joined: list[Range] = []
    for above, last in sorted(ranges):
        if joined and above <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((above, last))
    return joined
