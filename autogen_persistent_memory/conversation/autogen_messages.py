"""Reading a model context: which messages are blocks of ours, what they say, what the model can see already."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

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
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, LLMMessage, SystemMessage, UserMessage

from ..core.checks import MAX_SOURCE, mended
from ..core.lazy_regex import lazy
from ..core.records import QUOTE, MemoryRecord
from ..retrieval.diversity import in_any_person
from ..text.pieces import matches
from ..text.sentences import clauses, sentences
from .traces import FORGOTTEN

BLOCK_SOURCE = "memory"
NOTHING_FOUND = "No relevant memories found."
_SHORT = 1_000
_LONGEST_SHOWN = 5_000
"""Characters at either end of a text that are compared with what is shown."""
_HANDOFF = lazy(r"Transferred to \S+, adopting the role of |relevant previous messages\Z")
_REFUSED = "The memory could not do that: "
_NAMED = lazy(r"\(id: ([0-9a-f]{32})\)$", re.MULTILINE)
_ANSWER = lazy(
    rf"^(?:- .*{_NAMED.pattern}|Memory (?:stored|known already|forgotten) {_NAMED.pattern}"
    rf"|{re.escape(NOTHING_FOUND)}$|{_REFUSED}.*$)\n?",
    re.MULTILINE,
)
_WORD_SIGN = lazy(r"\w")
_OPENING = lazy(r'<memory id="([0-9a-f]+)">')


def opening_of(block_id: str) -> str:
    """The first line of a block, by which it is found again, also after a restart."""
    return f'<memory id="{block_id}">'


def named(record: MemoryRecord) -> str:
    """How the tools tell a model which memory a line is about."""
    return f"(id: {record.id})"


def confirmation(done: Literal["stored", "known already", "forgotten"], record: MemoryRecord) -> str:
    """What a tool tells a model that it did."""
    return f"Memory {done} {named(record)}"


def refusal(reason: str) -> str:
    """What a tool tells a model that it could not do, on one line."""
    return _REFUSED + " ".join(reason.split())


def without_answers(text: str) -> str:
    """The text without what the memory's own tools told: AutoGen passes a tool's result on as what the agent says."""
    may_tell = "(id: " in text or NOTHING_FOUND in text or _REFUSED in text
    return _without_answers(text) if may_tell else text


@lru_cache(maxsize=16)  # a long one takes milliseconds, and is looked at several times a turn
def _without_answers(text: str) -> str:
    return _ANSWER.sub("", text)


def block_id_of(message: LLMMessage) -> str | None:
    """The id of the block that this message is, or None if it is part of the conversation."""
    if not isinstance(message.content, str) or not message.content.startswith("<"):
        return None
    match = _OPENING.match(message.content)
    if match is None:
        return None
    is_ours = isinstance(message, SystemMessage) or (
        isinstance(message, UserMessage) and message.source == BLOCK_SOURCE
    )
    return match.group(1) if is_ours else None


def text_of(message: LLMMessage) -> str:
    """What is said in a message: its text, or the text parts of a multimodal one. Nothing for tool plumbing.

    Half a character is replaced: it can be neither embedded nor stored.
    """
    if not isinstance(message, (SystemMessage, UserMessage, AssistantMessage)):
        return ""
    if isinstance(message.content, str):
        return mended(without_answers(message.content))
    return mended("\n".join(part for part in message.content if isinstance(part, str)))


def live_messages(context: ChatCompletionContext) -> list[LLMMessage] | None:
    """The list in which a context of AutoGen's keeps all its messages, of which it may show only a part."""
    messages = getattr(context, "_messages", None)
    return messages if isinstance(messages, list) else None


async def everything_in(context: ChatCompletionContext) -> list[LLMMessage]:
    """All messages of a model context, of which it may show only a part."""
    live = live_messages(context)
    return await context.get_messages() if live is None else list(live)


def is_said(message: LLMMessage) -> bool:
    """Whether somebody says something here: it is no block of ours, no tool call or result, and no bare handoff."""
    if not isinstance(message, (UserMessage, AssistantMessage)) or block_id_of(message) is not None:
        return False
    text = text_of(message)
    return bool(text) and not text.isspace() and not is_handoff(text)


def without_thoughts(messages: Iterable[LLMMessage]) -> list[LLMMessage]:
    """The messages without what others thought and called as they handed over.

    AutoGen puts that before their handoff message, as if the agent itself had said it; but nobody's own words are followed
    by those of another with the same name.
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


def is_handoff(text: str) -> bool:
    """Whether it is only AutoGen's note that somebody else goes on."""
    return _HANDOFF.match(text) is not None


class VisibleText:
    """What these messages tell the model anyway."""

    def __init__(self, messages: Iterable[LLMMessage]) -> None:
        self._named: set[str] = set()
        self._stated: set[tuple[str, ...]] = set()
        self._said: set[str] = set()
        told: list[str] = []
        recalled: list[str] = []
        for message in messages:
            if isinstance(message, FunctionExecutionResultMessage):
                self._named.update(id for result in message.content for id in _NAMED.findall(result.content))
                continue
            text = text_of(message)
            read = _read(text) if len(text) <= _SHORT else _Read(_plain(text), _plain(_without_questions(_ends(text))))
            self._said.add(read.whole)
            self._stated |= read.stated
            told.append(read.told)
            if block_id_of(message) is not None:
                recalled.append(read.whole)
        self._told = "\n".join(told)  # which plain text does not hold
        self._told_or_recalled = "\n".join([self._told, *recalled])

    def shows(self, record: MemoryRecord) -> bool:
        """Return whether a memory stands there, as whole words, or the words that it was drawn from.

        A question tells nothing, it wants to be told; so a fact does not count as visible where it is only asked for. A
        message that asks does, where it was said or another memory shows it.
        """
        if record.id in self._named:
            return True
        wanted = _plain(record.content)
        if record.kind == "interaction":
            return wanted in self._said or _stands_in(self._told_or_recalled, wanted)
        return _stands_in(self._told, wanted) or self._tells(record)

    def _tells(self, fact: MemoryRecord) -> bool:
        """Return whether somebody says it in words of their own: those it was drawn from, or the same in the first person."""
        quote = fact.metadata.get(QUOTE)
        if isinstance(quote, str) and quote and any(_stands_in(said, _plain(quote)) for said in self._said):
            return True
        stated = in_any_person(fact.content)
        return bool(stated) and stated in self._stated


class _Read(NamedTuple):
    """A text in plain, the same without what it asks, and what its clauses state."""

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


def _stands_in(text: str, wanted: str) -> bool:
    """Return whether it stands there as whole words."""
    at = text.find(wanted)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(wanted) : at + len(wanted) + 1]
        if not _WORD_SIGN.search(around):
            return True
        at = text.find(wanted, at + 1)
    return False


def _plain(text: str) -> str:
    return " ".join(_ends(text).split()).casefold()


def _ends(text: str) -> str:
    """A text, or of a very long one how it begins and ends."""
    if len(text) <= 2 * _LONGEST_SHOWN:
        return text
    return f"{text[:_LONGEST_SHOWN]}\n{text[-_LONGEST_SHOWN:]}"


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
