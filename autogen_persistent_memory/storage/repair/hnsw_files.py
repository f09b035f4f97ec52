"""The files of a Chroma vector index (hnswlib), checked and read without Chroma.

Chroma trusts these files: on some that were cut short it crashes the process, on others it silently finds nothing. It
writes them in place, one after another, so that a process killed meanwhile leaves files that do not agree. Blocks; call it
in a thread.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_HEADER = struct.Struct("<i6Qii3QdQ")
_VERSION = 1
_MOST_NEIGHBOURS = 1 << 10
_TRIED_ROWS = 256
_UNIT_TOLERANCE = 1e-3
INDEX_FILES = ("header.bin", "data_level0.bin", "length.bin", "link_lists.bin", "index_metadata.pickle")
HEADER, ELEMENTS, NORMS, LINKS, IDS = INDEX_FILES


@dataclass(frozen=True)
class IndexFiles:
    """An index, as far as it can be read."""

    folder: Path
    dimensions: int
    problem: str | None = None
    """Why Chroma must not load it, or None."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """The ids that have a vector, each with the number of its element."""
    elements: int = 0
    """How many vectors there are, deleted ones included."""

    @property
    def dead(self) -> int:
        """How many of the vectors belong to deleted rows."""
        return max(0, self.elements - len(self.labels))

    def vectors(self, ids: Collection[str]) -> dict[str, npt.NDArray[np.float32]]:
        """Return the vectors of these ids that are still there, also from files that Chroma cannot load.

        Chroma stores vectors of unit length; anything else was overwritten, or is not a vector, and is left out. Where the
        file of lengths is cut short, a vector keeps unit length, which is enough for a search by cosine.
        """
        import numpy as np

        wanted = {self.labels[id]: id for id in ids if id in self.labels}
        element = _find_element(self.folder, self.dimensions, self.labels) if wanted else None
        if element is None:
            return {}
        table = _elements(self.folder, element)
        rows = np.flatnonzero(np.isin(table["label"], list(wanted)))
        vectors = np.array(table["vector"][rows], dtype=np.float32)
        with np.errstate(all="ignore"):
            is_unit = np.abs(np.linalg.norm(vectors, axis=1) - 1) < _UNIT_TOLERANCE
        norms = _norms(self.folder, len(table))[rows]
        labels = table["label"][rows].tolist()
        return {wanted[labels[at]]: vectors[at] * norms[at] for at in np.flatnonzero(is_unit)}


def read_index(folder: Path, dimensions: int) -> IndexFiles:
    """Read and check the index in a folder, of vectors of that many dimensions.

    The file of ids is written last: without it Chroma ignores the others and starts a new index.
    """
    if not (folder / IDS).exists():
        return IndexFiles(folder, dimensions)
    labels: dict[str, int] = {}
    try:
        labels = _read_labels(folder / IDS)
        missing = [name for name in INDEX_FILES if not (folder / name).is_file()]
        if missing:
            raise _BrokenError(f"{', '.join(missing)} is missing")
        return IndexFiles(folder, dimensions, labels=labels, elements=_check(folder, dimensions, labels))
    except _BrokenError as error:
        return IndexFiles(folder, dimensions, problem=str(error), labels=labels)


class _BrokenError(Exception):
    """Why an index cannot be loaded."""


class _Header(NamedTuple):
    """The fields of the header, in the order in which hnswlib writes them."""

    version: int
    first: int
    room: int
    elements: int
    size: int
    label_at: int
    vector_at: int
    levels: int
    entry: int
    upper: int
    """How many neighbours an element has at most on the levels above the lowest."""
    lowest: int
    """How many it has on the lowest."""
    neighbours: int
    multiplier: float
    breadth: int


def _element(dimensions: int, neighbours: int) -> np.dtype[Any]:
    """Return the layout of one element in the file of elements, with room for its neighbours on the lowest level."""
    import numpy as np

    counts = [("count", "<u2"), ("flags", "<u2"), ("links", "<u4", (neighbours,))]
    return np.dtype([*counts, ("vector", "<f4", (dimensions,)), ("label", "<u8")])


def _read_labels(path: Path) -> dict[str, int]:
    try:
        with path.open("rb") as file:
            labels = _PlainUnpickler(file).load()["id_to_label"]
        return {str(id): int(label) for id, label in labels.items()}
    except Exception as error:  # a pickle that was cut short raises all sorts of errors
        raise _BrokenError(f"{path.name} cannot be read ({type(error).__name__}: {error})") from error


class _PlainUnpickler(pickle.Unpickler):
    """Reads dicts, texts and numbers, which is all that Chroma writes, and runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it refers to {module}.{name}")


