"""The pages of a SQLite file, and the rows on them, whatever has become of it.

Nothing here trusts what it reads: any page may be gone, cut short, or overwritten with anything. The format is told in
https://sqlite.org/fileformat2.html
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

_MAGIC = b"SQLite format 3\0"
_FILE_HEADER, _PAGE_HEADER = 100, 12
_USUAL_PAGE_SIZE = 4096
INDEX_INNER, TABLE_INNER, INDEX_LEAF, TABLE_LEAF = _KINDS = 2, 5, 10, 13
_INNER = (INDEX_INNER, TABLE_INNER)
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_CONSTANTS = {0: None, 8: 0, 9: 1}
_FLOAT, _FIRST_LONG = 7, 12
_OVERWRITTEN = bytes(8)
"""No text has so many of these in a row."""

Shape = Sequence[str]
"""For each column what may be in it: (n)othing, an (i)nteger, a (f)loat, (t)ext, (b)ytes."""


class Lost(Enum):
    """What stands for a value that cannot be read."""

    LOST = "lost"


Value = int | float | str | bytes | Lost | None
Row = tuple[Any, ...]
"""Values, of which each may be lost."""
Range = tuple[float, float]
"""Numbers of rows: above the first, up to the second."""
_LETTERS: dict[type, str] = {type(None): "n", int: "i", float: "f", str: "t", bytes: "b"}


class Bytes(Protocol):
    """A file in memory, or mapped into it."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...


class SqliteFile:
    """A file as pages, of which any may be gone, cut short or overwritten."""

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
        """A page of a tree."""
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
        """What is on pages that follow one another, the first four bytes of each naming the next."""
        seen: set[int] = set()
        while number not in seen and (content := self._content(number)[: self.usable]):
            seen.add(number)
            yield content[4:]
            if len(content) < self.usable:
                return
            number = int.from_bytes(content[:4], "big")

    def unused_pages(self) -> set[int]:
        """The pages that hold nothing any more: each of a chain, and those that it lists."""
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
        """What is left of a page; nothing of one that was filled with zeros."""
        data = self._data[(number - 1) * self._page_size : number * self._page_size] if number > 0 else b""
        return data if any(data) else b""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a tree; of no kind if it cannot be read."""

    file: SqliteFile
    number: int
    kind: int
    data: bytes
    cells: tuple[int, ...]
    """Where they begin."""
    last_child: int

    def belongs_to(self, shape: Shape | None) -> bool:
        """Whether it may be a page of a tree whose rows have that shape, or any."""
        if shape is None or self.kind == TABLE_INNER or not self.cells:
            return self.kind != 0
        return any(self.rows(shape))

    def children(self, numbers: Range) -> Iterator[tuple[int, Range]]:
        """The pages below it, each with the numbers its rows may have, where all rows below it may have these."""
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
        """Its rows of that shape with their numbers; 0 in an index, where a row itself tells its number."""
        for cell in self.cells if self.kind != TABLE_INNER else ():
            try:
                size, at = _varint(self.data, cell + 4 if self.kind == INDEX_INNER else cell)
                number, at = _varint(self.data, at) if self.kind == TABLE_LEAF else (0, at)
                row = _decoded(self._payload(at, size))
                row += (None,) * (len(shape) - len(row))  # columns that were added to the table later
            except (IndexError, ValueError):
                continue
            if _fits(row, shape):
                yield number, row

    def _payload(self, at: int, size: int) -> bytes:
        """What is left of a row of that size, which begins here and may go on elsewhere."""
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
    """The number that begins there, and where it ends."""
    number = 0
    for last in range(at, at + 8):
        number = number << 7 | data[last] & 0x7F
        if data[last] < 0x80:
            return number, last + 1
    return number << 8 | data[at + 8], at + 9


def _decoded(payload: bytes) -> Row:
    """The values of a row. First it says what they are.

    Raises:
        IndexError: It ends before it has said so.
        ValueError: It makes no sense.
    """
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
    """A text, unless part of it was overwritten, with zeros or with anything else."""
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
    """The rows of a table by their numbers, and where rows may be missing: above the one number, up to the other."""

    rows: dict[int, Row]
    gaps: Sequence[Range]

    def lacks(self, number: int) -> bool:
        """Whether a row of this number may have been there, and cannot be read in full."""
        if number in self.rows:
            return Lost.LOST in self.rows[number]
        before = bisect_left(self.gaps, (number,)) - 1
        return before >= 0 and number <= self.gaps[before][1]


class DamagedDatabase:
    """The tables and indexes that have these names and shapes, as far as they can be read."""

    def __init__(self, data: Bytes, shapes: Mapping[str, Shape]) -> None:
        self._file = SqliteFile(data)
        self._shapes = shapes
        self._reached: set[int] = set()
        self._unused = self._file.unused_pages()
        self.knows_what_was_deleted = len(self._unused) == self._file.unused_count
        """Whether every unused page is known to be one, so that nothing in it can be mistaken for a stray."""
        schema = self._read(self._tree(1, _SCHEMA), _SCHEMA)
        roots = {row[1]: row[3] for row in schema.rows.values()}
        self._trees = {name: self._tree(roots.get(name), shape) for name, shape in shapes.items()}
        for name in roots.keys() - shapes.keys():  # so that their pages are not taken for strays
            self._tree(roots[name], None)

    def table(self, name: str, *, strays: bool = True) -> Table:
        """The rows of a table; with or without those that are not reached through its tree."""
        return self._read(self._trees[name], self._shapes[name], strays=strays)

    def index(self, name: str) -> Iterator[Row]:
        """The entries of an index, each ending with the number of its row. Some may be of rows that were deleted."""
        shape = self._shapes[name]
        for number in (*self._trees[name].pages, *self._strays(shape, (INDEX_LEAF, INDEX_INNER))):
            yield from (row for _, row in self._file.page(number).rows(shape))

    def remnants(self, name: str) -> Iterator[tuple[int, Row]]:
        """Rows of a table with their numbers that lie about in pages of no tree, most of them deleted long ago."""
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
        """The pages of these kinds and that shape that are neither unused nor reached through a tree."""
        for number in range(2, self._file.page_count + 1):
            if number not in self._reached and number not in self._unused:
                page = self._file.page(number)
                if page.kind in kinds and page.belongs_to(shape):
                    yield number


@dataclass
class _Tree:
    pages: dict[int, Range] = field(default_factory=dict)
    """Those that hold rows, and the numbers that these may have."""
    gaps: list[Range] = field(default_factory=list)


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """The ranges in order, those that overlap as one."""
    joined: list[Range] = []
    for above, last in sorted(ranges):
        if joined and above <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((above, last))
    return joined
