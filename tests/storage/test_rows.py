from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_checks import JSON_VALUES, TEXT

from autogen_persistent_memory import MemoryRecord
from autogen_persistent_memory.core.checks import fold_kind
from autogen_persistent_memory.core.records import Selection
from autogen_persistent_memory.storage.chroma.rows import to_metadata, to_record, to_row, to_where

WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1), timezones=st.just(timezone.utc))
RECORDS = st.builds(
    MemoryRecord,
    id=st.just("id"),
    namespace=st.just("n"),
    content=WORDS,
    kind=WORDS.map(fold_kind),
    tags=st.lists(WORDS, max_size=3).map(tuple),
    key=st.none() | WORDS,
    source=st.none() | WORDS,
    session=st.none() | WORDS,
    sequence=st.none() | st.integers(0, 10**9),
    origin=st.sampled_from(["user", "agent", "tool", "extractor", "application"]),
    created_at=TIMES,
    updated_at=TIMES,
    expires_at=st.none() | TIMES,
    last_used_at=st.none() | TIMES,
    uses=st.integers(0, 10**9),
    pinned=st.booleans(),
    superseded_by=st.none() | WORDS,
    superseded_at=st.none() | TIMES,
    mime_type=st.sampled_from(["text/plain", "text/markdown", "application/json"]),
    metadata=st.dictionaries(TEXT, JSON_VALUES, max_size=3),
)


NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
RECORD = MemoryRecord(id="id", namespace="n", content="Likes tea", created_at=NOW, updated_at=NOW)


@given(RECORDS)
def test_a_record_comes_back_from_its_row_as_it_was(record: MemoryRecord) -> None:
    stored = {key: value for key, value in to_metadata(record).items() if value is not None}
    assert to_record("n", record.id, record.content, stored) == record


@pytest.mark.parametrize("unit", ["a", "word ", "é", "漢字", "😀\n"])
@pytest.mark.parametrize("count", [1, 3_000, 20_000])
def test_a_long_content_comes_back_whole_and_only_its_beginning_is_the_document(unit: str, count: int) -> None:
    record = replace(RECORD, content=unit * count)
    document, metadata = to_row(record, new=True)
    assert len(document) <= 16_000
    assert record.content.startswith(document)
    assert all(text.isascii() for name, text in metadata.items() if name == "rest")
    assert to_record("n", record.id, document, metadata) == record
    if "rest" in metadata:
        lost = {name: value for name, value in metadata.items() if name != "rest"}
        for damaged in (lost, metadata | {"rest": metadata["rest"][:-8]}, metadata | {"rest": "no"}):
            with pytest.raises(ValueError):  # noqa: PT011 (each says something else)
                to_record("n", record.id, document, damaged)


def test_a_content_that_became_short_has_no_rest() -> None:
    assert to_row(RECORD, new=False)[1]["rest"] is None


@given(RECORDS)
def test_a_row_is_what_chroma_can_store(record: MemoryRecord) -> None:
    for value in to_metadata(record).values():
        assert (
            value is None or isinstance(value, (str, int, bool)) or (value and all(isinstance(v, str) for v in value))
        )


FILTERS = [
    (Selection(), None),
    (Selection(believed_at=NOW), None),
    (Selection(kinds=("a", "b")), {"kind": {"$in": ["a", "A", "b", "B"]}}),
    (Selection(tags=("x",)), {"tags": {"$contains": "x"}}),
    (Selection(session="s", key="k"), {"$and": [{"session": "s"}, {"key": "k"}]}),
    (Selection(current_at=NOW), {"superseded": {"$ne": True}}),
    (Selection(expired_at=NOW), {"expires_at": {"$lte": 1767225600000000}}),
]


@pytest.mark.parametrize(("selection", "where"), FILTERS)
def test_a_selection_as_a_filter(selection: Selection, where: object) -> None:
    assert to_where(selection) == where
