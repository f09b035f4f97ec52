"""Long texts, read a piece at a time.

Regular expressions and the methods of `str` hold the interpreter's lock from their first character to their last: a thread
that searches a megabyte stops the event loop as surely as if it were done there. Between two pieces others get their turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

PIECE = 2_000
"""Characters in a piece. Even where the time grows with the square, as for putting accents in order, that is milliseconds."""
_WINDOW = 16_000
"""Characters that a regular expression is applied to at a time, if it takes no longer for more of them than for fewer."""


def pieces(text: str) -> Iterator[str]:
    """The text in pieces, cut before a space or a line break where there is one."""
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
    """As `pattern.finditer`, for a text of any length.

    Args:
        pattern: What to find.
        text: The text.
        longest: The length of the longest match, with all that it looks at.
        hints: If given, every match holds one of these, in whichever case; what holds none of them is passed over.
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
    plain = text.casefold().replace("ı", "i")  # as regular expressions ignore case
    return any(hint in plain for hint in hints)


def replaced(
    pattern: re.Pattern[str],
    by: Callable[[re.Match[str]], str],
    text: str,
    *,
    longest: int = 1_000,
    hints: Sequence[str] = (),
) -> str:
    """As `pattern.sub`, for a text of any length; see `matches`."""
    kept: list[str] = []
    start = 0
    for found in matches(pattern, text, longest=longest, hints=hints):
        kept += (text[start : found.start()], by(found))
        start = found.end()
    return "".join((*kept, text[start:])) if kept else text
