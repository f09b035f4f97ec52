"""Forgotten texts are blanked in saved states, and only where somebody said them."""

from __future__ import annotations

from typing import Any

import pytest

from autogen_persistent_memory.conversation.traces import FORGOTTEN, Blanking, texts_within
from autogen_persistent_memory.core.records import contains

CASES: list[tuple[Any, Any]] = [
    ({"type": "TextMessage", "source": "bluebird", "content": "A Bluebird!"}, {"content": FORGOTTEN}),
    ({"type": "TextMessage", "source": "x", "content": "BLUEBIRD"}, {"content": FORGOTTEN}),
    ({"type": "TextMessage", "source": "x", "content": "A sparrow."}, {}),
    (
        {"type": "TextMessage", "source": "x", "content": "Hi", "metadata": {"of": "bluebird"}},
        {"metadata": {"of": FORGOTTEN}},
    ),
    (
        {"type": "MultiModalMessage", "source": "x", "content": ["blue", {"data": "blueBIRDblue"}, "bird"]},
        {},
    ),
    (
        {"type": "MultiModalMessage", "source": "x", "content": ["a bluebird", {"data": "bluebird"}, "a cat"]},
        {"content": [FORGOTTEN, {"data": "bluebird"}, FORGOTTEN]},
    ),
    (
        {"type": "X", "content": [{"id": "1", "name": "bluebird", "arguments": '{"of": "bl\\u0075ebird"}'}]},
        {"content": [{"id": "1", "name": "bluebird", "arguments": "{}"}]},
    ),
    (
        {
            "type": "X",
            "content": [{"call_id": "bluebird", "name": "bluebird", "content": "bluebird", "is_error": False}],
        },
        {"content": [{"call_id": "bluebird", "name": "bluebird", "content": FORGOTTEN, "is_error": False}]},
    ),
    (
        {
            "type": "StructuredMessage",
            "content": {"name": "Bluebird", "source": "a bluebird", "count": 3, "of": ["cat"]},
        },
        {"content": {"name": FORGOTTEN, "source": FORGOTTEN, "count": 3, "of": ["cat"]}},
    ),
    (
        {"type": "X", "content": [{"content": "bluebird", "mime_type": "text/bluebird", "metadata": None}]},
        {"content": [{"content": FORGOTTEN, "mime_type": "text/bluebird", "metadata": None}]},
    ),
    (
        {"type": "HandoffMessage", "target": "bluebird", "context": [{"type": "UserMessage", "content": "bluebird"}]},
        {"context": [{"type": "UserMessage", "content": FORGOTTEN}]},
    ),
    (
        {"type": "MagenticOneOrchestratorState", "task": "Find the bluebird", "plan": "", "n_rounds": 1},
        {"task": FORGOTTEN},
    ),
    ({"type": "StructuredMessage", "content": {"data": "bluebird"}}, {"content": {"data": FORGOTTEN}}),
    ({"previous_speaker": "bluebird", "ready": ["bluebird"]}, {}),
    ({"agent_states": {"bluebird": {"previous": "bluebird"}}}, {}),
    ({"notes": "蓝鸟bluebird"}, {"notes": FORGOTTEN}),
    (
        {"type": "UserMessage", "source": "memory", "content": '<memory id="0a1b">\nFacts:\n- bluebird\n</memory>'},
        {"content": '<memory id="0a1b">\n</memory>'},
    ),
]


@pytest.mark.parametrize(("state", "change"), CASES)
def test_only_messages_are_blanked(state: dict[str, Any], change: dict[str, Any]) -> None:
    blanking = Blanking(lambda text: any(contains(part, "bluebird") for part in texts_within(text)))
    assert blanking.of(state) == {**state, **change}
    assert blanking.changed == bool(change)
    assert blanking.left == ("previous_speaker" in state)
