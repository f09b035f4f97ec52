"""JSON as models write it."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogen_persistent_memory.extraction.model_json import lines_like, objects_with, strings

TEA = '{"content": "likes tea"}'
JAM = '{"content": "likes jam"}'
BOTH = ["likes tea", "likes jam"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("I found nothing worth noting.", []),
        ("{}", []),
        ("[]", []),
        ('{"facts": []}', []),
        (TEA, BOTH[:1]),
        (f"[{TEA}, {JAM}]", BOTH),
        (f'{{"facts": [{TEA}, {JAM}]}}', BOTH),
        (f'```json\n{{"facts": [{TEA},\n{JAM}]}}\n```', BOTH),
        (f"Sure, here is the user's list:\n{TEA}\nand also {JAM}. Anything else?", BOTH),
        (f"{TEA}\n{JAM}", BOTH),
        (f"[{TEA}, {JAM},]", BOTH),
        ('[{"content": "likes tea",}, {"content": "likes jam",},]', BOTH),
        ("[{'content': 'likes tea'}, {'content': \"likes jam\", 'replaces': None}]", BOTH),
        ('[{content: "likes tea", replaces: null}, {content: "likes jam"}]', BOTH),
        (f'{{"facts": [{TEA}, {JAM}, {{"content": "likes bre', BOTH),
        (f'{{"facts": [{TEA}, {JAM}', BOTH),
        (f"<think>Perhaps {JAM}?</think>{TEA}", BOTH[:1]),
        (f"<think>{TEA} and so on for ever", []),
        ('{"content": "likes \\"green\\" tea {hot}"}', ['likes "green" tea {hot}']),
        ('{"content": "likes\ntea"}', ["likes\ntea"]),
        ('{"a": {"b": {"content": "likes tea"}}}', BOTH[:1]),
        ("{{{{{{", []),
        ("}}}", []),
        ('{"content": "likes tea"', []),
        ('{"kind": "fact"}', []),
    ],
)
def test_complete_objects_are_read_among_any_other_text(text: str, expected: list[str]) -> None:
    assert [found["content"] for found in objects_with("content", text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["likes tea", "likes jam"]', BOTH),
        ('{"facts": ["likes tea", "likes jam",]}', BOTH),
        ('```json\n["likes tea"]\n```', BOTH[:1]),
        ('["likes tea", 3]', BOTH[:1]),
        ("likes tea", []),
        ("3", []),
        ('{"a": ["x"], "b": ["y"]}', []),
    ],
)
def test_a_list_of_strings_is_read_too(text: str, expected: list[str]) -> None:
    assert strings(text) == expected


def test_a_list_that_is_not_json_is_read_line_by_line() -> None:
    text = "Here:\n1. The user likes tea.\n  - The user likes jam. \n**The user is Ada.\nHow about the user?\n"
    assert lines_like("The user", text) == ["The user likes tea.", "The user likes jam.", "The user is Ada."]


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert isinstance(objects_with("content", text), list)
    assert isinstance(strings(text), list)


@given(st.text(alphabet="{}[]\"',:\\ncontent "))
def test_broken_json_raises_nothing(text: str) -> None:
    assert isinstance(objects_with("content", text), list)
    assert isinstance(strings(text), list)


@given(st.lists(st.text(max_size=40), max_size=5), st.integers(0, 400))
def test_an_answer_cut_off_anywhere_keeps_its_complete_objects(contents: list[str], end: int) -> None:
    whole = json.dumps({"facts": [{"content": content, "replaces": None} for content in contents]})
    found = [item["content"] for item in objects_with("content", whole[:end])]
    assert found == contents[: len(found)]
    assert len(found) == whole[:end].replace('": null}', "\0").count("\0") or '": null}' in "".join(contents)


@pytest.mark.parametrize("text", ["{" * 50_000 + "}" * 50_000, '{"content":' * 9_000, "[" * 90_000, '"' * 90_000])
def test_hostile_answers_are_read_quickly(text: str) -> None:
    start = time.thread_time()
    objects_with("content", text)
    strings(text)
    assert time.thread_time() - start < 2
