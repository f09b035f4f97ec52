"""Print a conversation on the terminal, with the memories that were injected."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import AsyncIterable

from autogen_agentchat.messages import (
    MemoryQueryEvent,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
)

COLOURS = {"user": "36", "injected": "33", "remembered": "33", "calls": "35", "tool": "35"}


async def show_run(stream: AsyncIterable[object], *, nothing: bool = False) -> None:
    """Print the events of `agent.run_stream(...)` or `team.run_stream(...)`; with `nothing`, also that nothing was injected."""
    is_informed = not nothing
    async for message in stream:
        if isinstance(message, MemoryQueryEvent):
            is_informed = True
            for memory in message.content:
                show("injected", f"{(memory.metadata or {})['kind']:<11} {memory.content!s}")
        elif isinstance(message, ToolCallRequestEvent):
            for call in message.content:
                show("calls", f"{call.name}({call.arguments})")
        elif isinstance(message, ToolCallExecutionEvent):
            for result in message.content:
                show("tool", result.content)
        elif isinstance(message, TextMessage | ToolCallSummaryMessage):
            if message.source != "user" and not is_informed:
                is_informed = True
                show("injected", "nothing: no memory is relevant")
            show(message.source, message.content)


def show(who: str, text: str) -> None:
    """Print a line of the conversation."""
    colour = COLOURS.get(who, "32") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else None
    label = f"{who:>11}"
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, 92)] or [""]
    print((f"\033[{colour}m{label}\033[0m" if colour else label), f"\n{'':>12}".join(lines), flush=True)
