"""Everything private of Chroma that we touch, in one place. `tests/project/test_hosts_chroma.py` checks each name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...core.lazy_regex import lazy

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection
    from chromadb.config import Settings

DATABASE = "chroma.sqlite3"
SEGMENT: re.Pattern[str] = lazy(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The name of the folder of an index, beside the database."""
DATABASE_TABLES: dict[str, tuple[str, ...]] = {
    "collections": ("id", "name", "dimension"),
    "collection_metadata": ("collection_id", "key", "str_value", "int_value", "float_value", "bool_value"),
    "segments": ("id", "type", "scope", "collection"),
    "max_seq_id": ("segment_id", "seq_id"),
    "embeddings": ("id", "segment_id", "embedding_id", "seq_id", "created_at"),
    "embedding_metadata": ("id", "key", "string_value", "int_value", "float_value", "bool_value"),
    "embeddings_queue": ("seq_id", "created_at", "operation", "topic", "id", "vector", "encoding", "metadata"),
    "embedding_fulltext_search_content": ("id", "c0"),
}
"""The tables of the database, and their columns, that are read without Chroma to inspect, repair and salvage a folder."""
_NEVER_REACHED = 1_000_000


def bare_collection(client: ClientAPI, name: str) -> Collection:
    """Return the collection of that name, without embedding functions.

    Raises:
        NotFoundError: There is none (an error of Chroma).
    """
    return bare(client.get_collection(name, embedding_function=None))


def bare(collection: Collection) -> Collection:
    """Return the same collection without the embedding functions that its stored configuration names.

    Chroma builds those functions at every write, and some of them load code or send texts to a stored address. We bring
    our own vectors and need none of them.
    """
    collection._model.serialized_schema = None
    return collection


def quiet_settings(**values: Any) -> Settings:
    """Return Chroma settings with its telemetry off."""
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False, **values)


def open_folder(path: Path) -> ClientAPI:
    """Open Chroma on a folder. A failed attempt leaves nothing behind, so that the next one can succeed."""
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient

    name = str(path)
    was_open = name in SharedSystemClient._identifier_to_system
    settings = quiet_settings(is_persistent=True, persist_directory=name)
    try:
        keep_every_index(settings)
        return chromadb.PersistentClient(name, settings=settings)
    except BaseException:
        if not was_open:  # Chroma would return the broken instance forever
            SharedSystemClient._identifier_to_system.pop(name, None)
            SharedSystemClient._identifier_to_refcount.pop(name, None)
        raise


def keep_every_index(settings: Settings) -> None:
    """Start Chroma, if it is not running, such that it never evicts an index by itself.

    It would do so with some dozens of collections, and load them again without the rows that it had not saved: those are
    then no longer found, or every search fails. `SharedClient` reopens the whole client now and then instead.
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


def is_open_in_process(folder: Path) -> bool:
    """Return whether this process has Chroma open on a folder, given by its real path. Does not import Chroma."""
    module = sys.modules.get("chromadb.api.shared_system_client")
    paths = [] if module is None else list(module.SharedSystemClient._identifier_to_system)
    return any(os.path.realpath(path) == str(folder) for path in paths)


def client_of_process(folder: Path) -> ClientAPI | None:
    """Return a client on the Chroma that this process has open on a folder, given by its real path, if it has one."""
    from chromadb.api.client import Client
    from chromadb.api.shared_system_client import SharedSystemClient

    for system in list(SharedSystemClient._identifier_to_system.values()):
        settings = system.settings
        if settings.is_persistent and Path(os.path.realpath(settings.persist_directory)) == folder:
            return cast("ClientAPI", Client.from_system(system))
    return None


def http_client(settings: Settings, tenant: str, database: str, each_session: Callable[[Any], None]) -> ClientAPI:
    """Return a client to a server. `each_session` is called with each of its two HTTP sessions before it is used."""
    from chromadb.api.client import Client

    class PreparedClient(Client):  # type: ignore[misc]
        def get_user_identity(self) -> Any:
            each_session(self._server._session)
            return super().get_user_identity()

        def _validate_tenant_database(self, tenant: str, database: str) -> None:
            each_session(self._admin_client._server._session)
            super()._validate_tenant_database(tenant, database)

    return cast("ClientAPI", PreparedClient(tenant=tenant, database=database, settings=settings))


def server_url(host: str, port: int, *, ssl: bool) -> str:
    """Return the address of a server's API."""
    from chromadb.api.fastapi import FastAPI

    address = {"chroma_server_host": host, "chroma_server_http_port": port, "chroma_server_ssl_enabled": ssl}
    return str(FastAPI.resolve_url(**address, default_api_path="/api/v2"))


def is_blocked(error: BaseException | str) -> bool:
    """Return whether this is how Chroma fails, or what its server answers, when it cannot apply its log of writes."""
    return "Failed to apply logs" in str(error)


def is_failure(error: BaseException) -> bool:
    """Return whether this is how Chroma fails; its Rust core panics outside of `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
