"""How often and how long the failover tests break things.

`FAIRLEAD_RUNS` sets the runs of each drill (3). Set, it also means a machine of one's own: then the
limits hold as promised and faults last ten seconds. Without it, a suite that shares two cores with
others allows four times as long, or one second more.
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
# Longer than the session timeout of 1.5 s: the controller has to act.
HOLD_S = 10.0 if IS_MEASURED else 2.5
# Longer than the supervisor's patience with a frozen controller and the session timeout that its
# successor gives a frozen leader: new leaders must come before anybody wakes.
FROZEN_TOGETHER_HOLD_S = 10.0


def allowed_ms(promised_ms: int) -> int:
    """What a drill may take here."""
    return promised_ms if IS_MEASURED else max(4 * promised_ms, promised_ms + 1000)


def process_faults(
    *always: tuple[str, str], otherwise: list[pytest.MarkDecorator]
) -> list[ParameterSet]:
    """Return every fault of a process with its target; all but `always` get the other marks."""
    return [
        pytest.param(*fault, marks=() if IS_MEASURED or fault in always else otherwise)
        for fault in PROCESS_FAULTS
    ]
