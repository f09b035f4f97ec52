"""What can be seen of our collections through Chroma itself, where there is no folder to look into."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ._collection import vectors_of
from ._index_files import IndexFiles
from ._inspection import InspectedCollection, Inspection
from ._rows import is_ours

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

_PAGE = 500


def survey(client: ClientAPI) -> Inspection:
    """Look at every collection of ours, and whether each of its rows has a vector."""
    found: list[InspectedCollection] = []
    foreign = offset = 0
    while page := client.list_collections(limit=_PAGE, offset=offset):
        offset += len(page)
        ours = [collection for collection in page if is_ours(collection.name, collection.metadata)]
        foreign += len(page) - len(ours)
        found += [_survey(client.get_collection(collection.name, embedding_function=None)) for collection in ours]
    return Inspection(tuple(found), foreign=foreign)


def _survey(collection: Collection) -> InspectedCollection:
    problem: str | None = None
    rows: list[str] = []
    indexed: list[str] = []
    try:
        rows = list(collection.get(include=[])["ids"])
        for start in range(0, len(rows), _PAGE):
            indexed += vectors_of(collection, rows[start : start + _PAGE])
    except Exception as error:  # whatever Chroma makes of an index it cannot read
        problem = f"Chroma cannot read it ({error})"
    return InspectedCollection(
        id=str(collection.id),
        name=collection.name,
        metadata=dict(collection.metadata or {}),
        rows=frozenset(rows),
        index=IndexFiles(Path(), 0, problem=problem, labels=dict.fromkeys(indexed, 0)),
    )
