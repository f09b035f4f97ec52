"""The command line, `autogen-memory` (Typer, rich): parse options, call the public memory, print the result.

Face: `app.main`, the console script, and `app.app`; nothing in the package imports this folder. It must never know how
memories are ranked or stored. Modules that only one command needs are imported inside it, so that `--help` stays fast.
"""
