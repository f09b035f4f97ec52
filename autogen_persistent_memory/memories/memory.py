"""`PersistentMemory`: profile and session together, the memory that most people pass to an agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing, nullcontext
from typing import Literal, TypeVar

from autogen_core import Component
from typing_extensions import Self

from ..conversation.autogen_messages import Transcript, people_in, transcript
from ..conversation.recorder import Recorder
from ..conversation.team_resume import Resumable
from ..core.checks import check_flag, check_session, optional_text
from ..core.component_configs import NoExtractorConfig, PersistentMemoryConfig
from ..core.policy import RecallPolicy
from ..core.records import MemoryRecord, SessionInfo, new_session_name
from ..extraction.extractor import Extractor, RuleExtractor
from ..runtime.threads import in_thread
from ..storage.protocol import MemoryStore
from ..text.embeddings import Embedding
from .profile import ProfileMemory, RememberingMemory
from .protocol import make_engine, parts_from
from .session import SessionMemory

T = TypeVar("T")
_USER = "user"


class PersistentMemory(RememberingMemory, Component[PersistentMemoryConfig]):
    """Memory that outlives the process: `.profile` (long-term) and `.session` (this conversation) together.

    Args:
        namespace: Whose memory it is, such as `"user-42"` or `"prod/acme/user-42"`. Namespaces never see each other.
        session: Which conversation; by default a new one, named by time.
        store: Where it lives; by default an `EmbeddedStore` in `~/.autogen_memory`.
        embedding: How text becomes vectors; by default `MiniLMEmbedding`.
        policy: How memories are chosen and shown.
        extractor: Draws facts from what is said: by default a `RuleExtractor`; None for no extraction.
        capture: Whether to store conversations and draw facts from them.

    Raises:
        NamespaceError: The namespace or the session name is malformed.

    Example:
        >>> memory = PersistentMemory("user-42", session="monday")
        >>> memory.profile.namespace, memory.session.session
        ('user-42', 'monday')
    """

    component_config_schema = PersistentMemoryConfig
    component_provider_override = "autogen_persistent_memory.PersistentMemory"
    _recorder: Recorder

    def __init__(
        self,
        namespace: str,
        *,
        session: str | None = None,
        store: MemoryStore | None = None,
        embedding: Embedding | None = None,
        policy: RecallPolicy | None = None,
        extractor: Extractor | Literal["rules"] | None = "rules",
        capture: bool = True,
    ) -> None:
        engine = make_engine(namespace, store, embedding, policy)
        if extractor is not None and extractor != "rules" and not isinstance(extractor, Extractor):
            raise ValueError(f"extractor must be an extractor such as RuleExtractor(), or None, not {extractor!r}.")
        self._given_session = None if session is None else check_session(session)
        self._extractor = RuleExtractor() if extractor == "rules" else extractor
        name = self._given_session or new_session_name(engine.clock())
        recorder, captures = Recorder(engine, name, self._extractor), check_flag(capture, "capture")
        super().__init__(engine, ["profile", "session"], recorder=recorder, captures=captures)
        self._profile = ProfileMemory.part_of(self)
        self._session = SessionMemory.part_of(self, name, captures=captures)

    @property
    def _scope(self) -> str:
        return f"{self.namespace!r}, session={self._session.session!r}"

    @property
    def profile(self) -> ProfileMemory:
        """The long-term part."""
        return self._profile

    @property
    def session(self) -> SessionMemory:
        """The conversation under way."""
        return self._session

    async def observe(self, stream: AsyncIterable[T], save: Resumable | None = None) -> AsyncGenerator[T, None]:
        """Pass a `run_stream()` through, and capture every message in it as it comes.

        Works inside `Console(...)`, for agents and teams, and together with `memory=[...]`: nothing is captured twice.
        A failure to store or save never breaks the stream.

        Args:
            stream: What `agent.run_stream(...)` or `team.run_stream(...)` returns.
            save: The team or agent whose state to save in the session, a team after every turn, so that
                `session.load(team)` works even after the process was killed.

        Example:
            `await Console(memory.observe(team.run_stream(task="..."), save=team))`
        """
        recorder = self._captured_by
        capturing = nullcontext(stream) if recorder is None else aclosing(recorder.observe(stream))
        async with nullcontext() if save is None else self._session.saving(save), capturing as captured:
            async for item in captured:
                yield item

    async def extract(self, messages_or_text: Transcript, source: str | None = None) -> list[MemoryRecord]:
        """Feed a finished transcript through capture and extraction; return the facts that were found.

        Args:
            messages_or_text: A text, or messages of AutoGen in order, such as those of a `TaskResult`.
            source: The speaker, where the messages do not name one; by default the user.

        Raises:
            ValueError: It has an item that is neither a text nor a message.
        """
        names = self.policy.user_sources
        speaker = optional_text(source, "source") or (_USER if _USER in names or not names else min(names))
        said = await in_thread(lambda: transcript(messages_or_text, speaker))
        return await self._recorder.tell(said, people_in(messages_or_text))

    async def sessions(self) -> list[SessionInfo]:
        """Return all conversations of the namespace, the one that was added to last first."""
        return await self._engine.sessions()

    async def delete_session(self, name: str) -> int:
        """Delete a conversation for good, its messages and its saved state; return how many messages are gone.

        The facts drawn from it stay; `forget(session=name)` deletes those, too.
        """
        session = check_session(name)
        async with self._forgetting():
            return await self._engine.clear_session(session)

    async def clear(self) -> None:
        """Delete the whole namespace for good: profile, history, values, and all sessions."""
        await self._catch_up()
        self._recorder.drop()
        await self._delivery.finish()
        await self._engine.clear()

    def _to_config(self) -> PersistentMemoryConfig:
        return PersistentMemoryConfig(
            **self._common_config(),
            session=self._given_session,
            extractor=self._extractor.config if self._extractor else NoExtractorConfig(),
            capture=self._captured_by is not None,
        )

    @classmethod
    def _from_config(cls, config: PersistentMemoryConfig) -> Self:
        from ..extraction.model_extraction import extractor_from_config

        extractor = extractor_from_config(config.extractor)
        return cls(
            config.namespace, session=config.session, **parts_from(config), extractor=extractor, capture=config.capture
        )
