"""An embedding for tests: fast, deterministic, and without a model. Texts that share words are similar."""

from __future__ import annotations

import hashlib
import math
import re

from ..text.embeddings import CallableEmbedding

_DIMENSIONS = 128


def word_embedding(id: str = "words") -> CallableEmbedding:
    """Return an embedding in which every word has a direction of its own.

    Example:
        >>> word_embedding().id
        'words'
    """
    return CallableEmbedding(word_vectors, id=id)


def word_vectors(texts: list[str]) -> list[list[float]]:
    """Return a vector of unit length for each text, the sum of those of its words."""
    return [_vector(text) for text in texts]


def _vector(text: str) -> list[float]:
    total = [0.0] * _DIMENSIONS
    for word in re.findall(r"\w+", text.casefold()) or [text]:
        digest = hashlib.shake_256(word.encode("utf-8", "surrogatepass")).digest(_DIMENSIONS)
        total = [sum_ + (byte - 127.5) for sum_, byte in zip(total, digest)]
    norm = math.sqrt(sum(value * value for value in total))
    return [value / norm for value in total]
