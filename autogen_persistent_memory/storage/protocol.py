"""What a store has to be able to do, in the words of the domain. Chroma is behind it; see `storage.chroma.connection`.

A store is only a description: `connect()` gives a connection, which opens itself on first use, is shared by all
memories of the process that name the same store, and is let go with `close()`. A namespace has tables of its own on it:
one for the profile's records, one for the sessions', and one for values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

from ..core.component_configs import StoreConfig
from ..core.records import MemoryRecord, Selection
from ..text.embeddings import Vector, Vectors
from .availability import CircuitBreaker
from .outbox import Outbox

T = TypeVar("T")
TableName = Literal["profile", "session"]
Space = Literal["value", "state", "mark", "summary", "import"]
"""Values are the user's own; states are what teams and agents need to go on; marks tell how far facts were drawn; summaries
are what models wrote of conversations; imports tell what imported memories were merged into."""
Near = dict[str, float]
"""Ids, each with its cosine similarity to what was searched for."""
Embed = Callable[[Sequence[MemoryRecord]], Awaitable[Vectors]]
"""Makes the vectors of records."""
TABLES: tuple[TableName, ...] = ("profile", "session")
ANY_EMBEDDING = ""
"""The id, which no real one can have, of an embedding that fits every table, for reading and deleting: it makes no vectors."""


class Stored(NamedTuple):
    """A table of a namespace, or its values, as it describes itself."""

    namespace: str
    table: TableName | Literal["values"]
    embedding: str
    """The id of the embedding that made its vectors."""
    schema: int


class Entry(NamedTuple):
    """A named text, and when it was written (None if that was before times were kept)."""

    text: str
    at: datetime | None


class RecordTable(Protocol):
    """The records of one namespace and kind of memory, with their vectors.

    Reading a table that was never written finds nothing and creates nothing.
    """

    async def add(self, records: Sequence[MemoryRecord], vectors: Vectors) -> None:
        """Store new records with their vectors."""

    async def put(self, records: Sequence[MemoryRecord], vectors: Vectors) -> None:
        """Store records with their vectors, replacing those of the same id."""

    async def amend(self, records: Sequence[MemoryRecord]) -> None:
        """Store changed fields of records that are there already; content and vectors stay."""

    async def touch(self, records: Sequence[MemoryRecord]) -> None:
        """Store only `uses` and `last_used_at`, so that a counter never undoes what another process changed."""

    async def get(self, ids: Sequence[str]) -> list[MemoryRecord]:
        """The records with these ids, as far as they exist."""

    async def select(self, selection: Selection) -> list[MemoryRecord]:
        """All records the selection means, in no particular order."""

    async def nearest(
        self, vectors: Vectors, selection: Selection, *, fetch: int, thorough: bool = False
    ) -> list[Near]:
        """For each vector the ids of the nearest rows, nearest first, with their cosine similarity.

        The selection is a hint that spares reading what it does not mean; more so when `thorough`, which takes longer.
        """

    async def remove(self, ids: Sequence[str]) -> int:
        """Delete these records for good; how many there were."""

    async def check(self) -> None:
        """Make sure that this version may change what is there.

        Raises:
            SchemaVersionError: A newer one wrote it.
        """

    async def check_fit(self) -> None:
        """Make sure that this version and this embedding can use what is there.

        Raises:
            SchemaVersionError: A newer version wrote it.
            EmbeddingMismatchError: Another embedding made its vectors.
        """

    async def clear(self) -> None:
        """Delete all records for good."""

    async def rebuild(self, embed: Embed, done: Callable[[int], None], *, keep: bool = False) -> None:
        """Make all vectors anew, whatever embedding made the old ones; or keep those that are there and drop the dead.

        `done` hears of each batch. Interrupted at any point, the table is either as it was or complete.
        """

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of these records, as far as they exist."""

    async def mend(self, embed: Embed) -> int:
        """Make vectors again for some of the rows that lost theirs; how many are left. Hold the namespace's lock meanwhile.

        Before the first, those that were put back from a damaged index are compared with what the embedding makes.
        """

    async def verify(self, ids: Sequence[str], embed: Embed) -> bool:
        """Return whether a sample of these rows has the vectors that the embedding makes of them."""

    async def reindex(self, ids: Sequence[str], embed: Embed) -> None:
        """Make vectors anew for these rows. Hold the namespace's lock meanwhile."""

    async def settle(self) -> None:
        """Wait until everything is written that is being written now, also by tasks that were cancelled."""

    async def ids(self) -> list[str]:
        """The ids of all rows."""

    async def size(self) -> int:
        """How many rows there are, those that are no longer current included, whatever embedding made them."""


