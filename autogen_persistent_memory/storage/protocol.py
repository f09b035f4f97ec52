"""What a store must be able to do, and what it may be able to do: the contract for a backend.

A `MemoryStore` describes where memories live; `connect()` makes a `Connection`. A namespace has two tables of records
(`profile` and `session`) and one of named values. The required members are those of `MemoryStore`, `Connection`,
`RecordTable` and `ValueTable`; everything else that the package needs is derived from them in `storage.connection`.
To test a backend, run `autogen_persistent_memory.testing.StoreConformance` on it.

A backend that can do more offers a capability, which the package tests for with `isinstance`:

| capability | without it |
| --- | --- |
| `Identified` | stores with equal configs are the same store |
| `Exclusive` | other processes may write, so every recall looks for their changes |
| `Preparable` | the first call opens the store |
| `Remote` | the store counts as reachable, and nothing is queued while it is not |
| `Countable` | ids are listed to count them |
| `Rebuildable` | `reembed()` and `compact()` raise an error |

Every method may be called from any event loop, and must not block it. What goes wrong is raised as a
`PersistentMemoryError` whose message says what to do next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel

from ..core.records import MemoryRecord, Selection
from ..text.embeddings import Vector, Vectors
from .availability import CircuitBreaker
from .outbox import Outbox

TableName = Literal["profile", "session"]
Part: TypeAlias = TableName | Literal["values"]
"""What a namespace consists of: two tables of records, and its values."""
Space = Literal["value", "state", "mark", "summary", "import"]
"""`value`: the user's own values; `state`: saved states of teams and agents; `mark`: how far facts were extracted;
`summary`: what models wrote about conversations; `import`: which memories imported ones were merged into."""
Near = dict[str, float]
"""Ids, each with its cosine similarity to the query."""
Embed = Callable[[Sequence[MemoryRecord]], Awaitable[Vectors]]
"""Makes the vectors of records."""
TABLES: tuple[TableName, ...] = ("profile", "session")
PARTS: tuple[Part, ...] = (*TABLES, "values")
ANY_EMBEDDING = ""
"""The embedding id, which no real embedding can have, that fits every table: for reading and deleting, not for writing."""


class Stored(NamedTuple):
    """A table of a namespace, or its values, as the store describes it."""

    namespace: str
    table: Part
    embedding: str
    """The id of the embedding that made its vectors."""
    schema: int
    """The version of the stored format."""


class Entry(NamedTuple):
    """A named text, and when it was written (None if it was written before times were stored)."""

    text: str
    at: datetime | None


class MemoryStore(Protocol):
    """Where memories live."""

    @property
    def config(self) -> BaseModel:
        """The declarative form. It is the same after a restart."""

    def connect(self) -> Connection:
        """Return a connection, without opening anything yet."""


class Connection(Protocol):
    """A connection to a store, which opens itself on first use."""

    def table(self, namespace: str, name: TableName, embedding_id: str) -> RecordTable:
        """Return a table of a namespace, whose vectors are made by the embedding of that id."""

    def values(self, namespace: str) -> ValueTable:
        """Return the values of a namespace."""

    async def inventory(self) -> list[Stored]:
        """Return what the store holds, ordered by namespace and table."""

    async def drop(self, namespace: str, parts: Sequence[Part]) -> None:
        """Delete parts of a namespace with everything in them, so that the inventory no longer lists them.

        Raises:
            SchemaVersionError: A newer version wrote one of them. Nothing was deleted.
        """

    async def close(self) -> None:
        """Close the connection. Closing it twice does nothing."""


class RecordTable(Protocol):
    """The records of one namespace and kind of memory, with their vectors.

    Reading a table that was never written finds nothing and creates nothing.

    Raises:
        SchemaVersionError: From every method, if a newer version wrote the table.
        EmbeddingMismatchError: From every method, if another embedding made its vectors. Even `vectors([])` raises it:
            this is how opening a memory checks the table.
    """

    async def put(self, records: Sequence[MemoryRecord], vectors: Vectors, *, new: bool = False) -> None:
        """Store records with their vectors, replacing those with the same ids; `new` says that there are none."""

    async def amend(self, records: Sequence[MemoryRecord], *, usage_only: bool = False) -> None:
        """Store changed fields of stored records; contents and vectors stay. Ids that are not stored are ignored.

        With `usage_only` only `uses` and `last_used_at` are written, so that counting uses never reverts what another
        process changed.
        """

    async def get(self, ids: Sequence[str]) -> list[MemoryRecord]:
        """Return the records with these ids that exist, in any order."""

    async def select(self, selection: Selection) -> list[MemoryRecord]:
        """Return all records that match the selection (see `Selection.matches`), in any order."""

    async def nearest(
        self, vectors: Vectors, selection: Selection, *, fetch: int, thorough: bool = False
    ) -> list[Near]:
        """Return for each vector up to `fetch` nearest rows, nearest first, with their cosine similarity.

        The selection is a hint: rows that do not match may be left out or not. `thorough` asks to leave out more of them,
        even if that takes longer; the caller asks so when too few of the nearest rows matched.
        """

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the vectors of these records, by id, as far as they exist."""

    async def remove(self, ids: Sequence[str]) -> int:
        """Delete these records for good; return how many existed."""

    async def ids(self) -> list[str]:
        """Return the ids of all records, including those that writes which are under way now will have added.

        A write whose task was cancelled may still be under way.
        """


