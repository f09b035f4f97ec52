import pytest

from autogen_persistent_memory._lexical import statement

SAME = [
    ("The user prefers dark mode.", "user prefers dark mode"),
    ("Uses PostgreSQL, because of JSONB", "uses PostgreSQL because of JSONB!"),
    ("I don’t like tea", "I do not like tea"),
    ("I can't swim", "I can not swim"),
    ("  Likes   green\ttea ", "likes green tea"),
    ("The „quoted“ word", "the quoted word"),
    ("用户喜欢茶。", "用户喜欢茶"),
]
DIFFERENT = [
    ("Has 2 cats", "Has 3 cats"),
    ("Has a cat", "Has cats"),
    ("Version 3.5", "Version 35"),
    ("It is -5 degrees", "It is 5 degrees"),
    ("Uses C++", "Uses C#"),
    ("Uses C++", "Uses C"),
    ("Likes Alice", "Likes Bob"),
    ("Likes tea", "Does not like tea"),
    ("I like tea", "I don't like tea"),
    ("Never calls on Monday", "Calls on Monday"),
    ("Alice manages Bob", "Bob manages Alice"),
    ("Moved to Berlin", "Moved from Berlin"),
    ("Likes tea", "Likes tea?"),
    ("Works with Ann", "Works without Ann"),
    ("5%", "5"),
    ("$5", "€5"),
    ("🙂", "🙁"),
    ("!!!", "???"),
    ("用户喜欢茶", "用户不喜欢茶"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_texts_that_say_the_same(one: str, other: str) -> None:
    assert statement(one) == statement(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_texts_that_do_not(one: str, other: str) -> None:
    assert statement(one) != statement(other)
