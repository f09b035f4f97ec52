"""Everything private of Chroma that we touch, in one place; `tests/project/test_hosts.py` checks each name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection
    from chromadb.config import Settings

_NEVER_REACHED = 1_000_000


def bare_collection(client: ClientAPI, name: str) -> Collection:
    """The collection of that name, which embeds nothing by itself.

    Raises:
        NotFoundError: There is none (an error of Chroma).
    """
    return bare(client.get_collection(name, embedding_function=None))


def bare(collection: Collection) -> Collection:
    """Return the same collection without the embedding functions that its stored configuration names.

    Chroma builds those functions at every write from what is stored with a collection, and some of them load code or send
    texts to the address that is stored with them. We bring our own vectors and need none of them.
    """
    collection._model.serialized_schema = None
    return collection


def open_folder(path: Path) -> ClientAPI:
    """Open Chroma on a folder. An attempt that fails leaves nothing behind, so that the next one can succeed."""
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient

    name = str(path)
    was_open = name in SharedSystemClient._identifier_to_system
    settings = quiet_settings(is_persistent=True, persist_directory=name)
    try:
        keep_every_index(settings)
        return chromadb.PersistentClient(name, settings=settings)
    except BaseException:
        if not was_open:  # Chroma would hand out the broken instance for ever
            SharedSystemClient._identifier_to_system.pop(name, None)
            SharedSystemClient._identifier_to_refcount.pop(name, None)
        raise


def keep_every_index(settings: Settings) -> None:
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


def quiet_settings(**values: Any) -> Settings:
    """Return Chroma settings with its telemetry off."""
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False, **values)
