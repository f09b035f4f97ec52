"""What this package touches of AutoGen beyond its documented API: attributes, class names, keys of saved states, texts.

AutoGen may change any of it with a release. `tests/project/test_hosts_autogen.py` checks each name against the installed version, and
says which one broke.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    MultiModalMessage,
    TextMessage,
    ToolCallSummaryMessage,
)
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage

from ..core.lazy_regex import lazy

State = Mapping[str, Any]
"""What `save_state()` of a team or an agent returns."""

# Messages

SKIPPED_SOURCE = "System"
SKIPPED_TEXT = lazy(r"Skipped \d+ messages\.")
"""What `HeadAndTailChatCompletionContext` shows instead of the middle, and who says it."""
HANDOFF_TEXT = lazy(r"Transferred to \S+, adopting the role of |relevant previous messages\Z")
"""The message of a `Handoff` without words of its own, and with what `SocietyOfMindAgent` passes its context on."""
FIXED_FIELDS = frozenset(("type", "version", "id", "source", "target", "created_at", "role", "name", "call_id"))
"""The fields of a dumped message that identify and route it."""
SPOKEN_FIELDS = frozenset(("content", "thought", "metadata"))
"""The fields of a dumped message that hold what is said."""
TOOL_CALL, TOOL_RESULT, MEMORY_CONTENT = {"name", "arguments"}, {"call_id"}, {"mime_type", "content"}
"""The fields by which a dumped `FunctionCall`, `FunctionExecutionResult` and `MemoryContent` are recognised."""
IMAGE = {"data"}
"""All fields of a dumped `Image`."""
_DUMPED = {kind.__name__: kind for kind in (TextMessage, MultiModalMessage, ToolCallSummaryMessage, HandoffMessage)}


def chat_message(dumped: State) -> BaseChatMessage | None:
    """Return a chat message of a saved state; None for a type of the team's own."""
    kind = _DUMPED.get(dumped.get("type", ""))
    return None if kind is None else kind.load(dumped)


# Model contexts


def live_messages(context: ChatCompletionContext) -> list[LLMMessage] | None:
    """Return the list in which AutoGen's own contexts keep all messages; they may show only some of them."""
    messages = getattr(context, "_messages", None)
    return messages if isinstance(messages, list) else None


async def everything_in(context: ChatCompletionContext) -> list[LLMMessage]:
    """Return all messages of a model context, as far as they can be known."""
    live = live_messages(context)
    return await context.get_messages() if live is None else list(live)


def saves_only_messages(context: ChatCompletionContext) -> bool:
    """Return whether the state of a context is its list of messages, as with all of AutoGen's own contexts."""
    kind, base = type(context), ChatCompletionContext
    is_inherited = kind.save_state is base.save_state and kind.load_state is base.load_state
    return is_inherited and live_messages(context) is not None


async def replace_messages(context: ChatCompletionContext, messages: Sequence[LLMMessage]) -> None:
    """Give a context that `saves_only_messages` other messages, in the same list.

    Other memories of the agent hold on to that list, to find the agent's last reply in it.
    """
    held: list[LLMMessage] = context._messages
    await context.load_state({"messages": list(messages)})
    held[:], context._messages = context._messages, held


def never_waits(context: ChatCompletionContext) -> bool:
    """Return whether a context is one of AutoGen's own, none of which does any I/O."""
    return type(context).__module__.startswith("autogen_core.")


# Running teams

REQUEST = "GroupChatRequestPublish"
RESPONSES = ("GroupChatAgentResponse", "GroupChatTeamResponse")
"""The classes of the messages that ask a participant to speak, and that tell that it has spoken."""


def is_running(team: object) -> bool:
    """Return whether a team is in the middle of a run. An agent never is."""
    return bool(getattr(team, "_is_running", False))


def participants_of(team: object) -> dict[str, str]:
    """Return the names of a team's participants by the type of their topic, which is also their agent type."""
    return dict(zip(getattr(team, "_participant_topic_types", ()), getattr(team, "_participant_names", ())))


def runtime_of(team: object) -> Any:
    """Return the runtime by which a team's participants talk to each other; None for an agent."""
    runtime = getattr(team, "_runtime", None)
    return runtime if hasattr(runtime, "publish_message") else None


# States of teams and agents

_AGENTS = "agent_states"
_THREAD = "message_thread"
_BUFFER = "message_buffer"
_NEXT = "next_speaker_index"
_PREVIOUS = "previous_speaker"
_READY, _ENQUEUED, _REMAINING = "ready", "enqueued_any", "remaining"
_INNER = ("agent_state", "inner_team_state")


def members_in(state: State) -> Any:
    """Return the states in a team's state by name, its manager's included; None for an agent's state."""
    return state.get(_AGENTS)


def manager_in(members: State) -> str | None:
    """Return which member manages the others: the one that has the thread of messages."""
    return next((name for name, member in members.items() if _THREAD in member), None)


def inner_states(state: State) -> dict[str, State]:
    """Return the states that an agent keeps of the agent or team in it."""
    return {name: state[name] for name in _INNER if isinstance(state.get(name), Mapping)}


def version_of(state: State) -> tuple[int, ...]:
    return tuple(int(part) for part in str(state.get("version", "0")).split(".") if part.isdigit())


def takes_turns(manager: State) -> bool:
    """Return whether a team's participants speak in a fixed order, so that the order is part of its state."""
    return _NEXT in manager


def edges_of(manager: State) -> dict[str, list[str]]:
    """Return who waits for whom in a team that follows a graph."""
    return {name: sorted(groups) for name, groups in manager.get(_REMAINING, {}).items()}


def thread_of(state: State) -> list[State]:
    """Return everything that was said in a team, as AutoGen dumps it; nothing for an agent."""
    members = members_in(state) or {}
    manager = manager_in(members)
    return list(members[manager][_THREAD]) if manager else []


def waiting_in(state: State) -> list[list[State]]:
    """Return the messages that each participant of a team will only hear with its next turn, as AutoGen dumps them."""
    return [list(member[_BUFFER]) for member in (members_in(state) or {}).values() if member.get(_BUFFER)]


def before_turn(state: State, speakers: Sequence[str], previous: str | None = None) -> dict[str, Any]:
    """Return a team's state as it was before it chose these speakers, so that it chooses them again.

    The state is what the team saves after the choice, before any of them has begun to speak. `previous` spoke before them; if
    that is not known, the last participant in the thread is taken.
    """
    members = dict(state[_AGENTS])
    leader = manager_in(members)
    if leader is None:
        return dict(state)
    manager = dict(members[leader])
    names = [name for name in members if name != leader]
    if _NEXT in manager:
        manager[_NEXT] = names.index(speakers[0])
    if _PREVIOUS in manager:
        spoken = (message.get("source") for message in reversed(manager[_THREAD]))
        manager[_PREVIOUS] = previous or next((name for name in spoken if name in names), None)
    if _READY in manager:
        manager[_READY] = list(speakers)
        manager[_ENQUEUED] = {name: dict(groups) for name, groups in manager[_ENQUEUED].items()}
    return {**state, _AGENTS: {**members, leader: manager}}
