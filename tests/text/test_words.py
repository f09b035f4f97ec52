"""Which texts state the same, and what words have in common."""

import pytest

from autogen_persistent_memory.text.words import statement, stem, terms

SAME = [
    ("The user prefers dark mode.", "user prefers dark mode"),
    ("The user prefers dark mode", "User prefers the dark mode!"),
    ("Uses PostgreSQL, because of JSONB", "uses PostgreSQL, because of JSONB!"),
    ("I don’t like tea", "I do not like tea"),
    ("I can't swim", "I can not swim"),
    ("Can't swim", "can't swim."),
    ("  Likes   green\ttea ", "likes green tea"),
    ("用户喜欢茶。", "用户喜欢茶"),
    ("caf\u00e9", "cafe\u0301"),
]
DIFFERENT = [
    # numbers
    ("Has 2 cats", "Has 3 cats"),
    ("Has a cat", "Has cats"),
    ("Version 3.5", "Version 35"),
    ("takes .5 mg", "takes 5 mg"),
    ("10² m", "102 m"),
    ("It is -5 degrees", "It is 5 degrees"),
    ("It is - 5 degrees", "It is 5 degrees"),
    ("5'", '5"'),
    ("5 ‰", "5 %"),
    ("5%", "5"),
    ("$5", "€5"),
    ("1 / 2", "1 2"),
    ("1, 2", "1 2"),
    # negations
    ("Likes tea", "Does not like tea"),
    ("I like tea", "I don't like tea"),
    ("Never calls on Monday", "Calls on Monday"),
    ("Works with Ann", "Works without Ann"),
    ("a != b", "a = b"),
    ("x = !y", "x = y"),
    ("用户喜欢茶", "用户不喜欢茶"),
    ("No, dogs are fine", "No dogs are fine"),
    ("Speaks a little French", "Speaks little French"),
    ("Has a few friends", "Has few friends"),
    # names and identifiers
    ("Likes Alice", "Likes Bob"),
    ("Alice manages Bob", "Bob manages Alice"),
    ("I love Turkey", "I love turkey"),
    ("works with IT", "works with it"),
    ("password is Abc123", "password is abc123"),
    ("the id is aB3", "the id is Ab3"),
    ("in group A", "in group"),
    ("takes vitamin A", "takes vitamin"),
    ("Uses C++", "Uses C#"),
    ("Uses C++", "Uses C"),
    ("uses .NET", "uses NET"),
    ("edits .env", "edits env"),
    ("cd ../x", "cd /x"),
    # other signs
    ("Moved to Berlin", "Moved from Berlin"),
    ("Likes tea", "Likes tea?"),
    ("🙂", "🙁"),
    ("said :)", "said :("),
    ("!!!", "???"),
    ("{}", "[]"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_texts_that_state_the_same(one: str, other: str) -> None:
    assert statement(one) == statement(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_texts_that_state_something_else(one: str, other: str) -> None:
    assert statement(one) != statement(other)


@pytest.mark.parametrize(
    ("word", "form"), [("smoke", "smoking"), ("cat", "cats"), ("run", "running"), ("study", "studies")]
)
def test_forms_of_a_word_have_the_same_stem(word: str, form: str) -> None:
    assert stem(word) == stem(form)


@pytest.mark.parametrize("word", ["c++", "c#", "müllers", "日本", "s" * 100])
def test_what_is_not_an_english_word_is_not_stemmed(word: str) -> None:
    assert stem(word) == word


def test_a_very_long_word_is_found_unstemmed() -> None:
    assert terms("a" * 60 + "ing") == ["a" * 60]
    assert terms("a" * 64 + "ing") == ["a" * 64 + "ing"]
