"""The one Chroma client that this process has for a store: opened on first use, shared by all memories, closed by the last.

Everything that talks to Chroma runs in threads of our own. What Chroma raises is translated into errors of ours.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...core.errors import EmbeddingMismatchError, PersistentMemoryError, StoreLockedError, StoreUnavailableError
from ...runtime.threads import DaemonPool, importing
from ...text.redaction import caused_by
from ..availability import CircuitBreaker
from ..outbox import Outbox
from .chroma_compat import is_blocked, is_failure

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

T = TypeVar("T")
_READERS = 8
CLOSING_SECONDS = 5.0


class ClientSource(Protocol):
    """How to open and close a client of one store. The methods block; call them in a thread."""

    local: bool = True
    """Whether opening it is work of this machine alone."""
    writers: int = 1
    """How many threads may write at a time."""

    @cached_property
    def breaker(self) -> CircuitBreaker:
        """Whether the store is reachable. A local one always is."""
        return CircuitBreaker()

    def identity(self) -> tuple[str, ...]:
        """Return what is equal for two sources of the same data."""

    def open(self) -> ClientAPI:
        """Open a client."""

    def close(self, client: ClientAPI) -> None:
        """Close a client."""

    def pause(self, client: ClientAPI) -> None:
        """Close a client, but keep other processes out until the next one is opened."""
        self.close(client)

    def most_collections(self) -> float:
        """Return how many collections a client may have used before it is closed and opened again."""
        return math.inf

    def describe(self, error: BaseException) -> str:
        """Return what is wrong and what to do next, when Chroma raised this."""

    def outbox(self, namespace: str) -> Outbox | None:
        """Return the queue for what cannot be stored now. A store on this machine has none: both disks are the same."""
        return None


class SharedClient:
    """The client of one store, for all connections of this process. Serves any thread and event loop."""

    def __init__(self, source: ClientSource, identity: tuple[str, ...]) -> None:
        self.source = source
        self.identity = identity
        self._readers = DaemonPool(_READERS, "autogen-memory-read", finishes=source.local)
        self._writers = DaemonPool(source.writers, "autogen-memory-write", finishes=True)
        self._mutex = threading.RLock()  # never held while anything waits
        self._idle = threading.Condition(self._mutex)
        self._calls = 0
        self._is_paused = False
        self._client: ClientAPI | None = None
        self._is_reopening = False
        self._opening: Future[None] | None = None
        self._recoveries = 0
        self._closing: Future[None] | None = None
        self._users: weakref.WeakSet[object] = weakref.WeakSet()

    @property
    def is_open(self) -> bool:
        """Whether there is a client, or one is being opened."""
        return self._client is not None or self._opening is not None

    async def call(self, user: object, use: Callable[[ClientAPI], T], *, writes: bool = False) -> T:
        """Run `use` with the client in a thread, for a user that has joined.

        Raises:
            PersistentMemoryError: Chroma failed; the message says what to do.
        """
        self.source.breaker.check()
        pool = self._writers if writes else self._readers
        call = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(pool, call, self._use, user, use)

    async def alone(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread while no call is under way; calls that come meanwhile wait."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, self._alone, work)

    async def prepare(self, user: object) -> None:
        """Do the part of opening that is work of this machine alone."""
        work = partial(self._use, user, lambda client: None) if self.source.local else import_chroma
        await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def while_closed(self, user: object, work: Callable[[], T]) -> T:
        """Run work on the store's folder in a thread while the client is closed; calls that come meanwhile wait.

        Raises:
            PersistentMemoryError: It failed; the message says what to do.
        """
        return await asyncio.get_running_loop().run_in_executor(_closers, self._while_closed, user, work)

    def join(self, user: object) -> None:
        """Add a user, unless it is one already."""
        with self._mutex:
            self._users.add(user)

    async def leave(self, user: object) -> None:
        """Remove a user; with the last one close the client, once no call is under way."""
        with self._mutex:
            self._users.discard(user)
            if self._users or self._client is None:
                return
            client, self._client = self._client, None
            closing = self._closing = _closers.submit(self._close, client)
        await asyncio.wrap_future(closing)

    def _use(self, user: object, use: Callable[[ClientAPI], T]) -> T:
        def call() -> T:
            client = self._opened(user)
            try:
                return use(client)
            finally:
                with self._idle:
                    self._calls -= 1
                    self._idle.notify_all()
                self._reopen_if_large(client)

        return _translating(self.source, call)

    def _alone(self, work: Callable[[], T]) -> T:
        with self._idle:
            self._idle.wait_for(lambda: not self._is_paused)
            self._is_paused = True
            self._idle.wait_for(lambda: self._calls == 0)
        try:
            return work()
        finally:
            with self._idle:
                self._is_paused = False
                self._idle.notify_all()

    def _opened(self, user: object) -> ClientAPI:
        """Return the client, for one call. Calls that come while it is being opened share that attempt and its failure."""
        if _forked_from is not None:
            raise StoreLockedError(
                f"This process was forked from process {_forked_from} while that had a Chroma store open, which Chroma "
                "does not survive. Start processes with multiprocessing's 'spawn' method, or close every memory before "
                "forking."
            )
        while True:
            with self._mutex:
                self._idle.wait_for(lambda: not self._is_paused)
                if user not in self._users:
                    raise closed_meanwhile()
                if self._client is not None:
                    self._calls += 1
                    return self._client
                if self._recoveries != self.source.breaker.recoveries:  # an attempt from before the recovery may hang
                    self._opening, self._recoveries = None, self.source.breaker.recoveries
                attempt, is_mine = self._opening or Future(), self._opening is None
                self._opening = attempt
            if is_mine:
                self._open(attempt)
            attempt.result()

    def _open(self, attempt: Future[None]) -> None:
        try:
            import_chroma()
            if self._closing is not None:
                wait([self._closing])
            client = self.source.open()
        except BaseException as error:
            with self._mutex:
                if self._opening is attempt:
                    self._opening = None
            attempt.set_exception(error)
            return
        with self._mutex:
            is_late = self._opening is not attempt
            if not is_late:
                self._opening, self._client = None, client
        if is_late:
            self.source.close(client)
        attempt.set_result(None)

    def _reopen_if_large(self, client: ClientAPI) -> None:
        """Close a client that holds many collections in files and RAM; the next call opens a new one."""
        with self._mutex:
            user = next(iter(self._users), None)
            if client is not self._client or user is None or self._is_reopening:
                return
            self._is_reopening = len(collections_used(client)) > self.source.most_collections()
            if self._is_reopening:
                _closers.submit(self._reopen, user)

    def _reopen(self, user: object) -> None:
        try:
            self._while_closed(user, lambda: None)
        finally:
            self._is_reopening = False

    def _while_closed(self, user: object, work: Callable[[], T]) -> T:
        while True:
            with self._mutex:
                if user not in self._users:
                    raise closed_meanwhile()
                busy = self._opening or self._closing
                if busy is None or (busy is self._closing and busy.done()):
                    pause: Future[None] = Future()
                    self._opening = pause
                    client, self._client = self._client, None
                    break
            wait([busy])

        def pause_and_work() -> T:
            import_chroma()
            if client is not None:
                self._until_idle()
                self.source.pause(client)
            return work()

        try:
            return _translating(self.source, pause_and_work)
        finally:
            with self._mutex:
                self._opening = None
            pause.set_result(None)

    def _close(self, client: ClientAPI) -> None:
        self._until_idle()
        self.source.close(client)

    def _until_idle(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: self._calls == 0, timeout=CLOSING_SECONDS)


_used: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def collections_used(client: ClientAPI) -> set[str]:
    """Return the names of the collections that were used through a client."""
    return _used.setdefault(client, set())


_forked_from: int | None = None
_shared_clients: dict[tuple[str, ...], SharedClient] = {}
_shared_clients_mutex = threading.Lock()
_openers = DaemonPool(4, "autogen-memory-open")
_closers = DaemonPool(4, "autogen-memory-close", finishes=True)


def _after_fork() -> None:
    """In a forked child: forget the parent's clients, and note if any was open, since Chroma does not survive a fork."""
    global _forked_from, _shared_clients_mutex
    if any(shared.is_open for shared in _shared_clients.values()):
        _forked_from = os.getppid()
    _shared_clients.clear()
    _shared_clients_mutex = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


