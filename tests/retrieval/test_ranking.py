import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogen_persistent_memory import MemoryHit, MemoryRecord, RecallPolicy
from autogen_persistent_memory.core.records import SIGNALS
from autogen_persistent_memory.retrieval.ranking import ROW_OF, Candidates, frequency, rank, recency, relevance

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)


class Candidate(NamedTuple):
    record: MemoryRecord
    signals: Mapping[str, float]


def candidate(content: str, similarity: float, *, days: float = 0, **fields: object) -> Candidate:
    written = NOW - timedelta(days=days)
    record = MemoryRecord(
        id=content,
        namespace="n",
        content=content,
        created_at=written,
        updated_at=written,
        **fields,  # type: ignore[arg-type]
    )
    return Candidate(record, {"cosine": max(0.0, similarity)})


def ranked(
    candidates: Sequence[Candidate], limit: int, policy: RecallPolicy = RecallPolicy(), **options: Any
) -> list[MemoryHit]:
    signals = np.zeros((len(ROW_OF), len(candidates)))
    for column, candidate in enumerate(candidates):
        for name, value in candidate.signals.items():
            signals[ROW_OF[name], column] = value
    columns = Candidates([candidate.record for candidate in candidates], signals)
    return rank(columns, now=NOW, policy=policy, limit=limit, **options)


def order(*candidates: Candidate, limit: int = 5, **options: bool) -> list[str]:
    return [hit.record.content for hit in ranked(candidates, limit, **options)]


@pytest.mark.parametrize(("days", "expected"), [(0, 0.953), (20, 0.731), (30, 0.5), (40, 0.269), (365, 0.0)])
def test_recency_is_a_sigmoid_around_thirty_days(days: float, expected: float) -> None:
    assert recency(timedelta(days=days)) == pytest.approx(expected, abs=0.001)


def test_recency_of_absurd_ages() -> None:
    assert recency(timedelta(days=999_999)) == pytest.approx(0)
    assert recency(-timedelta(days=999_999)) == pytest.approx(1)


def test_frequency_grows_with_use_and_stays_below_one() -> None:
    values = [frequency(uses) for uses in (0, 1, 5, 50, 10_000)]
    assert values[0] == 0
    assert values == sorted(values)
    assert values[-1] < 1


def test_the_score_is_the_weighted_sum_of_its_parts() -> None:
    (hit,) = ranked([candidate("x", 0.5, days=30, uses=5)], 1)
    assert (hit.similarity, hit.recency, hit.frequency) == (0.5, 0.5, 0.5)
    assert hit.score == pytest.approx(0.6 * 0.5 + 0.2 * 0.5 + 0.2 * 0.5)
    policy = RecallPolicy(similarity_weight=1.0, recency_weight=0.0, frequency_weight=0.0)
    (hit,) = ranked([candidate("x", 0.3, days=1, uses=9)], 1, policy)
    assert hit.score == pytest.approx(0.3)


def test_a_fresh_irrelevant_memory_never_displaces_an_old_right_one() -> None:
    old = candidate("old and right", 0.7, days=400)
    fresh = [candidate(f"fresh {number}", 0.3, uses=100) for number in range(5)]
    assert "old and right" in order(old, *fresh, limit=3)
    assert order(old, *fresh, limit=1) == ["old and right"]


def test_recency_and_frequency_decide_between_the_comparably_relevant() -> None:
    assert order(candidate("old", 0.50, days=300), candidate("new", 0.49), limit=1) == ["new"]
    assert order(candidate("unused", 0.50), candidate("used", 0.49, uses=20), limit=1) == ["used"]


def test_a_memory_used_again_is_fresh_again() -> None:
    used = candidate("used", 0.5, days=300, last_used_at=NOW)
    assert ranked([used], 1)[0].recency > 0.9


def test_a_preference_comes_before_equally_relevant_chatter() -> None:
    chatter = candidate("chatter", 0.5, kind="interaction")
    assert order(chatter, candidate("preference", 0.5, kind="preference")) == ["preference", "chatter"]
    assert order(chatter, candidate("preference", 0.5, kind="preference"), limit=1) == ["preference"]
    assert order(candidate("fact", 0.5), candidate("preference", 0.5, kind="preference"))[0] == "preference"


