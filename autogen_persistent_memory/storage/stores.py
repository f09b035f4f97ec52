"""The stores that users name: a folder, a Chroma server, Chroma Cloud, or the RAM of this process."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from ..core.checks import optional_text, require_text
from ..core.component_configs import (
    DEFAULT_PATH,
    PATH_VARIABLE,
    CloudStoreConfig,
    EmbeddedStoreConfig,
    ServerStoreConfig,
    StoreConfig,
    TemporaryStoreConfig,
)
from ..text.redaction import check_host, check_variable
from .chroma.connection import ChromaConnection
from .chroma.embedded import Folder, Ram
from .chroma.server import Server, from_environment
from .protocol import MemoryStore


class EmbeddedStore:
    """Chroma in this process, in a folder on disk. The default; needs no server.

    The folder belongs to one process at a time; a second one gets `StoreLockedError`. Within a process any number of
    memories may share it.

    Args:
        path: The folder, which is made if it does not exist. By default the environment variable AUTOGEN_MEMORY_PATH, else
            `~/.autogen_memory`.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        given = os.fspath(path) if isinstance(path, os.PathLike) else path
        self.config = EmbeddedStoreConfig(path=optional_text(given, "path"))
        self._folder = Folder(self.config.path or os.environ.get(PATH_VARIABLE) or DEFAULT_PATH)

    def __repr__(self) -> str:
        return f"EmbeddedStore({self._folder.given!r})"

    def connect(self) -> ChromaConnection:
        """Return a connection, without opening anything yet."""
        return ChromaConnection(self._folder)

    def folder(self) -> Path:
        """Return the real path of the folder. Blocks; call it in a thread."""
        return self._folder.path


class ServerStore:
    """A Chroma server, shared by any number of processes and machines.

    `autogen-memory share` runs one on a folder of this machine, `chroma run --path memories` anywhere.
    The open-source server has no authentication and no encryption of its own: keep it on loopback or behind a proxy.
    Secrets are passed by the name of an environment variable, never by value.

    Args:
        host: Its host name.
        port: Its port.
        ssl: Whether to use https.
        tenant: The Chroma tenant.
        database: The Chroma database.
        timeout: Seconds after which a call without an answer fails.
        token_env: The environment variable that holds a token, sent as `Authorization: Bearer <token>`.
        headers_env: Further headers, each with the environment variable that holds its value.
        outbox: The folder in which captured messages are queued while the server is unreachable; by default the
            environment variable AUTOGEN_MEMORY_OUTBOX, else `~/.autogen_memory/outbox`. Empty for none.
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
        outbox: str | os.PathLike[str] | None = None,
    ) -> None:
        self.config = ServerStoreConfig(
            host=check_host(require_text(host, "host")),
            port=port,
            ssl=ssl,
            tenant=tenant,
            database=database,
            timeout=timeout,
            token_env=None if token_env is None else check_variable(token_env, "token_env"),
            headers_env={
                header: check_variable(variable, "Each value of headers_env")
                for header, variable in (headers_env or {}).items()
            },
            outbox=None if outbox is None else os.fspath(outbox),
        )

    def __repr__(self) -> str:
        others = self.config.model_dump(include={"ssl", "tenant", "database"}, exclude_defaults=True)
        given = [
            repr(self.config.host),
            repr(self.config.port),
            *(f"{name}={value!r}" for name, value in others.items()),
        ]
        return f"ServerStore({', '.join(given)})"

    def connect(self) -> ChromaConnection:
        """Return a connection, without opening anything yet."""
        return ChromaConnection(Server(self.config))


class CloudStore:
    """Chroma Cloud. The API key stays in an environment variable, CHROMA_API_KEY unless you name another.

    Not tested against the cloud itself: it is a `ServerStore` with Chroma's address and key header.

    Args:
        tenant: The tenant; by default CHROMA_TENANT.
        database: The database; by default CHROMA_DATABASE.
        api_key_env: The environment variable that holds the API key.
        timeout: Seconds after which a call without an answer fails.
        outbox: As for `ServerStore`.
    """

    def __init__(
        self,
        tenant: str | None = None,
        database: str | None = None,
        *,
        api_key_env: str = "CHROMA_API_KEY",
        timeout: float = 10.0,
        outbox: str | os.PathLike[str] | None = None,
    ) -> None:
        self.config = CloudStoreConfig(
            tenant=tenant,
            database=database,
            api_key_env=check_variable(api_key_env, "api_key_env"),
            timeout=timeout,
            outbox=None if outbox is None else os.fspath(outbox),
        )

    def __repr__(self) -> str:
        given = self.config.model_dump(include={"tenant", "database"}, exclude_defaults=True)
        return f"CloudStore({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def connect(self) -> ChromaConnection:
        """Return a connection, without opening anything yet."""
        server = ServerStoreConfig(
            host="api.trychroma.com",
            port=443,
            ssl=True,
            tenant=self.config.tenant or from_environment("CHROMA_TENANT", "tenant"),
            database=self.config.database or from_environment("CHROMA_DATABASE", "database"),
            timeout=self.config.timeout,
            headers_env={"x-chroma-token": self.config.api_key_env},
            outbox=self.config.outbox,
        )
        return ChromaConnection(Server(server))


class TemporaryStore:
    """The RAM of this process: for tests and trying out. Gone when the process ends.

    Args:
        id: Stores of the same id in the same process are the same store. By default a new one.
    """

    def __init__(self, id: str | None = None) -> None:
        self.config = TemporaryStoreConfig(id=secrets.token_hex(8) if id is None else require_text(id, "id"))

    def __repr__(self) -> str:
        return f"TemporaryStore({self.config.id!r})"

    def connect(self) -> ChromaConnection:
        """Return a connection, without opening anything yet."""
        return ChromaConnection(Ram(self.config.id))


def store_config(store: MemoryStore) -> StoreConfig:
    """Return the declarative form of a store, for a component's JSON.

    Raises:
        ValueError: The store is not one of this package's.
    """
    if isinstance(store, EmbeddedStore | ServerStore | CloudStore | TemporaryStore):
        return store.config
    raise ValueError(
        f"A memory on {store!r} cannot be dumped as a component: only the stores of this package can be loaded again. "
        "Make the memory in code instead."
    )


def store_from_config(config: StoreConfig) -> MemoryStore:
    """Return the store that a configuration describes."""
    stores: dict[str, Callable[..., MemoryStore]]
    stores = {"embedded": EmbeddedStore, "server": ServerStore, "cloud": CloudStore, "temporary": TemporaryStore}
    return stores[config.type](**config.model_dump(exclude={"type"}))
