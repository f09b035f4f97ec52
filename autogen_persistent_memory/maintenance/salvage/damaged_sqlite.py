"""A damaged SQLite file, read without SQLite, which refuses it.

A row is reached through the tree of its table. Where a page of a tree is gone, all pages below it are out of reach, though
most of them are still there. Such strays are known by what their rows look like, and taken where the tree has a gap for
just these rows: what was deleted lies about in pages without a tree, too, and is not to come back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .sqlite_pages import (
    INDEX_INNER,
    INDEX_LEAF,
    TABLE_INNER,
    TABLE_LEAF,
    Bytes,
    Lost,
    Range,
    Row,
    Shape,
    SqliteFile,
    Value,
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
