"""The query of a turn: what the agent was asked last, and what that refers back to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from autogen_core.models import AssistantMessage, LLMMessage, UserMessage

from ..core.lazy_regex import lazy
from ..core.policy import RecallPolicy
from ..core.records import Query
from .autogen_messages import is_said, text_of, without_thoughts

_LONGEST = 1000
"""Characters of a message that are used as they are: an embedding model reads few more, and more blur its vector."""
_LONGEST_END = 300
_LONGEST_EARLIER = 300
_LONGEST_ANSWER = 200
_TURNS_BACK = 3
_MOST_REPEATS = 10
_FEW_WORDS = 4
_ENOUGH_WORDS = 15

_FENCE = "```"
_MAY_ADDRESS = lazy(r"@|[,:]\s")
_REMARK = lazy(r"^\W*\w+(?:\W+\w+)?\s*[.!]+\s+(?=\S)")
_WORD = lazy(r"[\u3040-\u30ff\u3400-\u9fff]{1,2}|[^\W\u3040-\u30ff\u3400-\u9fff]+(?:['’]\w+)?")
_REFERENCE = lazy(
    r"""
    \b(?: he | him | his | she | hers? | they | them | theirs? | (?<!got\ )it | its | these | those
        | this (?!\ (?:week|weekend|month|year|morning|afternoon|evening|time|spring|summer|autumn|fall|winter)\b)
        | that (?= \W*$ | \s*[.,;!?] | ['’]s\b | \ (?:is|was|does|did|has|will|would|one)\b)
        | there (?= \W*$ | \s*[.,;!?])
        | (?:the|that|which|other|another|first|second|third|last)\ one | ones | (?:the|any|no|some|all)\ others?
        | the\ (?:first|second|third|last|next|previous) (?= \W*$ | \s*[.,;!?] | \ (?:option|choice|variant|of)\b)
        | both | either | neither | former | latter | same | (?:the|these|those)\ (?:two|three)
        | (?:what|who|where|anything|anyone|nothing)\ else
    )\b
    | (?:^|[.!?]\s+) (?: and | or | but | what\ about | how\ about )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NEW_TOPIC = lazy(
    r"""
    \b(?: by\ the\ way | btw | speaking\ of | something\ (?:else|different|completely\ different) | unrelated
        | (?:another|different|new|other)\ (?:topic|subject|question|matter|thing|note)
        | (?:change|changing|switch|switching)\ (?:the\ )?(?:topic|subject)
    )\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def question(
    messages: Sequence[LLMMessage], policy: RecallPolicy, users: Collection[str] | None = None
) -> Query | None:
    """Return what to recall for, or None if nobody asked anything.

    It is what the agent was asked last. If that does not say what it is about, the turn before is added: what the user
    said then, and the answer; and the turns before that, while those refer back as well. The user speaks under these names, by
    default those of the policy.
    """
    if policy.query is not None:
        return Query(policy.query)
    users = policy.user_sources if users is None else users
    said = [message for message in without_thoughts(_recent(messages, users)) if is_said(message)]
    asked = _asked(said, users)
    if asked is None:
        return None
    whole = text_of(said[asked]).strip()
    text = _without_address(_gist(whole), messages)
    if len(whole) > _LONGEST:
        return Query(text)
    background = "\n".join(_background(text, said[:asked], users))
    if not background:
        return Query(text)
    # Repeated, the message weighs as much as all that it refers back to, and so leads.
    repeats = min(max(1, round(len(background) / len(text))), _MOST_REPEATS)
    is_complete = _REFERENCE.search(text) is None  # though it is short
    return Query("\n".join([*[text] * repeats, background]), lead=text if is_complete else None)


def refers_back(text: str) -> bool:
    """Return whether a message needs those before it to be understood: it is very short, or short and refers to them.

    The words that refer are English; in other languages only the length counts.
    """
    if _NEW_TOPIC.search(text):
        return False
    words = len(_WORD.findall(_REMARK.sub("", text)))
    return words <= _FEW_WORDS or (words < _ENOUGH_WORDS and _REFERENCE.search(text) is not None)


def _recent(messages: Sequence[LLMMessage], users: Collection[str]) -> Sequence[LLMMessage]:
    """Return the messages that can matter: as many turns of the user as one may refer back to."""
    latest = (at for at in reversed(range(len(messages))) if _is_user(messages[at], users) and is_said(messages[at]))
    return messages[next(islice(latest, _TURNS_BACK, None), 0) :]


def _asked(said: Sequence[LLMMessage], users: Collection[str]) -> int | None:
    """Return which message asks the agent: the user's latest; without one, a teammate's last question or message."""
    heard = [index for index, message in enumerate(said) if isinstance(message, UserMessage)]
    by_user = [index for index in heard if _is_user(said[index], users)]
    if by_user:
        return by_user[-1]
    answered = max((index for index, message in enumerate(said) if isinstance(message, AssistantMessage)), default=-1)
    questions = [index for index in heard if index > answered and "?" in text_of(said[index])]
    return max(questions or heard, default=None)


def _is_user(message: LLMMessage, users: Collection[str]) -> bool:
    return isinstance(message, UserMessage) and message.source in users


def _without_address(text: str, messages: Sequence[LLMMessage]) -> str:
    """Return the text without the names it is addressed to: "@writer, ..." does not ask about writers."""
    if not _MAY_ADDRESS.search(text):
        return text
    names = {
        message.source
        for message in messages
        if isinstance(message, (UserMessage, AssistantMessage)) and is_said(message)
    }
    either = "|".join(re.escape(name) for name in sorted(names - {""}, key=len, reverse=True))
    return re.sub(rf"(?<!\w)@(?:{either})\b[,:]?\s*|^(?:{either})[,:]\s+", "", text).strip() or text


def _background(text: str, before: Sequence[LLMMessage], users: Collection[str]) -> Iterator[str]:
    """Yield what was said in the turns that a message refers back to, the latest turn first."""
    for _ in range(_TURNS_BACK):
        starts = [index for index, message in enumerate(before) if _is_user(message, users)]
        if not starts or not refers_back(text):
            return
        before, (earlier, *replies) = before[: starts[-1]], before[starts[-1] :]
        text = _beginning(_gist(_prose(text_of(earlier))), _LONGEST_EARLIER)
        yield from filter(None, (text, _beginning(_prose(_answer(replies)), _LONGEST_ANSWER)))


def _answer(replies: Sequence[LLMMessage]) -> str:
    """Return the agent's own last reply to the user, or a teammate's first."""
    own = [reply for reply in replies if isinstance(reply, AssistantMessage)]
    return next((text_of(reply) for reply in (*reversed(own), *replies)), "")


def _gist(text: str) -> str:
    """Return what a long message, say a pasted document, is about: people ask before or after it."""
    if len(text) <= _LONGEST:
        return text
    text = _prose(text) or text
    ends = text if len(text) <= _LONGEST else f"{_beginning(text, _LONGEST_END)}\n{text[-_LONGEST_END:]}"
    lines = [line.strip() for line in ends.splitlines() if line.strip()]
    asking = "\n".join(line for line in lines if "?" in line or "？" in line)
    return asking if asking and not refers_back(asking) else f"{lines[0]}\n{lines[-1]}"


def _prose(text: str) -> str:
    """Return the text without fenced code and tool output."""
    return " ".join(text.split(_FENCE)[::2]).strip()


def _beginning(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest].rsplit(None, 1)[0]
