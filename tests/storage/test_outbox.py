"""The queue on disk for messages whose server is unreachable."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from autogen_persistent_memory.storage.outbox import Outbox, QueuedMessage, outbox_of

HEARD = QueuedMessage(
    id="1",
    session="s",
    source="user",
    text="ünï\n\u2028 code",
    by_user=True,
    at=datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=timezone.utc),
    learn=True,
    facts=("a", "b"),
)


def heard(*numbers: int) -> list[QueuedMessage]:
    return [HEARD._replace(id=str(number)) for number in numbers]


def ids(outbox: Outbox) -> list[int]:
    return [int(message.id) for message in outbox.messages()]


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(str(tmp_path / "outbox"), most=5)


def test_messages_come_back_as_they_were_in_order_and_private(outbox: Outbox) -> None:
    assert not outbox.waits()
    assert outbox.messages() == []
    outbox.put(heard(1, 2))
    outbox.put(heard(3))
    assert outbox.messages() == heard(1, 2, 3)
    assert {path.stat().st_mode & 0o777 for path in outbox.folder.iterdir()} == {0o600}
    assert outbox.folder.stat().st_mode & 0o777 == 0o700


def test_delivered_messages_are_removed_a_file_at_a_time(outbox: Outbox) -> None:
    outbox.put(heard(1, 2))
    outbox.put(heard(3))
    parcels = outbox.next_parcels(1)
    assert [message.id for parcel in parcels for message in parcel.messages] == ["1", "2"]
    outbox.remove(parcels)
    assert ids(outbox) == [3]


def test_beyond_its_limit_the_oldest_messages_are_dropped_with_a_warning(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(0, 8, 2):
        outbox.put(heard(number, number + 1))
    assert ids(outbox) == [4, 5, 6, 7]
    assert ["the oldest 2 were dropped" in record.getMessage() for record in caplog.records] == [True, True]
    small = Outbox(str(outbox.folder), most_bytes=10)
    small.put(heard(9))
    assert ids(small) == [9]


def test_only_one_caller_delivers_at_a_time(outbox: Outbox) -> None:
    outbox.put(heard(1))
    lock = outbox.claim()
    assert lock is not None
    assert Outbox(str(outbox.folder)).claim() is None
    lock.release()
    again = outbox.claim()
    assert again is not None
    again.release()


INVALID = [
    '{"id": "1", "ses',
    "[]",
    '{"id": "1", "session": "s", "source": "user", "text": "my secret"}',
    '{"id": "1", "session": "s", "source": "user", "text": "my secret", "at": "yesterday"}',
    '{"id": "1", "session": "s", "source": "user", "text": ["my secret"], "at": "2026-03-01T12:00:00+00:00"}',
]


@pytest.mark.parametrize("line", INVALID)
def test_an_invalid_file_is_renamed_and_its_text_is_not_logged(
    outbox: Outbox, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    outbox.put(heard(1))
    outbox.put(heard(2))
    next(iter(sorted(outbox.folder.glob("*.jsonl")))).write_text(line)
    assert ids(outbox) == [2]
    assert len(list(outbox.folder.glob("*.unreadable"))) == 1
    assert "cannot be read" in caplog.text
    assert "secret" not in caplog.text


def test_fields_that_are_missing_have_defaults_and_unknown_ones_are_ignored(outbox: Outbox) -> None:
    outbox.put(heard(1))
    (path,) = outbox.folder.glob("*.jsonl")
    path.write_text(
        '{"id": "1", "session": "s", "source": "ann", "text": "x", "at": "2026-03-01T12:00:00+00:00", "new": 1}'
    )
    at = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    assert outbox.messages() == [QueuedMessage("1", "s", "ann", "x", at)]


def test_a_folder_that_cannot_be_written_raises(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(OSError):  # noqa: PT011
        Outbox(str(file / "outbox")).put(heard(1))


def test_each_namespace_of_each_server_has_its_own_and_it_can_be_turned_off(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(given: str | None, *whose: str) -> Path:
        outbox = outbox_of(given, whose)
        assert outbox is not None
        return outbox.folder

    assert folder(None, "host", "a/b").parent == home / ".autogen_memory" / "outbox"
    assert folder(None, "host", "a/b").name.startswith("a-b-")
    assert len({folder(None, *whose) for whose in (("host", "a/b"), ("host", "a-b"), ("other", "a/b"))}) == 3
    monkeypatch.setenv("AUTOGEN_MEMORY_OUTBOX", "/elsewhere")
    assert folder(None, "host", "a").parent == Path("/elsewhere")
    assert folder("/given", "host", "a").parent == Path("/given")
    assert outbox_of("", ("host", "a")) is None
    monkeypatch.setenv("AUTOGEN_MEMORY_OUTBOX", "")
    assert outbox_of(None, ("host", "a")) is None
