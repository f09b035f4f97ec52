"""Repeated problems are logged once."""

import logging

import pytest

from autogen_persistent_memory.runtime.reporting import Notices


def test_a_warning_that_repeats_is_logged_once_until_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices()
    with caplog.at_level(logging.DEBUG):
        for about, reason in (("ann", "full"), ("ann", "full"), ("ann", "gone"), ("bob", "full")):
            notices.warn(about, "The disk of %r is %s.", about, reason)
        notices.settle("ann")
        notices.warn("ann", "The disk of %r is %s.", "ann", "full")
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, logging.DEBUG, logging.WARNING, logging.WARNING, logging.WARNING]
