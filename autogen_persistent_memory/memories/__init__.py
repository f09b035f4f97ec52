"""The classes users make: `PersistentMemory`, `ProfileMemory`, `SessionMemory`, and the tools over them.

They are AutoGen's `Memory` protocol and the explicit methods, over an engine. Only the top-level package, the service and the
command line import them.
"""
