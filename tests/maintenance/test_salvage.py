"""What is left of a damaged database is found, wherever Chroma stores it a second time."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from damaged import (
    DATABASE,
    LONG,
    NAMESPACES,
    PAGE,
    Contents,
    contents,
    leaves_of,
    make_whole,
    overwrite,
    root_of,
    told_in,
)
from stocked import stock

from autogen_persistent_memory.maintenance.salvage import recovery
from autogen_persistent_memory.maintenance.salvage.damaged_sqlite import Lost
from autogen_persistent_memory.maintenance.salvage.recovery import to_memories
from autogen_persistent_memory.maintenance.salvage.salvage import _open_damaged, salvage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_whole(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture(scope="module")
def expected(whole: Path) -> Contents:
    return asyncio.run(contents(whole))


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A copy of the store, to be damaged."""
    shutil.copytree(whole, tmp_path / "store")
    return tmp_path / "store"


def lose_owners_of_rows(path: Path, *, traces: bool) -> None:
    """Delete the segments and empty the log, which both name the owner; with or without traces in unused pages."""
    with closing(sqlite3.connect(path / DATABASE, isolation_level=None)) as database:
        database.execute(f"PRAGMA secure_delete = {'OFF' if traces else 'ON'}")
        if not traces:
            database.execute("VACUUM")
        database.execute("DELETE FROM embeddings_queue")
    overwrite(path, root_of(path, "segments"))


def found_in(path: Path) -> recovery.Contents:
    return to_memories(salvage(path))


def ids_in(finds: recovery.Contents) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {namespace: set() for namespace in NAMESPACES}
    for find in finds.tables:
        found[find.namespace] |= find.records.keys()
    for namespace, entries in finds.values.items():
        found[namespace] |= {f"{space}:{name}" for space, name in entries if space == "value"}
    return found


def test_whichever_page_is_lost_everything_is_recovered(path: Path, expected: Contents) -> None:
    whole = (path / DATABASE).read_bytes()
    everything = {namespace: set(items) for namespace, items in expected.items()}
    assert ids_in(found_in(path)) == everything
    leaves = [page for table in ("embeddings", "embedding_metadata") for page in leaves_of(path, table)[::4]]
    for page in (*range(1, 50), *leaves):
        overwrite(path, page)
        finds = found_in(path)
        assert ids_in(finds) == everything, page
        assert finds.missing == 0, page
        overwrite(path, page, whole[(page - 1) * PAGE : page * PAGE])


def test_a_lost_text_is_recovered_from_the_full_text_index(path: Path, expected: Contents) -> None:
    def is_lost_there() -> bool:
        with _open_damaged(path) as database:
            rows = database.table("embedding_fulltext_search_content").rows.values()
            return any(Lost.LOST in row for row in rows)

    whole = (path / DATABASE).read_bytes()
    pages = [whole[start : start + PAGE] for start in range(0, len(whole), PAGE)]
    for number, page in enumerate(pages, start=1):
        if LONG[:100].encode() in page and page[0] == 0:  # its overflow page, not the one it shares with other rows
            overwrite(path, number)
            if is_lost_there():
                overwrite(path, number, page)
    assert ids_in(found_in(path)) == {namespace: set(items) for namespace, items in expected.items()}


def test_the_owner_of_rows_is_taken_from_the_log_and_never_guessed(path: Path, expected: Contents) -> None:
    copy = shutil.copytree(path, path.with_name("copy"))
    lose_owners_of_rows(path, traces=True)
    assert ids_in(found_in(path)) == {namespace: set(items) for namespace, items in expected.items()}
    lose_owners_of_rows(copy, traces=False)
    finds = found_in(copy)
    assert (finds.tables, finds.values) == ([], {})
    documents = {row["metadata"].get("chroma:document") for row in finds.leftovers}
    assert documents >= {record.content for record in told_in(expected)}


async def test_rows_belong_to_the_only_collection(tmp_path: Path) -> None:
    await stock(tmp_path, 20)
    await asyncio.to_thread(lose_owners_of_rows, tmp_path, traces=False)
    (find,) = (await asyncio.to_thread(found_in, tmp_path)).tables
    assert (find.namespace, find.table, len(find.records)) == ("ann", "profile", 20)
