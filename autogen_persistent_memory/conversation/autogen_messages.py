"""Reading AutoGen's messages: which are blocks of ours, who says what, and what the model can see without memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    MultiModalMessage,
    StopMessage,
    UserInputRequestedEvent,
)
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, LLMMessage, SystemMessage, UserMessage

from ..core.checks import MAX_SOURCE, without_lone_surrogates
from ..core.lazy_regex import lazy
from ..core.records import QUOTE, MemoryRecord
from ..retrieval.diversity import in_any_person
from ..text.pieces import matches
from ..text.sentences import clauses, sentences
from .autogen_compat import HANDOFF_TEXT, SKIPPED_SOURCE, SKIPPED_TEXT

# What memory itself writes into a conversation: blocks, answers of its tools, marks of forgotten texts

BLOCK_SOURCE = "memory"
NOTHING_FOUND = "No relevant memories found."
FORGOTTEN = "[forgotten]"
"""What stands in a saved conversation instead of a text that was forgotten."""
NAMED_ID = lazy(r"\(id: ([0-9a-f]{32})\)")
_NAMED_AT_END = lazy(rf"{NAMED_ID.pattern}$", re.MULTILINE)
_REFUSED = "The memory could not do that: "
_ANSWER = lazy(
    rf"^(?:- .*{NAMED_ID.pattern}$|Memory (?:stored|known already|forgotten) {NAMED_ID.pattern}$"
    rf"|{re.escape(NOTHING_FOUND)}$|{_REFUSED}.*$)\n?",
    re.MULTILINE,
)
_OPENING = lazy(r'<memory id="([0-9a-f]+)">')


def opening_of(block_id: str) -> str:
    """Return the first line of a block, by which it is found again, also after a restart."""
    return f'<memory id="{block_id}">'


def opening_in(text: str) -> str | None:
    """Return the first line of a text that is a block; None for any other text."""
    match = _OPENING.match(text) if text.startswith("<") else None
    return None if match is None else match[0]


def block_id_of(message: LLMMessage) -> str | None:
    """Return the id of the block that this message is, or None if it is part of the conversation."""
    if not isinstance(message.content, str) or not message.content.startswith("<"):
        return None
    is_ours = isinstance(message, SystemMessage) or (
        isinstance(message, UserMessage) and message.source == BLOCK_SOURCE
    )
    match = _OPENING.match(message.content) if is_ours else None
    return None if match is None else match[1]


def named(record: MemoryRecord) -> str:
    """Return how the tools tell a model which memory a line is about."""
    return f"(id: {record.id})"


def confirmation(done: Literal["stored", "known already", "forgotten"], record: MemoryRecord) -> str:
    """Return what a tool tells a model that it did."""
    return f"Memory {done} {named(record)}"


def refusal(reason: str) -> str:
    """Return, on one line, what a tool tells a model that it could not do."""
    return _REFUSED + " ".join(reason.split())


def without_answers(text: str) -> str:
    """Return a text without answers of the memory's tools: AutoGen passes a tool's result on as what the agent says."""
    may_hold_one = "(id: " in text or NOTHING_FOUND in text or _REFUSED in text
    return _without_answers(text) if may_hold_one else text


@lru_cache(maxsize=16)  # a long text takes milliseconds, several times a turn
def _without_answers(text: str) -> str:
    return _ANSWER.sub("", text)


# Messages of a model context


def text_of(message: LLMMessage) -> str:
    """Return the text of a message, or the text parts of a multimodal one; nothing for tool calls and results.

    Lone surrogates are replaced: they can be neither embedded nor stored.
    """
    if not isinstance(message, (SystemMessage, UserMessage, AssistantMessage)):
        return ""
    if isinstance(message.content, str):
        return without_lone_surrogates(without_answers(message.content))
    return without_lone_surrogates("\n".join(part for part in message.content if isinstance(part, str)))


def is_said(message: LLMMessage) -> bool:
    """Return whether somebody says something here: not a block, a tool call or result, or a bare handoff."""
    if not isinstance(message, (UserMessage, AssistantMessage)) or block_id_of(message) is not None:
        return False
    text = text_of(message)
    return bool(text) and not text.isspace() and not HANDOFF_TEXT.match(text)


def is_turn(message: LLMMessage) -> bool:
    """Return whether a conversation continues with this message: an utterance, or somebody's images or blank text."""
    is_users = isinstance(message, UserMessage) and block_id_of(message) is None
    return (is_users or is_said(message)) and not _is_placeholder(message)


