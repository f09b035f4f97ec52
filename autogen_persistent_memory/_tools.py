"""The name under which version 0.1 dumped tools: their JSON still loads."""

from .memories.tools import ForgetTool, RecallTool, RememberTool

__all__ = ["ForgetTool", "RecallTool", "RememberTool"]
