"""Both memories as one: what most people pass to an agent."""

from __future__ import annotations

from typing import Literal

from autogen_core import Component
from typing_extensions import Self

from ._autogen import make_engine
from ._checks import check_flag, check_session
from ._config import PersistentMemoryConfig, RecallPolicy
from ._embeddings import Embedding, embedding_from_config
from ._profile import ProfileMemory
from ._records import new_session_name
from ._remembering import RememberingMemory
from ._session import SessionMemory
from ._store import MemoryStore
from ._stores import store_from_config


class PersistentMemory(RememberingMemory, Component[PersistentMemoryConfig]):
    """Memory that outlives the process: `.profile` (long-term) and `.session` (this conversation) together.

    Args:
        namespace: Whose memory it is, such as `"user-42"` or `"prod/acme/user-42"`. Namespaces never see each other.
        session: Which conversation; by default a new one, named by time.
        store: Where it lives; by default an `EmbeddedStore` in `~/.autogen_memory`.
        embedding: How text becomes vectors; by default `MiniLMEmbedding`.
        policy: How memories are chosen and shown.
        extractor: How facts are drawn from conversations: `"rules"`, or None for not at all. Accepted so that
            configurations stay valid; this version does not extract yet.
        capture: Whether conversations are stored. Accepted so that configurations stay valid; this version does not
            capture yet.

    Raises:
        NamespaceError: The namespace or the session name is malformed.

    Example:
        >>> memory = PersistentMemory("user-42", session="monday")
        >>> memory.profile.namespace, memory.session.session
        ('user-42', 'monday')
    """

    component_config_schema = PersistentMemoryConfig
    component_provider_override = "autogen_persistent_memory.PersistentMemory"

    def __init__(
        self,
        namespace: str,
        *,
        session: str | None = None,
        store: MemoryStore | None = None,
        embedding: Embedding | None = None,
        policy: RecallPolicy | None = None,
        extractor: Literal["rules"] | None = "rules",
        capture: bool = True,
    ) -> None:
        engine = make_engine(namespace, store, embedding, policy)
        if extractor not in ("rules", None):
            raise ValueError(f"extractor must be 'rules' or None, not {extractor!r}.")
        self._given_session = None if session is None else check_session(session)
        self._extractor = extractor
        self._capture = check_flag(capture, "capture")
        self._profile = ProfileMemory.on_engine(engine)
        self._session = SessionMemory.on_engine(engine, self._given_session or new_session_name(engine.clock()))
        super().__init__(engine, ["profile", "session"])

    @property
    def profile(self) -> ProfileMemory:
        """The long-term part."""
        return self._profile

    @property
    def session(self) -> SessionMemory:
        """The conversation under way."""
        return self._session

    async def clear(self) -> None:
        """Delete the whole namespace for good: profile, history, values, and all sessions."""
        await self._engine.clear()

    def _to_config(self) -> PersistentMemoryConfig:
        return PersistentMemoryConfig(
            namespace=self.namespace,
            session=self._given_session,
            store=self._engine.store.config,
            embedding=self._engine.embedding.config,
            policy=self.policy,
            extractor=self._extractor or "none",
            capture=self._capture,
        )

    @classmethod
    def _from_config(cls, config: PersistentMemoryConfig) -> Self:
        return cls(
            config.namespace,
            session=config.session,
            store=store_from_config(config.store),
            embedding=embedding_from_config(config.embedding),
            policy=config.policy,
            extractor=None if config.extractor == "none" else config.extractor,
            capture=config.capture,
        )
