"""What `fairlead topic reassign --wait` shows where brokers learn late what the controller did."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead_cli.topic import reassign
from fairlead_cli.topic.reassign import wait_until_placed

Rows = list[dict[str, Any]]
PATIENCE_S = 60.0


def row(*replicas: int, adding: tuple[int, ...] = ()) -> Rows:
    """One partition, with its replicas as some broker tells them."""
    return [{"partition": 0, "replicas": list(replicas), "adding": list(adding), "removing": []}]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassign, "POLL_S", 0.0)


def wait(readings: list[Rows], *wanted: int, timeout_s: float = PATIENCE_S) -> tuple[Rows, int]:
    """Return the rows that are shown, and how many readings were left."""
    first, *later = readings
    shown = wait_until_placed(
        first, {0: list(wanted)} if wanted else {}, lambda: later.pop(0), timeout_s
    )
    return shown, len(later)


def test_replicas_that_a_broker_does_not_know_yet_are_read_again() -> None:
    """The move has ended, and the broker that is asked still has the replicas of before."""
    late = [row(1, 2, adding=(3,)), row(1, 2), row(1, 3), row(9)]
    assert wait(late, 1, 3) == (row(1, 3), 1)


def test_a_move_that_ends_at_once_is_read_again_too() -> None:
    """As one does that only changes the order, or only takes replicas away."""
    assert wait([row(1, 2), row(2, 1), row(9)], 2, 1) == (row(2, 1), 1)


def test_replicas_as_wanted_are_read_once() -> None:
    assert wait([row(1, 2), row(9)], 1, 2) == (row(1, 2), 1)


def test_replicas_that_somebody_else_has_moved_elsewhere_are_read_twice() -> None:
    assert wait([row(4, 5), row(4, 5), row(9)], 1, 2) == (row(4, 5), 1)


def test_a_cancelled_move_is_over_when_two_readings_are_the_same() -> None:
    readings = [row(1, 2, 3, adding=(3,)), row(1, 2, 3), row(1, 2), row(1, 2), row(9)]
    assert wait(readings) == (row(1, 2), 1)


def test_what_moves_is_waited_for_as_long_as_was_asked() -> None:
    moving = row(1, 2, adding=(3,))
    assert wait([moving] * 4 + [row(2, 3)], 2, 3) == (row(2, 3), 0)
    assert wait([moving, row(9)], 2, 3, timeout_s=0.0) == (moving, 1)