class Values(Protocol):
    """Named pieces of JSON text of one namespace, of any size, in separate spaces."""

    async def check(self) -> None:
        """As `RecordTable.check`."""

    async def put(self, space: Space, name: str, text: str, at: datetime | None = None) -> None:
        """Store a text under a name, replacing what was there; as of a time, if not now."""

    async def revise(self, space: Space, name: str, change: Callable[[str], str | None]) -> None:
        """Replace the text of that name by what `change`, called in a thread, makes of it; None leaves it as it is.

        Nobody else in this process can write it in between.
        """

    async def entry(self, space: Space, name: str) -> Entry | None:
        """The text of that name, and when it was written."""

    async def get(self, space: Space, name: str) -> str | None:
        """The text of that name."""

    async def names(self, space: Space) -> list[str]:
        """The names in a space."""

    async def all(self, space: Space) -> dict[str, str]:
        """Every text of a space, by name."""

    async def remove(self, space: Space, name: str) -> bool:
        """Delete the text of that name; whether there was one."""

    async def empty(self, space: Space) -> None:
        """Delete everything in a space."""

    async def clear(self) -> None:
        """Delete everything in every space."""


class Connection(Protocol):
    """An open line to a store."""

    async def prepare(self) -> None:
        """Do now the part of opening that is slow the first time and work of this machine alone."""

    def table(self, namespace: str, name: TableName, embedding_id: str) -> RecordTable:
        """A table of a namespace, whose vectors are made by the embedding of that id."""

    def values(self, namespace: str) -> Values:
        """The values of a namespace."""

    async def namespaces(self) -> list[str]:
        """Every namespace that holds anything."""

    async def inventory(self) -> list[Stored]:
        """What there is of each namespace, in order."""

    async def embeddings(self) -> dict[str, dict[TableName, str]]:
        """Of every namespace that holds anything the ids of the embeddings that made the vectors of its tables."""

    async def alone(self, work: Callable[[], T]) -> T:
        """Run what blocks in a thread, while no call of this process to the store is under way; those that come wait."""

    def lock(self, namespace: str) -> AbstractAsyncContextManager[None]:
        """Keeps the writers of this process to a namespace from interleaving."""

    async def shared(self, name: str, make: Callable[[], T]) -> T:
        """An object that all memories of this process on this store share under a name, made on first use."""

    @property
    def exclusive(self) -> bool:
        """Whether no other process can write to this store."""

    def keeps_in(self, folder: Path) -> bool:
        """Whether its data is in this folder, whose path must be the real one. Blocks: call it in a thread."""

    @property
    def breaker(self) -> CircuitBreaker:
        """Whether the store can be reached, as far as this process knows."""

    def outbox(self, namespace: str) -> Outbox | None:
        """Where what cannot be stored for now is kept, if the store is not on this machine."""

    async def close(self) -> None:
        """Let go of the store. A second time does nothing."""


class MemoryStore(Protocol):
    """Where memories live."""

    @property
    def config(self) -> StoreConfig:
        """The declarative form, from which an equal store can be made."""

    def connect(self) -> Connection:
        """A connection to it. Does nothing yet."""