def test_only_similarity_lets_a_memory_in() -> None:
    weak, right = candidate("weak", 0.1, uses=1000), candidate("right", 0.4, days=500)
    chatter = candidate("chatter", 0.4, kind="interaction")
    assert order(weak, right, chatter, only_relevant=True) == ["right"]
    assert len(order(weak, right, chatter)) == 3


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 4000), st.integers(0, 10_000)), max_size=30),
    st.integers(1, 10),
)
def test_scores_are_shares_and_the_list_is_sorted_and_short(rows: list[tuple[float, float, int]], limit: int) -> None:
    candidates = [
        candidate(str(number), similarity, days=days, uses=uses) for number, (similarity, days, uses) in enumerate(rows)
    ]
    hits = ranked(candidates, limit)
    assert len(hits) == min(limit, len(rows))
    assert all(0 <= value <= 1 for hit in hits for value in (hit.score, hit.similarity, hit.recency, hit.frequency))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_every_signal_counts_and_is_explained() -> None:
    signals = {
        "cosine": 0.1,
        "keywords": 0.5,
        "session": 0.4,
        "neighbours": 0.3,
        "particulars": 2.0,
        "speaker": 1.0,
        "question": 1.0,
        "standing": 1.0,
        "assistant": 1.0,
    }
    assert signals.keys() == ROW_OF.keys()
    (hit,) = ranked([Candidate(candidate("Do I?", 0.2).record, signals)], 1)
    parts = (hit.cosine, hit.keywords, hit.session, hit.neighbours, hit.particulars, hit.speaker)
    parts += (hit.question, hit.standing, hit.assistant)
    assert parts == pytest.approx((0.1, 0.4 * 0.5, 0.2 * 0.4, 0.25 * 0.3, 0.04 * 2, 0.2, -0.1, 0.15, 0.1))
    assert hit.similarity == pytest.approx(0.8 + 0.2 * -math.expm1(-(sum(parts) - 0.8) / 0.2))
    assert "+0.20 keywords" in hit.reasons
    assert "-0.10 question" in hit.reasons
    assert all(signal.name in hit.reasons and signal.description for signal in SIGNALS)


def test_every_signal_is_weighed_by_a_field_of_the_policy() -> None:
    weights = {signal.weight for signal in SIGNALS}
    assert weights - {None} <= RecallPolicy.model_fields.keys()
    assert [signal.name for signal in SIGNALS if signal.weight is None] == ["cosine"]


def test_relevance_beyond_the_scale_stays_in_order_and_below_one() -> None:
    hits = ranked([candidate(str(number), number / 2) for number in range(6)], 9)
    assert [hit.record.content for hit in hits] == ["5", "4", "3", "2", "1", "0"]
    assert all(hit.similarity < 1 for hit in hits)


def test_skipped_memories_make_room_and_only_those_that_would_get_in_are_checked() -> None:
    candidates = [candidate(str(number), 0.7 - number / 10) for number in range(7)]
    asked = list[str]()

    def is_first(record: MemoryRecord) -> bool:
        asked.append(record.content)
        return record.content == "0"

    hits = ranked(candidates, 2, skip=is_first)
    assert [hit.record.content for hit in hits] == ["1", "2"]
    assert asked == ["0", "1", "2"]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100), st.integers(0, 30), st.booleans()), max_size=40),
    st.integers(1, 10),
)
def test_the_same_get_in_as_by_a_plain_comparison_of_all(
    rows: list[tuple[float, float, int, bool]], limit: int
) -> None:
    candidates = [
        candidate(str(number), similarity, days=days, uses=uses)
        for number, (similarity, days, uses, _) in enumerate(rows)
    ]
    skipped = {str(number) for number, (*_, is_skipped) in enumerate(rows) if is_skipped}
    everybody = [hit for hit in ranked(candidates, len(rows) + 1) if hit.record.content not in skipped]
    expected = sorted(map(relevance, everybody), reverse=True)[:limit]
    hits = ranked(candidates, limit, skip=lambda record: record.content in skipped)
    assert sorted(map(relevance, hits), reverse=True) == pytest.approx(expected)
    assert skipped.isdisjoint(hit.record.content for hit in hits)
