"""The one Chroma client this process has for a store: opened lazily in a thread, shared, counted, closed with its last user.

Everything here that talks to Chroma runs in threads of our own. What Chroma raises leaves as an error of ours.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...core.errors import EmbeddingMismatchError, PersistentMemoryError, StoreLockedError, StoreUnavailableError
from ...runtime.threads import DaemonPool, importing
from ...text.redaction import caused_by
from ..availability import CircuitBreaker
from ..outbox import Outbox
from .write_log import BlockedStoreError, is_blocked

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

    from ..repair.inspect import Inspection
    from ..repair.startup_repair import VectorRepair

T = TypeVar("T")
_READERS = 8
_CLOSING_SECONDS = 5.0


class StoreFolder(Protocol):
    """A folder with an embedded store, which can be looked into while no client is open."""

    @property
    def most_indexes(self) -> int:
        """How many collections a client may have used before it is opened anew."""

    @property
    def repair(self) -> VectorRepair | None:
        """What was done about damaged indexes when the client was opened, and is still to be done."""

    def pause(self, client: ClientAPI) -> None:
        """Close a client, but keep the store for this process until it is opened again."""

    def examine(self) -> Inspection:
        """What lies in the store's folder; only while no client is open."""

    def clean(self, orphans: Sequence[Path]) -> Path:
        """Copy the documents to a new backup, and delete those indexes; where the backup is."""

    def work_on(self, work: Callable[[Path], T]) -> T:
        """Do any other work on the folder; only while no client is open."""


class ClientSource(Protocol):
    """What knows how to open a client. Its methods block, and are called in threads."""

    @property
    def local(self) -> bool:
        """Whether opening it is work of this machine alone."""

    @property
    def writers(self) -> int:
        """How many threads may write at a time."""

    @property
    def folder(self) -> StoreFolder | None:
        """The folder that this process has the store in, if it is in one."""

    @property
    def breaker(self) -> CircuitBreaker:
        """Whether it can be reached."""

    def outbox(self, namespace: str) -> Outbox | None:
        """Where what cannot be stored for now is kept, if anywhere."""

    def identity(self) -> tuple[str, ...]:
        """Equal for two sources of the same data."""

    def open(self) -> ClientAPI:
        """Open a client."""

    def close(self, client: ClientAPI) -> None:
        """Close a client."""

    def describe(self, error: BaseException) -> str:
        """What is wrong and what to do next, when Chroma raised this."""


