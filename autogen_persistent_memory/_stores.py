"""The four places memories can live: a folder, a Chroma server, Chroma Cloud, or the RAM of this process."""

from __future__ import annotations

import errno
import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._checks import optional_text, require_text
from ._chroma import ChromaConnection
from ._config import CloudStoreConfig, EmbeddedStoreConfig, ServerStoreConfig, StoreConfig, TemporaryStoreConfig
from ._errors import StoreUnavailableError
from ._ownership import Ownership
from ._store import MemoryStore

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.config import Settings

PATH_VARIABLE = "AUTOGEN_MEMORY_PATH"
DEFAULT_PATH = "~/.autogen_memory"


class EmbeddedStore:
    """Chroma in this process, in a folder on disk. The default; needs no server.

    The folder belongs to one process at a time; a second one gets `StoreLockedError`. Within a process any number of
    memories may share it.

    Args:
        path: The folder; made if it is not there. By default the environment variable AUTOGEN_MEMORY_PATH, else
            `~/.autogen_memory`.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        given = os.fspath(path) if isinstance(path, os.PathLike) else path
        self.config = EmbeddedStoreConfig(path=optional_text(given, "path"))
        self._folder = _Folder(self.config.path or os.environ.get(PATH_VARIABLE) or DEFAULT_PATH)

    def connect(self) -> ChromaConnection:
        """A connection to it. Does nothing yet."""
        return ChromaConnection(self._folder)


class ServerStore:
    """A Chroma server (`chroma run --path memories --port 8000`), shared by any number of processes and machines.

    The open-source server has no authentication and no encryption of its own: keep it on loopback or behind a proxy.
    Secrets are named, never given: the values stay in environment variables.

    Args:
        host: Its host name.
        port: Its port.
        ssl: Whether to use https.
        tenant: The Chroma tenant.
        database: The Chroma database.
        timeout: Seconds after which a call that is not answered fails.
        token_env: The environment variable that holds a token, sent as `Authorization: Bearer <token>`.
        headers_env: Further headers, each with the environment variable that holds its value.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8000,
        ssl: bool = False,
        *,
        tenant: str = "default_tenant",
        database: str = "default_database",
        timeout: float = 10.0,
        token_env: str | None = None,
        headers_env: dict[str, str] | None = None,
    ) -> None:
        self.config = ServerStoreConfig(
            host=require_text(host, "host"),
            port=port,
            ssl=ssl,
            tenant=tenant,
            database=database,
            timeout=timeout,
            token_env=token_env,
            headers_env=headers_env or {},
        )

    def connect(self) -> ChromaConnection:
        """A connection to it. Does nothing yet."""
        return ChromaConnection(_Server(self.config))


class CloudStore:
    """Chroma Cloud. The API key stays in an environment variable, CHROMA_API_KEY unless you name another.

    Not tested against the cloud itself: it is a `ServerStore` with Chroma's address and key header.

    Args:
        tenant: The tenant; by default CHROMA_TENANT.
        database: The database; by default CHROMA_DATABASE.
        api_key_env: The environment variable that holds the API key.
        timeout: Seconds after which a call that is not answered fails.
    """

    def __init__(
        self,
        tenant: str | None = None,
        database: str | None = None,
        *,
        api_key_env: str = "CHROMA_API_KEY",
        timeout: float = 10.0,
    ) -> None:
        self.config = CloudStoreConfig(tenant=tenant, database=database, api_key_env=api_key_env, timeout=timeout)

    def connect(self) -> ChromaConnection:
        """A connection to it. Does nothing yet."""
        server = ServerStoreConfig(
            host="api.trychroma.com",
            port=443,
            ssl=True,
            tenant=self.config.tenant or _from_environment("CHROMA_TENANT", "tenant"),
            database=self.config.database or _from_environment("CHROMA_DATABASE", "database"),
            timeout=self.config.timeout,
            headers_env={"x-chroma-token": self.config.api_key_env},
        )
        return ChromaConnection(_Server(server))


class TemporaryStore:
    """The RAM of this process: for tests and trying out. Gone when the process ends.

    Args:
        id: Stores of the same id in the same process are the same store. By default a new one.
    """

    def __init__(self, id: str | None = None) -> None:
        self.config = TemporaryStoreConfig(id=secrets.token_hex(8) if id is None else require_text(id, "id"))

    def connect(self) -> ChromaConnection:
        """A connection to it. Does nothing yet."""
        return ChromaConnection(_Ram(self.config.id))


def store_from_config(config: StoreConfig) -> MemoryStore:
    """The store that a configuration describes."""
    if isinstance(config, EmbeddedStoreConfig):
        return EmbeddedStore(config.path)
    if isinstance(config, ServerStoreConfig):
        return ServerStore(**config.model_dump(exclude={"type"}))
    if isinstance(config, CloudStoreConfig):
        return CloudStore(**config.model_dump(exclude={"type"}))
    return TemporaryStore(config.id)


