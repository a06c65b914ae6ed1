"""How long passes last, by a clock that nobody sets."""

import time

import pytest

from fairlead_operator.health import find_problems
from fairlead_operator.metrics import OperatorMetrics


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_a_clock_that_is_set_makes_no_pass_longer(
    jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, wall_s = OperatorMetrics(), time.time()
    monkeypatch.setattr(time, "time", lambda: wall_s)
    with metrics.reconciling("Topic"):
        since = metrics.in_progress_since.labels("Topic")._value.get()
        assert since == wall_s
        monkeypatch.setattr(time, "time", lambda: wall_s + jump_s)
        assert 0 <= metrics.oldest_pass_s() < 60
        problems = find_problems(informer_ages_s={}, oldest_pass_s=metrics.oldest_pass_s())
        assert problems == []
    assert metrics.oldest_pass_s() == 0
    assert metrics.in_progress_since.labels("Topic")._value.get() == 0
    assert metrics.reconcile_seconds.labels("Topic")._sum.get() < 60
