"""Chroma's log of writes, and writes in it that it can never take in.

Chroma appends every write to a log, the table `embeddings_queue`, and then applies the log to its tables. It writes all
entries of a row's list with one SQL statement. A list that is too long for one fails, each time Chroma opens or writes the
collection, and holds up everything that was written after it. Only to be used while no Chroma has the database open.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.checks import MAX_TAGS
from ...core.errors import StoreUnavailableError

if TYPE_CHECKING:
    import sqlite3

_VARIABLES, _COLUMNS = 32_766, 6
MOST_LISTED = _VARIABLES // _COLUMNS
"""How many entries of a list SQLite lets Chroma write with one statement."""
_LEAST_BYTES = 3 * MOST_LISTED
"""What the JSON of a longer list takes at least, so that no other needs to be read."""


class BlockedStoreError(StoreUnavailableError):
    """Chroma cannot apply its log, so that a collection can neither be read nor written."""

    needs_developer = True


class BlockingWrite(NamedTuple):
    """A write in the log that holds up those after it."""

    number: int
    """Its number in the log."""
    id: str
    """The record that was written."""
    tags: int
    """How many tags it has."""


def is_blocked(error: BaseException | str) -> bool:
    """Return whether this is how Chroma fails, or what its server answers, where it cannot apply its log."""
    return "Failed to apply logs" in str(error)


def blocking_writes(database: sqlite3.Connection, applied: Mapping[str, int]) -> dict[str, list[BlockingWrite]]:
    """Return the writes that cannot be applied, by collection; `applied` tells up to which number each has been."""
    found: dict[str, list[BlockingWrite]] = defaultdict(list)
    for number, topic, id, metadata in database.execute(
        "SELECT seq_id, topic, id, metadata FROM embeddings_queue WHERE length(metadata) > ? ORDER BY seq_id",
        (_LEAST_BYTES,),
    ):
        collection = topic.rpartition("/")[2]
        tags = _tags(json.loads(metadata))
        if number > applied.get(collection, 0) and len(tags) > MOST_LISTED:
            found[collection].append(BlockingWrite(number, id, len(tags)))
    return found


def cut_tags(database: sqlite3.Connection, writes: Iterable[BlockingWrite]) -> None:
    """Leave the records of these writes as many tags as a record may have, so that Chroma can apply its log."""
    with database:
        for write in writes:
            (text,) = database.execute(
                "SELECT metadata FROM embeddings_queue WHERE seq_id = ?", (write.number,)
            ).fetchone()
            metadata = json.loads(text)
            kept = _tags(metadata)[:MAX_TAGS]
            record = json.dumps(json.loads(metadata["record"]) | {"tags": kept})
            database.execute(
                "UPDATE embeddings_queue SET metadata = ? WHERE seq_id = ?",
                (json.dumps(metadata | {"tags": kept, "record": record}, ensure_ascii=False), write.number),
            )


def _tags(metadata: Mapping[str, Any]) -> list[Any]:
    """Return the tags of a row; only rows of ours have a text `record` beside them."""
    tags = metadata.get("tags")
    return tags if isinstance(tags, list) and "record" in metadata else []