async def join_shared_client(source: ClientSource, user: object) -> SharedClient:
    """Return the shared client of this store, with one more user."""

    def join() -> SharedClient:
        identity = source.identity()
        with _shared_clients_mutex:
            shared = _shared_clients.setdefault(identity, SharedClient(source, identity))
        shared.join(user)
        return shared

    return await asyncio.get_running_loop().run_in_executor(_openers, join)


class BlockedStoreError(StoreUnavailableError):
    """Chroma cannot apply its log of writes, so that a collection can neither be read nor written."""

    needs_developer = True


def closed_meanwhile() -> PersistentMemoryError:
    """Return the error for calls that are made after their memory was closed."""
    return StoreUnavailableError(
        "The memory was closed while it was still at work. What it had acknowledged is stored; await its calls before "
        "you close it."
    )


def _translating(source: ClientSource, work: Callable[[], T]) -> T:
    """Return the result of work; raise an error of ours for what Chroma raises."""
    try:
        return work()
    except PersistentMemoryError:
        raise
    except BaseException as error:
        failure = _translated(error, source)
    raise failure


def _translated(error: BaseException, source: ClientSource) -> BaseException:
    """Return the error of ours for what Chroma raised."""
    from chromadb.errors import InvalidArgumentError, InvalidDimensionException

    if isinstance(error, InvalidDimensionException) or (
        isinstance(error, InvalidArgumentError) and "dimension" in str(error)
    ):
        mismatch = EmbeddingMismatchError(
            f"The stored vectors have another length than the embedding's ({error}). Use the embedding the store was "
            "written with, or make all vectors again with: await memory.reembed(), or `autogen-memory reembed`"
        )
        return caused_by(mismatch, error)
    if is_failure(error):
        failure = BlockedStoreError if is_blocked(error) else StoreUnavailableError
        return caused_by(failure(source.describe(error)), error)
    return error


def import_chroma() -> None:
    """Import Chroma, in a thread."""
    with importing:
        import chromadb  # noqa: F401 (so that no two threads import it, or numpy below it, at once)
