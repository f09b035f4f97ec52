"""The commands of `autogen-memory`. Nothing in the package imports this folder; it needs Typer and rich.

Modules that only one command needs are imported inside that command, so that `--help` stays fast.
"""
