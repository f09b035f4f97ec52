"""The embedding of a command: the one that `--embedding` names, else the one that the store was written with."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from typing import Any

from ..core.errors import PersistentMemoryError
from ..storage.protocol import ANY_EMBEDDING
from ..text.embeddings import (
    CHROMA,
    CallableEmbedding,
    ChromaEmbedding,
    Embedding,
    MiniLMEmbedding,
    Vectors,
    as_options,
    is_local,
)
from .output import confirmed


class UnknownEmbedding(Embedding):
    """An embedding of which at most the id is known: enough for commands that need no vectors."""

    def __init__(self, id: str = ANY_EMBEDDING) -> None:
        self.id = id
        super().__init__()

    async def compute(self, texts: list[str]) -> Vectors:
        raise PersistentMemoryError(
            f"These memories were embedded with {self.id!r}, a function of your own code. Name it: "
            f"--embedding module:function --embedding-id {self.id!r}"
        )


class RecordedEmbedding(UnknownEmbedding):
    """An embedding that only the store names and that may send texts away: it asks the user before the first one."""

    def __init__(self, id: str) -> None:
        self._confirming = threading.Lock()
        self._allowed: Embedding | None = None
        super().__init__(id)

    async def compute(self, texts: list[str]) -> Vectors:
        return await (await self._in_thread(self._after_confirmation)).embed(texts)

    def _after_confirmation(self) -> Embedding:
        with self._confirming:
            if self._allowed is None:
                if not confirmed(
                    f"The store says that its texts are embedded with {self.id}, which may send them to another machine or "
                    "load code. Continue?"
                ):
                    raise PersistentMemoryError(
                        f"Nothing was embedded: only the store's metadata names {self.id!r}, which may send texts to another "
                        f"machine or load code. To allow that, add {as_options(self.id)}"
                    )
                self._allowed = _chroma_embedding(self.id.removeprefix(CHROMA))
            return self._allowed


def named_embedding(name: str, id: str | None) -> Embedding:
    """Return the embedding that `--embedding` and `--embedding-id` name."""
    if name.lower() in ("minilm", MiniLMEmbedding.id.lower()):
        return MiniLMEmbedding()
    kind, _, rest = name.partition(":")
    if not rest:
        raise ValueError(f"--embedding {name} is invalid; write minilm, chroma:NAME or module:function.")
    if kind == "chroma":
        return _chroma_embedding(rest)
    found = _imported(kind, rest)
    if isinstance(found, Embedding):
        return found
    if id is None:
        raise ValueError(f"--embedding {name} is a function, whose vectors need an id, too: --embedding-id ID.")
    return CallableEmbedding(found, id=id)


def recorded_embedding(id: str) -> Embedding:
    """Return the embedding that a store was written with, as far as its id says how to load it."""
    if id == MiniLMEmbedding.id:
        return MiniLMEmbedding()
    if id.startswith(CHROMA):
        return _chroma_embedding(id.removeprefix(CHROMA)) if is_local(id) else RecordedEmbedding(id)
    return UnknownEmbedding(id)


def _chroma_embedding(text: str) -> Embedding:
    name, _, options = text.partition(" ")
    try:
        given = json.loads(options or "{}")
        if not isinstance(given, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise ValueError(f"What follows chroma:{name} must be its options as a JSON object: {error}.") from None
    return ChromaEmbedding(name, **given)


def _imported(module: str, name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` would
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"--embedding {module}:{name} cannot be imported: {error}. Run this where the module can be found, or add its "
            "folder to PYTHONPATH."
        ) from error
    return found
