"""Which messages of a session are captured: each one once, in whichever contexts, transcripts and states it is heard."""

from __future__ import annotations

from autogen_core.models import AssistantMessage, LLMMessage, UserMessage

from autogen_persistent_memory.conversation.autogen_messages import Utterance, said_in
from autogen_persistent_memory.conversation.ledger import Ledger


def user(text: str) -> UserMessage:
    return UserMessage(content=text, source="user")


def bot(text: str) -> AssistantMessage:
    return AssistantMessage(content=text, source="bot")


class Heard:
    """A ledger, and contexts that it reads."""

    def __init__(self, *stored: tuple[str, str]) -> None:
        self.ledger = Ledger()
        self.ledger.load(Utterance(*said) for said in stored)

    def at(self, place: list[LLMMessage], *more: LLMMessage) -> list[str]:
        """Add messages to a context, and return what is captured."""
        place.extend(more)
        where = self.ledger.place_of(place)
        (news, continues), is_first = where.unheard(place), where.is_new
        where.note(place, place)
        said = said_in(news)
        found = (
            self.ledger.hear(where, said)
            if continues
            else self.ledger.hear_conversation(where, said, is_first=is_first)
        )
        return [f"{one.utterance.text}{'' if one.is_fresh else ' (old)'}" for one in found]


class Context(list[LLMMessage]):
    """A list with an identity, unlike others with the same messages."""

    __hash__ = object.__hash__


def test_a_growing_conversation_is_captured_message_by_message() -> None:
    heard, here = Heard(), Context()
    assert heard.at(here, user("one")) == ["one"]
    assert heard.at(here, bot("two"), user("three")) == ["two", "three"]
    assert heard.at(here) == []
    assert heard.at(here, user("one"), user("one")) == ["one", "one"]


def test_a_message_that_several_teammates_receive_is_captured_once() -> None:
    heard, one, other = Heard(), Context(), Context()
    assert heard.at(one, user("task")) == ["task"]
    assert heard.at(one, bot("done")) == ["done"]
    assert heard.at(other, user("task"), UserMessage(content="done", source="bot")) == []
    assert heard.at(other, AssistantMessage(content="me too", source="ada")) == ["me too"]
    assert heard.at(one, UserMessage(content="me too", source="ada"), user("next")) == ["next"]
    assert heard.at(other, user("next")) == []


def test_the_same_question_to_two_agents_in_turn_is_captured_twice() -> None:
    heard, one, other = Heard(), Context(), Context()
    assert heard.at(one, user("task")) == ["task"]
    assert heard.at(one, bot("done")) == ["done"]
    assert heard.at(other, user("task")) == ["task"]


def test_only_new_messages_of_a_loaded_conversation_are_captured() -> None:
    heard = Heard(("user", "one"), ("bot", "two"))
    assert heard.at(Context(), user("one"), bot("two"), user("three")) == ["three"]
    assert Heard(("user", "one")).at(Context(), user("one"), bot("two"), user("three")) == [
        "two (old)",
        "three",
    ]
    assert Heard().at(Context(), user("long ago"), bot("two"), user("three")) == ["three"]
    assert Heard(("user", "else")).at(Context(), user("forgotten"), bot("two"), user("three")) == ["three"]


def test_a_new_conversation_may_repeat_old_words() -> None:
    assert Heard(("user", "one"), ("bot", "two")).at(Context(), user("one")) == ["one"]


def test_an_agent_that_was_reset_may_be_asked_the_same_again() -> None:
    heard, here = Heard(), Context()
    assert heard.at(here, user("one")) == ["one"]
    assert heard.at(here, bot("two")) == ["two"]
    here.clear()
    assert heard.at(here, user("one")) == ["one"]
    assert heard.at(here, bot("two")) == ["two"]


def test_a_known_transcript_is_not_captured_again() -> None:
    heard = Heard(("user", "one"))
    said = [Utterance("user", "one"), Utterance("bot", "two")]
    assert [one.utterance.text for one in heard.ledger.hear_transcript(said, heard.ledger.known())] == ["two"]
    assert heard.ledger.hear_transcript(said, heard.ledger.known()) == []
    long = [Utterance("user", f"number {number}") for number in range(500)]
    assert len(heard.ledger.hear_transcript(long, heard.ledger.known())) == 500
    assert heard.ledger.hear_transcript(long, heard.ledger.known()) == []
