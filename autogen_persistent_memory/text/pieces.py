"""Process long texts in pieces.

Regular expressions and the methods of `str` hold the interpreter's lock (GIL) from the first character to the last: a
thread that searches a megabyte blocks the event loop as if it ran there. Between two pieces other threads can run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

PIECE = 2_000
"""Characters in a piece. Milliseconds even for quadratic work, such as sorting combining accents."""
_WINDOW = 16_000
"""Characters that a regular expression searches at a time, if its time is linear in their number."""


def pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces, cut before a space or a line break if there is one."""
    start = 0
    while len(text) - start > PIECE:
        end = start + PIECE
        cut = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end))
        end = cut if cut > 0 else end
        yield text[start:end]
        start = end
    yield text[start:]


def matches(
    pattern: re.Pattern[str], text: str, *, longest: int = 1_000, hints: Sequence[str] = ()
) -> Iterator[re.Match[str]]:
    """Yield matches as `pattern.finditer` does, for a text of any length.

    `longest` is the length of the longest match, with everything that its lookarounds read. `hints` are lower-case texts of
    which every match holds at least one, in any case; pieces without any are skipped.
    """
    start = 0
    while start < len(text):
        end = start + _WINDOW
        if not hints or _holds_any(text[start : end + longest], hints):
            for found in pattern.finditer(text, start, end + longest):
                if found.start() >= end:
                    break
                yield found
                start = found.end()
        start = max(start, end)


def _holds_any(text: str, hints: Sequence[str]) -> bool:
    plain = text.casefold().replace("ı", "i")  # which IGNORECASE equates, too
    return any(hint in plain for hint in hints)


def replaced(
    pattern: re.Pattern[str],
    by: Callable[[re.Match[str]], str],
    text: str,
    *,
    longest: int = 1_000,
    hints: Sequence[str] = (),
) -> str:
    """Replace matches as `pattern.sub` does, for a text of any length; see `matches`."""
    kept: list[str] = []
    start = 0
    for found in matches(pattern, text, longest=longest, hints=hints):
        kept += (text[start : found.start()], by(found))
        start = found.end()
    return "".join((*kept, text[start:])) if kept else text
