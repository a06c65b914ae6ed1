"""The number and the duration of faults in the failover tests.

`FAIRLEAD_RUNS` sets the runs of each drill (3). If it is set, the tests have the machine for
themselves: then the documented limits apply, and faults last ten seconds. Otherwise, with two cores
shared with other tests, four times the limit is allowed, or one second more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

PROCESS_FAULTS: Final = (
    *(("kill", target) for target in ("leader", "follower", "controller", "leader+controller")),
    *(("stop", target) for target in ("leader", "controller", "leader+controller")),
    *(("pause", target) for target in ("leader", "controller")),
)
IS_MEASURED = "FAIRLEAD_RUNS" in os.environ
RUNS = int(os.environ.get("FAIRLEAD_RUNS", "3"))
# Longer than the session timeout of 1.5 s, so that the controller has to act.
HOLD_S = 10.0 if IS_MEASURED else 2.5
# Longer than the supervisor's patience with a frozen controller, plus the session timeout after
# which its successor fences a frozen leader: new leaders must be there before anything resumes.
FROZEN_TOGETHER_HOLD_S = 10.0


def allowed_ms(promised_ms: int) -> int:
    """Return how long a drill may take here."""
    return promised_ms if IS_MEASURED else max(4 * promised_ms, promised_ms + 1000)


def process_faults(
    *always: tuple[str, str], otherwise: list[pytest.MarkDecorator]
) -> list[ParameterSet]:
    """Return every fault of a process with its target; all but `always` get the other marks."""
    return [
        pytest.param(*fault, marks=() if IS_MEASURED or fault in always else otherwise)
        for fault in PROCESS_FAULTS
    ]
