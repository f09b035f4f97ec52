"""The vectors by which memories are found."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from ._content import meaning
from ._embeddings import Embedding, Vector, Vectors
from ._records import Draft, MemoryRecord

_ANY_TEXT = "any text"


async def embedded(items: Sequence[Draft] | Sequence[MemoryRecord], embedding: Embedding) -> Vectors:
    """A vector for each; what is trivial is not worth embedding and gets one that is like no other."""
    telling = [item for item in items if not item.is_trivial]
    vectors = iter(await embedding.embed([meaning(item) for item in telling]))
    if len(telling) == len(items):
        return list(vectors)
    dimensions = len(await embedding.embed_query(_ANY_TEXT))
    return [_unlike_any(item.content, dimensions) if item.is_trivial else next(vectors) for item in items]


def _unlike_any(content: str, dimensions: int) -> Vector:
    """A vector in a direction of its own, so that it is near to nothing."""
    chance = random.Random(content)
    vector = [chance.gauss(0, 1) for _ in range(dimensions)]
    length = math.hypot(*vector)
    return [value / length for value in vector]
