"""A saved state without what it tells of something that was forgotten. Pure functions.

Texts are replaced, messages stay: so calls of tools keep their results, everybody's next turn is the same, and the state
still fits the team that saved it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..core.lazy_regex import lazy

FORGOTTEN = "[forgotten]"
"""What stands in a saved conversation instead of a text that was forgotten."""
_BLOCK = lazy(r'<memory id="[0-9a-f]+">')  # as `_conversation.opening_of` writes it
_NO_MEMORIES = "\n</memory>"
_FIXED = frozenset(("type", "version", "id", "source", "target", "created_at", "role", "name", "call_id"))
"""What a message is told apart and delivered by."""
_SAID = frozenset(("content", "thought", "metadata"))


class Blanking:
    """Replaces the texts of a state that tell something.

    Args:
        tells: Whether a text tells it.
    """

    def __init__(self, tells: Callable[[str], bool]) -> None:
        self._tells = tells
        self._participants: set[str] = set()
        self.changed = False
        """Whether a text was replaced."""
        self.left = False
        """Whether it also stands where it may steer a team: a single word of the state that is not part of a message."""

    def of(self, value: Any, *, said: bool = False) -> Any:
        """A part of a state without those texts; of what was `said`, every text counts."""
        if isinstance(value, Mapping):
            return self._of_mapping(value, said)
        if isinstance(value, list):
            texts = [item for item in value if isinstance(item, str)] if said else []
            if len(texts) > 1 and self._tells("\n".join(texts)):  # the parts of a message with pictures
                self.changed = True
                return [FORGOTTEN if isinstance(item, str) else item for item in value]
            return [item if _is_picture(item) else self.of(item, said=said) for item in value]
        return self._of_text(value, said) if isinstance(value, str) else value

    def _of_mapping(self, value: Mapping[str, Any], said: bool) -> Mapping[str, Any]:
        if "arguments" in value and "name" in value:
            return {**value, "arguments": self._of_arguments(value["arguments"])}
        if "call_id" in value:
            return {**value, "content": self.of(value.get("content"), said=True)}
        if "mime_type" in value and "content" in value:
            return {**value, **self._of_recalled(value)}
        if isinstance(value.get("agent_states"), Mapping):
            self._participants.update(value["agent_states"])
        fixed = _FIXED if not said and ("type" in value or "source" in value) else ()
        return {key: item if key in fixed else self.of(item, said=said or key in _SAID) for key, item in value.items()}

    def _of_arguments(self, arguments: Any) -> Any:
        if not isinstance(arguments, str) or not self._tells(arguments):
            return arguments
        self.changed = True
        return "{}"

    def _of_recalled(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Content and metadata of a memory that was shown to an agent; which one it is, its metadata says."""
        content, metadata = memory["content"], memory.get("metadata")
        if isinstance(metadata, Mapping) and self._tells(f"(id: {metadata.get('id')})"):
            self.changed = True
            return {"content": FORGOTTEN if isinstance(content, str) else {}, "metadata": {"id": metadata["id"]}}
        return {"content": self.of(content, said=True), "metadata": self.of(metadata, said=True)}

    def _of_text(self, text: str, said: bool) -> str:
        if text == FORGOTTEN or not self._tells(text):
            return text
        if not said and text.isascii() and not any(map(str.isspace, text)):
            self.left = self.left or text not in self._participants
            return text
        emptied = emptied_block(text) or FORGOTTEN
        self.changed = self.changed or emptied != text
        return emptied


def _is_picture(part: Any) -> bool:
    return isinstance(part, Mapping) and part.keys() == {"data"}


def is_block(text: str) -> bool:
    """Whether a text is a block of memories, which is rebuilt before every turn."""
    return _BLOCK.match(text) is not None


def emptied_block(text: str) -> str | None:
    """A block of memories without them, still to be found by its first line; None if the text is none."""
    opening = _BLOCK.match(text)
    return None if opening is None else opening[0] + _NO_MEMORIES


def texts_within(text: str) -> Iterator[str]:
    """The text, and if it is JSON, also the texts in that, in which characters may be written otherwise."""
    yield text
    if "\\" in text and text.lstrip()[:1] in ("{", "[", '"'):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return
        yield from _leaves(value)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