class _Folder:
    """Opens Chroma on a folder, which it takes for this process."""

    local = True
    writers = 1

    def __init__(self, path: str) -> None:
        self._given = path
        self._ownership: Ownership | None = None

    @cached_property
    def _path(self) -> Path:
        """The folder, found once, lest a later chdir make it another."""
        return Path(os.path.realpath(os.path.expanduser(self._given)))

    def identity(self) -> tuple[str, ...]:
        return "embedded", str(self._path)

    def open(self) -> ClientAPI:
        import chromadb

        self._path.mkdir(parents=True, exist_ok=True)
        ownership = Ownership(self._path)
        ownership.take()
        try:
            client = chromadb.PersistentClient(str(self._path), settings=_settings())
        except BaseException:
            ownership.release()
            raise
        self._ownership = ownership
        return client

    def close(self, client: ClientAPI) -> None:
        client.close()
        if self._ownership is not None:
            self._ownership.release()

    def describe(self, error: BaseException) -> str:
        path, number = self._path, getattr(error, "errno", None)
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            return f"The store path {path} is not a folder. Choose a folder, or move that file away."
        if number in (errno.EACCES, errno.EPERM, errno.EROFS) or "readonly database" in str(error):
            return (
                f"The store folder {path} cannot be written ({error}). Make it writable for this user, choose another "
                f"path, or set {PATH_VARIABLE}."
            )
        if number == errno.ENOSPC or "disk is full" in str(error):
            return f"The disk of {path} is full ({error}). Free some space; what was stored before is still there."
        return (
            f"Chroma cannot use the store folder {path}: {error}. Check that the disk is not full and that nothing else "
            "has changed the folder; copy it before you try to repair it."
        )


class _Server:
    """Opens a client to a Chroma server, every call of which has a timeout."""

    local = False
    writers = 8

    def __init__(self, config: ServerStoreConfig) -> None:
        self._config = config
        self._sessions: list[Any] = []

    def identity(self) -> tuple[str, ...]:
        return "server", self._config.model_dump_json()

    def open(self) -> ClientAPI:
        from chromadb.api.client import Client

        config = self._config
        headers = {
            header: _from_environment(variable, f"header {header}") for header, variable in config.headers_env.items()
        }
        if config.token_env:
            headers["Authorization"] = f"Bearer {_from_environment(config.token_env, 'token')}"

        sessions = self._sessions = list[Any]()

        class TimedClient(Client):  # type: ignore[misc]
            """Sets a timeout on its HTTP sessions, which Chroma gives none, before either is used."""

            def get_user_identity(self) -> Any:
                limit(self._server)
                return super().get_user_identity()

            def _validate_tenant_database(self, tenant: str, database: str) -> None:
                limit(self._admin_client._server)
                super()._validate_tenant_database(tenant, database)

        def limit(server: Any) -> None:
            server._session.timeout = config.timeout
            sessions.append(server._session)

        settings = _settings(
            chroma_api_impl="chromadb.api.fastapi.FastAPI",
            chroma_server_host=config.host,
            chroma_server_http_port=config.port,
            chroma_server_ssl_enabled=config.ssl,
            chroma_server_headers=headers,
        )
        try:
            return TimedClient(tenant=config.tenant, database=config.database, settings=settings)
        except BaseException:
            self._close_sessions()
            raise

    def close(self, client: ClientAPI) -> None:
        client.close()
        self._close_sessions()

    def _close_sessions(self) -> None:
        """Close the connections, which Chroma leaves open."""
        for session in self._sessions:
            session.close()

    def describe(self, error: BaseException) -> str:
        where = f"{'https' if self._config.ssl else 'http'}://{self._config.host}:{self._config.port}"
        return (
            f"The Chroma server at {where} cannot be used: {error or type(error).__name__}. Check that it runs (start "
            f"one with: chroma run --path memories --port {self._config.port}), that the address is right and that it "
            f"answers within {self._config.timeout:g} s; tenant {self._config.tenant!r} and database "
            f"{self._config.database!r} must exist, and the token's environment variable must be set if it wants one."
        )


class _Ram:
    """Gives each id a database of its own in Chroma's one in-memory instance, which lives as long as the process."""

    local = True
    writers = 1

    def __init__(self, id: str) -> None:
        self._id = id

    def identity(self) -> tuple[str, ...]:
        return "temporary", self._id

    def open(self) -> ClientAPI:
        import chromadb
        from chromadb.api.client import AdminClient
        from chromadb.config import Settings
        from chromadb.errors import NotFoundError

        settings = Settings()  # as in the user's own EphemeralClient(): Chroma refuses a second one that differs
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


def _settings(**values: Any) -> Settings:
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False, **values)


def _from_environment(variable: str, what: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise StoreUnavailableError(
            f"The environment variable {variable}, which holds the store's {what}, is not set. Set it and try again."
        )
    return value
