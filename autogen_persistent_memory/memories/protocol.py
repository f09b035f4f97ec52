"""AutoGen's `Memory` protocol over an engine: the common part of the three memories."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

from autogen_core import CancellationToken
from autogen_core.memory import Memory, MemoryContent, MemoryMimeType, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import ChatCompletionContext
from typing_extensions import Self

from ..conversation.block import break_words, paste
from ..conversation.delivery import Delivery
from ..conversation.recorder import Recorder
from ..conversation.session_recap import Recap
from ..conversation.turn import Turn
from ..core.checks import (
    check_count,
    check_flag,
    check_namespace,
    check_share,
    check_time,
    decode_json,
    encode_json,
    require_text,
)
from ..core.component_configs import ProfileMemoryConfig
from ..core.policy import RecallPolicy
from ..core.records import JSON, MIME_TYPES, Draft, MemoryHit, Recall, Selection, draft, select, utc_now
from ..retrieval.engine import Engine
from ..runtime.background_task import CLOSING_SECONDS
from ..runtime.threads import in_thread_if_long
from ..storage.protocol import MemoryStore, TableName
from ..storage.stores import EmbeddedStore, store_config, store_from_config
from ..text.embeddings import Embedding, MiniLMEmbedding, embedding_from_config

logger = logging.getLogger("autogen_persistent_memory")

T = TypeVar("T")
_SPARE = 10
"""How many more hits are looked at than a recall returns, in place of those that repeat others."""
_ANYTHING: Any = object()
"""The query of `recall()` that means nothing in particular: it finds the newest and most used memories."""


def make_engine(
    namespace: str, store: MemoryStore | None, embedding: Embedding | None, policy: RecallPolicy | None
) -> Engine:
    """Return the engine of a memory, with the defaults filled in. Does no I/O."""
    if policy is not None and not isinstance(policy, RecallPolicy):
        raise ValueError(f"policy must be a RecallPolicy, not {type(policy).__name__}.")
    if store is not None and not (hasattr(store, "connect") and hasattr(store, "config")):
        raise ValueError(f"store must be a store such as EmbeddedStore('folder'), not {store!r}.")
    if embedding is not None and not isinstance(embedding, Embedding):
        raise ValueError(f"embedding must be an embedding such as CallableEmbedding(fn, id='...'), not {embedding!r}.")
    name, policy = check_namespace(namespace), policy or RecallPolicy()
    return Engine(name, store or EmbeddedStore(), embedding or MiniLMEmbedding(), policy, clock=utc_now)


def parts_from(config: ProfileMemoryConfig) -> dict[str, Any]:
    """Return the arguments that all memories take, from the configuration of one."""
    return {
        "store": store_from_config(config.store),
        "embedding": embedding_from_config(config.embedding),
        "policy": config.policy,
    }


class EngineMemory(Memory):
    """A memory that recalls from some tables of an engine, which other memories may share, and stores on the first of them.

    The recorder stores what it heard before anything is forgotten or closed; with `captures` it hears the agents that have
    this memory. A memory with a `session` recalls from it alone. The recap tells agents how it went before they joined.
    """

    def __init__(
        self,
        engine: Engine,
        tables: Sequence[TableName],
        *,
        recorder: Recorder | None = None,
        captures: bool = False,
        session: str | None = None,
        recap: Recap | None = None,
    ) -> None:
        self._engine = engine
        self._tables = tuple(tables)
        self._recorder = recorder
        self._delivery = Delivery(engine) if recorder is None else recorder.delivery  # of what any memory queued
        engine.before_housekeeping = self._delivery.begin
        self._captured_by = recorder if captures else None
        self._only_session = session
        self._recap = recap
        store = engine.store.config.model_dump_json()
        identity = "\n".join((type(self).__name__, store, engine.namespace, session or ""))
        block_id = hashlib.sha256(identity.encode()).hexdigest()[:12]
        self._turn = Turn(
            engine, self._tables, Selection(session=session), block_id, listener=self._captured_by, recap=recap
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._scope}, store={self._engine.store!r})"

    @property
    def _scope(self) -> str:
        """The arguments of its constructor that say whose memory it is."""
        return repr(self.namespace)

    @property
    def namespace(self) -> str:
        """Whose memories these are."""
        return self._engine.namespace

    @property
    def policy(self) -> RecallPolicy:
        """How memories are chosen, ranked and shown."""
        return self._engine.policy

    async def add(self, content: MemoryContent, cancellation_token: CancellationToken | None = None) -> None:
        """Store text, Markdown or a JSON dict. The caller's object and its metadata stay untouched.

        Raises:
            ValueError: Images and bytes are not stored, nor is a blank text.
            asyncio.CancelledError: The token was cancelled.
        """
        text, mime_type = _stored_form(content)
        item = self._draft(text, metadata=content.metadata, mime_type=mime_type)
        await cancellable(self._engine.remember(self._tables[0], [item]), cancellation_token)

    async def query(
        self, query: str | MemoryContent, cancellation_token: CancellationToken | None = None, **kwargs: Any
    ) -> MemoryQueryResult:
        """Recall, in AutoGen's terms. Takes the keywords of `recall()`: limit, kinds, tags, session, min_score, …

        A blank query returns the newest and most used memories.

        Each result has the metadata of the caller, and over it `id`, `score`, `kind`, `created_at` and more as plain
        strings and numbers.

        Raises:
            ValueError: A keyword is unknown or its value is invalid.
            asyncio.CancelledError: The token was cancelled.
        """
        check_keywords(kwargs, "query()")
        asked: Any = query.content if isinstance(query, MemoryContent) else query
        if isinstance(asked, str) and not asked.strip():
            asked = _ANYTHING
        elif isinstance(query, MemoryContent):
            asked, _ = _stored_form(query)
        found = await cancellable(self.recall(asked, **kwargs), cancellation_token)
        return MemoryQueryResult(results=[to_content(hit) for hit in found.hits])

    async def recall(
        self,
        query: str,
        *,
        limit: int | None = None,
        kinds: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        session: str | None = None,
        min_score: float | None = None,
        max_tokens: int | None = None,
        at: datetime | None = None,
        reinforce: bool = False,
    ) -> Recall:
        """Find what answers a question, best first.

        Args:
            query: The question.
            limit: How many memories to return at most; by default `policy.limit` (5).
            kinds: Only memories of these kinds.
            tags: Only memories with all of these tags.
            session: Only memories from this session; by default from all.
            min_score: Only memories of at least this confidence; by default there is no threshold.
            max_tokens: Only as many as fit into this budget.
            at: Recall what was believed at this time.
            reinforce: Count the memories found as used, as injection does.

        Raises:
            ValueError: An argument is invalid.
            PersistentMemoryError: The memories could not be searched.
        """
        is_blank = query is _ANYTHING
        if not is_blank:
            require_text(query, "query")
        counts_as_use = check_flag(reinforce, "reinforce")
        count = self.policy.limit if limit is None else check_count(limit, "limit")
        least = 0.0 if min_score is None else check_share(min_score, "min_score")
        budget = None if max_tokens is None else check_count(max_tokens, "max_tokens")
        selection = select(kinds=kinds, tags=tags, session=session)
        if self._only_session is not None and selection.session not in (None, self._only_session):
            raise ValueError(
                f"This memory is of the session {self._only_session!r} alone, not of {selection.session!r}; leave session out."
            )
        selection = selection._replace(session=self._only_session or selection.session)
        then = check_time(at, "at")
        if is_blank:
            hits = await self._engine.browse(self._tables, limit=count + _SPARE, selection=selection, at=then)
        else:
            hits = await self._engine.recall(query, self._tables, limit=count + _SPARE, selection=selection, at=then)
        found = [hit for hit in hits if hit.score >= least]
        block = await in_thread_if_long(_length(found), lambda: paste(found, count, budget, self.policy))
        if counts_as_use:
            self._engine.reinforce(block.hits)
        return Recall(query="" if is_blank else query, hits=block.hits, text=block.text)

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Show the model the memories that are relevant to the user's question, as one block that is replaced each turn.

        AutoGen calls it before every turn. It never raises (but see `policy.strict`), and never waits longer for memory
        than `policy.deadline` (and `policy.opening_deadline` once, for a local store and model to open).
        """
        hits = await self._turn.update(model_context)
        words = self.policy.guard_words
        guarded = await in_thread_if_long(_length(hits), lambda: [_guarded(to_content(hit), words) for hit in hits])
        return UpdateContextResult(memories=MemoryQueryResult(results=guarded))

    async def flush(self) -> None:
        """Wait until everything that was said is stored, the last replies included, and expired memories are deleted.

        Models that draw facts from it or summarise it get ten seconds more, and then continue in the background.

        Raises:
            PersistentMemoryError: It cannot be stored now. It is kept and retried.
        """
        await self._catch_up()
        await self._settle()
        if not await self._read(CLOSING_SECONDS):
            message = "What was said in %r is stored, but models have not read all of it within %g s; they continue in the background."
            logger.warning(message, self.namespace, CLOSING_SECONDS)

    async def close(self) -> None:
        """Flush, and close the store. The memory opens it again when it is used again."""
        engine = self._engine
        try:
            failure = "Not everything that was said could be stored and read before closing: %s"
            await engine.before_closing(self._catch_up_and_read(), failure)
        finally:
            if self._recorder is not None:
                await self._recorder.keep()
                if "session" in self._tables:  # a profile may be closed while agents still talk
                    await self._recorder.leave()
            if self._recap is not None:
                await self._recap.leave()
            try:
                failure = "Memory could not do its housekeeping before closing: %s"
                await engine.before_closing(self._settle(), failure)
            finally:
                await self._delivery.leave()
                await engine.close()

    async def _catch_up(self) -> None:
        """Store all that was heard."""
        if self._recorder is not None:
            await self._recorder.catch_up()

    async def _catch_up_and_read(self) -> None:
        await self._catch_up()
        await self._read()

    async def _settle(self) -> None:
        """Deliver what is queued, write what is pending, and delete what has expired."""
        if self._engine.is_in_use:
            await self._delivery.finish()
            await self._engine.flush()

    async def _read(self, seconds: float = math.inf) -> bool:
        """Let models read what was said, and wait this long for them; return whether they have."""
        readers = [reader for reader in (self._recorder, self._recap) if reader is not None]
        return all([await reader.read(seconds) for reader in readers])

    @asynccontextmanager
    async def _forgetting(self, *, dry_run: bool = False) -> AsyncIterator[None]:
        """Store what was heard before something is deleted, so that it cannot come back, and do not learn from it after."""
        if not dry_run:
            await self._catch_up()
        await self._delivery.finish()
        yield
        if self._recorder is not None and not dry_run:
            await self._recorder.drop_deleted()

    async def open(self) -> None:
        """Open the memory now rather than on first use, so that an error in its setup ends the program at start-up.

        `async with` does the same. A memory that is open is not opened again. A server that cannot be reached within
        `policy.deadline`, or an embedding that cannot be loaded for now, is only a warning: agents continue without memory
        until it is there.

        Raises:
            StoreLockedError: Another process has the folder.
            EmbeddingMismatchError: The namespace was written with another embedding.
            SchemaVersionError: A newer version wrote it.
            StoreUnavailableError: A folder cannot be opened.
        """
        await self._engine.open()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _draft(self, content: str, **fields: Any) -> Draft:
        return draft(content, **fields)

    def _common_config(self) -> dict[str, Any]:
        """Return the fields that the configurations of all memories have."""
        engine = self._engine
        return {
            "namespace": engine.namespace,
            "store": store_config(engine.store),
            "embedding": engine.embedding.config,
            "policy": engine.policy,
        }


