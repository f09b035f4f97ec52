"""Messages are split into sentences, of which only the writer's own words are read for facts."""

import pytest

from autogen_persistent_memory.text.sentences import own_sentences, sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My flight is LH440. Is it late? Great!", ["My flight is LH440.", "Is it late?", "Great!"]),
        ("Dr. Lee lives in the U.S. now. We met.", ["Dr. Lee lives in the U.S. now.", "We met."]),
        ("I use tools (Vim, tmux, etc.) a lot. You?", ["I use tools (Vim, tmux, etc.) a lot.", "You?"]),
        ('He said "go." We went.', ['He said "go."', "We went."]),
        ("It costs 3.50 at example.org… really?! ", ["It costs 3.50 at example.org…", "really?!"]),
        ("A. Tea\nB. On drive C.\n\nThen D.", ["A. Tea", "B. On drive C.", "Then D."]),
        ("我叫小明。你呢？", ["我叫小明。", "你呢？"]),
        (" \n ", []),
    ],
)
def test_a_text_is_split_after_each_sentence_and_line(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in sentences(text)] == expected


@pytest.mark.parametrize(
    "pasted",
    [
        "> I live in Oslo.",
        "```\nI live in Oslo.\n```",
        "    return i_live_in_oslo",
        '"I live in Oslo and I like it there."',
        "2024-05-01 12:00:00 I live in Oslo.",
        "Traceback (most recent call last):",
        'name = "Oslo"',
    ],
)
def test_code_logs_and_quotations_are_not_the_writers_own_words(pasted: str) -> None:
    assert own_sentences(f"My name is Ann.\n\n{pasted}\n\nI like tea.") == ["My name is Ann.", "I like tea."]


def test_everything_after_a_request_to_translate_belongs_to_it() -> None:
    assert own_sentences("My name is Ann. Translate this: I live in Oslo. I like tea.") == ["My name is Ann."]
    assert own_sentences("Note: I live in Oslo.") == ["Note: I live in Oslo."]


def test_a_line_broken_to_fit_a_width_is_one_sentence() -> None:
    broken = "I have been living in Lisbon, near the old\ntown, since March."
    assert own_sentences(broken) == ["I have been living in Lisbon, near the old town, since March."]
