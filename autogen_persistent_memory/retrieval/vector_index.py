"""Exact vector search in RAM, and the growing numpy columns that the indexes are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..runtime.threads import importing
from ..text.embeddings import Vector, Vectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Matrix = NDArray[np.float32]
    Slots = NDArray[np.integer[Any]]


_FIRST_ROOM = 4


class Column:
    """A numpy array with room for more rows of `width` numbers at its end; by default a row is one number."""

    __slots__ = ("_kind", "_room", "_width", "size")

    def __init__(self, kind: str, width: int | None = None) -> None:
        self._kind = kind
        self._width = width
        self._room: Any = None
        self.size = 0

    def put(self, row: int, value: Any) -> None:
        """Set the value of a row: an existing one, or the next."""
        if row == self.size:
            if self._room is None or self.size == len(self._room):
                self._room = larger(self._room, self._kind, self._width)
            self.size += 1
        self._room[row] = value

    def replace_by_last(self, row: int) -> None:
        """Remove a row by moving the last one to its place."""
        self.size -= 1
        self._room[row] = self._room[self.size]

    @property
    def view(self) -> Any:
        """The values, as a view that can be written."""
        if self._room is None:
            self._room = larger(None, self._kind, self._width)
        return self._room[: self.size]


def larger(room: Any, kind: str, width: int | None = None) -> Any:
    """Return an array with the same values and twice the room; a small empty one for None."""
    with importing:
        import numpy as np

    rows = _FIRST_ROOM if room is None else 2 * len(room)
    more = np.zeros(rows if width is None else (rows, width), dtype=kind)
    if room is not None:
        more[: len(room)] = room
    return more


_MOST_NUMBERS = 4_000_000
"""Numbers that a search may read: about two milliseconds and 16 MB. Beyond 10,000 vectors of MiniLM, Chroma's index is faster."""
_TINY = 1e-30


class VectorIndex:
    """The vectors of memories, made by one embedding, by the slots of the memories."""

    def __init__(self, embedding_id: str) -> None:
        self.embedding_id = embedding_id
        self._slots = Column("i4")
        self._row_of: dict[int, int] = {}
        self._rows: Column | None = None  # unit vectors
        self.dimensions: int | None = None
        """The length of its vectors; None before the first."""

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, slot: int) -> bool:
        return slot in self._row_of

    def has_room_for(self, count: int) -> bool:
        """Return whether this many vectors may be held; a guess before the first one."""
        return count * (self.dimensions or 1) <= _MOST_NUMBERS

    def put(self, slot: int, vector: Vector) -> None:
        """Add or replace the vector of a slot."""
        with importing:
            import numpy as np

        if self._rows is None:
            self.dimensions = len(vector)
            self._rows = Column("f4", self.dimensions)
        values = np.asarray(vector, dtype=np.float32)
        row = self._row_of.setdefault(slot, len(self._row_of))
        self._slots.put(row, slot)
        self._rows.put(row, values / (np.linalg.norm(values) or 1))

    def remove(self, slot: int) -> None:
        """Remove the vector of a slot, if there is one. The last row takes its place."""
        row = self._row_of.pop(slot, None)
        if row is None or self._rows is None:
            return
        for column in (self._slots, self._rows):
            column.replace_by_last(row)
        if row < len(self._row_of):
            self._row_of[int(self._slots.view[row])] = row

    def clear(self) -> None:
        """Remove all vectors, but keep their length."""
        self._slots, self._row_of = Column("i4"), {}
        if self.dimensions is not None:
            self._rows = Column("f4", self.dimensions)

    def renumbered(self, slot_of: Callable[[int], int | None]) -> VectorIndex:
        """Return the same vectors under other slots, without those that get none."""
        renumbered = VectorIndex(self.embedding_id)
        if self._rows is not None:
            for before, vector in zip(self._slots.view.tolist(), self._rows.view, strict=True):
                slot = slot_of(before)
                if slot is not None:
                    renumbered.put(slot, vector)
        return renumbered

    def nearest(
        self, vectors: Vectors, fetch: int, selected: Callable[[list[int]], list[bool] | None]
    ) -> list[tuple[Slots, Floats]]:
        """Return for each vector the slots of the nearest selected memories, with their cosine similarities.

        `selected` returns None if all are selected.
        """
        import numpy as np

        asked: Matrix = np.asarray(vectors, dtype=np.float32)
        if self._rows is None or not len(self) or not len(asked):
            return [(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)) for _ in vectors]
        lengths = np.sqrt(np.einsum("ij,ij->i", asked, asked))
        similarities = (asked / np.maximum(lengths, _TINY)[:, None]) @ self._rows.view.T
        return [self._best(row, fetch, selected) for row in similarities]

    def _best(
        self, similarities: Matrix, fetch: int, selected: Callable[[list[int]], list[bool] | None]
    ) -> tuple[Slots, Floats]:
        import numpy as np

        slots = self._slots.view
        best: list[Slots] = []
        left = fetch
        for rows in _falling(similarities, fetch):
            kept = selected(slots[rows].tolist())
            best.append((rows if kept is None else rows[kept])[:left])
            left -= len(best[-1])
            if not left:
                break
        rows = np.concatenate(best) if len(best) > 1 else best[0]
        return slots[rows], similarities[rows]


def _falling(values: Matrix, first: int) -> Iterator[Slots]:
    """Yield the positions of values by size: first the largest, in any order, then more and more at a time, in order."""
    import numpy as np

    start = 0
    if first < len(values):
        top = np.argpartition(values, -first)[-first:]
        yield top
        values = values.copy()
        values[top] = np.inf
        start = first
    falling = np.argsort(-values)
    size = first
    while start < len(values):
        yield falling[start : start + size]
        start, size = start + size, 2 * size
