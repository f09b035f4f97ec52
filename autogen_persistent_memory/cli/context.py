"""What every command works with: the store it is told to use, memories on it, and the way it speaks and ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import typer

from ..core.checks import check_namespace
from ..core.policy import RecallPolicy
from ..memories.memory import PersistentMemory
from ..storage.connection import StoreConnection
from ..storage.protocol import MemoryStore, Stored
from ..storage.stores import EmbeddedStore, ServerStore
from ..text.embeddings import Embedding, MiniLMEmbedding
from ..text.redaction import check_host
from .embedding import UnknownEmbedding, named_embedding, recorded_embedding
from .output import Printer, asked, note

T = TypeVar("T")
_POLICY = RecallPolicy(max_interactions=None)  # whoever looks at memories must not make them fewer
_MOST_NAMED = 20


class NothingFoundError(Exception):
    """What was asked for is not there."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which store the options name; None for what they leave open."""

    path: str | None = None
    server: str | None = None
    ssl: bool | None = None
    token_env: str | None = None

    def store(self) -> EmbeddedStore | ServerStore:
        """That store.

        Raises:
            ValueError: The options contradict each other, or name no address.
        """
        if self.server is None:
            if self.ssl or self.token_env:
                raise ValueError("--ssl and --token-env belong to --server HOST:PORT.")
            return EmbeddedStore(self.path)
        if self.path is not None:
            raise ValueError("Give either --path or --server, not both.")
        host, _, port = check_host(self.server).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"--server must be HOST:PORT, such as localhost:8000, not {self.server!r}.")
        # Without an outbox: what agents heard is for them to deliver, with their own embedding.
        return ServerStore(host.strip("[]"), int(port), bool(self.ssl), token_env=self.token_env, outbox="")


class Shell:
    """A command under way."""

    def __init__(self, place: Place, *, as_json: bool) -> None:
        self._place = place
        self.printer = Printer(as_json=as_json)

    @property
    def as_json(self) -> bool:
        """Whether the result is for a program."""
        return self.printer.as_json

    @cached_property
    def store(self) -> EmbeddedStore | ServerStore:
        """The store, which may not be there yet."""
        return self._place.store()

    def existing_store(self) -> MemoryStore:
        """The store.

        Raises:
            NothingFoundError: It is a folder in which nothing was ever stored; looking must not make it one.
        """
        if isinstance(self.store, EmbeddedStore) and not (self.store.folder() / "chroma.sqlite3").exists():
            raise NothingFoundError(
                f"There is no store in {self.store.folder()}. Name its folder with --path or AUTOGEN_MEMORY_PATH, or its "
                "server with --server HOST:PORT."
            )
        return self.store

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something."""
        return asyncio.run(work)

    @contextmanager
    def connection(self, *, may_be_new: bool = False) -> Iterator[StoreConnection]:
        """An open line to the store."""
        connection = StoreConnection(self.store if may_be_new else self.existing_store())
        try:
            yield connection
        finally:
            self.run(connection.close())

    @contextmanager
    def memory(
        self, namespace: str, embedding: Embedding | None = None, *, may_be_new: bool = False
    ) -> Iterator[PersistentMemory]:
        """A namespace's memory, which captures nothing.

        Args:
            namespace: Which.
            embedding: What to embed with; by default nothing can be.
            may_be_new: Whether the namespace, or the store, need not be there yet.
        """
        check_namespace(namespace)
        with self.connection(may_be_new=may_be_new) as connection:
            if not may_be_new:
                _require(namespace, [stored.namespace for stored in self.run(connection.inventory())])
            memory = PersistentMemory(
                namespace,
                store=self.store,
                embedding=embedding or UnknownEmbedding(),
                policy=_POLICY,
                extractor=None,
                capture=False,
            )
            try:
                yield memory
            finally:
                self.run(memory.close())

    def embedding(self, namespace: str, name: str | None, id: str | None) -> Embedding:
        """The embedding that is named, else the one that the namespace was written with, else the usual one."""
        if name is not None:
            return named_embedding(name, id)
        if id is not None:
            raise ValueError("--embedding-id belongs to --embedding module:function.")
        stored = self.made_by(check_namespace(namespace))
        return recorded_embedding(stored[0]) if stored else MiniLMEmbedding()

    def common_embedding(self, name: str | None, id: str | None) -> Embedding:
        """The embedding that is named, else the one that all of the store was written with, else the usual one."""
        if name is not None:
            return named_embedding(name, id)
        from ..storage.repair.startup_repair import DamagedStoreError

        try:
            known = self.made_by()
        except DamagedStoreError:
            from ..maintenance.doctor import surviving_embeddings

            known = self.run(surviving_embeddings(self.store))
        return recorded_embedding(known[0]) if len(known) == 1 else MiniLMEmbedding()

    def made_by(self, namespace: str | None = None) -> list[str]:
        """The ids of the embeddings that a namespace, or the whole store, was written with."""
        try:
            with self.connection() as connection:
                inventory: list[Stored] = self.run(connection.inventory())
        except NothingFoundError:
            return []
        return list(
            dict.fromkeys(
                stored.embedding
                for stored in inventory
                if stored.table != "values" and namespace in (None, stored.namespace)
            )
        )

    def tell(self, sentence: str, **facts: object) -> None:
        """Print what was done: in words, or as facts for a program."""
        if self.as_json:
            self.printer.objects([facts])
        else:
            self.printer.line(sentence)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if the user says so.

        Raises:
            ValueError: There is nobody to ask.
            typer.Exit: The user says no.
        """
        if yes:
            return
        answer = asked(question)
        if answer is None:
            raise ValueError(f"{question} There is no terminal to ask at: say so with --yes.")
        if not answer:
            note("Nothing was changed.")
            raise typer.Exit(1)


def _require(namespace: str, known: list[str]) -> None:
    if namespace not in known:
        names = list(dict.fromkeys(known))
        listed = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
        raise NothingFoundError(f"The store has no namespace {namespace!r}. It has {listed or 'none'}.")


def size_of(store: MemoryStore) -> int | None:
    """How many bytes an embedded store takes on disk."""
    if not isinstance(store, EmbeddedStore):
        return None
    files = (os.path.join(folder, name) for folder, _, names in os.walk(store.folder()) for name in names)
    return sum(os.lstat(path).st_size for path in files)
