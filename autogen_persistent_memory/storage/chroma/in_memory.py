"""Opens Chroma in the memory of this process, for tests and trials. Everything here blocks; call it in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..availability import CircuitBreaker
from .chroma_compat import keep_every_index

if TYPE_CHECKING:
    from chromadb.api import ClientAPI


class Ram:
    """Gives each id a database of its own in Chroma's one in-memory instance, which lives as long as the process."""

    local = True
    writers = 1
    folder = None

    def __init__(self, id: str) -> None:
        self._id = id
        self.breaker = CircuitBreaker()

    def identity(self) -> tuple[str, ...]:
        return "temporary", self._id

    def outbox(self, namespace: str) -> None:
        """What cannot be stored here could not be kept on this machine any better."""

    def open(self) -> ClientAPI:
        import chromadb
        from chromadb.api.client import AdminClient
        from chromadb.config import Settings
        from chromadb.errors import NotFoundError

        settings = Settings(is_persistent=False)  # as the user's own EphemeralClient(): Chroma refuses one that differs
        keep_every_index(settings)
        database = f"apm-{self._id.encode().hex()}"
        admin = AdminClient(settings)
        try:
            admin.get_database(database)
        except NotFoundError:
            admin.create_database(database)
        return chromadb.EphemeralClient(settings=settings, database=database)

    def close(self, client: ClientAPI) -> None:
        """Nothing is closed, since closing Chroma's last in-memory client would empty it."""

    def describe(self, error: BaseException) -> str:
        return f"Chroma cannot use its in-memory store: {error}. Use an EmbeddedStore on a temporary folder instead."
