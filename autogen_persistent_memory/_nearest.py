"""Search by meaning in RAM: exact, and for some thousands of memories faster than an index on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ._embeddings import Vector, Vectors
from ._threads import importing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

_MOST_NUMBERS = 4_000_000
"""What a search may read, about two milliseconds' worth and 16 MB: beyond 10,000 vectors of MiniLM Chroma's index is faster."""
_FIRST_ROWS = 64


class VectorIndex:
    """The vectors of some memories, all made by one embedding, by the ids of the memories."""

    def __init__(self, embedding_id: str) -> None:
        self.embedding_id = embedding_id
        self._ids: list[str] = []
        self._row_of: dict[str, int] = {}
        self._rows: Matrix | None = None  # unit vectors; with room for more than there are

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: str) -> bool:
        return id in self._row_of

    @property
    def dimensions(self) -> int | None:
        """How long its vectors are; None before the first."""
        return None if self._rows is None else int(self._rows.shape[1])

    def has_room_for(self, count: int) -> bool:
        """Whether so many vectors may be kept, as far as can be said before the first."""
        return count * (self.dimensions or 1) <= _MOST_NUMBERS

    def put(self, id: str, vector: Vector) -> None:
        """Keep a vector, in place of one of the same id."""
        with importing:
            import numpy as np

        row = self._row_of.setdefault(id, len(self._ids))
        if row == len(self._ids):
            self._ids.append(id)
        if self._rows is None:
            self._rows = np.empty((_FIRST_ROWS, len(vector)), dtype=np.float32)
        if row == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        values = np.asarray(vector, dtype=np.float32)
        self._rows[row] = values / (np.linalg.norm(values) or 1)

    def remove(self, id: str) -> None:
        """Drop the vector of that id, if there is one. The last one takes its place."""
        row = self._row_of.pop(id, None)
        if row is None or self._rows is None:
            return
        last = self._ids.pop()
        if last != id:
            self._ids[row], self._row_of[last] = last, row
            self._rows[row] = self._rows[len(self._ids)]

    def clear(self) -> None:
        """Drop all vectors, but not how long they are."""
        if self._rows is not None:
            self._rows = self._rows[:1].copy()
        self._ids, self._row_of = [], {}

    def nearest(self, vectors: Vectors, fetch: int, is_meant: Callable[[str], bool]) -> list[dict[str, float]]:
        """For each vector the nearest of those that are meant, nearest first, with their cosine similarity."""
        import numpy as np

        if self._rows is None or not len(vectors):
            return [{} for _ in vectors]
        asked: Matrix = np.asarray(vectors, dtype=np.float32)
        lengths = np.linalg.norm(asked, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        similarities = asked / lengths @ self._rows[: len(self._ids)].T
        return [self._best(row, fetch, is_meant) for row in similarities]

    def _best(self, similarities: Matrix, fetch: int, is_meant: Callable[[str], bool]) -> dict[str, float]:
        best: dict[str, float] = {}
        for row, similarity in _falling(similarities, 2 * fetch):
            if len(best) == fetch:
                break
            if is_meant(self._ids[row]):
                best[self._ids[row]] = similarity
        return best


def _falling(values: Matrix, first: int) -> Iterator[tuple[int, float]]:
    """Positions and values, from the largest down; the first of them without sorting all. Uses the values up."""
    import numpy as np

    left = len(values)
    if first < left:
        top = np.argpartition(values, -first)[-first:]
        top = top[np.argsort(-values[top])]
        yield from zip(top.tolist(), values[top].tolist(), strict=True)
        values[top] = -np.inf
        left -= first
    rest = np.argsort(-values)[:left]
    yield from zip(rest.tolist(), values[rest].tolist(), strict=True)
