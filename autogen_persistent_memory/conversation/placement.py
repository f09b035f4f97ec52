"""Placing the block in a model context: one at a time, where the model sees it, without displacing the conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from autogen_core.model_context import ChatCompletionContext, ChatCompletionContextState
from autogen_core.models import FunctionExecutionResultMessage, LLMMessage, SystemMessage, UserMessage

from ..core.errors import PersistentMemoryError
from ..runtime.threads import in_thread, run_without_loop
from .autogen_compat import live_messages, replace_messages, saves_only_messages
from .autogen_messages import BLOCK_SOURCE, block_id_of, text_of


async def place_block(
    context: ChatCompletionContext, block_id: str, text: str, shown: Sequence[LLMMessage], *, system: bool = False
) -> bool:
    """Replace the block of that id by this text, or remove it if the text is empty; return whether the model sees it now.

    The block goes right before the last message, else to the head; with `system` to the head as a system message, else
    right before the last message; else nowhere. It must be visible there, and must not push the last message or
    another memory's block out of the context's window, of which `shown` is now visible.
    """
    state = await _State.of(context)
    conversation = [entry for entry in state.entries if block_id_of(entry.message) != block_id]
    messages = [entry.message for entry in conversation]
    must_stay = [message for message in messages if block_id_of(message)] + messages[-1:]
    must_stay = [message for message in must_stay if _shows(shown, message)]
    placed = state.entries
    try:
        for block, position in _choices(messages, text, system):
            before, placed = placed, [*conversation[:position], _Entry(block, block), *conversation[position:]]
            await state.load(context, before, placed)
            shown = await context.get_messages()
            if all(_shows(shown, message) for message in (block, *must_stay)):
                return True
    except BaseException:
        await state.load(context, placed, conversation)
        raise
    await state.load(context, placed, conversation)
    return False


def up_to_date(messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    """Return the messages without blocks of the turn before, which are replaced before the model reads them.

    Blocks at the head stay: they cannot be told from those of this turn.
    """
    conversation = [message for message in messages if block_id_of(message) is None]
    head, end = _after_head(conversation), _before_last(conversation)
    kept: list[LLMMessage] = []
    passed = 0
    for message in messages:
        is_block = block_id_of(message) is not None
        if not is_block or passed <= head or passed >= end:
            kept.append(message)
        passed += not is_block
    return kept


def _choices(messages: Sequence[LLMMessage], text: str, system: bool) -> list[tuple[LLMMessage, int]]:
    """Return blocks and their positions, in the order in which to try them."""
    if not text:
        return []
    block = UserMessage(content=text, source=BLOCK_SOURCE)
    if system:
        return [(SystemMessage(content=text), _after_head(messages)), (block, _before_last(messages))]
    return [(block, position) for position in dict.fromkeys((_before_last(messages), _after_head(messages)))]


def _before_last(messages: Sequence[LLMMessage]) -> int:
    """Return the position before the last message, and never between a tool call and its result."""
    position = max(0, len(messages) - 1)
    while position > 0 and isinstance(messages[position], FunctionExecutionResultMessage):
        position -= 1
    return position


def _after_head(messages: Sequence[LLMMessage]) -> int:
    """Return the position after the system messages that a context starts with, which must stay together."""
    return sum(1 for _ in takewhile(lambda message: isinstance(message, SystemMessage), messages))


def _shows(shown: Sequence[LLMMessage], wanted: LLMMessage) -> bool:
    """Return whether a message is shown: the same object or, in a context that copies, one with the same text."""
    text = text_of(wanted)
    return any(
        message is wanted or (type(message) is type(wanted) and text != "" and text_of(message) == text)
        for message in reversed(shown)
    )


class _Entry(NamedTuple):
    """A message of a context, and the form in which the context loads it."""

    message: LLMMessage
    raw: Any


class _State(NamedTuple):
    """All of a context, of which `get_messages()` may show only a part."""

    entries: list[_Entry]
    saved: Mapping[str, Any]

    @classmethod
    async def of(cls, context: ChatCompletionContext) -> _State:
        """Return the state of a context.

        AutoGen's own contexts save their messages and nothing else, so the messages are taken as they are: serialising them
        would cost up to a second an image, every turn. Other contexts are asked to save their state, in a thread if they
        hold images and do not wait for anything.
        """
        messages = live_messages(context) or []
        if saves_only_messages(context):
            return cls([_Entry(message, message) for message in messages], {})
        saved = await _saved(context, has_images=any(isinstance(message.content, list) for message in messages))
        if not isinstance(saved.get("messages"), list):
            raise PersistentMemoryError(
                f"The state of a {type(context).__name__} has no 'messages', so memories cannot be placed among them. Let "
                "its save_state() and load_state() use that key."
            )
        return cls([_Entry(_without_images(raw), raw) for raw in saved["messages"]], saved)

    async def load(self, context: ChatCompletionContext, before: list[_Entry], after: list[_Entry]) -> None:
        """Give the context these messages, unless it has them already."""
        if [entry.message for entry in before] == [entry.message for entry in after]:
            return
        if saves_only_messages(context):
            await replace_messages(context, [entry.raw for entry in after])
        else:
            raw = [entry.raw if isinstance(entry.raw, dict) else entry.raw.model_dump() for entry in after]
            await context.load_state({**self.saved, "messages": raw})


async def _saved(context: ChatCompletionContext, *, has_images: bool) -> Mapping[str, Any]:
    if has_images:
        try:
            return await in_thread(lambda: run_without_loop(context.save_state()))
        except RuntimeError:  # it does wait for something
            pass
    return await context.save_state()


def _without_images(raw: dict[str, Any]) -> LLMMessage:
    if raw.get("type") == "UserMessage" and isinstance(raw.get("content"), list):
        raw = {**raw, "content": [part for part in raw["content"] if isinstance(part, str)]}
    return ChatCompletionContextState.model_validate({"messages": [raw]}).messages[0]
