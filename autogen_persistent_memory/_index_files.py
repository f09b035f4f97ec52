"""Chroma's vector index of one collection, as it lies on disk, read without Chroma.

Chroma trusts these files: on some that were cut short it crashes the process, on others it silently finds nothing. It
writes them in place, one after another, so that a process killed meanwhile leaves them out of step. What can be known of
them without loading them is checked here. Blocks, and is called in threads.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_HEADER = struct.Struct("<i6Qii3QdQ")
_VERSION = 1
_NEIGHBOURS = 16
_LABEL_BYTES = 8
HEADER, ELEMENTS, NORMS, LINKS, IDS = INDEX_FILES = (
    "header.bin",
    "data_level0.bin",
    "length.bin",
    "link_lists.bin",
    "index_metadata.pickle",
)


@dataclass(frozen=True)
class IndexFiles:
    """What an index holds, as far as it can be read."""

    folder: Path
    dimensions: int
    problem: str | None = None
    """Why Chroma must not load it, if so."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """The ids that have a vector, each with the number of its element."""
    elements: int = 0
    """How many vectors there are, deleted ones included."""

    @property
    def dead(self) -> int:
        """How many of the vectors belong to nothing any more."""
        return max(0, self.elements - len(self.labels))

    def vectors(self, ids: Collection[str]) -> dict[str, npt.NDArray[np.float32]]:
        """The vectors of these ids that are still there, also in files that Chroma cannot load."""
        import numpy as np

        wanted = {self.labels[id]: id for id in ids if id in self.labels}
        if not wanted:
            return {}
        table = _elements(self.folder, _Layout.of(self.dimensions), None)
        norms = np.fromfile(self.folder / NORMS, dtype="<f4") if (self.folder / NORMS).exists() else np.empty(0)
        found: dict[str, npt.NDArray[np.float32]] = {}
        for row, label in enumerate(table["label"].tolist()):
            if label in wanted:
                vector = np.array(table["vector"][row], dtype=np.float32)
                norm = norms[row] if row < len(norms) and np.isfinite(norms[row]) and norms[row] > 0 else 1.0
                if np.isfinite(vector).all() and vector.any():
                    found[wanted[label]] = vector * np.float32(norm)
        return found


def read_index(folder: Path, dimensions: int) -> IndexFiles:
    """Read and check the index in a folder, of vectors of that many numbers.

    The file of ids is written last: where it is not, Chroma takes nothing from the others, and begins an index anew.
    """
    if not (folder / IDS).exists():
        return IndexFiles(folder, dimensions)
    missing = [name for name in INDEX_FILES if not (folder / name).is_file()]
    try:
        labels = _read_labels(folder / IDS)
    except _BrokenError as error:
        return IndexFiles(folder, dimensions, problem=str(error))
    if missing:
        return IndexFiles(folder, dimensions, problem=f"{', '.join(missing)} is missing", labels=labels)
    try:
        return IndexFiles(folder, dimensions, labels=labels, elements=_check(folder, dimensions, labels))
    except _BrokenError as error:
        return IndexFiles(folder, dimensions, problem=str(error), labels=labels)


class _BrokenError(Exception):
    """Why an index cannot be loaded."""


@dataclass(frozen=True)
class _Layout:
    """Where things are in the file of elements."""

    dimensions: int
    neighbours: int
    """How many neighbours an element has at most, on the lowest level."""

    @classmethod
    def of(cls, dimensions: int, neighbours: int = 2 * _NEIGHBOURS) -> _Layout:
        return cls(dimensions, neighbours)

    @property
    def vector_at(self) -> int:
        return 4 * (1 + self.neighbours)

    @property
    def label_at(self) -> int:
        return self.vector_at + 4 * self.dimensions

    @property
    def size(self) -> int:
        return self.label_at + _LABEL_BYTES

    @property
    def dtype(self) -> np.dtype[Any]:
        import numpy as np

        return np.dtype(
            [
                ("count", "<u2"),
                ("flags", "<u2"),
                ("links", "<u4", (self.neighbours,)),
                ("vector", "<f4", (self.dimensions,)),
                ("label", "<u8"),
            ]
        )


def _read_labels(path: Path) -> dict[str, int]:
    try:
        with path.open("rb") as file:
            labels = _PlainUnpickler(file).load()["id_to_label"]
        return {str(id): int(label) for id, label in labels.items()}
    except Exception as error:  # whatever a cut pickle makes of itself
        raise _BrokenError(f"{path.name} cannot be read ({type(error).__name__}: {error})") from error


class _PlainUnpickler(pickle.Unpickler):
    """Reads dicts, texts and numbers, which is all Chroma writes, and runs nothing."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it refers to {module}.{name}")


