"""Long-term memory: the explicit methods (remember, forget, look up, values), and `ProfileMemory`, which has just these."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from autogen_core import Component
from typing_extensions import Self

from ..conversation.traces import ForgetMatcher, Forgotten, Traces, trace
from ..core.checks import (
    MAX_KEY,
    MAX_VALUE,
    check_count,
    check_flag,
    decode_json,
    encode_json,
    optional_text,
    require_text,
)
from ..core.component_configs import ProfileMemoryConfig
from ..core.errors import PersistentMemoryError
from ..core.policy import RecallPolicy
from ..core.records import MemoryRecord, Query, Recall, draft, select
from ..retrieval.conflicts import changes
from ..retrieval.engine import Engine
from ..runtime.reporting import Progress
from ..runtime.threads import in_thread
from ..storage.protocol import TABLES, MemoryStore
from ..text.embeddings import Embedding
from .protocol import EngineMemory, check_keywords, make_engine, parts_from

logger = logging.getLogger("autogen_persistent_memory")


class RememberingMemory(EngineMemory):
    """A memory with a profile: what `ProfileMemory` and `PersistentMemory` can do beyond AutoGen's protocol."""

    async def remember(
        self,
        content: str,
        *,
        kind: str = "fact",
        tags: Sequence[str] | None = None,
        ttl: timedelta | None = None,
        pinned: bool = False,
        key: str | None = None,
        source: str | None = None,
        session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        at: datetime | None = None,
    ) -> MemoryRecord:
        """Store a memory, verbatim; it survives the process from the moment this returns.

        A memory that only restates a known one is merged into it. One with a `key` supersedes the older memory of
        that key, which stays as history.

        Args:
            content: What to remember.
            kind: `fact`, `preference`, `decision`, `lesson`, `context` (lives 30 days), `temporary` (7 days), or any
                word of yours; without regard to case.
            tags: Words to find it by.
            ttl: How long it lives, instead of what its kind says.
            pinned: It never expires, whatever its kind and `ttl` say.
            key: The slot it fills, such as `"user/home"`.
            source: Who said it.
            session: The session it comes from.
            metadata: Anything JSON can hold; comes back untouched.
            at: When it was said, if not now.

        Returns:
            The stored record, or the one it was merged into.

        Raises:
            ValueError: An argument is invalid or too large; nothing was stored. At most 1,048,576 characters of content, 64
                tags of 256 characters, and 100,000 characters of metadata are taken.
            PersistentMemoryError: It could not be stored.
        """
        item = draft(
            content,
            kind=kind,
            tags=tags,
            ttl=ttl,
            pinned=pinned,
            key=key,
            source=source,
            session=session,
            metadata=metadata,
            at=at,
        )
        (record,) = await self._engine.remember("profile", [item])
        return record

    async def remember_many(
        self, items: Iterable[str | Mapping[str, Any]], *, progress: Progress = False
    ) -> list[MemoryRecord]:
        """Store many memories: texts, or mappings with the keywords of `remember()`. One record each, in order.

        Args:
            items: The memories. All are checked before the first is stored.
            progress: True for a progress bar, or a function that is given (done, total).
        """
        if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
            raise ValueError(f"remember_many() takes a list of memories, not one {type(items).__name__}.")
        drafts, keywords = [], ("content", *(self.remember.__kwdefaults__ or {}))
        for number, item in enumerate(items):
            fields = {"content": item} if isinstance(item, str) else item
            if not isinstance(fields, Mapping) or "content" not in fields:
                raise ValueError(f"Item {number} must be a text or a mapping with 'content', not {item!r}.")
            unknown = [name for name in fields if name not in keywords]
            if unknown:
                raise ValueError(
                    f"Item {number} has unknown keywords: {', '.join(map(str, unknown))}. "
                    f"remember() takes {', '.join(keywords)}."
                )
            try:
                drafts.append(draft(**fields))
            except ValueError as error:
                raise ValueError(f"Item {number}: {error}") from None
        return await self._engine.remember("profile", drafts, progress)

    async def import_chroma(self, path: str | os.PathLike[str], collection: str, *, progress: Progress = True) -> int:
        """Import the memories of a collection that AutoGen's `ChromaDBVectorMemory` wrote.

        Its texts become facts of the profile, in their order, with their metadata, and with the time in it (`created_at`
        or `timestamp`) or else the time they were added; they are embedded again. Texts that say the same are merged, as in
        `remember()`; blank ones are left out. The folder itself is only read, and stays exactly as it is.

        Running it again stores nothing twice. Memories that were forgotten since come back.

        Args:
            path: Its `persistence_path`.
            collection: Its `collection_name`.
            progress: True for a progress bar on a terminal, or a function that is given (done, total).

        Returns:
            How many were imported, without those of an earlier import.

        Raises:
            ValueError: There is no such folder or collection, or the folder is this memory's own store.
            StoreLockedError: Another process has the folder as its embedded store.
            StoreUnavailableError: The folder cannot be read.
        """
        given = os.fspath(path) if isinstance(path, os.PathLike) else path
        folder, name = require_text(given, "path"), require_text(collection, "collection")
        take_over = await in_thread(_import_take_over)
        return await take_over(self._engine, folder, name, progress)

    async def recall_many(self, queries: Sequence[str], **filters: Any) -> list[Recall]:
        """Run several recalls concurrently, with the keywords of `recall()`."""
        check_keywords(filters, "recall_many()")
        if isinstance(queries, str) or not isinstance(queries, Sequence):
            raise ValueError(f"recall_many() takes a list of queries, not one {type(queries).__name__}.")
        return list(await asyncio.gather(*(self.recall(query, **filters) for query in queries)))

    async def context(self, query: str) -> str:
        """Return the block for a query, as an agent would see it, ready to paste; empty when nothing is relevant."""
        return (await self._turn.block(Query(require_text(query, "query")))).text

    async def record(self, id: str) -> MemoryRecord | None:
        """Return the memory with this id, if it is current."""
        now = self._engine.clock()
        found = await self._engine.find([require_text(id, "id")], self._tables)
        return next((record for record in found if record.is_current(now)), None)

    async def records(
        self,
        kinds: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        session: str | None = None,
        limit: int = 50,
        offset: int = 0,
        include_history: bool = False,
    ) -> list[MemoryRecord]:
        """Return the memories themselves, newest first; with `include_history` also superseded and expired ones."""
        start, count = check_count(offset, "offset", least=0), check_count(limit, "limit")
        selection = select(kinds=kinds, tags=tags, session=session)
        return (await self._engine.select(selection, self._tables, history=include_history))[start : start + count]

    async def count(self) -> int:
        """Return how many current memories there are."""
        return len(await self._engine.select(select(), self._tables))

    async def history(self, id_or_key: str) -> list[MemoryRecord]:
        """Return a memory, by id or key, with all that it replaced or was replaced by, newest first."""
        return await self._engine.history(require_text(id_or_key, "id_or_key"), self._tables)

    async def edit(
        self,
        id: str,
        *,
        content: str | None = None,
        kind: str | None = None,
        tags: Sequence[str] | None = None,
        pinned: bool | None = None,
        key: str | None = None,
    ) -> MemoryRecord:
        """Correct a memory in its place; its id and its history stay, the former wording is gone.

        If it was right and has changed since, `remember()` the change under the same key instead, which keeps the older
        memory as history.

        Args:
            id: The memory, which must be current.
            content: What it should say. Captured messages stay as they were said.
            kind: Its new kind; from now on it lives as long as that kind does.
            tags: All its tags; an empty list for none.
            pinned: Whether it never expires.
            key: The slot it fills, superseding what filled it; an empty text for none.

        Returns:
            The record as it is now.

        Raises:
            ValueError: An argument is invalid, or there is nothing to change.
            PersistentMemoryError: There is no current memory with that id, or it cannot be changed in that way.
        """
        change = changes(content=content, kind=kind, tags=tags, pinned=pinned, key=key)
        record = await self._engine.edit(require_text(id, "id"), self._tables, change)
        if record is None:
            raise PersistentMemoryError(
                f"{self.namespace!r} has no current memory with the id {id!r}, so nothing was changed. Look it up with "
                "records() or history()."
            )
        return record

    async def forget(
        self,
        id: str | None = None,
        *,
        key: str | None = None,
        kinds: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        session: str | None = None,
        containing: str | None = None,
        before: datetime | None = None,
        everywhere: bool = False,
        dry_run: bool = False,
    ) -> Forgotten:
        """Delete memories for good, by identity, never by similarity. All selectors given must hold.

        Profile memories are deleted; captured messages only when an id, a session or the kind `interaction` names
        them, or `everywhere` is set. Messages that were heard and are not stored yet are deleted as well.

        With `everywhere`, the saved states of teams and agents lose the texts that tell it: they become `[forgotten]`. The
        messages stay, so that tool calls keep their results and `session.load()` still works. Summaries that tell it are
        dropped. It does not reach: values that you `set()` (a warning names those that tell it); the contexts of running
        agents, which the next save of their team would store again; exports, snapshots and backups; other namespaces; and
        the free space of Chroma's files.

        Args:
            id: The memory with this id.
            key: The memory under this key.
            kinds: Memories of these kinds.
            tags: Memories with all of these tags.
            session: Memories from this session; with `everywhere` and no other selector, also all that its saved state tells.
            containing: Memories with this literal text, in upper or lower case.
            before: Memories written before this time.
            everywhere: Also history, captured messages (the selected ones, and those that told what is deleted), and what
                saved states and summaries tell of it.
            dry_run: Count them, and delete nothing.

        Returns:
            How many memories and messages are gone, or would be. Its `messages` says how many of them were captured, its
            `traces` name the sessions whose saved `states` and `summaries` told it, and the `values` that still do.

        Raises:
            ValueError: No selector was given (to delete everything, use `clear()`), or one is invalid.
        """
        if all(value is None for value in (id, key, kinds, tags, session, containing, before)):
            raise ValueError("forget() needs a selector: an id, key, kinds, tags, session, containing or before.")
        selection = select(kinds=kinds, tags=tags, session=session, key=key, containing=containing, before=before)
        names_messages = id is not None or session is not None or "interaction" in (selection.kinds or ())
        is_thorough, is_trial = check_flag(everywhere, "everywhere"), check_flag(dry_run, "dry_run")
        named = self._tables if names_messages else ("profile",)
        engine, tables, only = self._engine, TABLES if is_thorough else named, optional_text(id, "id")
        found = Traces()
        async with self._forgetting(dry_run=is_trial):
            if is_thorough:
                records = await engine.to_forget(selection, tables, id=only, history=True)
                told = await in_thread(partial(ForgetMatcher, records, selection if id is None else None))
                found = await trace(engine.values, told, erase=not is_trial)
            forget = engine.to_forget if is_trial else engine.forget
            records = await forget(selection, tables, id=only, history=is_thorough)
        messages = sum(record.kind == "interaction" for record in records)
        forgotten = Forgotten(len(records), messages, found)
        if is_thorough and not is_trial:
            self._log_forgotten(forgotten)
        return forgotten

    def _log_forgotten(self, forgotten: Forgotten) -> None:
        found, whose = forgotten.traces, self.namespace
        message = (
            "Forgotten: %d memories and messages of %r; blanked in %d saved states, dropped %d summaries. Running agents, "
            "exports, snapshots and backups may still have them."
        )
        logger.info(message, forgotten, whose, len(found.states), len(found.summaries))
        if found.values:
            message = "Values of %r still tell what was forgotten: %s. Set or delete() them."
            logger.warning(message, whose, ", ".join(map(repr, found.values)))
        if found.unclear:
            message = (
                "Saved states of %r may still tell what was forgotten, outside of their messages, in the sessions %s. Delete "
                "those with delete_session(), or save their teams again."
            )
            logger.warning(message, whose, ", ".join(map(repr, found.unclear)))

    async def set(self, key: str, value: Any) -> None:
        """Store a value of the profile under a key, written through at once. None deletes it.

        Args:
            key: Its name.
            value: Anything JSON can hold; comes back with the same types.
        """
        name = require_text(key, "key", MAX_KEY)
        if value is None:
            await self._engine.values.remove("value", name)
        else:
            text = await in_thread(lambda: encode_json(value, "value", MAX_VALUE))
            await self._engine.values.put("value", name, text)

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value under a key, or the default."""
        text = await self._engine.values.get("value", require_text(key, "key"))
        return default if text is None else await in_thread(lambda: decode_json(text))

    async def delete(self, key: str) -> bool:
        """Delete the value under a key; return whether there was one."""
        return await self._engine.values.remove("value", require_text(key, "key"))

    async def keys(self) -> list[str]:
        """Return the keys of all values, sorted."""
        return sorted(await self._engine.values.names("value"))

    async def values(self) -> dict[str, Any]:
        """Return all values by key."""
        stored = await self._engine.values.all("value")
        return await in_thread(lambda: {key: decode_json(stored[key]) for key in sorted(stored)})

    async def reembed(self, *, progress: Progress = True) -> int:
        """Rebuild all vectors of the namespace with this memory's embedding; return how many.

        This is the remedy for an `EmbeddingMismatchError`. Call it on a memory that is not open yet: `open()` and
        `async with` refuse what was written with another embedding. If it is interrupted nothing is lost: run it again.

        Args:
            progress: True for a progress bar on a terminal, or a function that is given (done, total).
        """
        return await self._engine.rebuild(progress, keep=False)

    async def compact(self, *, progress: Progress = True) -> int:
        """Rebuild the index of the namespace without the vectors of deleted memories; return how many it holds.

        Chroma keeps the vectors of deleted memories for good and searches among them, which makes a namespace with many
        deletions slow. Nothing is embedded again, and nothing is lost if it is interrupted: run it again.

        Args:
            progress: True for a progress bar on a terminal, or a function that is given (done, total).
        """
        return await self._engine.rebuild(progress, keep=True)


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
        super().__init__(make_engine(namespace, store, embedding, policy), ["profile"])

    @classmethod
    def part_of(cls, memory: EngineMemory) -> Self:
        """Return the profile of a memory, on the same engine."""
        profile = cls.__new__(cls)
        EngineMemory.__init__(profile, memory._engine, ["profile"], recorder=memory._recorder)
        return profile

    async def clear(self) -> None:
        """Delete the profile for good: its memories, their history, and its values."""
        await self._delivery.finish()
        await self._engine.clear(only_profile=True)

    def _to_config(self) -> ProfileMemoryConfig:
        return ProfileMemoryConfig(**self._common_config())

    @classmethod
    def _from_config(cls, config: ProfileMemoryConfig) -> Self:
        return cls(config.namespace, **parts_from(config))


def _import_take_over() -> Callable[[Engine, str, str, Progress], Awaitable[int]]:
    from ..maintenance.import_chroma import take_over

    return take_over
