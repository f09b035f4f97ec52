"""Model clients in component configurations: dumped without secrets, and loaded with a clear error if one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_core import ComponentModel
from autogen_core.models import ChatCompletionClient

from ..text.redaction import names_secret, without_secrets

_MASK = "**********"


def check_client(client: object, what: str) -> ChatCompletionClient:
    if not isinstance(client, ChatCompletionClient):
        raise ValueError(f"{what} must be an AutoGen ChatCompletionClient, not {type(client).__name__}.")
    return client


def dump_client(client: ChatCompletionClient) -> ComponentModel:
    """Return the configuration of a client, also without the secrets that AutoGen misses, such as those in headers."""
    dumped = client.dump_component()
    return dumped.model_copy(update={"config": _without_secrets(dumped.config)})


def load_client(config: ComponentModel, whose: str) -> ChatCompletionClient:
    """Return the client that a configuration describes, or raise a ValueError if it was dumped without its key."""
    masked = _masked(config.config)
    if masked is not None:
        raise ValueError(
            f"The model client of {whose} ({config.provider}) was dumped without its {masked}: secrets are never dumped. "
            f"Set the key as an environment variable, such as OPENAI_API_KEY, and leave {masked} out when making the client; "
            "or make a new client here."
        )
    return ChatCompletionClient.load_component(config)


def _without_secrets(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _without_secrets(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(inner, name) for inner in value]
    is_secret = isinstance(value, str) and value and (names_secret(name) or without_secrets(value) != value)
    return _MASK if is_secret else value


def _masked(value: Any, name: str = "") -> str | None:
    """Return the name of the first secret that was masked when the configuration was dumped."""
    if isinstance(value, Mapping):
        return next((found for key, inner in value.items() if (found := _masked(inner, str(key)))), None)
    return name if value == _MASK else None
