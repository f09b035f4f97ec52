"""Persistent memory for Microsoft AutoGen agents, over Chroma.

from autogen_persistent_memory import PersistentMemory

agent = AssistantAgent("assistant", model_client=client, memory=[PersistentMemory("user-42")])
"""

from ._config import RecallPolicy
from ._embeddings import CallableEmbedding, ChromaEmbedding, MiniLMEmbedding
from ._errors import (
    EmbeddingMismatchError,
    NamespaceError,
    PersistentMemoryError,
    SchemaVersionError,
    StoreLockedError,
    StoreUnavailableError,
)
from ._extraction import RuleExtractor
from ._memory import PersistentMemory
from ._model_extraction import ModelExtractor
from ._profile import ProfileMemory
from ._records import MemoryHit, MemoryRecord, Recall, SessionInfo
from ._session import SessionMemory
from ._snapshot import snapshot
from ._stores import CloudStore, EmbeddedStore, ServerStore, TemporaryStore
from ._tools import TOOL_PROMPT, memory_tools
from ._transfer import export_memories, import_memories

__version__ = "0.1.0"

__all__ = [
    "TOOL_PROMPT",
    "CallableEmbedding",
    "ChromaEmbedding",
    "CloudStore",
    "EmbeddedStore",
    "EmbeddingMismatchError",
    "MemoryHit",
    "MemoryRecord",
    "MiniLMEmbedding",
    "ModelExtractor",
    "NamespaceError",
    "PersistentMemory",
    "PersistentMemoryError",
    "ProfileMemory",
    "Recall",
    "RecallPolicy",
    "RuleExtractor",
    "SchemaVersionError",
    "ServerStore",
    "SessionInfo",
    "SessionMemory",
    "StoreLockedError",
    "StoreUnavailableError",
    "TemporaryStore",
    "__version__",
    "export_memories",
    "import_memories",
    "memory_tools",
    "snapshot",
]
