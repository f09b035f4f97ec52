"""Every private name of Chroma that `storage.chroma.chroma_compat` touches, checked against the installed Chroma.

A failure here names the host version that broke, and what: mend it in `chroma_compat`, which is the only place.
"""

from __future__ import annotations

import inspect
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.api.client import Client
from chromadb.api.fastapi import FastAPI
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings, System
from chromadb.errors import InternalError

import autogen_persistent_memory
from autogen_persistent_memory.storage.chroma import chroma_compat
from autogen_persistent_memory.storage.repair.hnsw_files import INDEX_FILES

HOST = f"Chroma {chromadb.__version__}"
PACKAGE = Path(autogen_persistent_memory.__file__).parent


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    client = chroma_compat.open_folder(tmp_path / "store")
    yield client
    client.close()


def written(client: Any, rows: int = 3, **configuration: Any) -> Any:
    collection = client.create_collection(
        "rows", configuration={"hnsw": {"space": "cosine", **configuration}}, embedding_function=None
    )
    ids = [str(number) for number in range(rows)]
    metadatas = [{"text": id, "tags": ["a", "b"]} for id in ids]
    collection.upsert(ids=ids, embeddings=[[1.0, 0.5]] * rows, documents=ids, metadatas=metadatas)
    return collection


NAMES = [
    (SharedSystemClient, "_identifier_to_system"),
    (SharedSystemClient, "_identifier_to_refcount"),
    (SharedSystemClient, "_get_identifier_from_settings"),
    (Client, "get_user_identity"),
    (Client, "_validate_tenant_database"),
    (Client, "from_system"),
    (FastAPI, "resolve_url"),
    (System, "instance"),
]


@pytest.mark.parametrize(("owner", "name"), NAMES, ids=lambda value: getattr(value, "__name__", value))
def test_a_private_name_is_still_there(owner: Any, name: str) -> None:
    assert hasattr(owner, name), f"{HOST} has no {owner.__name__}.{name} any more."


def test_a_collection_can_be_kept_from_building_its_embedding_functions(client: Any) -> None:
    collection = written(client)
    assert hasattr(collection._model, "serialized_schema"), (
        f"{HOST} has no Collection._model.serialized_schema any more."
    )
    assert chroma_compat.bare(collection)._model.serialized_schema is None


def test_an_open_folder_is_found_by_its_path(client: Any, tmp_path: Path) -> None:
    folder = (tmp_path / "store").resolve()
    assert chroma_compat.is_open_in_process(folder), f"{HOST} does not list open folders by their path any more."
    assert not chroma_compat.is_open_in_process(tmp_path)
    other = chroma_compat.client_of_process(folder)
    assert other is not None, f"{HOST} does not let a client be made from an open system any more."
    assert chroma_compat.client_of_process(tmp_path) is None


def test_no_index_is_ever_evicted(tmp_path: Path) -> None:
    settings = Settings(is_persistent=True, persist_directory=str(tmp_path / "store"), anonymized_telemetry=False)
    chroma_compat.keep_every_index(settings)
    system = SharedSystemClient._identifier_to_system[str(tmp_path / "store")]
    size = system.instance(chromadb.api.ServerAPI).hnsw_cache_size
    assert size == chroma_compat._NEVER_REACHED, f"{HOST} ignores hnsw_cache_size."
    source = inspect.getsource(type(system.instance(chromadb.api.ServerAPI)))
    assert "hnsw_cache_size" in source, f"{HOST} does not pass hnsw_cache_size on any more."
    client = chromadb.PersistentClient(str(tmp_path / "store"), settings=settings)
    client.close()


def test_both_sessions_of_a_server_client_can_be_prepared(chroma_server: tuple[str, int]) -> None:
    host, port = chroma_server
    sessions: list[Any] = []
    settings = chroma_compat.quiet_settings(
        chroma_api_impl="chromadb.api.fastapi.FastAPI", chroma_server_host=host, chroma_server_http_port=port
    )
    client = chroma_compat.http_client(settings, "default_tenant", "default_database", sessions.append)
    assert len(sessions) == 2, f"{HOST} opens {len(sessions)} HTTP sessions where we prepare two."
    for session in sessions:
        assert {"request", "timeout", "close"} <= set(dir(session)), f"{HOST} does not use httpx.Client any more."
        session.close()
    client.close()
    assert chroma_compat.server_url(host, port, ssl=False).endswith("/api/v2")


def test_the_tables_that_are_read_without_chroma_have_their_columns(client: Any, tmp_path: Path) -> None:
    written(client)
    with closing(sqlite3.connect(tmp_path / "store" / chroma_compat.DATABASE)) as database:
        for table, columns in chroma_compat.DATABASE_TABLES.items():
            there = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            missing = [column for column in columns if column not in there]
            assert not missing, f"{HOST} has no {', '.join(missing)} in its table {table} any more."
        scopes = {scope for (scope,) in database.execute("SELECT scope FROM segments")}
        topics = {topic for (topic,) in database.execute("SELECT topic FROM embeddings_queue")}
    assert scopes == {"VECTOR", "METADATA"}, f"{HOST} has segments of the scopes {scopes}."
    (collection,) = client.list_collections()
    assert {topic.rpartition("/")[2] for topic in topics} == {str(collection.id)}, f"{HOST} names its topics {topics}."


def test_an_index_on_disk_has_the_files_that_are_checked(client: Any, tmp_path: Path) -> None:
    written(client, rows=120, sync_threshold=100, batch_size=50)
    (folder,) = [path for path in (tmp_path / "store").iterdir() if path.is_dir()]
    assert chroma_compat.SEGMENT.fullmatch(folder.name), f"{HOST} names the folder of an index {folder.name}."
    assert {path.name for path in folder.iterdir()} == set(INDEX_FILES), f"{HOST} writes other index files."


def test_a_list_that_is_too_long_blocks_the_log_in_the_way_that_is_recognised(client: Any) -> None:
    collection = written(client)
    with pytest.raises(InternalError) as caught:
        collection.upsert(ids=["big"], embeddings=[[1.0, 0.5]], metadatas=[{"tags": [str(n) for n in range(6000)]}])
    assert chroma_compat.is_blocked(caught.value), f"{HOST} reports a log that it cannot apply as {caught.value!r}."


def test_only_chroma_compat_touches_what_is_private_of_chroma() -> None:
    private = re.compile(
        r"SharedSystemClient|_identifier_to_|\._model\.serialized|\._admin_client|hnsw_cache_size|_validate_tenant"
    )
    guilty = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.name != "chroma_compat.py" and private.search(path.read_text(encoding="utf-8"))
    ]
    assert guilty == []


def test_every_table_of_chroma_that_is_queried_is_named_in_chroma_compat() -> None:
    query = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO) ([a-z_]+)\b|\.table\(\"([a-z_]+)\"")
    queried = {
        name
        for folder in ("storage", "maintenance")
        for path in (PACKAGE / folder).rglob("*.py")
        for found in query.findall(path.read_text(encoding="utf-8"))
        for name in found
        if name
    }
    assert queried - {"sqlite_master", "sqlite_schema"} <= chroma_compat.DATABASE_TABLES.keys()
