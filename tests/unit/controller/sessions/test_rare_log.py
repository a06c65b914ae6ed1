"""Lines that strangers cause are few."""

import logging

import pytest

from fairlead_controller.sessions.rare_log import LINES_PER_WINDOW, WINDOW_S, RareLog


def test_a_flood_writes_few_lines_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    log = RareLog(logging.getLogger("rare"), clock=lambda: now_s)
    for number in range(LINES_PER_WINDOW + 100):
        log.note("flood", "line %d", number)
    log.note("other", "another kind")
    assert len(caplog.messages) == LINES_PER_WINDOW + 1
    assert caplog.messages[-1] == "another kind"
    now_s = WINDOW_S
    log.note("flood", "next")
    assert caplog.messages[-2:] == ["flood: 100 more such lines were left out", "next"]
