"""A SQLite file is read as SQLite reads it; of a damaged one all that is left is read, except deleted rows."""

from __future__ import annotations

import random
import re
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogen_persistent_memory.maintenance.salvage.damaged_sqlite import DamagedDatabase, Lost

SHAPES = {"things": ("n", "tn", "in", "fin", "bn"), "by_name": ("tn", "i")}
PAGE = 512  # the smallest there is, so that a few rows make a high tree
COUNT = 120
ROWS = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=2000),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.binary(max_size=2000),
    ),
    max_size=30,
)


def made(*changes: str, rows: list[Any] | None = None, page: int = PAGE) -> bytes:
    """Return the file of a database with these rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "database"
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"PRAGMA page_size = {page}")
            database.execute("PRAGMA secure_delete = OFF")
            database.execute(
                "CREATE TABLE things (id INTEGER PRIMARY KEY, name, size INTEGER, weight REAL, picture BLOB)"
            )
            database.execute("CREATE INDEX by_name ON things (name)")
            database.executemany("INSERT INTO things (name, size, weight, picture) VALUES (?, ?, ?, ?)", rows or [])
            database.commit()
            for change in changes:
                database.execute(change)
        return path.read_bytes()


def some(count: int = COUNT) -> list[Any]:
    chance = random.Random(1)
    return [
        (f"thing {number} " + "x" * chance.choice((0, 20, 900)), number, number / 2, b"p" * 5)
        for number in range(count)
    ]


def names(data: bytes) -> dict[int, Any]:
    return {number: row[1] for number, row in DamagedDatabase(data, SHAPES).table("things").rows.items()}


def entries(data: bytes) -> set[tuple[Any, ...]]:
    return set(DamagedDatabase(data, SHAPES).index("by_name"))


def without(data: bytes, page: int, filling: bytes = bytes(PAGE)) -> bytes:
    """Return the file with a page, counted from 1, overwritten."""
    return data[: (page - 1) * PAGE] + filling + data[page * PAGE :]


def pages(data: bytes) -> range:
    return range(1, len(data) // PAGE + 1)


WHOLE = made(rows=some())
EXPECTED = {number + 1: row[0] for number, row in enumerate(some())}


@given(ROWS, st.sampled_from([512, 1024, 4096, 65536]))
def test_rows_are_read_as_sqlite_reads_them(rows: list[Any], page: int) -> None:
    database = DamagedDatabase(made(rows=rows, page=page), SHAPES)
    assert database.table("things").rows == {number: (None, *row) for number, row in enumerate(rows, start=1)}
    assert database.table("things").gaps == []
    assert sorted(database.index("by_name"), key=repr) == sorted(
        ((row[0], number) for number, row in enumerate(rows, start=1)), key=repr
    )


def test_columns_that_were_added_later_are_empty_in_earlier_rows() -> None:
    data = made("ALTER TABLE things ADD COLUMN colour TEXT", rows=some(3))
    shapes = {"things": (*SHAPES["things"], "tn")}
    assert [row[-1] for row in DamagedDatabase(data, shapes).table("things").rows.values()] == [None] * 3


@pytest.mark.parametrize("filling", [bytes(PAGE), random.Random(2).randbytes(PAGE)], ids=["zeros", "rubbish"])
def test_a_row_survives_the_loss_of_any_page_in_its_table_or_its_index(filling: bytes) -> None:
    for page in pages(WHOLE)[1:]:
        database = DamagedDatabase(without(WHOLE, page, filling), SHAPES)
        table = database.table("things")
        found = {number: row[1] for number, row in table.rows.items()}
        lost = {number for number in EXPECTED if found.get(number, Lost.LOST) is Lost.LOST}
        assert {number: name for number, name in found.items() if number not in lost}.items() <= EXPECTED.items()
        assert len(lost) <= PAGE // 20, "only what was on that page"
        assert all(map(table.lacks, lost))
        assert {(EXPECTED[number], number) for number in lost} <= set(database.index("by_name"))


@pytest.mark.parametrize("rubbish", [bytes(20), b"\xff" * 20], ids=["zeros", "rubbish"])
def test_a_text_that_was_overwritten_in_part_is_lost_and_still_in_the_other_place(rubbish: bytes) -> None:
    places = [found.end() for found in re.finditer(b"thing 77 ", WHOLE)]
    assert len(places) == 2, "in the table and in the index"
    for place in places:
        database = DamagedDatabase(WHOLE[:place] + rubbish + WHOLE[place + len(rubbish) :], SHAPES)
        (indexed,) = [name for name, number in database.index("by_name") if number == 78]
        assert {database.table("things").rows[78][1], indexed} == {Lost.LOST, EXPECTED[78]}


def test_rows_below_a_lost_page_are_found_without_it() -> None:
    roots = _roots(WHOLE)
    assert names(without(WHOLE, roots["things"])) == EXPECTED
    assert len({number for _, number in entries(without(WHOLE, roots["by_name"]))}) > COUNT - 20


def test_a_file_without_its_first_page_is_read_if_its_pages_have_the_usual_size() -> None:
    data = made(rows=some(), page=4096)
    assert names(bytes(4096) + data[4096:]) == EXPECTED


@pytest.mark.parametrize("kept", [0, 1, 100, PAGE, 5 * PAGE + 77, len(WHOLE) // 2, len(WHOLE) - 1])
def test_the_rest_of_a_truncated_file_is_read(kept: int) -> None:
    found = {number: name for number, name in names(WHOLE[:kept]).items() if name is not Lost.LOST}
    assert found.items() <= EXPECTED.items()
    assert len(found) >= COUNT * (kept / len(WHOLE) - 0.5)


def test_deleted_rows_stay_deleted_if_the_tree_or_the_free_list_is_intact() -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) SELECT 'new ' || i FROM n"
    data = made("DELETE FROM things", f"INSERT INTO things (name) {numbers}", rows=some())
    new = {number: f"new {number}" for number in range(1, 61)}
    assert b"thing 100" in data
    root, unused = _roots(data)["things"], int.from_bytes(data[32:36], "big")
    leaf = sorted(DamagedDatabase(data, SHAPES)._trees["things"].pages.items(), key=lambda page: page[1])[0][0]
    for page, is_certain in ((root, True), (leaf, True), (unused, False)):
        database = DamagedDatabase(without(data, page), SHAPES)
        assert database.knows_what_was_deleted == is_certain
        assert {number: row[1] for number, row in database.table("things").rows.items()}.items() <= new.items()
        assert dict(database.remnants("things")).keys() & {100, 110}
    uncertain = without(data, unused)
    assert names(without(uncertain, leaf)).keys() <= new.keys(), "the others would fit into no gap"
    assert names(without(uncertain, root)).keys() > new.keys(), "there is no telling"


@given(st.lists(st.tuples(st.integers(0, len(WHOLE)), st.binary(min_size=1, max_size=3 * PAGE)), max_size=20))
def test_garbage_anywhere_raises_nothing(damages: list[tuple[int, bytes]]) -> None:
    file = bytearray(WHOLE)
    for at, rubbish in damages:
        file[at : at + len(rubbish)] = rubbish
    database = DamagedDatabase(bytes(file), SHAPES)
    assert len(database.table("things").rows) <= 3 * COUNT
    assert sum(1 for _ in database.index("by_name")) <= 3 * COUNT


def test_cycles_of_pages_are_not_followed_forever() -> None:
    root = _roots(WHOLE)["things"]
    start = (root - 1) * PAGE
    circle = WHOLE[: start + 8] + root.to_bytes(4, "big") + WHOLE[start + 12 :]
    assert names(circle).items() <= EXPECTED.items()


def _roots(data: bytes) -> dict[str, int]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with closing(sqlite3.connect(file.name)) as database:
            return dict(database.execute("SELECT name, rootpage FROM sqlite_schema"))
