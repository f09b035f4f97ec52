"""The cache of a namespace: which memories may answer a question, also while memories are added and removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest

from autogen_persistent_memory import MemoryRecord
from autogen_persistent_memory.core.records import Selection
from autogen_persistent_memory.retrieval.cache import Asked, RecordCache
from autogen_persistent_memory.retrieval.ranking import ROW_OF, Candidates

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
CURRENT = Selection(current_at=NOW)
EAST, NORTH = (1.0, 0.0), (0.0, 1.0)


def a_record(content: str, **fields: object) -> MemoryRecord:
    told = NOW - timedelta(days=1)
    given = {"id": content, "created_at": told, "updated_at": told} | fields
    return MemoryRecord(namespace="n", content=content, **given)  # type: ignore[arg-type]


def a_cache(records: Sequence[MemoryRecord], vectors: Sequence[Sequence[float]] = ()) -> RecordCache:
    cache = RecordCache()
    cache.put("profile", records)
    cache.put_vectors("profile", "toy", {record.id: vector for record, vector in zip(records, vectors)})
    return cache


def asked(cache: RecordCache, query: str, selection: Selection = CURRENT, fetch: int = 10) -> Asked:
    return cache.ask(query, None, ["profile"], selection, fetch=fetch, by_words=5, session_weight=0.3)


def signal(candidates: Candidates | None, name: str) -> dict[str, float]:
    """Return what a signal says of each candidate."""
    assert candidates is not None
    values = candidates.signals[ROW_OF[name]].tolist()
    return {record.content: value for record, value in zip(candidates.records, values, strict=True)}


def test_candidates_are_the_nearest_and_those_with_the_words() -> None:
    facts = [a_record(content) for content in ("green tea", "black coffee", "cold milk", "green apples")]
    cache = a_cache(facts, [EAST, (1.0, 1.0), NORTH, NORTH])
    found = cache.candidates(asked(cache, "what is green", fetch=2), EAST, "toy", {})
    cosines = signal(found, "cosine")
    assert cosines == pytest.approx({"green tea": 1, "black coffee": 0.7071, "green apples": 0.7071}, abs=1e-4)
    assert signal(found, "keywords")["green apples"] > 0
    assert signal(found, "keywords")["black coffee"] == 0


def test_a_memory_with_the_very_words_counts_as_found_by_meaning() -> None:
    cache = a_cache([a_record("tea"), a_record("cold milk")], [EAST, NORTH])
    cosines = signal(cache.candidates(asked(cache, "cold milk", fetch=1), EAST, "toy", {}), "cosine")
    assert cosines == {"tea": 1, "cold milk": 1}


def test_a_record_that_only_the_store_has_is_a_candidate_too() -> None:
    cache = a_cache([a_record("tea")])
    stranger = a_record("Who drinks tea?", source="Ann", kind="interaction")
    from_store = {"profile": [(a_record("tea"), 0.5), (stranger, 0.25)]}
    question = asked(cache, "tea")._replace(speakers={"Ann"})
    found = cache.candidates(question, EAST, "toy", from_store)  # type: ignore[arg-type]
    assert signal(found, "cosine") == {"tea": 0.5, "Who drinks tea?": 0.25}
    assert signal(found, "speaker") == {"tea": 0, "Who drinks tea?": 1}
    assert signal(found, "question") == {"tea": 0, "Who drinks tea?": 1}
    assert signal(found, "keywords")["Who drinks tea?"] == 0


def test_a_record_removed_after_the_word_search_is_not_a_candidate() -> None:
    cache = a_cache([a_record("green tea"), a_record("green apples")], [EAST, NORTH])
    question = asked(cache, "green")
    cache.remove(["green tea"])
    assert signal(cache.candidates(question, EAST, "toy", {}), "cosine") == {"green apples": 0}


def test_a_changed_record_keeps_its_vector_and_an_expired_one_is_left_out() -> None:
    cache = a_cache([a_record("tea"), a_record("milk")], [EAST, EAST])
    cache.put("profile", [a_record("tea", source="Ann"), a_record("milk", expires_at=NOW)])
    question = asked(cache, "drinks")
    assert signal(cache.candidates(question, EAST, "toy", {}), "cosine") == pytest.approx({"tea": 1})
    before = question._replace(selection=CURRENT._replace(current_at=NOW - timedelta(seconds=1)))
    assert set(signal(cache.candidates(before, EAST, "toy", {}), "cosine")) == {"tea", "milk"}


def test_only_selected_records_answer() -> None:
    facts = [a_record(f"fact {number}", kind="fact" if number % 9 else "decision") for number in range(60)]
    cache = a_cache(facts, [(1.0, number / 60) for number in range(60)])
    question = asked(cache, "anything", CURRENT._replace(kinds=("decision",)), fetch=4)
    found = cache.candidates(question, EAST, "toy", {})
    assert set(signal(found, "cosine")) == {"fact 0", "fact 9", "fact 18", "fact 27"}


def test_trivial_messages_need_no_vector_and_never_answer() -> None:
    ok = a_record("ok, thanks", kind="interaction", origin="user")
    cache = a_cache([a_record("tea"), ok], [EAST])
    assert not cache.lacks_vectors("profile", "toy")
    assert set(signal(cache.candidates(asked(cache, "thanks"), EAST, "toy", {}), "cosine")) == {"tea"}


def test_a_record_answers_only_while_it_is_not_trivial() -> None:
    def said(content: str) -> MemoryRecord:
        return a_record(content, id="said", kind="interaction", origin="user")

    cache = a_cache([said("I drink green tea every day"), a_record("milk")], [EAST, NORTH])
    cache.put("profile", [said("ok, thanks")])
    assert set(signal(cache.candidates(asked(cache, "tea"), EAST, "toy", {}), "cosine")) == {"milk"}
    cache.put("profile", [said("I drink black tea every day")])
    assert cache.without_vector("profile", "toy", 5) == ["said"]
    cache.put_vectors("profile", "toy", {"said": EAST})
    found = signal(cache.candidates(asked(cache, "tea"), EAST, "toy", {}), "cosine")
    assert found == {"I drink black tea every day": 1, "milk": 0}


def test_a_cache_that_shrank_is_indexed_again_with_its_vectors() -> None:
    facts = [a_record(f"fact {number}") for number in range(1_100)]
    cache = a_cache(facts, [(1.0, number / 1_100) for number in range(1_100)])
    question = asked(cache, "fact 1099")
    cache.remove([fact.id for fact in facts[:1_095]])
    assert cache.candidates(question, NORTH, "toy", {}) is None  # its words were searched in the former index
    assert cache.can_search("profile", "toy", 2)
    cosines = signal(cache.candidates(asked(cache, "fact 1099", fetch=2), NORTH, "toy", {}), "cosine")
    assert {"fact 1099", "fact 1098"} <= set(cosines)
    assert cosines["fact 1099"] == pytest.approx(0.7068, abs=1e-3)


def test_a_table_without_all_its_vectors_cannot_answer() -> None:
    cache = a_cache([a_record("tea"), a_record("milk")], [EAST])
    assert not cache.can_search("profile", "toy", 2)
    assert cache.without_vector("profile", "toy", 5) == ["milk"]
    assert cache.candidates(asked(cache, "tea"), EAST, "toy", {}) is None
