"""The explicit surface: remember, recall, forget, look things up, and named values."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from ..conversation.traces import Doomed, Forgotten, Traces, trace
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
from ..core.errors import PersistentMemoryError
from ..core.records import MemoryRecord, Query, Recall, draft, select
from ..retrieval.editing import changes
from ..retrieval.engine import Engine
from ..runtime.reporting import Progress
from ..runtime.threads import in_thread
from ..storage.protocol import TABLES
from .protocol import EngineMemory, check_keywords

logger = logging.getLogger("autogen_persistent_memory")

_DRAFT_KEYWORDS = ("content", "kind", "tags", "ttl", "pinned", "key", "source", "session", "metadata", "at")


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
        drafts = []
        for number, item in enumerate(items):
            fields = {"content": item} if isinstance(item, str) else item
            if not isinstance(fields, Mapping) or "content" not in fields:
                raise ValueError(f"Item {number} must be a text or a mapping with 'content', not {item!r}.")
            unknown = [name for name in fields if name not in _DRAFT_KEYWORDS]
            if unknown:
                raise ValueError(
                    f"Item {number} has unknown keywords: {', '.join(map(str, unknown))}. "
                    f"remember() takes {', '.join(_DRAFT_KEYWORDS)}."
                )
            try:
                drafts.append(draft(**fields))
            except ValueError as error:
                raise ValueError(f"Item {number}: {error}") from None
        return await self._engine.remember("profile", drafts, progress)

    async def import_chroma(self, path: str | os.PathLike[str], collection: str, *, progress: Progress = True) -> int:
        """Take over the memories of a collection that AutoGen's `ChromaDBVectorMemory` wrote.

        Its texts become facts of the profile, in their order, with their metadata, and with the time in it (`created_at`
        or `timestamp`) or else the time they were added; vectors are made anew. What says the same is merged, as in
        `remember()`; what is blank is left out. The folder itself is only read, and stays exactly as it is.

        Running it again stores nothing twice. What was forgotten since then comes back.

        Args:
            path: Its `persistence_path`.
            collection: Its `collection_name`.
            progress: True for a progress bar on a terminal, or a function that is given (done, total).

        Returns:
            How many were taken over; those that were there already, from an earlier import, do not count.

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
        """Several recalls at once, concurrently; takes the keywords of `recall()`."""
        check_keywords(filters, "recall_many()")
        if isinstance(queries, str) or not isinstance(queries, Sequence):
            raise ValueError(f"recall_many() takes a list of queries, not one {type(queries).__name__}.")
        return list(await asyncio.gather(*(self.recall(query, **filters) for query in queries)))

    async def context(self, query: str) -> str:
        """The block for a query, as an agent would see it, ready to paste; empty when nothing is relevant."""
        return (await self._turn.block(Query(require_text(query, "query")))).text

    async def record(self, id: str) -> MemoryRecord | None:
        """The memory with this id, if it is current."""
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
        """The memories themselves, newest first; with `include_history` also superseded and expired ones."""
        start, count = check_count(offset, "offset", least=0), check_count(limit, "limit")
        selection = select(kinds=kinds, tags=tags, session=session)
        return (await self._engine.select(selection, self._tables, history=include_history))[start : start + count]

    async def count(self) -> int:
        """How many current memories there are."""
        return len(await self._engine.select(select(), self._tables))

    async def history(self, id_or_key: str) -> list[MemoryRecord]:
        """A memory, by id or key, with all that it replaced or was replaced by, newest first."""
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
        """Correct a memory in its place; its id and its past stay, the former wording is gone.

        Where something has changed in the world rather than being wrong, `remember()` it under the same key instead, which
        keeps the older memory as history.

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
            ValueError: An argument is no good, or nothing was to be changed.
            PersistentMemoryError: There is no current memory of that id, or it cannot be changed so.
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
        them, or `everywhere` is set.

        With `everywhere`, saved states of teams and agents lose the texts that tell it: `[forgotten]` stands there
        instead, and the messages stay, so that calls of tools keep their results and `session.load()` still goes on. Summaries
        that tell it are dropped. What it does not reach: values that you `set()`, of which a warning names those that
        tell it; what agents that are running have in their contexts, which the next save of their team would store again; exports,
        snapshots and backups; other namespaces; and the free space of Chroma's files.

        Args:
            id: The memory with this id.
            key: The memory under this key.
            kinds: Memories of these kinds.
            tags: Memories with all of these tags.
            session: Memories from this session; with `everywhere` and nothing else, also all that its saved state tells.
            containing: Memories with this literal text, in upper or lower case.
            before: Memories written before this time.
            everywhere: Also history, captured messages (those meant, and those that told what is deleted), and what saved
                states and summaries tell of it.
            dry_run: Only count them, and delete nothing.

        Returns:
            How many memories and messages are gone, or would be. Of this number, `messages` were captured ones, and its
            `traces` name the sessions whose saved `states` and `summaries` told it, and the `values` that still do.

        Raises:
            ValueError: No selector was given (to delete everything, use `clear()`), or one is no good.
        """
        if all(value is None for value in (id, key, kinds, tags, session, containing, before)):
            raise ValueError("forget() needs to be told what: an id, key, kinds, tags, session, containing or before.")
        selection = select(kinds=kinds, tags=tags, session=session, key=key, containing=containing, before=before)
        names_messages = id is not None or session is not None or "interaction" in (selection.kinds or ())
        is_thorough, is_trial = check_flag(everywhere, "everywhere"), check_flag(dry_run, "dry_run")
        named = self._tables if names_messages else ("profile",)
        engine, tables, only = self._engine, TABLES if is_thorough else named, optional_text(id, "id")

        async def found_in_traces() -> Traces:
            if not is_thorough:
                return Traces()
            records = await engine.to_forget(selection, tables, id=only, history=True)
            what = await in_thread(partial(Doomed, records, selection if id is None else None))
            return await trace(engine.values, what, erase=not is_trial)

        if is_trial:
            await self._delivery.finish()
            found = await found_in_traces()
            records = await engine.to_forget(selection, tables, id=only, history=is_thorough)
            return Forgotten(len(records), sum(record.kind == "interaction" for record in records), found)
        async with self._forgetting():
            found = await found_in_traces()
            count, messages = await engine.forget(selection, tables, id=only, history=is_thorough)
        forgotten = Forgotten(count, messages, found)
        if is_thorough:
            self._log_forgotten(forgotten)
        return forgotten

    def _log_forgotten(self, forgotten: Forgotten) -> None:
        found = forgotten.traces
        logger.info(
            "Forgotten in %r: %d memories and messages; blanked in %d saved states, dropped %d summaries. Not reached: running "
            "agents, exports, snapshots and backups.",
            self.namespace,
            forgotten,
            len(found.states),
            len(found.summaries),
        )
        if found.values:
            names = ", ".join(map(repr, found.values))
            logger.warning(
                "What was forgotten in %r still stands in values of the application: %s. Set or delete() them.",
                self.namespace,
                names,
            )
        if found.unclear:
            logger.warning(
                "What was forgotten in %r may still stand in the saved states of the sessions %s, outside of their messages. "
                "Delete those with delete_session(), or save their teams again.",
                self.namespace,
                ", ".join(map(repr, found.unclear)),
            )

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
        """The value under a key, or the default."""
        text = await self._engine.values.get("value", require_text(key, "key"))
        return default if text is None else await in_thread(lambda: decode_json(text))

    async def delete(self, key: str) -> bool:
        """Delete the value under a key; whether there was one."""
        return await self._engine.values.remove("value", require_text(key, "key"))

    async def keys(self) -> list[str]:
        """The keys of all values, sorted."""
        return sorted(await self._engine.values.names("value"))

    async def values(self) -> dict[str, Any]:
        """All values by key: the whole profile in one call."""
        stored = await self._engine.values.all("value")
        return await in_thread(lambda: {key: decode_json(stored[key]) for key in sorted(stored)})

    async def reembed(self, *, progress: Progress = True) -> int:
        """Make all vectors of the namespace anew with this memory's embedding; how many.

        This is how to go on after an `EmbeddingMismatchError`. Call it on a memory that is not open yet: `open()` and
        `async with` refuse what was written with another embedding. If it is interrupted nothing is lost: run it again.

        Args:
            progress: True for a progress bar on a terminal, or a function that is given (done, total).
        """
        return await self._engine.reembed(progress)

    async def compact(self, *, progress: Progress = True) -> int:
        """Rebuild the index of the namespace without the vectors of what was deleted; how many memories it holds.

        Chroma keeps the vectors of deleted memories for good, and searches among them: a namespace that was churned gets
        slow. Nothing is embedded anew, and nothing is lost if it is interrupted: run it again.

        Args:
            progress: True for a progress bar on a terminal, or a function that is given (done, total).
        """
        return await self._engine.compact(progress)


def _import_take_over() -> Callable[[Engine, str, str, Progress], Awaitable[int]]:
    from ..maintenance.import_chroma import take_over

    return take_over