class SharedClient:
    """All that the memories of this process share of one store."""

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
        self._making_room = False
        self._opening: Future[None] | None = None
        self._recoveries = 0
        self._closing: Future[None] | None = None
        self._users: weakref.WeakSet[object] = weakref.WeakSet()

    async def call(self, user: object, use: Callable[[ClientAPI], T], *, writes: bool = False) -> T:
        """Run `use` with the client in a thread, for a user that has joined.

        Raises:
            PersistentMemoryError: Chroma failed; the message says what to do.
        """
        self.source.breaker.check()
        pool = self._writers if writes else self._readers
        call = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(pool, call, self._guarded, user, use)

    async def alone(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, while no call is under way; those that come meanwhile wait."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, self._alone, work)

    async def prepare(self, user: object) -> None:
        """Do the part of opening that is work of this machine alone."""
        await asyncio.get_running_loop().run_in_executor(self._readers, self._prepare, user)

    async def apart(self, user: object, folder: StoreFolder, work: Callable[[], T]) -> T:
        """Run work on the store's folder in a thread while the client is closed; whoever wants to use it meanwhile waits.

        Raises:
            PersistentMemoryError: It failed; the message says what to do.
        """
        return await asyncio.get_running_loop().run_in_executor(_closers, self._apart, user, folder, work)

    async def leave(self, user: object) -> None:
        """One user less; the last one closes the client, once no call is under way any more."""
        with self._mutex:
            self._users.discard(user)
            if self._users or self._client is None:
                return
            client, self._client = self._client, None
            closing = self._closing = _closers.submit(self._close, client)
        await asyncio.wrap_future(closing)

    @property
    def is_open(self) -> bool:
        """Whether there is a client."""
        return self._client is not None or self._opening is not None

    def join(self, user: object) -> None:
        """One user more, unless it is one already."""
        with self._mutex:
            self._users.add(user)

    def _prepare(self, user: object) -> None:
        if self.source.local:
            self._guarded(user, lambda client: None)
        else:
            import_chroma()

    def _guarded(self, user: object, use: Callable[[ClientAPI], T]) -> T:
        try:
            client = self._opened(user)
            try:
                return use(client)
            finally:
                with self._idle:
                    self._calls -= 1
                    self._idle.notify_all()
                self._make_room(client)
        except PersistentMemoryError:
            raise
        except BaseException as error:
            failure = _translated(error, self.source)
        raise failure

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
        """The client, for one call. Whoever comes while it is being opened waits for that attempt, and shares its failure."""
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
                if self._recoveries != self.source.breaker.recoveries:  # what was begun while it was gone may hang
                    self._opening, self._recoveries = None, self.source.breaker.recoveries
                attempt, is_mine = self._opening or Future(), self._opening is None
                self._opening = attempt
            if is_mine:
                self._open(attempt)
            attempt.result()

    def _make_room(self, client: ClientAPI) -> None:
        """Let the client go, to be opened anew by whoever uses it next, when it holds many collections in files and RAM."""
        folder = self.source.folder
        with self._mutex:
            if folder is None or client is not self._client or len(collections_used(client)) <= folder.most_indexes:
                return
            user = next(iter(self._users), None)
            if user is None or self._making_room:
                return
            self._making_room = True
        _closers.submit(self._let_go, user, folder)

    def _let_go(self, user: object, folder: StoreFolder) -> None:
        try:
            self._apart(user, folder, lambda: None)
        finally:
            self._making_room = False

    def _apart(self, user: object, folder: StoreFolder, work: Callable[[], T]) -> T:
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
        try:
            import_chroma()
            if client is not None:
                self._until_idle()
                folder.pause(client)
            return work()
        except PersistentMemoryError:
            raise
        except BaseException as error:
            failure = _translated(error, self.source)
        finally:
            with self._mutex:
                self._opening = None
            pause.set_result(None)
        raise failure

    def _close(self, client: ClientAPI) -> None:
        self._until_idle()
        self.source.close(client)

    def _until_idle(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: self._calls == 0, timeout=_CLOSING_SECONDS)

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


_used: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def collections_used(client: ClientAPI) -> set[str]:
    """The names of the collections that were used through a client."""
    return _used.setdefault(client, set())


_forked_from: int | None = None
_shared_clients: dict[tuple[str, ...], SharedClient] = {}
_shared_clients_mutex = threading.Lock()
_finders = DaemonPool(4, "autogen-memory-open")
_closers = DaemonPool(4, "autogen-memory-close", finishes=True)


def _after_fork() -> None:
    """In a forked child: forget the parent's clients, and remember if there were any, since Chroma's are shared."""
    global _forked_from, _shared_clients_mutex
    if any(line.is_open for line in _shared_clients.values()):
        _forked_from = os.getppid()
    _shared_clients.clear()
    _shared_clients_mutex = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


async def join_shared_client(source: ClientSource, user: object) -> SharedClient:
    """The line to this store, with one user more."""
    return await asyncio.get_running_loop().run_in_executor(_finders, _join_shared_client, source, user)


def _join_shared_client(source: ClientSource, user: object) -> SharedClient:
    identity = source.identity()
    with _shared_clients_mutex:
        line = _shared_clients.setdefault(identity, SharedClient(source, identity))
    line.join(user)
    return line


def closed_meanwhile() -> PersistentMemoryError:
    """What work gets that goes on after its memory was closed."""
    return StoreUnavailableError(
        "The memory was closed while it was still at work. What it had acknowledged is stored; await its calls before "
        "you close it."
    )


def _translated(error: BaseException, source: ClientSource) -> BaseException:
    """What Chroma raised, as an error of ours."""
    from chromadb.errors import InvalidArgumentError, InvalidDimensionException

    if isinstance(error, InvalidDimensionException) or (
        isinstance(error, InvalidArgumentError) and "dimension" in str(error)
    ):
        mismatch = EmbeddingMismatchError(
            f"The stored vectors have another length than the embedding's ({error}). Use the embedding the store was "
            "written with, or make all vectors anew with: await memory.reembed(), or `autogen-memory reembed`"
        )
        return caused_by(mismatch, error)
    if is_failure(error):
        failure = BlockedStoreError if is_blocked(error) else StoreUnavailableError
        return caused_by(failure(source.describe(error)), error)
    return error


def is_failure(error: BaseException) -> bool:
    """Whether this is how Chroma fails; its Rust core panics outside of `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def import_chroma() -> None:
    """Import Chroma, in a thread."""
    with importing:
        import chromadb  # noqa: F401 (so that no two threads import it, or numpy below it, at once)
