"""A model client that answers from a script and records what it was asked."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from autogen_core import FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelCapabilities,
    ModelFamily,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from ..conversation.autogen_messages import block_id_of

_WINDOW = 100_000


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool, as an answer of the model."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One request to the model."""

    messages: tuple[LLMMessage, ...]
    """The messages that the model saw."""
    tools: tuple[str, ...] = ()
    """The names of the tools that it was offered."""
    json_output: bool | type[BaseModel] | None = None

    @property
    def texts(self) -> list[str]:
        """The content of each message as text."""
        return [str(message.content) for message in self.messages]

    @property
    def memory(self) -> str | None:
        """The memory block that the model saw, or None."""
        return next((str(message.content) for message in self.messages if block_id_of(message) is not None), None)


Answer: TypeAlias = str | ToolCall | Sequence[ToolCall] | CreateResult | BaseException
"""What the model does with one request: say a text, call tools, return this result, or raise this error."""
Step: TypeAlias = Answer | Callable[[Asked], Answer | Awaitable[Answer]]
"""An answer, or a function, sync or async, that makes one of the request."""


class ScriptedModel(ChatCompletionClient):
    """A `ChatCompletionClient` for tests, which answers one step of its script to each request.

    Args:
        script: The answers, in order. An iterator may be endless, as `itertools.repeat("Yes.")`.
        model_info: What the model can do; by default everything but vision.

    Example:
        >>> import asyncio
        >>> from autogen_core.models import UserMessage
        >>> model = ScriptedModel(["Hello!", ToolCall("recall", {"query": "tea"}), lambda asked: asked.texts[-1].upper()])
        >>> async def ask(text):
        ...     return (await model.create([UserMessage(content=text, source="user")])).content
        >>> asyncio.run(ask("Hi"))
        'Hello!'
        >>> asyncio.run(ask("Do I like tea?"))[0].name
        'recall'
        >>> asyncio.run(ask("louder"))
        'LOUDER'
        >>> model.asked[0].texts
        ['Hi']

    With a memory, `model.asked[-1].memory` is the block that the model saw.
    """

    def __init__(self, script: Iterable[Step] = (), *, model_info: ModelInfo | None = None) -> None:
        self._script = iter(script)
        self._model_info = model_info or ModelInfo(
            vision=False, function_calling=True, json_output=True, structured_output=True, family=ModelFamily.UNKNOWN
        )
        self._last_usage = self._usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        self._numbers = count(1)
        self.asked: list[Asked] = []
        """Every request so far."""

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        json_output: bool | type[BaseModel] | None = None,
        **ignored: Any,
    ) -> CreateResult:
        """Record the request, and answer with the next step of the script.

        Raises:
            AssertionError: The script has no more steps.
        """
        names = tuple(tool["name"] if isinstance(tool, dict) else tool.name for tool in tools)
        asked = Asked(tuple(messages), names, json_output)
        self.asked.append(asked)
        try:
            step = next(self._script)
        except StopIteration:
            raise AssertionError(
                f"The script of the model has no answer to request {len(self.asked)}, which ends with "
                f"{asked.texts[-1][:200] if asked.texts else 'nothing'!r}. Add a step to it."
            ) from None
        made = step(asked) if callable(step) else step
        answer = await made if inspect.isawaitable(made) else made
        if isinstance(answer, BaseException):
            raise answer
        result = self._result(answer, self.count_tokens(messages))
        self._last_usage = result.usage
        self._usage = RequestUsage(
            self._usage.prompt_tokens + result.usage.prompt_tokens,
            self._usage.completion_tokens + result.usage.completion_tokens,
        )
        return result

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Answer as `create` does, a text word by word."""
        result = await self.create(messages, **options)
        if isinstance(result.content, str):
            for piece in re.findall(r"\s*\S+|\s+$", result.content):
                yield piece
        yield result

    def _result(self, answer: str | ToolCall | Sequence[ToolCall] | CreateResult, prompt_tokens: int) -> CreateResult:
        if isinstance(answer, CreateResult):
            return answer
        if isinstance(answer, str):
            usage = RequestUsage(prompt_tokens, len(answer.split()))
            return CreateResult(finish_reason="stop", content=answer, usage=usage, cached=False)
        calls = [
            FunctionCall(id=f"call-{next(self._numbers)}", name=call.name, arguments=json.dumps(dict(call.arguments)))
            for call in ([answer] if isinstance(answer, ToolCall) else answer)
        ]
        usage = RequestUsage(prompt_tokens, len(calls))
        return CreateResult(finish_reason="function_calls", content=calls, usage=usage, cached=False)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def actual_usage(self) -> RequestUsage:
        """Return the usage of the last request, counted in words."""
        return self._last_usage

    def total_usage(self) -> RequestUsage:
        """Return the usage of all requests, counted in words."""
        return self._usage

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Return the number of words."""
        return sum(len(text.split()) for text in Asked(tuple(messages)).texts)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Return how many words are left of a window of 100,000."""
        return _WINDOW - self.count_tokens(messages)

    @property
    def capabilities(self) -> ModelCapabilities:
        """What the model can do, as AutoGen asked before `model_info`."""
        return self._model_info

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do."""
        return self._model_info
