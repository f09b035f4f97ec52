"""What was said and is not captured yet: bookkeeping without a store.

A message is heard in many places: in the model context of every agent of a team, again and again every turn, in observed
streams, and once more when a saved conversation is loaded. It is captured once.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    MultiModalMessage,
    StopMessage,
)
from autogen_core.models import AssistantMessage, LLMMessage, UserMessage

from ._conversation import is_said, text_of

_SKIPPED = re.compile(r"Skipped \d+ messages\.")
_RECENT = 20


class Utterance(NamedTuple):
    """Who said what."""

    source: str
    text: str
    own: bool = False
    """Whether it is a reply by the agent in whose context it is heard."""

    @property
    def said(self) -> tuple[str, str]:
        """By what it is known, wherever it is heard."""
        return self.source, self.text


def said_in(messages: Iterable[LLMMessage]) -> list[Utterance]:
    """What people and agents say in a model context: no blocks, no system prompt, no tool plumbing."""
    return [
        Utterance(message.source, text_of(message).strip(), isinstance(message, AssistantMessage))
        for message in messages
        if isinstance(message, (UserMessage, AssistantMessage)) and is_said(message) and not _is_placeholder(message)
    ]


def said_by(item: object) -> Utterance | None:
    """What somebody says with a message of a stream, a tool's summary included; None for all other items."""
    if not isinstance(item, BaseChatMessage) or isinstance(item, (BaseAgentEvent, HandoffMessage, StopMessage)):
        return None
    if isinstance(item, MultiModalMessage):
        text = "\n".join(part for part in item.content if isinstance(part, str))
    else:
        text = item.to_text()
    return Utterance(item.source, text.strip()) if text.strip() else None


Transcript = str | TaskResult | Sequence[str | BaseChatMessage | BaseAgentEvent | LLMMessage | Mapping[str, Any]]
"""A finished conversation: one text, or messages in order (also as mappings with `source` and `content`)."""


def transcript(given: Transcript, speaker: str) -> list[Utterance]:
    """What is said in a transcript; by that speaker where it does not tell who.

    Raises:
        ValueError: Something in it is neither a text nor a message.
    """
    if isinstance(given, TaskResult):
        given = given.messages
    items: Sequence[Any] = [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
    return [found for item in items if (found := _utterance(item, speaker)) is not None and found.text]


def _utterance(item: Any, speaker: str) -> Utterance | None:
    if isinstance(item, str):
        return Utterance(speaker, item.strip())
    if isinstance(item, (BaseChatMessage, BaseAgentEvent)):
        return said_by(item)
    if isinstance(item, get_args(get_args(LLMMessage)[0])):
        return next(iter(said_in([item])), None)
    if isinstance(item, Mapping) and isinstance(item.get("content"), str):
        return Utterance(str(item.get("source", speaker)), item["content"].strip())
    raise ValueError(
        f"A transcript is made of texts, messages of AutoGen, or mappings with 'source' and 'content', not {item!r}."
    )


def _is_placeholder(message: LLMMessage) -> bool:
    """Whether it is what AutoGen's HeadAndTailChatCompletionContext puts in place of messages it leaves out."""
    return isinstance(message, UserMessage) and message.source == "System" and bool(_SKIPPED.match(text_of(message)))


@dataclass(frozen=True, slots=True)
class Captured:
    """An utterance that nobody captured before, and its id: the same wherever and whenever it is heard."""

    utterance: Utterance
    id: str


class Place:
    """Where messages are heard: a model context, or a stream while it is observed."""

    def __init__(self) -> None:
        self._heard: list[Utterance] | None = None
        self.expected: Counter[Utterance] = Counter()
        """What was captured elsewhere and will be heard here, too."""
        self.under_way: list[Utterance] = []
        """What was captured here and is not answered yet."""

    def news(self, conversation: Sequence[Utterance]) -> tuple[Sequence[Utterance], bool]:
        """What was not heard here before, and whether that is only how a conversation goes on.

        Else it is a conversation that comes up for the first time, or took the place of the one before.
        """
        before, self._heard = self._heard, list(conversation)
        if before is not None and self._heard[: len(before)] == before:
            return conversation[len(before) :], True
        return conversation, False

    def expects(self, utterance: Utterance) -> bool:
        """Whether it was captured elsewhere; then it is no longer expected.

        What an agent says itself, another cannot have said, though both may use the same words and have the same name.
        """
        for own in (False,) if utterance.own else (False, True):
            known = utterance._replace(own=own)
            if self.expected[known] > 0:
                self.expected[known] -= 1
                return True
        return False


class Ledger:
    """What is captured of a session, in order."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._order: list[Utterance] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._places: list[Place] = []
        self.is_loaded = False

    def load(self, stored: Iterable[Utterance]) -> None:
        """Take in what was captured before this process began."""
        self._order = list(stored)
        self._counts = Counter(utterance.said for utterance in self._order)
        self.is_loaded = True

    def open(self) -> Place:
        """A new place, at which only what is said from now on is heard."""
        place = Place()
        self._places.append(place)
        return place

    def close(self, place: Place) -> None:
        """Stop keeping books for a place."""
        if place in self._places:
            self._places.remove(place)

    def hear(self, place: Place, utterances: Sequence[Utterance]) -> list[Captured]:
        """Take in how a conversation goes on at a place; what of it nobody captured yet."""
        new = [self._capture(place, utterance) for utterance in utterances if not place.expects(utterance)]
        for utterance in utterances:
            place.under_way = [] if utterance.own else [*place.under_way, utterance]
        return new

    def hear_anew(self, place: Place, conversation: Sequence[Utterance]) -> list[Captured]:
        """Take in a conversation that comes up at a place for the first time; what of it nobody captured yet.

        What is captured already has to be guessed. If the conversation holds what was captured lately, it was loaded, or
        is a teammate's: then everything it repeats is known. Else it is a new one, which may repeat old words; known is
        only what another agent was asked just now.
        """
        recent = {utterance.said for utterance in self._order[-_RECENT:]}
        is_known = any(utterance.said in recent for utterance in conversation[:-1])
        elsewhere = Counter({said: 1 for other in self._places if other is not place for said in other.under_way})
        place.expected = Counter(said._replace(own=False) for said in self._order) if is_known else elsewhere.copy()
        new = self.hear(place, conversation)
        place.expected &= elsewhere  # what is older and was not heard now will not be heard again
        return new

    def _capture(self, place: Place, utterance: Utterance) -> Captured:
        for other in self._places:
            if other is not place:
                other.expected[utterance] += 1
        self._order.append(utterance)
        self._counts[utterance.said] += 1
        return Captured(utterance, self._id(utterance, self._counts[utterance.said]))

    def _id(self, utterance: Utterance, occurrence: int) -> str:
        told = "\0".join((self._session, utterance.source, utterance.text, str(occurrence)))
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]
