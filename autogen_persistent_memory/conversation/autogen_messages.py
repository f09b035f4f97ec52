"""Who said what, read from wherever AutoGen keeps it: model contexts, streams, saved states, transcripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, get_args

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    MultiModalMessage,
    StopMessage,
    TextMessage,
    ToolCallSummaryMessage,
    UserInputRequestedEvent,
)
from autogen_core.models import AssistantMessage, LLMMessage, UserMessage

from ..core.checks import mended
from ..core.lazy_regex import lazy
from ..core.limits import MAX_SOURCE
from ..text.pieces import matches
from .blanking import FORGOTTEN
from .model_context import block_id_of, is_handoff, is_said, text_of, without_answers

_SKIPPED = lazy(r"Skipped \d+ messages\.")
_LONGEST_JSON = 20_000
_ROLE = lazy(r"^[^\S\n]*(?P<who>user|human|assistant|ai|agent|bot)\s*:\s*", re.IGNORECASE | re.MULTILINE)
_USERS = ("user", "human")
_DUMPED = {kind.__name__: kind for kind in (TextMessage, MultiModalMessage, ToolCallSummaryMessage, HandoffMessage)}


class Utterance(NamedTuple):
    """Who said what."""

    source: str
    text: str
    own: bool = False
    """Whether it is a reply by the agent in whose context it is heard."""

    @property
    def said(self) -> tuple[str, str]:
        """By what it is known wherever it is heard: JSON may be written in more than one way."""
        may_be_json = self.text.startswith("{") and len(self.text) <= _LONGEST_JSON
        return self.source, _in_one_way(self.text) if may_be_json else self.text


@lru_cache(maxsize=256)
def _in_one_way(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def is_utterance(message: LLMMessage) -> bool:
    """Whether somebody says something here: no block, no system prompt, no tool plumbing, no placeholder."""
    return is_said(message) and not _is_placeholder(message)


def is_turn(message: LLMMessage) -> bool:
    """Whether a conversation goes on with this message: an utterance, or somebody's pictures or blank text."""
    return is_utterance(message) or (
        isinstance(message, UserMessage) and block_id_of(message) is None and not _is_placeholder(message)
    )


def _is_placeholder(message: LLMMessage) -> bool:
    """Whether it stands where somebody's words were, put there by AutoGen or by us."""
    text = text_of(message)
    is_autogens = isinstance(message, UserMessage) and message.source == "System" and _SKIPPED.match(text) is not None
    return is_autogens or text == FORGOTTEN


def said_in(messages: Iterable[LLMMessage]) -> list[Utterance]:
    """What people and agents say in a model context."""
    return [
        Utterance(_name(message.source), text_of(message).strip(), isinstance(message, AssistantMessage))
        for message in messages
        if isinstance(message, (UserMessage, AssistantMessage)) and is_utterance(message)
    ]


def _said(source: str, text: str) -> Utterance:
    return Utterance(_name(source), mended(text).strip())


def _name(source: str) -> str:
    """Return the name of a speaker, as it is stored."""
    return mended(source[:MAX_SOURCE])


def said_by(item: object) -> Utterance | None:
    """What somebody says with a message of a stream, a tool's summary included; None for all other items."""
    if not isinstance(item, BaseChatMessage) or isinstance(item, (BaseAgentEvent, StopMessage)):
        return None
    if isinstance(item, MultiModalMessage):
        text = "\n".join(part for part in item.content if isinstance(part, str))
    else:
        text = item.to_text()
    said = _said(item.source, without_answers(text))
    if said.text in ("", FORGOTTEN) or (isinstance(item, HandoffMessage) and is_handoff(said.text)):
        return None
    return said


def asked_in(item: object) -> str | None:
    """Who is asked for input by an item of a stream: a person, whatever their agent is called."""
    return _name(item.source) if isinstance(item, UserInputRequestedEvent) else None


def said_in_dump(message: Mapping[str, Any]) -> Utterance | None:
    """What somebody says with a message of a saved state. A type that only its team knows tells nothing."""
    kind = _DUMPED.get(message.get("type", ""))
    return None if kind is None else said_by(kind.load(message))


Transcript = str | TaskResult | Sequence[str | BaseChatMessage | BaseAgentEvent | LLMMessage | Mapping[str, Any]]
"""A finished conversation: one text, or messages in order (also as mappings with `source` and `content`)."""


def transcript(given: Transcript, speaker: str) -> list[Utterance]:
    """What is said in a transcript; by that speaker where it does not tell who.

    A text whose lines begin with "User:" and the like is taken apart.

    Raises:
        ValueError: Something in it is neither a text nor a message.
    """
    if isinstance(given, TaskResult):
        given = given.messages
    items: Sequence[Any] = [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
    return [found for item in items for found in _utterances(item, speaker) if found.text]


def people_in(given: Transcript) -> list[str]:
    """Who was asked for input in a transcript."""
    items: Sequence[Any] = given.messages if isinstance(given, TaskResult) else given
    return [] if isinstance(items, str) else [name for item in items if (name := asked_in(item)) is not None]


def _utterances(item: Any, speaker: str) -> list[Utterance]:
    if isinstance(item, str):
        roles = list(matches(_ROLE, item))
        if len(roles) < 2:
            return [_said(speaker, item)]
        ends = [role.start() for role in roles[1:]] + [len(item)]
        spoken = [(role["who"].lower(), item[role.end() : end]) for role, end in zip(roles, ends, strict=True)]
        return [_said(speaker if who in _USERS else who, text) for who, text in spoken]
    if isinstance(item, (BaseChatMessage, BaseAgentEvent)):
        found = said_by(item)
        return [] if found is None else [found]
    if isinstance(item, get_args(get_args(LLMMessage)[0])):
        return [utterance._replace(own=False) for utterance in said_in([item])]
    if isinstance(item, Mapping) and isinstance(item.get("content"), str):
        return [_said(str(item.get("source", speaker)), item["content"])]
    raise ValueError(
        f"A transcript is made of texts, messages of AutoGen, or mappings with 'source' and 'content', not {item!r}."
    )
