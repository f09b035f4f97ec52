"""The model of every sample: scripted by default, so that they need no key and no network.

    python samples/demo.py                          the replies are in the sample
    SAMPLE_MODEL=local python samples/demo.py       a real small model on this machine (samples/local_model.py)
    OPENAI_API_KEY=... python samples/demo.py       an OpenAI model (OPENAI_MODEL names it)

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
    """Return the client for an agent; the replies are for the scripted model, one after the other."""
    # return AnthropicChatCompletionClient(model="...")  # your model goes here, for all samples
    which = chosen()
    if which == "local":
        return served().client(max_tokens=60)
    if which == "openai":
        from autogen_ext.models.openai import OpenAIChatCompletionClient

        return OpenAIChatCompletionClient(model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"))
    return ScriptedModel(replies)


def chosen() -> str:
    """Return which model is used: `script`, `local` or `openai`."""
    which = os.environ.get("SAMPLE_MODEL") or ("openai" if os.environ.get("OPENAI_API_KEY") else "script")
    if which not in ("script", "local", "openai"):
        raise SystemExit(f"SAMPLE_MODEL must be script, local or openai, not {which!r}.")
    return which


@cache
def served() -> LocalModel:
    """Return the small model, started once in this process and stopped with it."""
    server = LocalModel()
    server.start()
    atexit.register(server.stop)
    return server
