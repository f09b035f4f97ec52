"""Long-term memory."""

from __future__ import annotations

from autogen_core import Component
from typing_extensions import Self

from ..conversation.delivery import Delivery
from ..core.component_configs import ProfileMemoryConfig
from ..core.policy import RecallPolicy
from ..retrieval.engine import Engine
from ..storage.protocol import MemoryStore
from ..storage.stores import store_config, store_from_config
from ..text.embeddings import Embedding, embedding_from_config
from .explicit import RememberingMemory
from .protocol import make_engine


class ProfileMemory(RememberingMemory, Component[ProfileMemoryConfig]):
    """Long-term memory: facts, preferences, decisions, lessons and values that outlive every conversation.

    Args:
        namespace: Whose memory it is, such as `"user-42"` or `"prod/acme/user-42"`. Namespaces never see each other.
        store: Where it lives; by default an `EmbeddedStore` in `~/.autogen_memory`.
        embedding: How text becomes vectors; by default `MiniLMEmbedding`.
        policy: How memories are chosen and shown.

    Raises:
        NamespaceError: The namespace is malformed.

    Example:
        >>> profile = ProfileMemory("user-42")
        >>> profile.namespace
        'user-42'
    """

    component_config_schema = ProfileMemoryConfig
    component_provider_override = "autogen_persistent_memory.ProfileMemory"

    def __init__(
        self,
        namespace: str,
        *,
        store: MemoryStore | None = None,
        embedding: Embedding | None = None,
        policy: RecallPolicy | None = None,
    ) -> None:
        engine = make_engine(namespace, store, embedding, policy)
        engine.chores.append(Delivery(engine))  # of what agents with other memories of the namespace heard
        super().__init__(engine, ["profile"])

    @classmethod
    def on_engine(cls, engine: Engine) -> Self:
        """A profile that shares an engine with others."""
        profile = cls.__new__(cls)
        RememberingMemory.__init__(profile, engine, ["profile"])
        return profile

    async def clear(self) -> None:
        """Delete the profile for good: its memories, their history, and its values."""
        await self._engine.clear_profile()

    def _to_config(self) -> ProfileMemoryConfig:
        return ProfileMemoryConfig(
            namespace=self.namespace,
            store=store_config(self._engine.store),
            embedding=self._engine.embedding.config,
            policy=self.policy,
        )

    @classmethod
    def _from_config(cls, config: ProfileMemoryConfig) -> Self:
        return cls(
            config.namespace,
            store=store_from_config(config.store),
            embedding=embedding_from_config(config.embedding),
            policy=config.policy,
        )
