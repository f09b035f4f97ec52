"""Migrations of what earlier versions stored. Each is applied once to every collection, before anything of it is read.

A collection's metadata names the migrations that were applied to it. Every migration is a new schema: a collection of schema 3
has had the first two. Before a migration starts, the collection gets the new schema, so that no older version opens it half
changed; afterwards the migration's name is added. If it is interrupted, it is applied again from the beginning.

To change how rows are stored: append a `Migration`, and add a store of the schema before it to tests/data/stores. On a
server, stop all processes of the older version first: rows that they write after the migration are not changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.errors import SchemaVersionError
from .chroma_compat import bare_collection

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

logger = logging.getLogger("autogen_persistent_memory")

Metadata = dict[str, Any]
_SCHEMA, _MADE = "apm_schema", "apm_migrations"
_READ_PAGE = 500
_WRITE_CHUNK = 10
_one_at_a_time = threading.Lock()


class Migration(NamedTuple):
    """A change to rows. It must not change a row that it has changed before."""

    name: str
    """What it does, in words joined by dashes. Recorded in the stores, so it must never change."""
    tables: tuple[str, ...]
    """Which collections it changes: profile, session, values."""
    change: Callable[[Metadata], Metadata]
    """Returns the new metadata of a row."""


MIGRATIONS: list[Migration] = [
    # Existing rows stay as they are, but an older version would see only the beginnings of new long ones.
    Migration("pack-the-rest-of-long-contents", tables=(), change=dict),
]
"""In the order in which they are applied. Only ever append to it."""


def schema_version() -> int:
    """Return the schema in which this version stores."""
    return 1 + len(MIGRATIONS)


def up_to_date_stamp() -> Metadata:
    """Return what the metadata of a collection says about its schema, if it is this version's."""
    return _stamp([migration.name for migration in MIGRATIONS])


def is_newer(metadata: Mapping[str, Any] | None) -> bool:
    """Return whether a newer version than this one wrote or changed a collection."""
    schema = (metadata or {}).get(_SCHEMA)
    known = {migration.name for migration in MIGRATIONS}
    return not isinstance(schema, int) or schema > schema_version() or not known.issuperset(_made(metadata))


def check_schema(metadata: Mapping[str, Any] | None, namespace: str) -> None:
    """Make sure that this version can read a collection.

    Raises:
        SchemaVersionError: A newer version wrote it.
    """
    if is_newer(metadata):
        raise SchemaVersionError(
            f"The memories of {namespace!r} were written with schema {(metadata or {}).get(_SCHEMA)}; this version of "
            f"autogen-persistent-memory reads up to {schema_version()}. Nothing was changed. Upgrade it with: "
            "pip install --upgrade autogen-persistent-memory"
        )


def migrated(client: ClientAPI, collection: Collection, table: str) -> Collection:
    """Apply all outstanding migrations to a collection, and return it. Blocks."""
    if not _outstanding(collection.metadata):
        return collection
    with _one_at_a_time:
        collection = bare_collection(client, collection.name)  # as the first one left it
        for migration in _outstanding(collection.metadata):
            logger.info("Bringing collection %s up to date: %s", collection.name, migration.name)
            made = _made(collection.metadata)
            collection.modify(metadata=dict(collection.metadata) | {_SCHEMA: schema_version()})
            if table in migration.tables:
                _change_rows(collection, migration.change)
            collection.modify(metadata=dict(collection.metadata) | _stamp([*made, migration.name]))
    return collection


def up_to_date_row(row: Metadata, metadata: Mapping[str, Any], table: str) -> Metadata:
    """Return a row of a collection with that metadata, after all outstanding migrations."""
    for migration in _outstanding(metadata):
        row = migration.change(row) if table in migration.tables else row
    return row


def _outstanding(metadata: Mapping[str, Any] | None) -> list[Migration]:
    made = _made(metadata)
    return [migration for migration in MIGRATIONS if migration.name not in made]


def _made(metadata: Mapping[str, Any] | None) -> list[str]:
    return str((metadata or {}).get(_MADE, "")).split()


def _stamp(made: list[str]) -> Metadata:
    """Return the metadata that names these migrations. Chroma stores no lists there."""
    return {_SCHEMA: schema_version(), _MADE: " ".join(made)}


def _change_rows(collection: Collection, change: Callable[[Metadata], Metadata]) -> None:
    ids = collection.get(include=[])["ids"]
    for start in range(0, len(ids), _READ_PAGE):
        page = collection.get(ids=ids[start : start + _READ_PAGE], include=["metadatas"])
        rows = {id: dict(row) for id, row in zip(page["ids"], page["metadatas"] or [], strict=True)}
        wanted = {id: change(dict(row)) for id, row in rows.items()}
        changed = [id for id, row in rows.items() if wanted[id] != row]
        for first in range(0, len(changed), _WRITE_CHUNK):
            chunk = changed[first : first + _WRITE_CHUNK]
            gone = [dict.fromkeys(rows[id]) for id in chunk]  # None makes Chroma drop a key
            collection.update(ids=chunk, metadatas=[old | wanted[id] for old, id in zip(gone, chunk)])
