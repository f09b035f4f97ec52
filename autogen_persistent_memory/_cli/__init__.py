"""The commands of `autogen-memory`, by idea. Nothing of the package imports this; it brings Typer and rich along.

What only one command needs is imported when that is run: also a `--help` has to import everything else.
"""
