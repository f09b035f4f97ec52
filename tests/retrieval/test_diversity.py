import time
from dataclasses import replace

import pytest
from toys import NOW, hit

from autogen_persistent_memory import MemoryHit, RecallPolicy
from autogen_persistent_memory.conversation.block import render
from autogen_persistent_memory.core.records import FACTS
from autogen_persistent_memory.retrieval.diversity import told_once, varied


def contents(*hits: MemoryHit) -> list[str]:
    return [one.record.content for one in varied(hits, 10)]


REPEATED = [
    ("Loves hiking.", "I really love hiking!"),
    ("The user's favourite colour is blue", "My favourite colour is blue"),
    ("東京が好きです", "東京が好きです。"),
]
DIFFERENT = [
    ("Loves hiking", "Does not love hiking"),
    ("I love hiking", "I don't love hiking"),
    ("The user loves hiking", "Bob loves hiking"),
    ("The user loves hiking", "The user's wife loves hiking"),
    ("Ann reports to Bob", "Bob reports to Ann"),
    ("The meeting is on 3 May", "The meeting is on 4 May"),
    ("What?", "Who?"),
    ("Prefers C", "Prefers C++"),
    ("Takes the pill before dinner", "Takes the pill after dinner"),
    ("The heater is on", "The heater is off"),
    ("It was -5 degrees", "It was 5 degrees"),
    ("All tests pass", "Some tests pass"),
    ("Flies from Paris to Rome", "Flies to Paris from Rome"),
    ("Only drinks tea", "Drinks tea"),
]


@pytest.mark.parametrize(("one", "other"), REPEATED)
def test_a_repetition_is_left_out(one: str, other: str) -> None:
    assert contents(hit(one, 0.9), hit(other, 0.8)) == [one]
    assert contents(hit(one, 0.8), hit(other, 0.9)) == [other]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_a_different_statement_is_not_a_repetition(one: str, other: str) -> None:
    assert contents(hit(one, 0.9), hit(other, 0.8)) == [one, other]


def test_a_fact_takes_the_place_of_a_message_that_states_it() -> None:
    message, fact = hit("I prefer tea", 0.9, kind="interaction"), hit("The user prefers tea.", 0.5)
    assert varied([message, fact], 10) == [fact]


def test_the_same_words_of_two_speakers_are_two_memories() -> None:
    ann, bob = hit("I love hiking", 0.9, source="Ann"), hit("I love hiking", 0.8, source="Bob")
    assert varied([ann, bob], 10) == [ann, bob]


def test_a_hit_much_like_another_comes_after_nearly_as_relevant_ones() -> None:
    alike = [hit(f"The deployment of the shop failed on day {number}", 0.6 - number / 100) for number in range(6)]
    other = hit("The shop runs on AWS", 0.5)
    assert contents(*alike, other)[1] == "The shop runs on AWS"
    weak = hit("The user has a cat", 0.3)
    assert contents(*alike, weak)[-1] == "The user has a cat"


def a_message(content: str, *facts: str, **fields: object) -> MemoryHit:
    told = hit(content, 0.9, kind="interaction", metadata={FACTS: list(facts)}, **fields)
    return replace(told, record=replace(told.record, id="message"))


def test_a_message_is_left_out_if_its_facts_say_all_of_it() -> None:
    fact = hit("The user lives in Oslo", 0.5)
    assert told_once([a_message("Hi! Well, I live in Oslo.", "x"), fact]) == [fact]
    assert told_once([fact, a_message("I live in Oslo. Can you help me?", "x")]) == [fact]


def test_a_message_that_tells_more_takes_the_place_of_its_facts() -> None:
    fact, other = (
        hit("The user lives in Oslo", 0.5),
        replace(hit("Likes tea"), record=replace(hit("Likes tea").record, id="y")),
    )
    message = a_message("I live in Oslo, near 12 Elm Street", "x")
    assert told_once([fact, other, message]) == [message, other]


def test_facts_dropped_for_a_message_come_back_if_it_does_not_fit() -> None:
    fact, message = (
        hit("The user lives in Oslo", 0.9),
        a_message("I live in Oslo. " + "The sea is grey today. " * 40, "x"),
    )
    policy = RecallPolicy(max_tokens=120)
    assert render([fact, message], block_id="a", policy=policy, now=NOW).hits == (fact,)


def test_many_hits_do_not_take_long() -> None:
    many = [hit(f"{number} bottles of beer on the wall number {number * 7}", 0.5) for number in range(2000)]
    started = time.thread_time()
    assert len(varied(many, 10)) == 2000
    assert time.thread_time() - started < 1


def test_near_identical_memories_do_not_fill_the_block() -> None:
    alike = [hit(f"Had coffee with milk at the office, cup {number}", 0.6) for number in range(20)]
    others = [hit("Is allergic to hazelnuts", 0.52), hit("Prefers oat milk", 0.5)]
    block = render([*alike, *others], block_id="a", policy=RecallPolicy(), now=NOW)
    assert len(block.hits) == 5
    assert "hazelnuts" in block.text
    assert "oat milk" in block.text


def test_the_budget_holds_the_set_that_is_worth_most() -> None:
    best, long = hit("Works at Globex", 0.9), hit("An anecdote about work " * 12, 0.62)
    short = [hit(f"{word} at work", 0.6) for word in ("Coffee", "Chess", "Tennis", "Choir")]
    block = render([best, long, *short], block_id="a", policy=RecallPolicy(max_tokens=150), now=NOW)
    assert {one.record.content for one in block.hits} == {one.record.content for one in (best, *short)}
