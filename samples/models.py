"""The model behind every sample: a script by default, so that they need no key and no network.

    python samples/demo.py                          the model reads its replies from the sample
    SAMPLE_MODEL=local python samples/demo.py       a real small model on this machine (samples/local_model.py)
    OPENAI_API_KEY=... python samples/demo.py       OpenAI's (OPENAI_MODEL chooses which)

Any other AutoGen `ChatCompletionClient` is one line: return it at the top of `model()`.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from functools import cache

from autogen_core.models import ChatCompletionClient, CreateResult
from local_model import LocalModel

from autogen_persistent_memory.testing import ScriptedModel


def model(replies: Sequence[str | CreateResult]) -> ChatCompletionClient:
    """The client to give to an agent; the replies are what a script answers, one after the other."""
    # return AnthropicChatCompletionClient(model="...")  # your model goes here, for all samples
    which = chosen()
    if which == "local":
        return served().client(max_tokens=60)
    if which == "openai":
        from autogen_ext.models.openai import OpenAIChatCompletionClient

        return OpenAIChatCompletionClient(model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"))
    return ScriptedModel(replies)


def chosen() -> str:
    """Which model it is: `script`, `local` or `openai`."""
    which = os.environ.get("SAMPLE_MODEL") or ("openai" if os.environ.get("OPENAI_API_KEY") else "script")
    if which not in ("script", "local", "openai"):
        raise SystemExit(f"SAMPLE_MODEL must be script, local or openai, not {which!r}.")
    return which


@cache
def served() -> LocalModel:
    """The small model, started once a process and stopped with it."""
    server = LocalModel()
    server.start()
    atexit.register(server.stop)
    return server
