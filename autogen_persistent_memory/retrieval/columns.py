"""Arrays that grow: what an index in RAM knows of its memories, a row each."""

from __future__ import annotations

from typing import Any

from ..runtime.threads import importing

_FIRST_ROOM = 4


class Column:
    """A numpy array with room for more rows at its end.

    Args:
        kind: The numpy type of its numbers.
        width: How many numbers a row has; by default a row is one number.
    """

    __slots__ = ("_kind", "_room", "_width", "size")

    def __init__(self, kind: str, width: int | None = None) -> None:
        self._kind = kind
        self._width = width
        self._room: Any = None
        self.size = 0

    def put(self, row: int, value: Any) -> None:
        """Give a row a value: one that is there, or the next."""
        if row == self.size:
            self.append(value)
        else:
            self._room[row] = value

    def append(self, value: Any) -> None:
        """Add a row."""
        if self._room is None or self.size == len(self._room):
            self._room = larger(self._room, self._kind, self._width)
        self._room[self.size] = value
        self.size += 1

    def replace_by_last(self, row: int) -> None:
        """Drop a row. The last one takes its place."""
        self.size -= 1
        self._room[row] = self._room[self.size]

    @property
    def view(self) -> Any:
        """The values, to read and to change."""
        if self._room is None:
            self._room = larger(None, self._kind, self._width)
        return self._room[: self.size]


def larger(room: Any, kind: str, width: int | None = None) -> Any:
    """An array with the same values and as much room again; None for one that is new."""
    with importing:
        import numpy as np

    rows = _FIRST_ROOM if room is None else 2 * len(room)
    more = np.zeros(rows if width is None else (rows, width), dtype=kind)
    if room is not None:
        more[: len(room)] = room
    return more
