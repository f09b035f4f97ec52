"""Persistent memory for Microsoft AutoGen agents, over Chroma.

from autogen_persistent_memory import PersistentMemory

agent = AssistantAgent("assistant", model_client=client, memory=[PersistentMemory("user-42")])
"""

from typing import TYPE_CHECKING

from .core.errors import (
    EmbeddingMismatchError,
    NamespaceError,
    PersistentMemoryError,
    SchemaVersionError,
    StoreLockedError,
    StoreUnavailableError,
)
from .core.policy import RecallPolicy
from .core.records import MemoryHit, MemoryRecord, Recall, SessionInfo
from .extraction.extractor import Extractor, Fact, Message, RuleExtractor
from .memories.memory import PersistentMemory
from .memories.profile import ProfileMemory
from .memories.session import SessionMemory
from .storage.protocol import MemoryStore
from .storage.stores import CloudStore, EmbeddedStore, ServerStore, TemporaryStore
from .text.embeddings import CallableEmbedding, ChromaEmbedding, Embedding, MiniLMEmbedding, register_embedding

if TYPE_CHECKING:
    from .extraction.model_extraction import ModelExtractor
    from .maintenance.snapshot import snapshot
    from .maintenance.transfer.transfer import export_memories, import_memories
    from .memories.tools import TOOL_PROMPT, memory_tools
else:  # hidden from type checkers, which would otherwise accept every misspelt name
    _IMPORTED_WHEN_USED = {
        "ModelExtractor": "extraction.model_extraction",
        "TOOL_PROMPT": "memories.tools",
        "export_memories": "maintenance.transfer.transfer",
        "import_memories": "maintenance.transfer.transfer",
        "memory_tools": "memories.tools",
        "snapshot": "maintenance.snapshot",
    }

    _LOADED_BY_AUTOGEN = {
        "RememberTool": "memories.tools",
        "RecallTool": "memories.tools",
        "ForgetTool": "memories.tools",
    }
    """The providers in the JSON of dumped tools. Programs make tools with `memory_tools()`."""

    def __getattr__(name):
        """Import on first use what most programs never use."""
        module = _IMPORTED_WHEN_USED.get(name) or _LOADED_BY_AUTOGEN.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(f"{__name__}.{module}"), name)
        if name in _IMPORTED_WHEN_USED:
            globals()[name] = found
        return found

    def __dir__():
        return __all__


__version__ = "0.1.0"

__all__ = [
    "TOOL_PROMPT",
    "CallableEmbedding",
    "ChromaEmbedding",
    "CloudStore",
    "EmbeddedStore",
    "Embedding",
    "EmbeddingMismatchError",
    "Extractor",
    "Fact",
    "MemoryHit",
    "MemoryRecord",
    "MemoryStore",
    "Message",
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
    "register_embedding",
    "snapshot",
]