def _check(folder: Path, dimensions: int, labels: Mapping[str, int]) -> int:
    """Return how many elements an intact index holds."""
    import numpy as np

    header = _read_header(folder)
    element = _told_element(header, dimensions)
    count, lowest = header.elements, header.lowest
    if count and not 0 <= header.entry < count:
        raise _BrokenError(f"{HEADER} names an element that is not there")
    if (folder / NORMS).stat().st_size < 4 * count:
        raise _BrokenError(f"{NORMS} is cut short")
    there = _elements(folder, element)
    if len(there) < count:
        raise _BrokenError(f"{ELEMENTS} is cut short: {len(there)} of {count} vectors")
    table = there[:count]
    counts = table["count"]
    linked = np.arange(lowest) < counts[:, None]
    if (counts > lowest).any() or (table["links"][linked] >= count).any():
        raise _BrokenError(f"{ELEMENTS} links to elements that are not there")
    if not set(table["label"].tolist()).issuperset(labels.values()):
        raise _BrokenError(f"{ELEMENTS} lacks vectors that {IDS} names")
    _check_links(np.fromfile(folder / LINKS, dtype="<u4"), count, header.upper, header.levels)
    return count


def _read_header(folder: Path) -> _Header:
    header = (folder / HEADER).read_bytes()
    if len(header) < _HEADER.size:
        raise _BrokenError(f"{HEADER} is cut short")
    return _Header(*_HEADER.unpack_from(header))


def _told_element(header: _Header, dimensions: int) -> np.dtype[Any]:
    """Return the layout that the header describes, which must fit vectors of that many dimensions."""
    if header.version == _VERSION and 0 < header.lowest <= _MOST_NEIGHBOURS and header.elements <= header.room:
        element = _element(dimensions, header.lowest)
        at = {name: place[1] for name, place in (element.fields or {}).items()}
        if (header.size, header.label_at, header.vector_at) == (element.itemsize, at["label"], at["vector"]):
            return element
    raise _BrokenError(f"{HEADER} does not fit vectors of {dimensions} dimensions")


def _find_element(folder: Path, dimensions: int, labels: Mapping[str, int]) -> np.dtype[Any] | None:
    """Return the layout that the header describes; without a header, the one in which most labels are known."""
    import numpy as np

    if not dimensions:
        return None
    try:
        return _told_element(_read_header(folder), dimensions)
    except (_BrokenError, OSError):
        pass
    known = list(labels.values())

    def recognised(element: np.dtype[Any]) -> int:
        return int(np.isin(_elements(folder, element)["label"][:_TRIED_ROWS], known).sum())

    found = max((_element(dimensions, count) for count in range(2, _MOST_NEIGHBOURS + 1, 2)), key=recognised)
    return found if recognised(found) else None


def _elements(folder: Path, element: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the table of the elements that are complete."""
    import numpy as np

    path = folder / ELEMENTS
    rows = path.stat().st_size // element.itemsize if path.exists() else 0
    return np.memmap(path, dtype=element, mode="r", shape=(rows,)) if rows else np.empty(0, dtype=element)


def _norms(folder: Path, count: int) -> npt.NDArray[np.float32]:
    """Return the lengths that vectors had before Chroma normalised them; 1 where they are lost."""
    import numpy as np

    norms = np.ones(count, dtype=np.float32)
    if (folder / NORMS).exists():
        stored = np.fromfile(folder / NORMS, dtype="<f4", count=count)
        is_length = np.isfinite(stored) & (stored > 0)
        norms[: len(stored)][is_length] = stored[is_length]
    return norms


def _check_links(words: npt.NDArray[np.uint32], count: int, upper: int, levels: int) -> None:
    """Check the links of the upper levels: for each element their size in bytes, then the links of each level."""
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
            raise _BrokenError(f"{LINKS} is cut short or invalid")
        for level in range(at, at + size // 4, width):
            degree = sizes[level] & 0xFFFF
            if degree > upper or any(link >= count for link in sizes[level + 1 : level + 1 + degree]):
                raise _BrokenError(f"{LINKS} links to elements that are not there")
        at += size // 4
