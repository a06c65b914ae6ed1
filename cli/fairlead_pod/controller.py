"""`python -m fairlead_pod.controller`: process 1 of an operator pod's first container.

It looks after the controller candidate, which elects leaders, and does to it what a drill asks for
where the operator's chart allows that.
"""

import os
import sys

from fairlead_pod.child import Child
from fairlead_pod.supervision import Supervisor

DRILLS_VARIABLE = "FAIRLEAD_CONTROLLER_DRILLS"


def main() -> int:
    """Run the candidate for as long as the container lives."""
    environment = dict(os.environ)
    candidate = Child(
        "controller",
        [sys.executable, "-m", "fairlead_controller.kubernetes"],
        environment,
        allows_faults=environment.get(DRILLS_VARIABLE, "").lower() == "true",
    )
    return Supervisor([candidate]).run()


if __name__ == "__main__":
    sys.exit(main())
