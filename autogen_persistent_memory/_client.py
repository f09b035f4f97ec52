"""The one Chroma client this process has for a store: opened lazily in a thread, shared, counted, closed with its last user.

Everything here that talks to Chroma runs in threads of our own. What Chroma raises leaves as an error of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from ._errors import EmbeddingMismatchError, PersistentMemoryError, StoreUnavailableError
from ._threads import DaemonPool, importing

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

T = TypeVar("T")
_READERS = 8


class ClientSource(Protocol):
    """What knows how to open a client. Its methods block, and are called in threads."""

    @property
    def writers(self) -> int:
        """How many threads may write at a time."""

    def identity(self) -> tuple[str, ...]:
        """Equal for two sources of the same data."""

    def open(self) -> ClientAPI:
        """Open a client."""

    def close(self, client: ClientAPI) -> None:
        """Close a client."""

    def describe(self, error: BaseException) -> str:
        """What is wrong and what to do next, when Chroma raised this."""


class ClientLine:
    """All that the memories of this process share of one store."""

    def __init__(self, source: ClientSource) -> None:
        self.source = source
        self._readers = DaemonPool(_READERS, "autogen-memory-read")
        self._writers = DaemonPool(source.writers, "autogen-memory-write")
        self._mutex = threading.Lock()
        self._client: ClientAPI | None = None
        self._pid = os.getpid()
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._locks: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, weakref.WeakValueDictionary[str, asyncio.Lock]
        ] = weakref.WeakKeyDictionary()

    async def call(self, use: Callable[[ClientAPI], T], *, writes: bool = False) -> T:
        """Run `use` with the client in a thread.

        Raises:
            PersistentMemoryError: Chroma failed; the message says what to do.
        """
        pool = self._writers if writes else self._readers
        return await asyncio.get_running_loop().run_in_executor(pool, self._guarded, use)

    async def leave(self, user: object) -> None:
        """One user less; the last one closes the client."""
        await asyncio.get_running_loop().run_in_executor(self._writers, self._leave, user)

    @contextlib.asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """A lock by name, for the tasks of the running event loop."""
        locks = self._locks.setdefault(asyncio.get_running_loop(), weakref.WeakValueDictionary())
        lock = locks.get(name)
        if lock is None:
            lock = locks[name] = asyncio.Lock()
        async with lock:
            yield

    def join(self, user: object) -> None:
        """One user more, unless it is one already."""
        with self._mutex:
            self._users.add(user)

    def _leave(self, user: object) -> None:
        with self._mutex:
            self._users.discard(user)
            if not self._users and self._client is not None:
                client, self._client = self._client, None
                self.source.close(client)

    def _guarded(self, use: Callable[[ClientAPI], T]) -> T:
        try:
            return use(self._opened())
        except PersistentMemoryError:
            raise
        except BaseException as error:
            raise _translated(error, self.source) from error

    def _opened(self) -> ClientAPI:
        with self._mutex:
            if self._pid != os.getpid():  # never use a client, or close it, in a forked child
                self._pid, self._client = os.getpid(), None
            if self._client is None:
                with importing:
                    import chromadb  # noqa: F401 (what follows imports parts of it)
                self._client = self.source.open()
            return self._client


_lines: dict[tuple[str, ...], ClientLine] = {}
_lines_mutex = threading.Lock()
_finders = DaemonPool(4, "autogen-memory-open")


async def join_line(source: ClientSource, user: object) -> ClientLine:
    """The line to this store, with one user more."""
    return await asyncio.get_running_loop().run_in_executor(_finders, _join_line, source, user)


def _join_line(source: ClientSource, user: object) -> ClientLine:
    identity = source.identity()
    with _lines_mutex:
        line = _lines.setdefault(identity, ClientLine(source))
    line.join(user)
    return line


def _translated(error: BaseException, source: ClientSource) -> BaseException:
    from chromadb.errors import InvalidArgumentError, InvalidDimensionException

    if isinstance(error, InvalidDimensionException) or (
        isinstance(error, InvalidArgumentError) and "dimension" in str(error)
    ):
        return EmbeddingMismatchError(
            f"The stored vectors have another length than the embedding's ({error}). Use the embedding the store was "
            "written with, or make all vectors anew with: await memory.reembed()"
        )
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":  # how Chroma's Rust core fails
        return StoreUnavailableError(source.describe(error))
    return error
