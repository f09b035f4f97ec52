"""Stored text as data: on one line, unable to open or close a block of ours. A pure function."""

from __future__ import annotations

import re

from ..core.lazy_regex import lazy
from .pieces import replaced

_BETWEEN = r"[^\w<＜﹤]{0,8}"  # also invisible characters
_WORDS = lazy(r"[^\s\x00-\x1f\x7f-\x9f]+")
_TAG = lazy(rf"[<＜﹤](?={_BETWEEN.join(('', *'memory'))})", re.IGNORECASE)


def neutral(text: str) -> str:
    """Return the text on one line, without control characters, unable to open or close a block."""
    line = " ".join(found[0] for found in _WORDS.finditer(text))
    return replaced(_TAG, lambda _: "‹", line, hints="<＜﹤")
