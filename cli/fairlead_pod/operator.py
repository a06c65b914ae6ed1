"""`python -m fairlead_pod.operator`: process 1 of an operator pod's second container.

It runs the kopf process, which is separate from the controller: the controller measures brokers'
silence, so it must share neither an interpreter lock nor a memory limit with bursts of kopf's work.
The kopf process ends when the controller of its pod is not active any more, and is restarted to
wait until it is active again. It never ends the container: if it cannot run, its probes show that.
"""

import os
import sys

from fairlead_pod.child import Child
from fairlead_pod.supervision import Supervisor

KOPF_GRACE_S = 3.0
"""How long a stopping kopf process may finish its work; the Lease is held meanwhile."""


def main() -> int:
    """Run the kopf process for the life of the container."""
    operator = Child(
        "operator",
        [sys.executable, "-m", "fairlead_operator"],
        dict(os.environ),
        stop_grace_s=KOPF_GRACE_S,
        is_vital=False,
    )
    return Supervisor([operator]).run()


if __name__ == "__main__":
    sys.exit(main())
