from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import count

import pytest

from autogen_persistent_memory import MemoryRecord
from autogen_persistent_memory.retrieval.conflicts import Resolved, newest_of_each_key, resolve

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
_ids = count()


def record(content: str, *, days: float = 0, **fields: object) -> MemoryRecord:
    written = NOW - timedelta(days=days)
    defaults = {"id": f"r{next(_ids)}", "namespace": "n", "created_at": written, "updated_at": written}
    return MemoryRecord(content=content, **{**defaults, **fields})  # type: ignore[arg-type]


def take_in(newcomers: list[MemoryRecord], known: list[MemoryRecord]) -> Resolved:
    return resolve(newcomers, known, NOW)


def test_a_new_statement_is_added_to_the_known_ones() -> None:
    known, new = record("Likes tea"), record("Likes coffee")
    assert take_in([new], [known]) == Resolved(new=[new], changed=[], outcome=[new])


def test_a_restatement_counts_as_a_use_and_keeps_the_known_wording() -> None:
    known = record("Likes tea", days=9, tags=("drink",), metadata={"a": 1, "b": 1}, session="s1", sequence=3)
    again = record("likes the tea.", tags=("hot",), metadata={"b": 2}, source="Ann", session="s2", sequence=1)
    resolved = take_in([again], [known])
    assert resolved.new == []
    (merged,) = resolved.changed
    assert resolved.outcome == [merged]
    assert (merged.id, merged.content, merged.created_at) == (known.id, "Likes tea", known.created_at)
    assert (merged.uses, merged.last_used_at, merged.updated_at) == (1, NOW, again.updated_at)
    assert (merged.tags, merged.metadata, merged.source) == (("drink", "hot"), {"a": 1, "b": 2}, "Ann")
    assert (merged.session, merged.sequence) == ("s2", 1)


def test_an_older_restatement_only_changes_the_creation_time() -> None:
    known = record("Likes tea", days=1, metadata={"a": "later"}, session="s2")
    merged = take_in([record("Likes tea", days=9, metadata={"a": "earlier"}, session="s1")], [known]).outcome[0]
    assert (merged.created_at, merged.updated_at) == (NOW - timedelta(days=9), known.updated_at)
    assert (merged.metadata, merged.session) == ({"a": "later"}, "s2")


JSON_PAIRS = [
    ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', True),
    ('{"id": "A"}', '{"id": "a"}', False),
    ('{"a": 1}', '{"a": "1"}', False),
    ('{"v": []}', '{"v": {}}', False),
    ('{"t": "the who"}', '{"t": "who"}', False),
]


@pytest.mark.parametrize(("one", "other", "same"), JSON_PAIRS)
def test_json_is_the_same_only_if_it_is_equal(one: str, other: str, same: bool) -> None:
    known, new = record(one, mime_type="application/json"), record(other, mime_type="application/json")
    assert (take_in([new], [known]).new == []) == same


def test_the_same_words_are_different_memories_when_speaker_key_or_type_differ() -> None:
    for change in ({"source": "Bob"}, {"key": "other"}, {"mime_type": "text/markdown"}, {"kind": "interaction"}):
        known = record("I like tea", source="Ann", key="drink")
        new = replace(known, id="new", **change)
        assert take_in([new], [known]).new == [new], change


def test_interactions_are_never_merged() -> None:
    first, second = record("ok", kind="interaction"), record("ok", kind="interaction")
    assert take_in([first, second], []).new == [first, second]


def test_restatements_within_one_batch_are_merged_too() -> None:
    first, second = record("Likes tea"), record("likes tea!")
    resolved = take_in([first, second], [])
    assert [one.content for one in resolved.new] == ["Likes tea"]
    assert [one.id for one in resolved.outcome] == [first.id, first.id]
    assert resolved.new[0].uses == 1


def test_a_sharper_kind_wins_over_plain_fact_and_the_longer_life_over_the_shorter() -> None:
    fact, temporary = record("Likes tea"), record("Likes tea", kind="temporary", expires_at=NOW + timedelta(days=7))
    preference = record("Likes tea", kind="preference")
    assert take_in([preference], [fact]).outcome[0].kind == "preference"
    assert take_in([fact], [preference]).outcome[0].kind == "preference"
    for one, other in ((fact, temporary), (temporary, fact)):
        merged = take_in([other], [one]).outcome[0]
        assert (merged.kind, merged.expires_at) == ("fact", None)


def test_a_newer_statement_under_the_same_key_supersedes_the_older() -> None:
    old, new = record("Lives in Rome", days=5, key="home"), record("Lives in Oslo", key="home")
    resolved = take_in([new], [old])
    assert resolved.new == [new]
    assert resolved.changed == [replace(old, superseded_by=new.id, superseded_at=new.created_at)]


def test_an_older_statement_that_arrives_late_becomes_history() -> None:
    current, late = record("Lives in Oslo", days=1, key="home"), record("Lives in Rome", days=9, key="home")
    resolved = take_in([late], [current])
    assert resolved.changed == []
    assert resolved.new == [replace(late, superseded_by=current.id, superseded_at=current.created_at)]


def test_a_chain_within_one_batch_leaves_one_current() -> None:
    chain = [record(f"Lives in {town}", key="home") for town in ("Rome", "Oslo", "Rome")]
    resolved = take_in(chain, [])
    assert [one.superseded_by for one in resolved.outcome] == [chain[1].id, chain[2].id, None]


def test_a_statement_told_late_is_linked_into_the_middle_of_its_history() -> None:
    rome, oslo = record("Lives in Rome", days=9, key="home"), record("Lives in Oslo", days=1, key="home")
    (rome,) = take_in([oslo], [rome]).changed
    late = record("Lives in Bonn", days=5, key="home")
    resolved = take_in([late], [rome, oslo])
    assert resolved.changed == [replace(rome, superseded_by=late.id, superseded_at=late.created_at)]
    assert resolved.new == [replace(late, superseded_by=oslo.id, superseded_at=oslo.created_at)]


def test_of_two_current_records_under_one_key_the_newer_counts() -> None:
    older, newer, other = record("Lives in Rome", days=5, key="home"), record("Lives in Oslo", key="home"), record("x")
    assert newest_of_each_key([older, newer, other]) == [newer, other]
    assert newest_of_each_key([newer, other, older]) == [newer, other]
    assert newest_of_each_key([newer, other, other]) == [newer, other]


def test_a_statement_that_gets_a_key_supersedes_the_one_under_it() -> None:
    loose, holder = record("Lives in Oslo", days=2), record("Lives in Rome", days=3, key="home")
    again = record("Lives in Oslo", key="home")
    resolved = take_in([again], [loose, holder])
    changed = {one.id: one for one in resolved.changed}
    assert changed[loose.id].key == "home"
    assert changed[holder.id].superseded_by == loose.id


def test_in_a_batch_the_later_statement_under_a_key_wins_also_when_it_restates() -> None:
    known = record("Lives in Oslo", days=3)
    batch = [record("Lives in Rome", key="home"), record("Lives in Oslo", key="home")]
    rome, oslo = take_in(batch, [known]).outcome
    assert (rome.superseded_by, oslo.superseded_by) == (known.id, None)


def test_forgotten_and_expired_statements_are_not_linked_again() -> None:
    dangling = record("Lives in Rome", days=5, key="home", superseded_by="forgotten", superseded_at=NOW)
    expired = record("Lives in Bonn", days=2, key="home", expires_at=NOW - timedelta(days=1))
    late = record("Lives in Oslo", days=9, key="home")
    assert take_in([late], [dangling, expired]).outcome == [late]
