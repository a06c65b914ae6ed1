"""`produce` tells once that nobody acknowledges, and says nothing while records go out."""

from typing import Any

import pytest

from fairlead_cli.client import delivery
from fairlead_cli.client.delivery import wait_for_answers


class Outbox:
    """Stands in for librdkafka's producer: so many records are left at each look."""

    def __init__(self, *left: int) -> None:
        self.left = list(left)

    def flush(self, _timeout_s: float) -> int:
        return self.left.pop(0)


@pytest.mark.parametrize(
    ("left", "patience_s", "told"),
    [
        ((0,), 0.0, 0),
        ((9, 5, 2, 1, 0), 0.0, 0),
        ((9, 9, 9, 9, 0), 0.0, 1),
        ((9, 9, 9, 9, 0), 3600.0, 0),
    ],
)
def test_silence_is_told_once(
    left: tuple[int, ...],
    patience_s: float,
    told: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(delivery, "SILENCE_TOLD_S", patience_s)
    outbox: Any = Outbox(*left)
    wait_for_answers(outbox)
    captured = capsys.readouterr()
    assert captured.err.count("9 records not acknowledged yet") == told
    assert captured.out == ""
    assert outbox.left == []
