"""Facts by rule: the table of statements, and robustness against any text."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toys import NOW

from autogen_persistent_memory import RuleExtractor
from autogen_persistent_memory.extraction.english import extract_facts
from autogen_persistent_memory.extraction.extractor import Fact, Message

TABLE: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "statements.jsonl").read_text("utf-8").splitlines()
]
ROWS = [row for row in TABLE if "speaker" not in row]
BY_AGENTS = [row for row in TABLE if "speaker" in row]


@dataclass
class Score:
    """How well the rules did on some rows."""

    right: int = 0
    wrong: int = 0
    missed: int = 0
    misses: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)

    def __str__(self) -> str:
        return f"precision {self.precision:.3f}, recall {self.recall:.3f}\n" + "\n".join(self.misses)


def is_expected(fact: Fact, expected: dict[str, Any]) -> bool:
    said = fact.content.lower()
    ends = expected.get("ends")
    return (
        all(words.lower() in said for words in expected["says"])
        and fact.kind in expected["kind"].split("|")
        and fact.key == expected["key"]
        and (
            ends is None
            or (
                fact.ends is not None
                and fact.ends.key == ends["key"]
                and ends["words"].lower() in fact.ends.words.lower()
            )
        )
    )


def score(rows: list[dict[str, Any]]) -> Score:
    result = Score()
    for row in rows:
        facts = extract_facts(row["text"])
        left = list(row["facts"])
        for fact in facts:
            match = next((expected for expected in left if is_expected(fact, expected)), None)
            if match is None:
                result.wrong += 1
                result.misses.append(f"  too much from {row['text']!r}: {fact}")
            else:
                result.right += 1
                left.remove(match)
        result.missed += len(left)
        result.misses += [f"  not found in {row['text']!r}: {expected}" for expected in left]
    return result


def test_the_rules_find_most_facts_and_little_else() -> None:
    result = score(ROWS)
    assert result.precision >= 0.95, str(result)
    assert result.recall >= 0.85, str(result)


@pytest.mark.parametrize("row", BY_AGENTS, ids=lambda row: row["text"][:30])
async def test_messages_of_agents_yield_no_facts(row: dict[str, Any]) -> None:
    said = Message(id="x", source=row["speaker"], text=row["text"], by_user=False, at=NOW)
    assert await RuleExtractor().extract_now(said) == []


def test_half_of_the_table_tells_nothing() -> None:
    telling = sum(bool(row["facts"]) for row in ROWS)
    assert len(ROWS) >= 240
    assert 0.45 <= telling / len(ROWS) <= 0.55
    assert len({row["domain"] for row in ROWS}) >= 10


def test_facts_are_in_the_third_person() -> None:
    for row in ROWS:
        for fact in extract_facts(row["text"]):
            assert not re.search(r"\b(?:I|my|me|we|our|(?<!\d )am|I'm)\b", fact.content), fact
            assert fact.content.endswith("."), fact
            assert fact.content[0] == fact.content[0].upper(), fact


@pytest.mark.parametrize(
    ("key", "statements"),
    [
        ("user/home", ["I live in Berlin.", "I moved to Lisbon last month.", "I'm now based in Oslo."]),
        (
            "user/address",
            ["My address is 12 Baker Street.", "I moved to 7 Hill Road, Bristol.", "I live at 3 Elm Lane."],
        ),
        ("user/employer", ["I work at Acme.", "I just joined Globex.", "I started a new job at Initech."]),
        ("user/job", ["I'm a teacher.", "I became a nurse.", "I was promoted to head of sales."]),
        ("user/diet", ["I'm vegetarian.", "I eat meat again.", "I went vegan."]),
        (
            "user/favourite/color",
            ["My favourite colour is blue.", "my favorite color is green", "Red is my favourite colour."],
        ),
        (
            "user/preference/theme",
            ["I prefer dark mode.", "I switched to the light theme.", "I'm using dark mode again."],
        ),
        (
            "user/preference/language",
            ["I prefer TypeScript.", "I switched from Go to Rust.", "My favourite language is C#."],
        ),
        (
            "project/database",
            [
                "We use PostgreSQL as our database.",
                "We migrated from PostgreSQL to MySQL.",
                "We decided to go with SQLite for the database.",
                "Our database is MariaDB.",
            ],
        ),
        ("project/frontend-framework", ["We use React.", "My team now uses Vue.", "We replaced Vue with Svelte."]),
    ],
)
def test_statements_of_the_same_thing_share_a_slot(key: str, statements: list[str]) -> None:
    for statement in statements:
        assert [fact.key for fact in extract_facts(statement)] == [key], statement


@pytest.mark.parametrize(
    "statements",
    [
        ["I like tea.", "I like hiking."],
        ["I'm allergic to nuts.", "I'm allergic to cats."],
        ["I have a dog named Rex.", "My cat is called Miso."],
        ["I speak German.", "I speak Polish."],
        ["My friend Alice likes tea.", "My friend Bob likes coffee."],
        ["My daughter's name is Mia.", "My daughter's name is Zoe."],
    ],
)
def test_things_that_can_be_many_have_no_slot(statements: list[str]) -> None:
    for statement in statements:
        assert [fact.key for fact in extract_facts(statement)] == [None], statement


def test_a_relatives_facts_never_fill_the_users_own_slots() -> None:
    own = {
        fact.key
        for text in ("I live in Rome.", "I work at Acme.", "I'm vegan.", "I'm 40.")
        for fact in extract_facts(text)
    }
    for text in ("My wife lives in Rome.", "My son works at Acme.", "My mother is vegan.", "My brother is 40."):
        (fact,) = extract_facts(text)
        assert fact.key is not None
        assert fact.key not in own


@pytest.mark.parametrize(
    ("before", "after", "is_over"),
    [
        ("I work at Acme.", "I no longer work at Acme.", True),
        ("I work at Globex.", "I no longer work at Acme.", False),
        ("I work at Acme.", "I quit my job.", True),
        ("I'm vegetarian.", "I'm not vegetarian any more.", True),
        ("I use Vim.", "I stopped using Vim.", True),
        ("I use Emacs.", "I stopped using Vim.", False),
        ("I love coffee.", "I don't drink coffee anymore.", True),
        ("I'm allergic to cats.", "I no longer like cats.", False),
        ("I play tennis every Sunday.", "I stopped playing tennis.", True),
        ("I'm flying to Rome next week.", "The trip to Rome has been cancelled.", True),
        ("We use Jira.", "We don't use Jira any more.", True),
        ("Our cat is called Minka.", "Our cat Minka died last night.", True),
    ],
)
def test_an_ending_ends_what_it_names_and_nothing_else(before: str, after: str, is_over: bool) -> None:
    (known,) = extract_facts(before)
    (over,) = extract_facts(after)
    assert over.ends is not None
    assert over.key is None
    assert over.ends.ends(known.content, known.key, known.tags) is is_over


def test_a_decision_keeps_its_reason() -> None:
    (fact,) = extract_facts("We decided to use PostgreSQL because we need JSONB.")
    assert fact == Fact(
        content="The user's team decided to use PostgreSQL because they need JSONB.",
        kind="decision",
        tags=("decision",),
        key="project/database",
        quote="We decided to use PostgreSQL because we need JSONB",
    )


FRAGMENTS = [
    "I",
    "we",
    "my",
    "our",
    "am",
    "I'm",
    "live",
    "in",
    "Berlin",
    "work",
    "at",
    "Acme",
    "prefer",
    "not",
    "if",
    "?",
    ".",
    ",",
    ":",
    ";",
    "\n",
    "```",
    ">",
    '"',
    "'",
    "use",
    "Python",
    "because",
    "and",
    "but",
    "moved",
    "to",
    "never",
    "always",
    "remember",
    "that",
    "died",
    "7",
]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400) | st.lists(st.sampled_from(FRAGMENTS), max_size=60).map(" ".join))
@example("use-python")
def test_any_text_can_be_read(text: str) -> None:
    for fact in extract_facts(text):
        assert 0 < len(fact.content) <= 300


@pytest.mark.parametrize(
    "unit",
    [
        "I live in Berlin. ",
        "I ",
        "a",
        "my name is ",
        '"',
        "'",
        "we use ",
        "and I ",
        "I prefer ",
        ", ",
        "\n",
        "I really ",
        "moved from ",
        "x y",
        "the team ",
        "```\n",
        "A. ",
    ],
)
def test_a_megabyte_is_read_within_seconds(unit: str) -> None:
    text = (unit * (1_000_000 // len(unit) + 1))[:1_000_000]
    started = time.thread_time()
    extract_facts(text)
    assert time.thread_time() - started < 5