def _check(folder: Path, dimensions: int, labels: Mapping[str, int]) -> int:
    """How many elements a sound index holds."""
    import numpy as np

    header = (folder / HEADER).read_bytes()
    if len(header) < _HEADER.size:
        raise _BrokenError(f"{HEADER} is cut short")
    fields = _HEADER.unpack(header[: _HEADER.size])
    version, _, room, count, size, label_at, vector_at, levels, entry, upper, lowest = fields[:11]
    layout = _Layout.of(dimensions, lowest) if 0 < lowest < 1 << 16 else _Layout.of(dimensions)
    told = (size, label_at, vector_at)
    if version != _VERSION or told != (layout.size, layout.label_at, layout.vector_at) or count > room:
        raise _BrokenError(f"{HEADER} makes no sense for vectors of {dimensions} numbers")
    if count and not 0 <= entry < count:
        raise _BrokenError(f"{HEADER} names an element that is not there")
    if (folder / NORMS).stat().st_size < 4 * count:
        raise _BrokenError(f"{NORMS} is cut short")
    table = _elements(folder, layout, count)
    counts = table["count"]
    linked = np.arange(lowest) < counts[:, None]
    if (counts > lowest).any() or (table["links"][linked] >= count).any():
        raise _BrokenError(f"{ELEMENTS} links to elements that are not there")
    known = set(table["label"].tolist())
    if not known.issuperset(labels.values()):
        raise _BrokenError(f"{ELEMENTS} lacks vectors that {IDS} names")
    _check_links(np.fromfile(folder / LINKS, dtype="<u4"), count, upper, levels)
    return int(count)


def _elements(folder: Path, layout: _Layout, count: int | None) -> npt.NDArray[Any]:
    """The table of elements; as many as there are whole ones, if it is not known how many there should be."""
    import numpy as np

    path = folder / ELEMENTS
    there = path.stat().st_size // layout.size if path.exists() else 0
    if count is not None and there < count:
        raise _BrokenError(f"{ELEMENTS} is cut short: {there} of {count} vectors")
    rows = there if count is None else count
    if rows == 0:
        return np.empty(0, dtype=layout.dtype)
    return np.memmap(path, dtype=layout.dtype, mode="r", shape=(rows,))


def _check_links(words: npt.NDArray[np.uint32], count: int, upper: int, levels: int) -> None:
    """Walk through the links of the upper levels: for each element how many bytes, and the links of each level."""
    width = 1 + upper
    at = 0
    sizes = words.tolist()
    for _ in range(count):
        if at >= len(sizes):
            raise _BrokenError(f"{LINKS} is cut short")
        size = sizes[at]
        at += 1
        if size == 0:
            continue
        height, rest = divmod(size, 4 * width)
        if rest or height > max(levels, 0) or at + size // 4 > len(sizes):
            raise _BrokenError(f"{LINKS} is cut short or makes no sense")
        for level in range(at, at + size // 4, width):
            degree = sizes[level] & 0xFFFF
            if degree > upper or any(link >= count for link in sizes[level + 1 : level + 1 + degree]):
                raise _BrokenError(f"{LINKS} links to elements that are not there")
        at += size // 4
