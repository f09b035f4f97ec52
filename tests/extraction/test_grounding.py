"""Which facts are believed: a table of messages and facts that a model might derive from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import conversation

from autogen_persistent_memory.extraction.grounding import Evidence, is_worth_keeping, restates, tidied

LISBON = ["user: Hi, I live in Lisbon with my dog Biscuit.", "assistant: Porto is nice too. Do you have two cats?"]
NUTS = ["user: I'm allergic to peanuts, and I don't eat meat."]
VIM = ["assistant: Which editor do you use?", "user: Vim, since 2009."]
SUGGESTION = ["user: How should I store sessions?", "assistant: You could use Redis for the sessions."]
TEAM = ["planner: We decided to use Redis for the sessions.", "coder: I could try Kafka."]


@pytest.mark.parametrize(
    ("said", "content", "kind"),
    [
        (LISBON, "The user lives in Lisbon.", "fact"),
        (LISBON, "The user's dog is called Biscuit.", "fact"),
        (LISBON, "The user lives in Lisbon with a dog named Biscuit.", "fact"),
        (NUTS, "The user has a peanut allergy.", "fact"),
        (NUTS, "The user does not eat meat.", "preference"),
        (NUTS, "The user avoids meat.", "preference"),
        (VIM, "The user has used Vim as an editor since 2009.", "preference"),
        (["user: My daughter is 5."], "The user has a five-year-old daughter.", "fact"),
        (["user: I took a job at Siemens."], "The user has taken a job at Siemens.", "fact"),
        (["user: I'm vegetarian."], "The user follows a vegetarian diet.", "preference"),
        (["user: I have two sisters."], "The user has 2 sisters.", "fact"),
        (["user: The launch is on the 14th of May."], "The user's launch is on 14 May.", "fact"),
        (["user: I don't like tea, I prefer coffee."], "The user prefers coffee.", "preference"),
        (["user: I teach physics at a school."], "The user is a physics teacher at a school.", "fact"),
        ([*SUGGESTION, "user: Yes, do that."], "The user uses Redis for the sessions.", "decision"),
        (TEAM, "The team decided to use Redis for the sessions.", "decision"),
        (["user: We tried Redis, but it failed under load."], "Redis failed under load for the user.", "lesson"),
        (["user: Ich wohne in Berlin und arbeite als Arzt."], "Der Nutzer wohnt in Berlin.", "fact"),
        (["user: Vivo en Lisboa."], "El usuario vive en Lisboa.", "fact"),
        (["user: 私は東京に住んでいます"], "ユーザーは東京に住んでいます", "fact"),
    ],
)
def test_a_stated_fact_is_believed(said: list[str], content: str, kind: str) -> None:
    assert Evidence(conversation(*said)).supports(content, kind)


@pytest.mark.parametrize(
    ("said", "content", "kind"),
    [
        (LISBON, "The user lives in Madrid.", "fact"),
        (LISBON, "The user lives in Lisbon since 2011.", "fact"),
        (LISBON, "The user lives in Lisbon with Emma.", "fact"),
        (LISBON, "The user's dog is called Rex.", "fact"),
        (LISBON, "The user collects stamps.", "fact"),
        (LISBON, "The user prefers the user's work.", "preference"),  # no word that tells anything
        (LISBON, "The user likes Porto.", "preference"),  # the assistant does
        (LISBON, "The user has two cats.", "fact"),  # the assistant asked
        (NUTS, "The user eats meat.", "preference"),  # the user does not
        (["user: I love hiking."], "The user does not like hiking.", "preference"),
        (["user: Should I move to Paris?"], "The user moves to Paris.", "fact"),
        (["user: Imagine I live in Paris."], "The user lives in Paris.", "fact"),
        (["user: Translate this: I live in Paris."], "The user lives in Paris.", "fact"),
        (["user: My friend said 'I live in Paris with my cat'."], "The user lives in Paris.", "fact"),
        (SUGGESTION, "The user uses Redis for the sessions.", "decision"),
        ([*SUGGESTION, "user: No, that is too much."], "The user uses Redis for the sessions.", "decision"),
        (TEAM, "The team decided to use Kafka.", "decision"),
        (TEAM, "The user uses Redis for the sessions.", "preference"),  # the team's words are no preference
        (["user: Thanks!"], "The user is thankful.", "fact"),
        (["user: Please fix this bug for me."], "The user fixes bugs.", "fact"),
        (["user: Ich wohne in Berlin."], "Der Nutzer arbeitet als Arzt in Hamburg.", "fact"),
        (["user: Ich wohne in Berlin."], "Der Nutzer wohnt in Hamburg.", "fact"),
        (["user: 私は東京に住んでいます"], "ユーザーは猫が好きです", "fact"),
    ],
)
def test_an_unstated_fact_is_not_believed(said: list[str], content: str, kind: str) -> None:
    assert not Evidence(conversation(*said)).supports(content, kind)


def test_a_fact_may_begin_with_a_name_that_is_known() -> None:
    said = conversation("user: I prefer TypeScript.")
    assert Evidence(said, ["The user's name is Sarah."]).supports("Sarah prefers TypeScript.", "preference")
    assert not Evidence(said).supports("Sarah prefers TypeScript.", "preference")
    assert not Evidence(said, ["The user's name is Sarah."]).supports("The user prefers TypeScript to Sarah.")


@pytest.mark.parametrize(
    ("said", "is_empty"),
    [
        (["user: What is the capital of France?", "assistant: Paris."], True),
        (["user: ok", "user: Thanks!"], True),
        (["user: What is the capital of France?", "assistant: Paris.", "user: ok"], True),
        (["user: Please fix this bug for me."], True),
        (["user: Please help me plan my holiday in Oslo."], False),
        (["user: Give all prices in euros from now on."], False),
        ([], True),
        (["user: I live in Lisbon."], False),
        (TEAM, False),
    ],
)
def test_a_conversation_without_statements_is_empty(said: list[str], is_empty: bool) -> None:
    assert Evidence(conversation(*said)).is_empty is is_empty


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("  user likes\n tea ", "The user likes tea."),
        ("the user likes tea.", "The user likes tea."),
        ("- I prefer my own tea", "The user prefers their own tea."),
        ("My sister is Emma.", "The user's sister is Emma."),
        ("I'm allergic to nuts", "The user is allergic to nuts."),
        ('"Sarah likes tea"', "Sarah likes tea."),
        ("Is it tea?", "Is it tea?"),
        ("", ""),
    ],
)
def test_a_fact_becomes_a_sentence_in_the_third_person(content: str, expected: str) -> None:
    assert tidied(content) == expected


@pytest.mark.parametrize(
    "content",
    [
        "The user lives in Lisbon.",
        "The user asked that answers be short.",
        "The user wants the assistant to answer in French.",
        "Sarah's team uses Go.",
    ],
)
def test_a_memory_is_worth_keeping(content: str) -> None:
    assert is_worth_keeping(content)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "Tea.",
        "The user " + "likes tea and " * 30,
        "Does the user live in Lisbon?",
        "The assistant suggested Redis.",
        "Assistant is helpful.",
        "As an AI, the assistant has no feelings.",
        "You live in Lisbon.",
        "The user asks about the weather.",
        "The user is asking for help.",
        "The user wants to know what time it is.",
        "The user greets the assistant.",
        "The user thanked the assistant.",
        "The user says hello.",
        "The user has not mentioned any preferences.",
        "No new facts were found.",
        "Nothing new.",
        "The user <what is told>.",
        "The user ...",
    ],
)
def test_questions_courtesies_and_the_assistant_are_not_worth_keeping(content: str) -> None:
    assert not is_worth_keeping(content)


@pytest.mark.parametrize(
    ("content", "known", "expected"),
    [
        ("The user is living in Lisbon.", "The user lives in Lisbon.", True),
        ("User's home is in Lisbon", "The user lives at home in Lisbon", True),
        ("The user's dog is called Biscuit.", "The user's dog is Biscuit.", True),
        ("The user lives in Lisbon.", "The user works in Lisbon.", False),
        ("The user prefers Python.", "The user prefers Python over Java.", True),
        ("The user prefers Python over Java.", "The user prefers Python.", False),
        ("The user prefers Java over Python.", "The user prefers Python over Java.", False),
        ("The user no longer lives in Lisbon.", "The user lives in Lisbon.", False),
        ("The user doesn't eat meat.", "The user does not eat meat.", True),
        ("The user lives in Porto.", "The user lives in Lisbon.", False),
        ("The user has 3 cats.", "The user has 2 cats.", False),
    ],
)
def test_a_rewording_without_anything_new_is_a_restatement(content: str, known: str, expected: bool) -> None:
    assert restates(content, known) is expected


@pytest.mark.parametrize(
    ("said", "content", "known", "expected"),
    [
        ("I live in Porto.", "The user lives in Porto.", "The user lives in Lisbon.", True),
        ("I moved to Porto.", "The user moved to Porto.", "The user lives in Lisbon.", True),
        ("I play the cello.", "The user plays the cello.", "The user lives in Lisbon.", False),
    ],
)
def test_a_fact_replaces_only_related_memories(said: str, content: str, known: str, expected: bool) -> None:
    assert Evidence(conversation(f"user: {said}")).allows_replacing(content, known) is expected


@given(st.lists(st.text(), max_size=4), st.text())
def test_any_text_can_be_read(said: list[str], content: str) -> None:
    evidence = Evidence(conversation(*(f"user: {text}" for text in said)))
    assert evidence.supports(tidied(content)) in (True, False)
    assert restates(content, " ".join(said)) in (True, False)
    assert is_worth_keeping(content) in (True, False)
