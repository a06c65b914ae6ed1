"""How often and how long the failover tests break things.

`FAIRLEAD_RUNS` sets the runs of each drill (3). Set, it also means a machine of one's own: then the
limits hold as promised and faults last ten seconds. Without it, a suite that shares two cores with
others allows four times as long, or one second more.
"""

import os

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
