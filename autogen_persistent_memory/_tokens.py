"""How many tokens a text takes: exactly where tiktoken's data is on this machine, by a careful estimate elsewhere.

`tiktoken.get_encoding` downloads its data on first use, without a timeout. So it is only called, in a thread nobody
waits for, when the data is already in its cache; until then, and on machines without it, the estimate answers.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

_ENCODING = "cl100k_base"
_CACHE_KEY = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # under which tiktoken caches that encoding
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_loaded: list[Encoding] = []


def count_tokens(text: str) -> int:
    """The number of tokens in the text."""
    _start_loading()
    if _loaded:
        return len(_loaded[0].encode(text, disallowed_special=()))
    return estimate_tokens(text)


def estimate_tokens(text: str) -> int:
    """An estimate that errs on the high side, so that a budget it guards is kept.

    Counted by what a byte-pair encoding of mostly English text does: short lower-case words are one token, long ones
    one for four letters, capitals and random strings one for two; punctuation and digits one a character; other
    scripts from one to three a character.
    """
    words = sum(_word_cost(word) for word in _WORD.findall(text))
    rest = _WORD.sub("", text)
    return math.ceil(words + sum(_character_cost(ord(character)) for character in rest))


def _word_cost(word: str) -> int:
    if word.isupper():
        return math.ceil(len(word) / 2)
    return 1 if len(word) <= 6 else math.ceil(len(word) / 4)


def _character_cost(code: int) -> float:
    if code == 0x20:
        return 0
    if code < 0x900:  # ASCII, Latin, Greek, Cyrillic, Hebrew, Arabic
        return 1
    if code < 0x2E80:  # Indic and other scripts the encoding knows little of, symbols
        return 2
    if code < 0x10000:  # Chinese, Japanese, Korean
        return 1.3
    return 3  # emoji


@cache
def _start_loading() -> None:
    threading.Thread(target=_load, name="autogen-memory-tokens", daemon=True).start()


def _cached_file() -> Path:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    cache_folder = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    return cache_folder / _CACHE_KEY


def _load() -> None:
    if _cached_file().is_file():
        import tiktoken

        _loaded.append(tiktoken.get_encoding(_ENCODING))
