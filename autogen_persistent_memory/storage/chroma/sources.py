"""How Chroma's client is opened and closed for each kind of store, and what its failures mean there.

Everything here blocks, and is called in threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.config import PATH_VARIABLE, ServerStoreConfig
from ...core.errors import StoreUnavailableError
from ...runtime import private_files
from ...text.disclosure import keep_out, without_secrets
from ..availability import Breaker
from ..folder_lock import Ownership, holder_of
from ..outbox import Outbox, outbox_of
from .http_retries import Requests, UnreachableError
from .write_log import is_blocked

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.config import Settings

    from ..repair.inspection import Inspection
    from ..repair.startup_repair import Mending, VectorRepair

T = TypeVar("T")
_NEVER_REACHED = 1_000_000
_OURS = "autogen_memory."
"""How the names of our own files in the folder of a store begin."""
_FILES_OF_OTHERS = 128
"""So many open files are left to the application, and to Chroma's database."""
_FILES_PER_INDEX = 4
_MOST_INDEXES = 600


HOW_TO_UNBLOCK = "Stop the server, and run `autogen-memory doctor --repair --path FOLDER` on the folder that it serves"


class Folder:
    """Opens Chroma on a folder, which it takes for this process."""

    local = True
    writers = 1

    def __init__(self, path: str) -> None:
        self.given = path
        self._ownership: Ownership | None = None
        self._mending: Mending | None = None
        self._is_known = False
        self.breaker = Breaker()

    @property
    def folder(self) -> Folder:
        return self

    @cached_property
    def path(self) -> Path:
        """The folder, found once, lest a later chdir make it another."""
        return Path(os.path.realpath(os.path.expanduser(self.given)))

    def identity(self) -> tuple[str, ...]:
        return "embedded", str(self.path)

    def outbox(self, namespace: str) -> None:
        """What cannot be stored here could not be kept on this machine any better."""

    def open(self) -> ClientAPI:
        private_files.make_folder(self.path)
        ownership = self._ownership or self._own()
        try:
            if self._mending is not None and self._is_known:
                mending, client = self._mending, open_folder(self.path)
            else:
                mending, client = self._open_and_mend()
        except BaseException:
            ownership.release()
            self._ownership = None
            raise
        self._ownership, self._mending, self._is_known = ownership, mending, False
        return client

    def _open_and_mend(self) -> tuple[Mending, ClientAPI]:
        from ..repair.startup_repair import Mending

        mending = Mending(self.path)
        mending.before_opening()
        client = open_folder(self.path)
        try:
            mending.after_opening(client)
            self._close_to_others()
        except BaseException:
            client.close()
            raise
        return mending, client

    def _close_to_others(self) -> None:
        """Close Chroma's files, which have the modes that the umask leaves, and ours of earlier versions."""
        from ..repair.inspection import DATABASE, SEGMENT

        with contextlib.suppress(FileNotFoundError):  # the folder was deleted under us
            for path in self.path.iterdir():
                if path.name.startswith((DATABASE, _OURS)) or SEGMENT.fullmatch(path.name):
                    private_files.close_to_others(path)

    @property
    def most_indexes(self) -> int:
        try:
            from resource import RLIMIT_NOFILE, getrlimit
        except ImportError:  # on Windows
            return _MOST_INDEXES
        files = getrlimit(RLIMIT_NOFILE)[0]
        return max(8, min(_MOST_INDEXES, (files - _FILES_OF_OTHERS) // _FILES_PER_INDEX))

    def _own(self) -> Ownership:
        ownership = Ownership(self.path)
        ownership.take()
        return ownership

    def pause(self, client: ClientAPI) -> None:
        client.close()
        self._is_known = True

    def close(self, client: ClientAPI) -> None:
        try:
            client.close()
            if self._mending is not None:
                self._mending.after_closing()
            self._close_to_others()
        finally:
            if self._ownership is not None:
                self._ownership.release()
                self._ownership = None

    def examine(self) -> Inspection:
        from ..repair.inspection import Inspection
        from ..repair.startup_repair import examine

        if not self.path.exists():
            return Inspection()
        self._is_known = False
        last = holder_of(self.path) if self._ownership is None else None
        with self._owned():
            open_to_others = private_files.open_to_others(self.path)
            return replace(examine(self.path), abandoned_by=last, open_to_others=open_to_others)

    def clean(self, orphans: Sequence[Path]) -> Path:
        from ..repair.startup_repair import clean

        with self._owned():
            return clean(self.path, orphans)

    def work_on(self, work: Callable[[Path], T]) -> T:
        from ..repair.startup_repair import check_not_open

        self._is_known = False
        with self._owned():
            check_not_open(self.path)
            return work(self.path)

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Keep other processes out, also while no client is open."""
        if self._ownership is not None:
            yield
            return
        ownership = self._own()
        try:
            yield
        finally:
            ownership.release()

    @property
    def repair(self) -> VectorRepair | None:
        return None if self._mending is None else self._mending.repair

    def describe(self, error: BaseException) -> str:
        path, number = self.path, getattr(error, "errno", None)
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            return f"The store path {path} is not a folder. Choose a folder, or move that file away."
        if number in (errno.EACCES, errno.EPERM, errno.EROFS) or "readonly database" in str(error):
            return (
                f"The store folder {path} cannot be written ({error}). Make it writable for this user, choose another "
                f"path, or set {PATH_VARIABLE}."
            )
        if number == errno.ENOSPC or "disk is full" in str(error):
            return f"The disk of {path} is full ({error}). Free some space; what was stored before is still there."
        if is_blocked(error):
            from ..repair.startup_repair import repair_command

            return (
                f"Chroma cannot take in what was written last to the store {path} ({error}), as a record with too many tags of "
                "an earlier version, nor read what was before. Nothing is lost. Close the memories that use it, and run "
                f"{repair_command(path)}; if the disk is full, free some space instead."
            )
        if "malformed" in str(error) or "not a database" in str(error):
            from ..repair.startup_repair import how_to_recover

            return (
                f"The documents of the store {path} are damaged ({error}). {how_to_recover(path)}, or put a backup of the whole "
                "folder in its place."
            )
        return (
            f"Chroma cannot use the store folder {path}: {error}. Check that the disk is not full and that nothing else "
            "has changed the folder; copy it before you try to repair it."
        )


class Server:
    """Opens a client to a Chroma server, every call of which has a timeout."""

    local = False
    writers = 8
    folder = None

    def __init__(self, config: ServerStoreConfig) -> None:
        self._config = config
        self._sessions: dict[ClientAPI, list[Any]] = {}

    def identity(self) -> tuple[str, ...]:
        return "server", self._config.model_dump_json(exclude={"outbox"})

    @cached_property
    def breaker(self) -> Breaker:
        """Whether it can be reached, which all memories of the process share."""
        return _breakers.setdefault(self.identity(), Breaker(self._probe, self.describe))

    def outbox(self, namespace: str) -> Outbox | None:
        """Where what cannot be stored for now is kept on this machine."""
        config = self._config
        return outbox_of(config.outbox, (config.host, str(config.port), config.tenant, config.database, namespace))

    def _headers(self) -> dict[str, str]:
        config = self._config
        headers = {header: _secret(variable, f"header {header}") for header, variable in config.headers_env.items()}
        if config.token_env:
            headers["Authorization"] = f"Bearer {_secret(config.token_env, 'token')}"
        return headers

    def _probe(self, patience: float) -> None:
        """A cheap sign of life: any answer but a gateway's excuse."""
        import httpx
        from chromadb.api.fastapi import FastAPI

        config = self._config
        url = FastAPI.resolve_url(
            chroma_server_host=config.host,
            chroma_server_http_port=config.port,
            chroma_server_ssl_enabled=config.ssl,
            default_api_path="/api/v2",
        )
        answer = httpx.get(f"{url}/heartbeat", headers=self._headers(), timeout=min(patience, config.timeout))
        if answer.status_code >= 500 or answer.status_code == 429:
            answer.raise_for_status()

    def open(self) -> ClientAPI:
        from chromadb.api.client import Client

        config, headers = self._config, self._headers()
        sessions: list[Any] = []

        class TimedClient(Client):  # type: ignore[misc]
            """Sets a timeout on its HTTP sessions, which Chroma gives none, before either is used, and lets them retry."""

            def get_user_identity(self) -> Any:
                limit(self._server)
                return super().get_user_identity()

            def _validate_tenant_database(self, tenant: str, database: str) -> None:
                limit(self._admin_client._server)
                super()._validate_tenant_database(tenant, database)

        def limit(server: Any) -> None:
            session = server._session
            session.timeout = config.timeout
            session.request = Requests(type(session).request.__get__(session), self.breaker, config.timeout)
            sessions.append(session)

        settings = _settings(
            chroma_api_impl="chromadb.api.fastapi.FastAPI",
            chroma_server_host=config.host,
            chroma_server_http_port=config.port,
            chroma_server_ssl_enabled=config.ssl,
            chroma_server_headers=headers,
        )
        try:
            client = TimedClient(tenant=config.tenant, database=config.database, settings=settings)
        except BaseException:
            _close_all(sessions)
            raise
        self._sessions[client] = sessions
        return client

    def close(self, client: ClientAPI) -> None:
        client.close()
        _close_all(self._sessions.pop(client, []))

    def describe(self, error: BaseException) -> str:
        where = f"{'https' if self._config.ssl else 'http'}://{self._config.host}:{self._config.port}"
        cause = _cause(error)
        reason = without_secrets(str(cause)) or type(cause).__name__
        if is_blocked(error):
            return (
                f"The Chroma server at {where} cannot take in what was written last ({reason}), as a record with too many tags "
                f"of an earlier version, nor read what was before. Nothing is lost. {HOW_TO_UNBLOCK}; if its disk is full, free "
                "some space instead."
            )
        return (
            f"The Chroma server at {where} cannot be used: {reason}. Check that it runs (start one on this machine with: "
            f"autogen-memory share --port {self._config.port}), that the address is right and that it "
            f"answers within {self._config.timeout:g} s; tenant {self._config.tenant!r} and database "
            f"{self._config.database!r} must exist, and the token's environment variable must be set if it wants one."
        )


class Ram:
    """Gives each id a database of its own in Chroma's one in-memory instance, which lives as long as the process."""

    local = True
    writers = 1
    folder = None

    def __init__(self, id: str) -> None:
        self._id = id
        self.breaker = Breaker()

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
        _keep_every_index(settings)
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


def open_folder(path: Path) -> ClientAPI:
    """Open Chroma on a folder. An attempt that fails leaves nothing behind, so that the next one can succeed."""
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient

    name = str(path)
    was_open = name in SharedSystemClient._identifier_to_system
    settings = _settings(is_persistent=True, persist_directory=name)
    try:
        _keep_every_index(settings)
        return chromadb.PersistentClient(name, settings=settings)
    except BaseException:
        if not was_open:  # Chroma would hand out the broken instance for ever
            SharedSystemClient._identifier_to_system.pop(name, None)
            SharedSystemClient._identifier_to_refcount.pop(name, None)
        raise


def _keep_every_index(settings: Settings) -> None:
    """Start Chroma, if it is not yet, such that it never lets go of an index by itself.

    It would do so with some dozens of collections, and read them again without the rows that it had not saved: those are
    then no longer found, or every search fails. Instead the whole client is opened anew now and then; see `storage.chroma.shared_client`.
    """
    from chromadb.api import ServerAPI
    from chromadb.api.shared_system_client import SharedSystemClient
    from chromadb.config import System
    from chromadb.telemetry.product import ProductTelemetryClient

    name = SharedSystemClient._get_identifier_from_settings(settings)
    if name not in SharedSystemClient._identifier_to_system:
        system = System(settings)
        system.instance(ProductTelemetryClient)
        system.instance(ServerAPI).hnsw_cache_size = _NEVER_REACHED
        system.start()
        SharedSystemClient._identifier_to_system[name] = system


def _cause(error: BaseException) -> BaseException:
    """Why the server was not reached, where Chroma has an opinion of its own about that."""
    import httpx

    found: BaseException | None = error
    while found is not None and not isinstance(found, (httpx.TransportError, UnreachableError)):
        found = found.__cause__ or found.__context__
    return found or error


def _close_all(sessions: list[Any]) -> None:
    """Close connections, which Chroma leaves open."""
    for session in sessions:
        session.close()


_breakers: dict[tuple[str, ...], Breaker] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_breakers.clear)


def _settings(**values: Any) -> Settings:
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False, **values)


def from_environment(variable: str, what: str) -> str:
    """The value of an environment variable, which must be set."""
    value = os.environ.get(variable)
    if not value:
        raise StoreUnavailableError(
            f"The environment variable {variable}, which holds the store's {what}, is not set. Set it and try again."
        )
    return value


def _secret(variable: str, what: str) -> str:
    """The value of an environment variable, as a header; it is kept out of errors and logs."""
    value = from_environment(variable, what)
    if not (value.isascii() and value.isprintable()):  # httpx would say so, and repeat it
        raise StoreUnavailableError(
            f"The environment variable {variable}, which holds the store's {what}, has characters that no header can have, "
            "such as a line break at its end. Set it to the bare value and try again."
        )
    keep_out(value)
    return value
