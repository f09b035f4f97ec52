"""Run the code in documents, so that they stay correct."""

from __future__ import annotations

import ast
import inspect
import re


def code_blocks(text: str) -> list[str]:
    """Return the Python blocks of a document, except those marked with "before"."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def fences(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a document: their language, with what marks them, and what is in them."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """A document without its fenced blocks."""
    return re.sub(r"^```[^\n]*\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> list[str]:
    """The anchors that the headings of a document get on GitHub."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def sections(text: str) -> dict[str, str]:
    """Return a document's sections by heading."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


async def run(code: str, **names: object) -> dict[str, object]:
    """Run code with top-level await, as in a notebook, and return what it defined."""
    compiled = compile(code, "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    namespace: dict[str, object] = dict(names)
    outcome = eval(compiled, namespace)
    if inspect.isawaitable(outcome):
        await outcome
    return namespace
