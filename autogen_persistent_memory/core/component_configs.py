"""The declarative form of every component, which AutoGen dumps and loads. Fields are the arguments of the component.

AutoGen dumps a component with `model_dump(exclude_none=True)` and loads it with `model_validate`. So the unions are
discriminated by `type`, everything dumps to plain JSON types, None is the default wherever it is allowed, and secrets
appear only as the names of environment variables.

This module does without `from __future__ import annotations`: Pydantic would have to compile every annotation.
"""

from typing import Annotated, Any, Literal

from autogen_core import ComponentModel
from pydantic import Field

from .policy import RecallPolicy, Seconds, Settings

PATH_VARIABLE = "AUTOGEN_MEMORY_PATH"
DEFAULT_PATH = "~/.autogen_memory"
OUTBOX_VARIABLE = "AUTOGEN_MEMORY_OUTBOX"
DEFAULT_OUTBOX = "~/.autogen_memory/outbox"
"""The defaults for `path` and `outbox`, and the environment variables that override them."""


class EmbeddedStoreConfig(Settings):
    type: Literal["embedded"] = "embedded"
    path: str | None = None


class ServerStoreConfig(Settings):
    type: Literal["server"] = "server"
    host: str = "localhost"
    port: int = Field(default=8000, ge=1, le=65535)
    ssl: bool = False
    tenant: str = "default_tenant"
    database: str = "default_database"
    timeout: Seconds = 10.0
    token_env: str | None = None
    """The environment variable that holds the token."""
    headers_env: dict[str, str] = Field(default_factory=dict)
    """HTTP headers, and the environment variables that hold their values."""
    outbox: str | None = None
    """The folder for writes that wait for the server."""


class CloudStoreConfig(Settings):
    type: Literal["cloud"] = "cloud"
    tenant: str | None = None
    database: str | None = None
    api_key_env: str = "CHROMA_API_KEY"
    timeout: Seconds = 10.0
    outbox: str | None = None


class TemporaryStoreConfig(Settings):
    type: Literal["temporary"] = "temporary"
    id: str
    """The same id in one process is the same data."""


StoreConfig = Annotated[
    EmbeddedStoreConfig | ServerStoreConfig | CloudStoreConfig | TemporaryStoreConfig, Field(discriminator="type")
]


class MiniLMEmbeddingConfig(Settings):
    type: Literal["minilm"] = "minilm"
    threads: int | None = Field(default=None, ge=1)
    cache_size: int = Field(default=1024, ge=0)


class ChromaEmbeddingConfig(Settings):
    type: Literal["chroma"] = "chroma"
    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class CallableEmbeddingConfig(Settings):
    type: Literal["callable"] = "callable"
    function: str
    """The name under which `register_embedding` knows the function."""
    id: str


EmbeddingConfig = Annotated[
    MiniLMEmbeddingConfig | ChromaEmbeddingConfig | CallableEmbeddingConfig, Field(discriminator="type")
]


class NoExtractorConfig(Settings):
    """The declarative form of `extractor=None`."""

    type: Literal["none"] = "none"


class RuleExtractorConfig(Settings):
    type: Literal["rules"] = "rules"


class ModelExtractorConfig(Settings):
    type: Literal["model"] = "model"
    client: ComponentModel
    every: int = Field(default=10, ge=1)
    rules: bool = True


ExtractorConfig = Annotated[NoExtractorConfig | RuleExtractorConfig | ModelExtractorConfig, Field(discriminator="type")]


class ProfileMemoryConfig(Settings):
    namespace: str
    store: StoreConfig = EmbeddedStoreConfig()
    embedding: EmbeddingConfig = MiniLMEmbeddingConfig()
    policy: RecallPolicy = RecallPolicy()


class SessionMemoryConfig(ProfileMemoryConfig):
    session: str
    capture: bool = True
    summarizer: ComponentModel | None = None


class PersistentMemoryConfig(ProfileMemoryConfig):
    session: str | None = None
    extractor: ExtractorConfig = RuleExtractorConfig()
    capture: bool = True


class MemoryToolConfig(Settings):
    """The declarative form of the tools that `memory_tools()` returns."""

    memory: ComponentModel
    kind: str | None = None
    tags: tuple[str, ...] | None = None
    limit: int | None = None
