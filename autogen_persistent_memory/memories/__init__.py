"""The classes that applications use: `PersistentMemory`, `ProfileMemory`, `SessionMemory`, and `memory_tools`.

Each implements AutoGen's `Memory` protocol and the explicit methods over an engine, and composes the engine with what records
the conversation. The top-level package, the service and the command line import `memory`, `profile`, `session` and `tools`.
It must never know which backend stores the memories, or how they are ranked.
"""
