"""Which embedding a command uses: the one that is named, else the one that the store says it was written with."""

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
from .output import asked


class UnknownEmbedding(Embedding):
    """One of which only the id is known, or not even that: enough for all that needs no vectors, and it makes none."""

    def __init__(self, id: str = ANY_EMBEDDING) -> None:
        self.id = id
        super().__init__()

    @property
    def config(self) -> Any:
        raise PersistentMemoryError(
            f"Of the embedding {self.id!r} only the id is known. Name it: --embedding module:function"
        )

    async def _compute(self, texts: list[str]) -> Vectors:
        raise PersistentMemoryError(
            f"These memories were embedded with {self.id!r}, which only your own code can do. Name the function that does: "
            f"--embedding module:function --embedding-id {self.id!r}"
        )


class RecordedEmbedding(UnknownEmbedding):
    """One that only the store names, and that may send texts away: the user is asked before it gets the first one."""

    def __init__(self, id: str) -> None:
        self._asking = threading.Lock()
        self._allowed: Embedding | None = None
        super().__init__(id)

    async def _compute(self, texts: list[str]) -> Vectors:
        return await (await self._in_thread(self._confirmed)).embed(texts)

    def _confirmed(self) -> Embedding:
        with self._asking:
            if self._allowed is None:
                if not asked(
                    f"The store says that its texts are embedded with {self.id}, which may send them to another machine or "
                    "load code. Do you want that?"
                ):
                    raise PersistentMemoryError(
                        f"Nothing was embedded: only the store's metadata names {self.id!r}, which may send texts to another "
                        f"machine or load code. If that is what you want, say so with {as_options(self.id)}"
                    )
                self._allowed = _of_chroma(self.id.removeprefix(CHROMA))
            return self._allowed


def named_embedding(name: str, id: str | None) -> Embedding:
    """What `--embedding` and `--embedding-id` mean.

    Raises:
        ValueError: They mean nothing, or what they name cannot be imported.
    """
    if name.lower() in ("minilm", MiniLMEmbedding.id.lower()):
        return MiniLMEmbedding()
    kind, _, rest = name.partition(":")
    if not rest:
        raise ValueError(f"--embedding {name} is none of minilm, chroma:NAME and module:function.")
    if kind == "chroma":
        return _of_chroma(rest)
    found = _imported(kind, rest)
    if isinstance(found, Embedding):
        return found
    if id is None:
        raise ValueError(f"--embedding {name} names a function, whose vectors need a name, too: --embedding-id ID.")
    return CallableEmbedding(found, id=id)


def recorded_embedding(id: str) -> Embedding:
    """The embedding that a store was written with, as far as its id tells how to have it and the user agrees to that."""
    if id == MiniLMEmbedding.id:
        return MiniLMEmbedding()
    if id.startswith(CHROMA):
        return _of_chroma(id.removeprefix(CHROMA)) if is_local(id) else RecordedEmbedding(id)
    return UnknownEmbedding(id)


def _of_chroma(text: str) -> Embedding:
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
