"""`python -m fairlead_cli.container.operator`: process 1 of an operator pod.

Two processes, because whoever times others must not share an interpreter lock with bursts of
kopf's work: the controller candidate, and the kopf process that follows it. When the candidate
ends, the kopf process is ended before another candidate starts: it spoke for a reign that is over.
On SIGTERM kopf stops first; the candidate then releases the Lease. A kopf process that cannot run
never ends the container: elections and failover do without it.
"""

import os
import sys

from fairlead_cli.container.child import Child
from fairlead_cli.container.supervision import Supervisor

KOPF_GRACE_S = 3.0
"""How long a stopping kopf process may finish what it does; the Lease is held meanwhile."""


def main() -> int:
    """Run the operator's processes for as long as the container lives."""
    environment = dict(os.environ)
    candidate = Child(
        "controller", [sys.executable, "-m", "fairlead_controller.candidate"], environment
    )
    operator = Child(
        "operator",
        [sys.executable, "-m", "fairlead_operator"],
        environment,
        follows=candidate,
        stop_grace_s=KOPF_GRACE_S,
        is_vital=False,
    )
    return Supervisor([candidate, operator]).run()


if __name__ == "__main__":
    sys.exit(main())
