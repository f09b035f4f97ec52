"""The model decides: remember, recall and forget as tools that it calls.

Run `python samples/tools.py`. The agent has no automatic memory here, so it knows only what it stored itself. It can have both
(add `memory=[memory]`); nothing is then stored twice.

The model is scripted; samples/models.py says how to use a real one. It must be able to call tools, which the small local one cannot.
"""

from __future__ import annotations

import asyncio
import json
import tempfile

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from models import chosen, model
from showing import show_run

from autogen_persistent_memory import TOOL_PROMPT, EmbeddedStore, PersistentMemory, memory_tools


async def talk(memory: PersistentMemory, text: str, *replies: str | CreateResult) -> None:
    """Run a conversation of one question, with a new agent."""
    agent = AssistantAgent(
        "assistant",
        model_client=model(replies),
        tools=memory_tools(memory),
        system_message=f"You are a helpful assistant. {TOOL_PROMPT}",
        reflect_on_tool_use=True,  # after a tool's result, the model answers the user
    )
    await show_run(agent.run_stream(task=text))
    print()


def call(name: str, **arguments: object) -> CreateResult:
    """Return a model's reply that calls a tool."""
    wanted = FunctionCall(id="1", name=name, arguments=json.dumps(arguments))
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    return CreateResult(finish_reason="function_calls", content=[wanted], usage=usage, cached=False)


async def main() -> None:
    """Run three conversations, which share only the memory."""
    if chosen() == "local":
        raise SystemExit("The small local model cannot call tools. Run this sample without SAMPLE_MODEL=local.")
    with tempfile.TemporaryDirectory() as folder:
        async with PersistentMemory("user-42", store=EmbeddedStore(folder)) as memory:
            await talk(
                memory,
                "Please remember that invoices go to accounting@example.com.",
                call("remember", content="Invoices go to accounting@example.com.", tags=["invoices"]),
                "I will remember it.",
            )
            await talk(
                memory,
                "Where do I send the invoice?",
                call("recall", query="Where do invoices go?"),
                "To accounting@example.com.",
            )
            (record,) = await memory.profile.records()  # a real model reads the id in the result of `recall`
            await talk(
                memory,
                "That address is gone. Forget it, please.",
                call("forget", id=record.id),
                "It is forgotten.",
            )
            print(f"Memories left: {await memory.count()}")


if __name__ == "__main__":
    asyncio.run(main())
