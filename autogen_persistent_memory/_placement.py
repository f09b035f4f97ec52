"""Putting the block into a model context: one at a time, where the model sees it, never in the way of the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from autogen_core.model_context import ChatCompletionContext, ChatCompletionContextState
from autogen_core.models import FunctionExecutionResultMessage, LLMMessage, SystemMessage, UserMessage

from ._conversation import BLOCK_SOURCE, block_id_of, text_of
from ._threads import DaemonPool, run_without_loop

_pool = DaemonPool(4, "autogen-memory-context")


async def place_block(context: ChatCompletionContext, block_id: str, text: str, *, system: bool = False) -> bool:
    """Replace the block of that id by this text, or remove it if the text is empty; whether the model now sees it.

    The block goes right before the last message, else (where the context's window does not show it there, or it would
    push the last message out) to the head, else nowhere. With `system` it goes to the head as a system message.
    """
    saved, messages = await _save(context)
    conversation = [message for message in messages if block_id_of(message) != block_id]
    if text:
        block = SystemMessage(content=text) if system else UserMessage(content=text, source=BLOCK_SOURCE)
        must_show: list[LLMMessage] = [block]
        if conversation and _shows(await context.get_messages(), conversation[-1]):
            must_show.append(conversation[-1])
        head = _after_head(conversation)
        for position in [head] if system else dict.fromkeys((_before_last(conversation), head)):
            placed = [*conversation[:position], block, *conversation[position:]]
            await _load(context, saved, messages, placed)
            messages = placed
            shown = await context.get_messages()
            if all(_shows(shown, message) for message in must_show):
                return True
    await _load(context, saved, messages, conversation)
    return False


def _before_last(messages: Sequence[LLMMessage]) -> int:
    """Before the last message, and never between a tool call and its result."""
    position = max(0, len(messages) - 1)
    while position > 0 and isinstance(messages[position], FunctionExecutionResultMessage):
        position -= 1
    return position


def _after_head(messages: Sequence[LLMMessage]) -> int:
    """After the system messages a context starts with, which must stay together."""
    return next(
        (index for index, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages)
    )


def _shows(shown: Sequence[LLMMessage], wanted: LLMMessage) -> bool:
    """Whether a message is among those shown (as the same object, or in a context that copies, with the same text)."""
    text = text_of(wanted)
    return any(
        message is wanted or (type(message) is type(wanted) and text != "" and text_of(message) == text)
        for message in reversed(shown)
    )


async def _save(context: ChatCompletionContext) -> tuple[Mapping[str, Any], list[LLMMessage]]:
    """The state of the whole context, of which `get_messages()` may show only a part, and its messages.

    Serialising images takes long. AutoGen's own contexts wait for nothing while saving, so they are saved in a
    thread; others on the loop, where they belong.
    """
    if type(context).save_state is ChatCompletionContext.save_state:
        return await asyncio.get_running_loop().run_in_executor(
            _pool, lambda: _parsed(run_without_loop(context.save_state()))
        )
    return _parsed(await context.save_state())


def _parsed(saved: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[LLMMessage]]:
    return saved, ChatCompletionContextState.model_validate({"messages": saved["messages"]}).messages


async def _load(
    context: ChatCompletionContext, saved: Mapping[str, Any], before: list[LLMMessage], after: list[LLMMessage]
) -> None:
    """Give the context these messages, unless it has them already.

    Always on the loop and in one step: a thread that is late could undo what the agent did meanwhile. AutoGen's own
    contexts take message objects as they are, so it is cheap.
    """
    if before == after:
        return
    if type(context).load_state is ChatCompletionContext.load_state:
        await context.load_state({"messages": after})
    else:
        await context.load_state({**saved, "messages": [message.model_dump() for message in after]})
