"""Arguments are checked before anything is read or written."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogen_persistent_memory import NamespaceError, PersistentMemory, ProfileMemory, SessionMemory
from autogen_persistent_memory.core.checks import check_time, decode_json, encode_json
from autogen_persistent_memory.storage.chroma.rows import collection_name

GOOD_NAMES = [
    "user-42",
    "prod/acme/user-42",
    "a",
    "Ünïcödé/用户/🙂",
    "a b",
    "a..b",
    "...",
    "user@example.com",
    "x" * 512,
]
BAD_NAMES = [
    "",
    " ",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "a/./b",
    "../a",
    "a\nb",
    "a\x00b",
    "a\x7fb",
    "a\u2028b",
    "a\ud800b",
    " a",
    "a /b",
    "x" * 513,
    "x" * 10_000,
    None,
    42,
    b"a",
]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_namespace_may_be_any_path_of_plain_names(name: str) -> None:
    assert PersistentMemory(name, session=name).namespace == name


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:20])
def test_an_invalid_namespace_or_session_raises_at_once(name: str) -> None:
    for make in (PersistentMemory, ProfileMemory, lambda name: SessionMemory(name, "s")):
        with pytest.raises(NamespaceError, match="namespace"):
            make(name)
    with pytest.raises(NamespaceError, match="session"):
        SessionMemory("a", name)
    assert issubclass(NamespaceError, ValueError)


NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=60)


@given(NAMES, NAMES)
def test_two_namespaces_never_share_a_collection(one: str, other: str) -> None:
    assert (collection_name(one, "profile") == collection_name(other, "profile")) == (one == other)


@given(NAMES)
def test_chroma_accepts_every_collection_name(name: str) -> None:
    assert __import__("re").fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]", collection_name(name, "session"))


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


@given(JSON_VALUES)
def test_json_comes_back_with_the_same_types(value: object) -> None:
    back = decode_json(encode_json(value, "value"))
    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "value", [(1, 2), {1: "a"}, {"a": {1, 2}}, float("nan"), float("inf"), b"x", object(), "\ud800", {"a": (1,)}]
)
def test_a_value_that_json_would_change_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="value"):
        encode_json(value, "value")


def test_a_time_needs_a_timezone_and_comes_back_in_utc() -> None:
    with pytest.raises(ValueError, match="timezone"):
        check_time(datetime(2026, 1, 1), "at")
    berlin = timezone(timedelta(hours=1))
    assert check_time(datetime(2026, 1, 1, 1, tzinfo=berlin), "at") == datetime(2026, 1, 1, tzinfo=timezone.utc)