def check_keywords(given: Mapping[str, object], what: str) -> None:
    """Raise a ValueError for keywords that `recall()` does not take."""
    keywords = EngineMemory.recall.__kwdefaults__ or {}
    unknown = [keyword for keyword in given if keyword not in keywords]
    if unknown:
        raise ValueError(f"{what} does not take {', '.join(unknown)}; it takes {', '.join(keywords)}.")


def to_content(hit: MemoryHit) -> MemoryContent:
    """Return a hit as AutoGen's `MemoryContent`."""
    record = hit.record
    ours = {
        "id": record.id,
        "score": hit.score,
        "similarity": hit.similarity,
        "recency": hit.recency,
        "frequency": hit.frequency,
        "kind": record.kind,
        "tags": list(record.tags),
        "key": record.key,
        "source": record.source,
        "session": record.session,
        "origin": record.origin,
        "created_at": record.created_at.isoformat(),
    }
    return MemoryContent(
        content=decode_json(record.content) if record.mime_type == JSON else hit.content,
        mime_type=MemoryMimeType(record.mime_type),
        metadata={**record.metadata, **{name: value for name, value in ours.items() if value is not None}},
    )


def _length(hits: Sequence[MemoryHit]) -> int:
    return sum(len(hit.record.content) for hit in hits)


