"""For other people's tests: a model that answers from a script, an embedding without a model, and a suite for stores.

It is public: import `ScriptedModel`, `ToolCall`, `word_embedding` and `StoreConformance` from here. Only the suite needs
pytest. Nothing in the package imports this folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .scripted_model import Asked, ScriptedModel, ToolCall
from .words import word_embedding

if TYPE_CHECKING:
    from .conformance import StoreConformance

__all__ = ["Asked", "ScriptedModel", "StoreConformance", "ToolCall", "word_embedding"]


def __getattr__(name: str) -> object:
    if name != "StoreConformance":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pytest
    except ImportError as error:
        raise ImportError("StoreConformance needs pytest. Install it with: pip install pytest") from error
    pytest.register_assert_rewrite(f"{__name__}.conformance")
    from .conformance import StoreConformance

    return StoreConformance
