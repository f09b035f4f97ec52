"""Long texts are read in pieces, with the same result as at once."""

import re

from hypothesis import given
from hypothesis import strategies as st

from autogen_persistent_memory.text.pieces import matches, pieces, replaced


@given(st.lists(st.sampled_from(["a", "b ", " ", "\n", "é", "12"]), max_size=30), st.integers(0, 5_000))
def test_the_pieces_of_a_text_are_the_text(units: list[str], count: int) -> None:
    text = "".join(units) * (count // max(1, len(units)))
    cut = list(pieces(text))
    assert "".join(cut) == text
    assert max(map(len, cut)) <= 2_000


@given(st.lists(st.sampled_from(["a", "bb", "ab", " ", "\n", "A", "x" * 900]), min_size=1, max_size=60))
def test_replacing_piece_by_piece_equals_replacing_the_whole_text(units: list[str]) -> None:
    text = "".join(units) * 40
    for pattern in (re.compile("a+b"), re.compile(r"\bab?\b"), re.compile("(?<=a)(?=b)"), re.compile("b{1,9}$", re.M)):
        assert replaced(pattern, lambda found: f"<{found[0]}>", text) == pattern.sub(r"<\g<0>>", text)
        at_once = [found.span() for found in pattern.finditer(text)]
        assert [found.span() for found in matches(pattern, text, hints=("a", "b"))] == at_once
