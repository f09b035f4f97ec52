"""Persistent memory for Microsoft AutoGen agents, over Chroma.

from autogen_persistent_memory import PersistentMemory

agent = AssistantAgent("assistant", model_client=client, memory=[PersistentMemory("user-42")])
"""

from typing import TYPE_CHECKING

from ._config import RecallPolicy
from ._embeddings import CallableEmbedding, ChromaEmbedding, MiniLMEmbedding, register_embedding
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
from ._profile import ProfileMemory
from ._records import MemoryHit, MemoryRecord, Recall, SessionInfo
from ._session import SessionMemory
from ._stores import CloudStore, EmbeddedStore, ServerStore, TemporaryStore

if TYPE_CHECKING:
    from ._model_extraction import ModelExtractor
    from ._snapshot import snapshot
    from ._tools import TOOL_PROMPT, memory_tools
    from ._transfer import export_memories, import_memories
else:  # else type checkers would let every misspelt name pass
    _IMPORTED_WHEN_USED = {
        "ModelExtractor": "_model_extraction",
        "TOOL_PROMPT": "_tools",
        "export_memories": "_transfer",
        "import_memories": "_transfer",
        "memory_tools": "_tools",
        "snapshot": "_snapshot",
    }

    _LOADED_BY_AUTOGEN = {"RememberTool": "_tools", "RecallTool": "_tools", "ForgetTool": "_tools"}
    """The providers in dumped tools. Programs make tools with `memory_tools()`."""

    def __getattr__(name):
        """What most programs never use is imported by those that do."""
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
    "register_embedding",
    "snapshot",
]
