"""Read JSON as language models write it: among prose, fenced, with small errors, or cut off. Pure functions."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

_LONGEST_TEXT = 100_000
_LONGEST_OBJECT = 10_000
_DEEPEST = 6
_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_SIGN = re.compile(r'[{}"\\]')
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_BARE_KEY = re.compile(r"([{,]\s*)([A-Za-z_]\w*)(?=\s*:)")


def objects_with(key: str, text: str) -> list[dict[str, Any]]:
    """Return every complete object that has this key, in order, at any depth.

    Objects that cannot be parsed are left out, and so is everything between `<think>` and `</think>`.

    >>> objects_with("name", 'Sure! ```json [{"name": "Ada",}, {"name": "Bo"}, {"name": "C')
    [{'name': 'Ada'}, {'name': 'Bo'}]
    """
    answer = _THOUGHTS.sub("", text[:_LONGEST_TEXT])
    found = (_read(candidate) for candidate in _balanced(answer))
    return [value for value in found if isinstance(value, dict) and key in value]


def strings(text: str) -> list[str]:
    """Return the strings of an answer that is a list of strings, or an object with one such list; else nothing.

    >>> strings('{"names": ["Ada", "Bo"]}')
    ['Ada', 'Bo']
    """
    start = re.search(r"[\[{]", text[:_LONGEST_TEXT])
    value = _read(text[start.start() : _LONGEST_TEXT].rstrip("` \n")) if start else None
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def lines_like(beginning: str, text: str) -> list[str]:
    r"""Return the lines that begin like this after any bullet, for an answer that is a list but not JSON.

    >>> lines_like("She", "Sure!\n1. She likes tea.\n* She is Ada.")
    ['She likes tea.', 'She is Ada.']
    """
    answer = _THOUGHTS.sub("", text[:_LONGEST_TEXT])
    lines = (re.sub(r"^[\W\d]*", "", line).rstrip() for line in answer.splitlines())
    return [line for line in lines if line.startswith(beginning)]


def _balanced(text: str) -> Iterator[str]:
    """Yield the text from each opening brace to its closing one, inner ones first."""
    open_at: list[int] = []
    quoted = escaped_at = -1
    for sign in _SIGN.finditer(text):
        at, mark = sign.start(), sign.group()
        if at == escaped_at:
            continue
        if mark == "\\":
            escaped_at = at + 1
        elif mark == '"':
            quoted = -quoted if open_at else -1
        elif quoted == 1:
            continue
        elif mark == "{":
            open_at.append(at)
        elif open_at:
            start = open_at.pop()
            if at - start < _LONGEST_OBJECT and len(open_at) < _DEEPEST:
                yield text[start : at + 1]


def _read(text: str) -> Any:
    """Return the value of a text: JSON, JSON with trailing commas or unquoted keys, or a Python literal; else None."""
    without_commas = _TRAILING_COMMA.sub("", text)
    for attempt in (text, without_commas, _BARE_KEY.sub(r'\1"\2"', without_commas)):
        try:
            return json.loads(attempt, strict=False)
        except (ValueError, RecursionError):
            pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
