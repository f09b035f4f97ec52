"""The vectors by which memories are found."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from ..core.records import Draft, MemoryRecord
from .content import meaning
from .embeddings import Embedding, Vector, Vectors
from .speech_acts import is_trivial

_ANY_TEXT = "any text"
_SHORT_IN_0_1 = 30
"""Characters of the longest message that 0.1 took for trivial, with some space around it."""


async def embedded(items: Sequence[Draft] | Sequence[MemoryRecord], embedding: Embedding) -> Vectors:
    """A vector for each; what is trivial is not worth embedding and gets one that is like no other."""
    telling = [item for item in items if not is_trivial(item)]
    vectors = iter(await embedding.embed([meaning(item) for item in telling]))
    if len(telling) == len(items):
        return list(vectors)
    dimensions = len(await embedding.embed_query(_ANY_TEXT))
    return [_unlike_any(item.content, dimensions) if is_trivial(item) else next(vectors) for item in items]


def lacks_meaning(record: MemoryRecord, vector: Vector) -> bool:
    """Return whether a message that tells something has a vector like no other: 0.1 gave one to all short messages."""
    if is_trivial(record) or record.kind != "interaction" or len(record.content) > _SHORT_IN_0_1:
        return False
    return all(abs(one - other) < 1e-4 for one, other in zip(vector, _unlike_any(record.content, len(vector))))


def _unlike_any(content: str, dimensions: int) -> Vector:
    """A vector in a direction of its own, so that it is near to nothing."""
    chance = random.Random(content)
    vector = [chance.gauss(0, 1) for _ in range(dimensions)]
    length = math.hypot(*vector)
    return [value / length for value in vector]
