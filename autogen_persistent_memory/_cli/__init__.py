"""The commands of `autogen-memory`, by idea. Nothing of the package imports this; it brings Typer and rich along."""
