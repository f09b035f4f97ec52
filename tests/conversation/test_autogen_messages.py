"""Who says what in AutoGen's messages and in transcripts."""

from __future__ import annotations

import pytest
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import TextMessage
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from PIL import Image as Picture

from autogen_persistent_memory.conversation.autogen_messages import Utterance, said_in, transcript


def test_only_messages_of_people_and_agents_are_captured() -> None:
    messages: list[LLMMessage] = [
        SystemMessage(content="You are helpful."),
        UserMessage(content='<memory id="abc">\nWhat you remember</memory>', source="memory"),
        UserMessage(content="Hello", source="user"),
        UserMessage(content=["See this", Image(Picture.new("RGB", (2, 2)))], source="user"),
        AssistantMessage(content=[FunctionCall(id="1", arguments="{}", name="f")], source="bot"),
        FunctionExecutionResultMessage(content=[FunctionExecutionResult(content="42", name="f", call_id="1")]),
        UserMessage(content="Skipped 3 messages.", source="System"),
        UserMessage(content="  ", source="user"),
        AssistantMessage(content="The answer is 42", source="bot"),
    ]
    said = [utterance.said for utterance in said_in(messages)]
    assert said == [("user", "Hello"), ("user", "See this"), ("bot", "The answer is 42")]


def test_a_transcript_may_have_many_shapes() -> None:
    result = TaskResult(messages=[TextMessage(content="Hi", source="user"), TextMessage(content="Hello", source="bot")])
    assert transcript(result, "user") == [Utterance(*said) for said in [("user", "Hi"), ("bot", "Hello")]]
    assert transcript("Hi", "ann") == [Utterance(*said) for said in [("ann", "Hi")]]
    assert transcript(["Hi", {"source": "bot", "content": "Hello"}], "user") == [
        Utterance(*said) for said in [("user", "Hi"), ("bot", "Hello")]
    ]
    assert transcript("User: Hi\nAssistant: Hello", "ann") == [
        Utterance(*said) for said in [("ann", "Hi"), ("assistant", "Hello")]
    ]
    assert transcript([UserMessage(content="Hi", source="ann")], "user") == [
        Utterance(*said) for said in [("ann", "Hi")]
    ]
    with pytest.raises(ValueError, match="A transcript consists of"):
        transcript([42], "user")  # type: ignore[list-item]
