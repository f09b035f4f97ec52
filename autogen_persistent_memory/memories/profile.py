"""Long-term memory."""

from __future__ import annotations

from autogen_core import Component
from typing_extensions import Self

from ..conversation.delivery import Delivery
from ..core.component_configs import ProfileMemoryConfig
from ..core.policy import RecallPolicy
from ..storage.protocol import MemoryStore
from ..storage.stores import store_from_config
from ..text.embeddings import Embedding, embedding_from_config
from .explicit import RememberingMemory
from .protocol import EngineMemory, make_engine


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
        engine = make_engine(namespace, store, embedding, policy, self._deliver_in_background)
        super().__init__(engine, ["profile"], Delivery(engine))  # of what agents with other memories heard

    @classmethod
    def part_of(cls, memory: EngineMemory) -> Self:
        """Return the profile of a memory, on the same engine."""
        profile = cls.__new__(cls)
        EngineMemory.__init__(profile, memory._engine, ["profile"], memory._delivery, recorder=memory._recorder)
        return profile

    async def clear(self) -> None:
        """Delete the profile for good: its memories, their history, and its values."""
        await self._delivery.finish()
        await self._engine.clear_profile()

    def _to_config(self) -> ProfileMemoryConfig:
        return ProfileMemoryConfig(
            namespace=self.namespace,
            store=self._engine.store.config,
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
