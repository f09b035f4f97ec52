"""The extractive summary of a conversation, and its cost."""

from __future__ import annotations

from toys import hit

from autogen_persistent_memory.conversation.session_recap import gist
from autogen_persistent_memory.core.records import MemoryRecord


def said(text: str) -> MemoryRecord:
    return hit(text, kind="interaction", source="user").record


def test_only_the_beginnings_of_very_long_messages_are_read_in_whole_sentences() -> None:
    """Reading all of it would take seconds, and an agent does not wait that long."""
    plan = "We talked about the plan for the big room."
    messages = [said(f"{plan} " * 200 + "Alice moves to Lisbon on Friday with Bob.") for _ in range(100)]
    assert {text for _, text in gist(messages, 12)} == {plan}


def test_the_end_of_a_short_message_is_read() -> None:
    last = "Alice moves to Lisbon on Friday with Bob."
    texts = {text for _, text in gist([said(f"We talked about the plan for the big room. {last}")], 12)}
    assert last in texts


def test_an_empty_conversation_has_no_gist() -> None:
    assert gist([], 12) == []
