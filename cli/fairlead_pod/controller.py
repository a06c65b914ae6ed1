"""`python -m fairlead_pod.controller`: process 1 of an operator pod's first container.

It runs the controller candidate, which elects leaders, and does the faults of drills if the
operator's chart allows that.
"""

import os
import sys

from fairlead_pod.child import Child
from fairlead_pod.supervision import Supervisor

DRILLS_VARIABLE = "FAIRLEAD_CONTROLLER_DRILLS"


def main() -> int:
    """Run the candidate for the life of the container."""
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