def _is_placeholder(message: LLMMessage) -> bool:
    """Return whether a message stands where somebody's words were, put there by AutoGen or by memory."""
    text = text_of(message)
    is_autogens = isinstance(message, UserMessage) and message.source == SKIPPED_SOURCE
    return text == FORGOTTEN or (is_autogens and SKIPPED_TEXT.match(text) is not None)


def without_thoughts(messages: Iterable[LLMMessage]) -> list[LLMMessage]:
    """Return the messages without what other agents thought and called as they handed over.

    AutoGen puts that before their handoff message, as if the agent itself had said it. It is recognised by the next message:
    an agent's own words are never followed by those of another agent of the same name.
    """
    kept: list[LLMMessage] = []
    following: LLMMessage | None = None
    for message in reversed(list(messages)):
        if block_id_of(message) is None and not isinstance(message, FunctionExecutionResultMessage):
            is_thought = (
                isinstance(message, AssistantMessage)
                and isinstance(following, UserMessage)
                and following.source == message.source
            )
            following = message
            if is_thought:
                continue
        kept.append(message)
    return kept[::-1]


# Who says what

_LONGEST_JSON = 20_000
_ROLE = lazy(r"^[^\S\n]*(?P<who>user|human|assistant|ai|agent|bot)\s*:\s*", re.IGNORECASE | re.MULTILINE)
_USERS = ("user", "human")


class Utterance(NamedTuple):
    """Who said what."""

    source: str
    text: str
    own: bool = False
    """Whether it is a reply by the agent in whose context it is heard."""

    @property
    def said(self) -> tuple[str, str]:
        """What identifies it wherever it is heard: the same JSON may be formatted in several ways."""
        may_be_json = self.text.startswith("{") and len(self.text) <= _LONGEST_JSON
        return self.source, _normalised_json(self.text) if may_be_json else self.text


@lru_cache(maxsize=256)
def _normalised_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _utterance(source: str, text: str) -> Utterance:
    return Utterance(_name(source), without_lone_surrogates(text).strip())


def _name(source: str) -> str:
    return without_lone_surrogates(source[:MAX_SOURCE])


def said_in(messages: Iterable[LLMMessage]) -> list[Utterance]:
    """Return what people and agents say in a model context."""
    return [
        Utterance(_name(message.source), text_of(message).strip(), isinstance(message, AssistantMessage))
        for message in messages
        if isinstance(message, (UserMessage, AssistantMessage)) and is_said(message) and not _is_placeholder(message)
    ]


def said_by(item: object) -> Utterance | None:
    """Return what somebody says with an item of a stream, a tool's summary included; None for all other items."""
    if not isinstance(item, BaseChatMessage) or isinstance(item, (BaseAgentEvent, StopMessage)):
        return None
    if isinstance(item, MultiModalMessage):
        text = "\n".join(part for part in item.content if isinstance(part, str))
    else:
        text = item.to_text()
    said = _utterance(item.source, without_answers(text))
    if said.text in ("", FORGOTTEN) or (isinstance(item, HandoffMessage) and HANDOFF_TEXT.match(said.text)):
        return None
    return said


def asked_in(item: object) -> str | None:
    """Return who is asked for input by an item of a stream: a person, however their agent is named."""
    return _name(item.source) if isinstance(item, UserInputRequestedEvent) else None


Transcript = str | TaskResult | Sequence[str | BaseChatMessage | BaseAgentEvent | LLMMessage | Mapping[str, Any]]
"""A finished conversation: one text, or messages in order (also as mappings with `source` and `content`)."""


