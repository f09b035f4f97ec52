"""Chroma's collections without the embedding functions that their stored configuration may name.

Chroma builds those functions from what is stored with a collection, at every write, and some of them load code or send
texts to the address that is stored with them. We bring our own vectors, and need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection


def bare_collection(client: ClientAPI, name: str) -> Collection:
    """The collection of that name, which embeds nothing by itself.

    Raises:
        NotFoundError: There is none (an error of Chroma).
    """
    return bare(client.get_collection(name, embedding_function=None))


def bare(collection: Collection) -> Collection:
    """The same collection, without the functions that its stored configuration names."""
    collection._model.serialized_schema = None
    return collection