class ValueTable(Protocol):
    """Named texts of one namespace, of any size, in separate spaces. The caller serialises writes within the process.

    Raises:
        SchemaVersionError: From every method, even `get(space, [])`, if a newer version wrote them.
    """

    async def put(self, space: Space, name: str, entry: Entry) -> None:
        """Store a text under a name, replacing the former one."""

    async def get(self, space: Space, names: Sequence[str] | None = None) -> dict[str, Entry]:
        """Return the texts with these names that exist, by name; by default all of the space."""

    async def names(self, space: Space) -> list[str]:
        """Return the names in a space, in any order."""

    async def remove(self, space: Space, name: str) -> bool:
        """Delete the text with that name; return whether it existed."""

    async def clear(self, space: Space) -> None:
        """Delete everything in a space."""


# Optional capabilities


@runtime_checkable
class Identified(Protocol):
    """A connection whose store has an identity beyond its config, as a folder has that several paths lead to."""

    async def identity(self) -> Hashable:
        """Return what is equal for two connections to the same data: they share locks and caches."""


@runtime_checkable
class Exclusive(Protocol):
    """A connection that knows whether other processes can write to its store."""

    @property
    def exclusive(self) -> bool:
        """Whether only this process can write, so that its caches are always right."""


@runtime_checkable
class Preparable(Protocol):
    """A connection whose opening takes long."""

    async def prepare(self) -> None:
        """Do the part of opening that is slow the first time, without waiting for a server."""


@runtime_checkable
class Remote(Protocol):
    """A connection to a store that may be out of reach for a while."""

    @property
    def breaker(self) -> CircuitBreaker:
        """Whether the store is reachable, which all connections of the process to it share."""

    def outbox(self, namespace: str) -> Outbox | None:
        """Return the queue on this machine's disk for what cannot be stored now, if there is to be one."""


@runtime_checkable
class Countable(Protocol):
    """A table that can count its records without listing them."""

    async def size(self) -> int:
        """Return how many records there are, also when another embedding made their vectors."""


@runtime_checkable
class Rebuildable(Protocol):
    """A table whose vectors can be replaced as a whole, and that finds vectors lost to a crash."""

    async def rebuild(self, embed: Embed, done: Callable[[int], None], *, keep: bool = False) -> None:
        """Make all vectors again, also those of another embedding; with `keep` only the missing ones, dropping dead ones.

        `done` is called with the size of each batch. Interrupted at any point, the table is either unchanged or complete.
        """

    async def mend(self, embed: Embed) -> int:
        """Make some of the vectors again that were lost; return how many are still missing. Hold the namespace's lock."""
