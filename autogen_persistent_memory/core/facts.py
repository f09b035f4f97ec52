"""What an extractor finds in a conversation: facts, and what they put an end to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

NOT_NAMING = frozenset(
    """
    a an the my our their his her its to of in at for with on and or any more anymore now user s is
    """.split()  # noqa: SIM905
)
"""Words that name nothing."""


class Ending(NamedTuple):
    """What a statement puts an end to: the memory of this slot, that names these words."""

    key: str | None
    """The slot, with all that narrows it down; None where what ended has no slot of its own."""
    words: str
    """What is over, as it was called; empty for whatever fills the slot."""
    tag: str | None = None
    """What sort of memory it is, if that is known."""

    def ends(self, content: str, key: str | None, tags: Iterable[str] = ()) -> bool:
        """Whether a memory is over by this: it fills the slot, and it names every word of what ended."""
        if self.key is not None and (key is None or (key != self.key and not key.startswith(f"{self.key}/"))):
            return False
        if self.key is None and (not self.words or (self.tag is not None and self.tag not in tags)):
            return False
        named = _stems(content)
        return all(stem in named for stem in _stems(self.words))


class Fact(NamedTuple):
    """What a message tells that is worth keeping."""

    content: str
    """A sentence that stands by itself, in the third person."""
    kind: str = "fact"
    tags: tuple[str, ...] = ()
    key: str | None = None
    """The slot it fills, so that a later statement takes its place; None for what can be many."""
    ends: Ending | None = None
    """What it puts an end to: with nothing in its place, or, where it tells of a change, what was before."""
    replaces: str | None = None
    """The id of a known memory that it takes the place of."""
    quote: str | None = None
    """The words that tell it, as they were said or nearly so."""


def _stems(text: str) -> set[str]:
    """Words without their endings, roughly: enough to see "smoking" in "smokes"."""
    found = re.findall(r"[\w+#]+", text.lower())
    return {
        re.sub(r"(?:ing|es|ed|s|e)$", "", word) if len(word) > 4 else word for word in found if word not in NOT_NAMING
    }
