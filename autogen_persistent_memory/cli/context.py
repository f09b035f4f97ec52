"""What every command works with: the store that its options name, memories in it, output, and confirmations."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import typer

from ..core.checks import check_namespace
from ..core.policy import RecallPolicy
from ..memories.memory import PersistentMemory
from ..storage.connection import StoreConnection
from ..storage.protocol import Stored
from ..storage.stores import EmbeddedStore, ServerStore
from ..text.embeddings import Embedding, MiniLMEmbedding
from ..text.redaction import check_host
from .embedding import UnknownEmbedding, named_embedding, recorded_embedding
from .output import Printer, confirmed, note

T = TypeVar("T")
FAILED = 1
"""The exit code of a command that failed."""
_POLICY = RecallPolicy(max_interactions=None)  # a command that only reads must not evict messages
_NAMES_LISTED = 20


class NothingFoundError(Exception):
    """The store, namespace or memory that the user asked for does not exist, or nothing matches."""


class CommandContext:
    """The store, the memories and the printer of one command, as its common options say."""

    def __init__(self, path: str | None, server: str | None, ssl: bool, token_env: str | None, json: bool) -> None:
        self._path, self._server, self._ssl, self._token_env = path, server, ssl, token_env
        self.as_json = json
        self.printer = Printer(as_json=json)

    @cached_property
    def store(self) -> EmbeddedStore | ServerStore:
        """The store that the options name, which may not exist yet."""
        if self._server is None:
            if self._ssl or self._token_env:
                raise ValueError("--ssl and --token-env belong to --server HOST:PORT.")
            return EmbeddedStore(self._path)
        if self._path is not None:
            raise ValueError("Give either --path or --server, not both.")
        host, _, port = check_host(self._server).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"--server must be HOST:PORT, such as localhost:8000, not {self._server!r}.")
        # Without an outbox: the agents deliver what they queued themselves, with their own embedding.
        return ServerStore(host.strip("[]"), int(port), self._ssl, token_env=self._token_env, outbox="")

    def existing_store(self) -> EmbeddedStore | ServerStore:
        """Return the store, or raise a NothingFoundError if its folder has none: it is not created."""
        if isinstance(self.store, EmbeddedStore) and not (self.store.folder() / "chroma.sqlite3").exists():
            raise NothingFoundError(
                f"There is no store in {self.store.folder()}. Name its folder with --path or AUTOGEN_MEMORY_PATH, or its "
                "server with --server HOST:PORT."
            )
        return self.store

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a loop of its own: between two, Ctrl-C interrupts what blocks, such as reading stdin."""
        return asyncio.run(work)

    @contextmanager
    def connection(self, *, may_be_new: bool = False) -> Iterator[StoreConnection]:
        """Connect to the store, which must exist unless it may be new."""
        connection = StoreConnection(self.store if may_be_new else self.existing_store())
        try:
            yield connection
        finally:
            self.run(connection.close())

    @contextmanager
    def memory(
        self, namespace: str, embedding: Embedding | None = None, *, may_be_new: bool = False
    ) -> Iterator[PersistentMemory]:
        """Open the memory of a namespace, without capture. Without an embedding it can do all that needs no vectors."""
        check_namespace(namespace)
        with self.connection(may_be_new=may_be_new) as connection:
            names = [] if may_be_new else [stored.namespace for stored in self.run(connection.inventory())]
            if not may_be_new and namespace not in names:
                names = list(dict.fromkeys(names))
                listed = ", ".join(names[:_NAMES_LISTED]) + (", …" if len(names) > _NAMES_LISTED else "")
                raise NothingFoundError(f"The store has no namespace {namespace!r}. It has {listed or 'none'}.")
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

    def embedding(self, namespace: str, name: str | None = None, id: str | None = None) -> Embedding:
        """Return the embedding that the options name, else the one the namespace was written with, else MiniLM."""
        if name is not None:
            return named_embedding(name, id)
        if id is not None:
            raise ValueError("--embedding-id belongs to --embedding module:function.")
        recorded = self._recorded_embeddings(check_namespace(namespace))
        return recorded_embedding(recorded[0]) if recorded else MiniLMEmbedding()

    def common_embedding(self, name: str | None, id: str | None) -> Embedding:
        """Return the embedding that the options name, else the one all of the store was written with, else MiniLM."""
        if name is not None:
            return named_embedding(name, id)
        from ..storage.repair.startup_repair import DamagedStoreError

        try:
            recorded = self._recorded_embeddings()
        except DamagedStoreError:
            from ..maintenance.doctor import surviving_embeddings

            recorded = self.run(surviving_embeddings(self.store))
        return recorded_embedding(recorded[0]) if len(recorded) == 1 else MiniLMEmbedding()

    def _recorded_embeddings(self, namespace: str | None = None) -> list[str]:
        """Return the ids of the embeddings that a namespace, or the whole store, was written with."""
        try:
            with self.connection() as connection:
                inventory: list[Stored] = self.run(connection.inventory())
        except NothingFoundError:
            return []
        found = [stored for stored in inventory if stored.table != "values" and namespace in (None, stored.namespace)]
        return list(dict.fromkeys(stored.embedding for stored in found))

    def report(self, sentence: str, **facts: object) -> None:
        """Print what the command did: the sentence, or with `--json` the facts."""
        if self.as_json:
            self.printer.objects([facts])
        else:
            self.printer.line(sentence)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask the user for confirmation, unless `--yes` was given, and end the command if the user declines."""
        if yes:
            return
        answer = confirmed(question)
        if answer is None:
            raise ValueError(f"{question} There is no terminal to ask on; confirm it with --yes.")
        if not answer:
            note("Nothing was changed.")
            raise typer.Exit(FAILED)
