"""`python -m autogen_persistent_memory.cli` is `autogen-memory`."""

from .app import main

main()
