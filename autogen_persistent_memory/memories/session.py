"""Short-term memory: one conversation, and the saved state of its team or agent."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from autogen_core import Component
from autogen_core.models import ChatCompletionClient
from typing_extensions import Self

from ..conversation.autogen_compat import State
from ..conversation.recorder import Recorder
from ..conversation.session_recap import Recap
from ..conversation.team_resume import Resumable, Saving, restore, state_at_rest, to_text
from ..core.checks import check_count, check_flag, check_session
from ..core.component_configs import SessionMemoryConfig
from ..core.policy import RecallPolicy
from ..core.records import Draft, MemoryRecord, Selection, draft, in_order
from ..extraction.model_clients import check_client, dump_client, load_client
from ..retrieval.engine import Engine
from ..runtime.threads import in_thread
from ..storage.protocol import MemoryStore
from ..text.embeddings import Embedding
from .protocol import EngineMemory, make_engine, parts_from


class SessionMemory(EngineMemory, Component[SessionMemoryConfig]):
    """Short-term memory: one conversation, message by message, and the saved state of its team or agent.

    Passed to an agent, it captures what is said. An agent that was not there, such as one in a new process, is told how the
    conversation ended, and a summary of what was said before.

    Args:
        namespace: Whose memory it is.
        session: Which conversation. The same name in a new process continues the same conversation.
        store: Where it lives; by default an `EmbeddedStore` in `~/.autogen_memory`.
        embedding: How text becomes vectors; by default `MiniLMEmbedding`.
        policy: How memories are chosen and shown.
        capture: Whether to store what the agents with this memory hear and say.
        summarizer: A model that summarises, in the background, what was said before the last messages; without one the
            summary consists of sentences that were said.

    Raises:
        NamespaceError: The namespace or the session name is malformed.
    """

    component_config_schema = SessionMemoryConfig
    component_provider_override = "autogen_persistent_memory.SessionMemory"
    _summarizer: ChatCompletionClient | None = None

    def __init__(
        self,
        namespace: str,
        session: str,
        *,
        store: MemoryStore | None = None,
        embedding: Embedding | None = None,
        policy: RecallPolicy | None = None,
        capture: bool = True,
        summarizer: ChatCompletionClient | None = None,
    ) -> None:
        engine = make_engine(namespace, store, embedding, policy)
        recorder = Recorder(engine, check_session(session), extractor=None)
        self._summarizer = None if summarizer is None else check_client(summarizer, "summarizer")
        self._start(engine, session, recorder, check_flag(capture, "capture"))

    @classmethod
    def part_of(cls, memory: EngineMemory, session: str, *, captures: bool = False) -> Self:
        """Return a session of a memory, on the same engine and with the same recorder."""
        part = cls.__new__(cls)
        part._start(memory._engine, session, memory._recorder, captures)
        return part

    def _start(self, engine: Engine, session: str, recorder: Recorder | None, captures: bool) -> None:
        self._session = session
        recap = Recap(engine, session, self._summarizer)
        EngineMemory.__init__(
            self, engine, ["session"], recorder=recorder, captures=captures, session=session, recap=recap
        )

    @property
    def _scope(self) -> str:
        return f"{self.namespace!r}, {self._session!r}"

    @property
    def session(self) -> str:
        """Which conversation this is."""
        return self._session

    async def append(self, source: str, text: str, at: datetime | None = None) -> MemoryRecord:
        """Add a message to the conversation, and return its record; if it was just captured, return that one.

        Args:
            source: Who said it.
            text: What was said, kept verbatim.
            at: When, if not now.
        """
        message = self._draft(text, source=source, at=at)
        if self._captured_by is not None:
            return await self._captured_by.append(message)
        (record,) = await self._engine.remember("session", [message])
        return record

    async def messages(self, limit: int | None = None) -> list[MemoryRecord]:
        """Return the messages of the conversation, oldest first; with a limit only the last ones."""
        count = None if limit is None else check_count(limit, "limit")
        newest_first = await self._engine.select(Selection(session=self._session), ["session"])
        messages = in_order(newest_first)
        return messages if count is None else messages[-count:]

    async def save(self, team_or_agent: Resumable) -> None:
        """Save the state of a team or an agent, so that `load()` can restore it in another process.

        Raises:
            PersistentMemoryError: It is running; `PersistentMemory.observe(stream, save=team)` saves it as it runs.
        """
        await self._keep(await state_at_rest(team_or_agent))

    def saving(self, team_or_agent: Resumable) -> Saving:
        """Return a context manager that saves a team or an agent as it runs."""
        return Saving(team_or_agent, self._keep, self.policy.deadline, self._scope)

    async def load(self, team_or_agent: Resumable) -> bool:
        """Restore the state saved last into a team or agent built the same way; return whether there was one.

        A team that was stopped in the middle continues by `run_stream()` without a task. AutoGen's termination conditions
        are not part of a team's state: they restart.

        Raises:
            PersistentMemoryError: The state does not fit this team or agent, which stays as it is.
        """
        text = await self._engine.values.get("state", self._session)
        if text is None:
            return False
        state = await restore(team_or_agent, text, self._session)
        if self._captured_by is not None:
            await self._captured_by.resume(state)
        return True

    async def _keep(self, state: State) -> None:
        text = await in_thread(lambda: to_text(state))
        await self._engine.values.put("state", self._session, text)

    async def clear(self) -> None:
        """Delete this conversation for good: its messages and its saved state. Other sessions stay."""
        async with self._forgetting():
            await self._engine.clear_session(self._session)

    def _draft(self, content: str, **fields: Any) -> Draft:
        return draft(content, kind="interaction", session=self._session, is_message=True, **fields)

    def _to_config(self) -> SessionMemoryConfig:
        return SessionMemoryConfig(
            **self._common_config(),
            session=self._session,
            capture=self._captured_by is not None,
            summarizer=None if self._summarizer is None else dump_client(self._summarizer),
        )

    @classmethod
    def _from_config(cls, config: SessionMemoryConfig) -> Self:
        summarizer = None if config.summarizer is None else load_client(config.summarizer, "the session")
        return cls(
            config.namespace, config.session, **parts_from(config), capture=config.capture, summarizer=summarizer
        )