def transcript(given: Transcript, speaker: str) -> list[Utterance]:
    """Return what is said in a transcript, attributed to this speaker where it does not name one.

    A text whose lines begin with "User:" and the like is split into messages.

    Raises:
        ValueError: Something in it is neither a text nor a message.
    """
    if isinstance(given, TaskResult):
        given = given.messages
    items: Sequence[Any] = [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
    return [found for item in items for found in _utterances(item, speaker) if found.text]


def people_in(given: Transcript) -> list[str]:
    """Return who was asked for input in a transcript."""
    items: Sequence[Any] = given.messages if isinstance(given, TaskResult) else given
    return [] if isinstance(items, str) else [name for item in items if (name := asked_in(item)) is not None]


def _utterances(item: Any, speaker: str) -> list[Utterance]:
    if isinstance(item, str):
        roles = list(matches(_ROLE, item))
        if len(roles) < 2:
            return [_utterance(speaker, item)]
        ends = [role.start() for role in roles[1:]] + [len(item)]
        spoken = [(role["who"].lower(), item[role.end() : end]) for role, end in zip(roles, ends, strict=True)]
        return [_utterance(speaker if who in _USERS else who, text) for who, text in spoken]
    if isinstance(item, (BaseChatMessage, BaseAgentEvent)):
        found = said_by(item)
        return [] if found is None else [found]
    if isinstance(item, (SystemMessage, UserMessage, AssistantMessage, FunctionExecutionResultMessage)):
        return [utterance._replace(own=False) for utterance in said_in([item])]
    if isinstance(item, Mapping) and isinstance(item.get("content"), str):
        return [_utterance(str(item.get("source", speaker)), item["content"])]
    raise ValueError(
        f"A transcript consists of texts, AutoGen messages, or mappings with 'source' and 'content'; got {item!r}."
    )


# What the model can see anyway

_SHORT = 1_000
_LONGEST_END = 5_000
"""Characters at either end of a long text that are compared with memories."""
_WORD_SIGN = lazy(r"\w")


class VisibleText:
    """What these messages tell the model without memory."""

    def __init__(self, messages: Iterable[LLMMessage]) -> None:
        self._named: set[str] = set()
        self._stated: set[tuple[str, ...]] = set()
        self._said: set[str] = set()
        told: list[str] = []
        recalled: list[str] = []
        for message in messages:
            if isinstance(message, FunctionExecutionResultMessage):
                self._named.update(id for result in message.content for id in _NAMED_AT_END.findall(result.content))
                continue
            text = text_of(message)
            read = _read(text) if len(text) <= _SHORT else _Read(_plain(text), _plain(_without_questions(_ends(text))))
            self._said.add(read.whole)
            self._stated |= read.stated
            told.append(read.told)
            if block_id_of(message) is not None:
                recalled.append(read.whole)
        self._told = "\n".join(told)  # a plain text has no line breaks
        self._told_or_recalled = "\n".join([self._told, *recalled])

    def shows(self, record: MemoryRecord) -> bool:
        """Return whether a memory is visible, as whole words, or the words that it was drawn from.

        A question tells nothing, so a fact that is only asked for is not visible. A message that asks is, where it was said
        or another memory shows it.
        """
        if record.id in self._named:
            return True
        wanted = _plain(record.content)
        if record.kind == "interaction":
            return wanted in self._said or _holds(self._told_or_recalled, wanted)
        return _holds(self._told, wanted) or self._tells(record)

    def _tells(self, fact: MemoryRecord) -> bool:
        """Return whether somebody says it in other words: those it was drawn from, or the same in the first person."""
        quote = fact.metadata.get(QUOTE)
        if isinstance(quote, str) and quote and any(_holds(said, _plain(quote)) for said in self._said):
            return True
        stated = in_any_person(fact.content)
        return bool(stated) and stated in self._stated


class _Read(NamedTuple):
    """A plain text, the same without its questions, and what its clauses state."""

    whole: str
    told: str
    stated: frozenset[tuple[str, ...]] = frozenset()


@lru_cache(maxsize=2048)
def _read(text: str) -> _Read:
    told = _without_questions(text)
    stated = frozenset(in_any_person(told[start:end].strip(" ,;")) for start, end in clauses(told))
    return _Read(_plain(text), _plain(told), stated)


def _without_questions(text: str) -> str:
    if "?" not in text:
        return text
    spoken = (text[start:end] for start, end in sentences(text))
    return " ".join(sentence for sentence in spoken if not sentence.endswith("?"))


def _holds(text: str, wanted: str) -> bool:
    """Return whether a text holds another one as whole words."""
    at = text.find(wanted)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(wanted) : at + len(wanted) + 1]
        if not _WORD_SIGN.search(around):
            return True
        at = text.find(wanted, at + 1)
    return False


def _plain(text: str) -> str:
    return plain(_ends(text))


def plain(text: str) -> str:
    """Return a text without regard to case and white space."""
    return " ".join(text.split()).casefold()


def _ends(text: str) -> str:
    """Return a text, or the beginning and the end of a very long one."""
    return text if len(text) <= 2 * _LONGEST_END else f"{text[:_LONGEST_END]}\n{text[-_LONGEST_END:]}"
