"""`python -m fairlead_pod.operator`: process 1 of an operator pod's second container.

It looks after the kopf process, which runs apart from the controller: whoever times others must
share neither an interpreter lock nor a limit of memory with bursts of kopf's work. That process
ends by itself when the controller of its pod no longer reigns, and is started again to wait for the
next reign. It never ends the container: one that cannot run shows in its probes.
"""

import os
import sys

from fairlead_pod.child import Child
from fairlead_pod.supervision import Supervisor

KOPF_GRACE_S = 3.0
"""How long a stopping kopf process may finish what it does; the Lease is held meanwhile."""


def main() -> int:
    """Run the kopf process for as long as the container lives."""
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
