"""The module that the JSON of tools dumped by version 0.1 names, so that it still loads."""

from .memories.tools import ForgetTool, RecallTool, RememberTool

__all__ = ["ForgetTool", "RecallTool", "RememberTool"]
