"""What can be seen of our collections through Chroma itself, where there is no folder to look into."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..chroma.chroma_compat import bare_collection
from ..chroma.collection import vectors_of
from ..chroma.rows import is_ours
from ..chroma.write_log import is_blocked
from .hnsw_files import IndexFiles
from .inspection import InspectedCollection, Inspection

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

_PAGE = 500
_NO_ROW = "apm:no-such-row"


def survey(client: ClientAPI) -> Inspection:
    """Look at every collection of ours, and whether each of its rows has a vector."""
    found: list[InspectedCollection] = []
    foreign = offset = 0
    while page := client.list_collections(limit=_PAGE, offset=offset):
        offset += len(page)
        ours = [collection for collection in page if is_ours(collection.name, collection.metadata)]
        foreign += len(page) - len(ours)
        found += [_survey(bare_collection(client, collection.name)) for collection in ours]
    return Inspection(tuple(found), foreign=foreign)


def _survey(collection: Collection) -> InspectedCollection:
    problem: str | None = None
    blocked = False
    rows: list[str] = []
    indexed: list[str] = []
    try:
        rows = list(collection.get(include=[])["ids"])
        for start in range(0, len(rows), _PAGE):
            indexed += vectors_of(collection, rows[start : start + _PAGE])
        _try_to_write(collection)
    except Exception as error:  # whatever Chroma makes of an index it cannot read
        blocked = is_blocked(error)
        problem = None if blocked else f"Chroma cannot read it ({error})"
    return InspectedCollection(
        id=str(collection.id),
        name=collection.name,
        metadata=dict(collection.metadata or {}),
        rows=frozenset(rows),
        is_blocked=blocked,
        index=IndexFiles(Path(), 0, problem=problem, labels=dict.fromkeys(indexed, 0)),
    )


def _try_to_write(collection: Collection) -> None:
    """Delete a row that does not exist: a server that cannot apply its log fails, though it may still read what it has in RAM."""
    try:
        collection.delete(ids=[_NO_ROW])
    except Exception as error:
        if is_blocked(error):
            raise
