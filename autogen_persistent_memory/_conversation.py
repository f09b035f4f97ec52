"""Reading a model context: which messages are blocks of ours, what they say, what the model can see already."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autogen_core.models import AssistantMessage, LLMMessage, SystemMessage, UserMessage

BLOCK_SOURCE = "memory"
_SENTENCE_END = re.compile(r"(?<=[.!?\n])")
_OPENING = re.compile(r'<memory id="([0-9a-f]+)">')


def opening_of(block_id: str) -> str:
    """The first line of a block, by which it is found again, also after a restart."""
    return f'<memory id="{block_id}">'


def block_id_of(message: LLMMessage) -> str | None:
    """The id of the block that this message is, or None if it is part of the conversation."""
    is_candidate = isinstance(message, SystemMessage) or (
        isinstance(message, UserMessage) and message.source == BLOCK_SOURCE
    )
    if not is_candidate or not isinstance(message.content, str):
        return None
    match = _OPENING.match(message.content)
    return match.group(1) if match else None


def text_of(message: LLMMessage) -> str:
    """What is said in a message: its text, or the text parts of a multimodal one. Nothing for tool plumbing."""
    if not isinstance(message, (SystemMessage, UserMessage, AssistantMessage)):
        return ""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part for part in message.content if isinstance(part, str))


class VisibleText:
    """What these messages tell the model anyway. A question tells nothing: it wants to be told."""

    def __init__(self, messages: Iterable[LLMMessage]) -> None:
        self._texts = [_plain(_without_questions(text_of(message))) for message in messages]

    def shows(self, content: str) -> bool:
        """Whether that text stands in one of them, as whole words."""
        wanted = _plain(content)
        if not any(wanted in text for text in self._texts):
            return False
        words = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)")
        return any(words.search(text) for text in self._texts)


def _without_questions(text: str) -> str:
    if "?" not in text:
        return text
    return " ".join(sentence for sentence in _SENTENCE_END.split(text) if not sentence.endswith("?"))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