def _stored_form(content: MemoryContent) -> tuple[str, str]:
    """Return the text that is stored for a content, and its MIME type."""
    if not isinstance(content, MemoryContent):
        raise ValueError(f"Give a MemoryContent, not a {type(content).__name__}.")
    given = content.mime_type
    mime_type = given.value if isinstance(given, MemoryMimeType) else given
    if mime_type not in MIME_TYPES:
        raise ValueError(
            f"Content of type {mime_type} cannot be remembered; only {', '.join(MIME_TYPES)} can. Describe it in words."
        )
    if mime_type == JSON:
        if not isinstance(content.content, dict):
            raise ValueError(f"JSON content must be a dict, not {type(content.content).__name__}.")
        return encode_json(content.content, "JSON content"), mime_type
    if not isinstance(content.content, str):
        raise ValueError(
            f"Content of type {mime_type} must be a str, not {type(content.content).__name__}. Images and bytes cannot "
            "be remembered; describe them in words."
        )
    return require_text(content.content, "content"), mime_type


def _guarded(content: MemoryContent, words: Sequence[str]) -> MemoryContent:
    """Return a copy for AutoGen's event, in which its text terminations find no word such as TERMINATE."""

    def guard(value: Any) -> Any:
        if isinstance(value, str):
            return break_words(value, words)
        if isinstance(value, Mapping):
            return {guard(key): guard(item) for key, item in value.items()}
        if isinstance(value, list):
            return [guard(item) for item in value]
        return value

    return MemoryContent(
        content=guard(content.content), mime_type=content.mime_type, metadata=guard(content.metadata or {})
    )


async def cancellable(work: Coroutine[Any, Any, T], token: CancellationToken | None) -> T:
    """Return the result of the work, unless the token is cancelled first."""
    if token is None:
        return await work
    if token.is_cancelled():
        work.close()
        raise asyncio.CancelledError
    task = asyncio.ensure_future(work)
    token.link_future(task)
    return await task
