"""`python -m fairlead_pod.broker --config FILE [ARGUMENT]...`: process 1 of a broker pod.

Placeholders in FILE (`placeholders`) are replaced once, when the container starts. The result is in
the temporary folder, where a person can read it. A broker that is restarted gets the same settings,
however FILE may have changed meanwhile: new settings are rolled out pod by pod. Further arguments
are passed to the broker unchanged.
"""

import os
import sys

from fairlead_pod.child import Child
from fairlead_pod.placeholders import (
    ID_BASE,
    PlaceholderError,
    expand_properties,
    pod_values,
    read_property,
)
from fairlead_pod.restarts import EXIT_USAGE
from fairlead_pod.supervision import Supervisor, say, write_termination_message

DRILLS_SETTING = "fairlead.drills.enable"
DRILLS_VARIABLE = "FAIRLEAD_DRILLS_ENABLE"
USAGE = "usage: python -m fairlead_pod.broker --config FILE [ARGUMENT]..."


def main(arguments: list[str]) -> int:
    """Run a broker for the life of the container; return its exit code."""
    if len(arguments) < 2 or arguments[0] != "--config":
        say(USAGE, level="ERROR")
        return EXIT_USAGE
    environment = dict(os.environ)
    try:
        text = _expanded(arguments[1], environment)
        path = _write_expanded(text, environment)
    except (PlaceholderError, OSError, UnicodeDecodeError) as error:
        reason = f"{arguments[1]}: {error}"
        say(reason, level="ERROR")
        write_termination_message(reason)
        return EXIT_USAGE
    environment.pop(ID_BASE, None)
    allows_drills = environment.get(DRILLS_VARIABLE) or read_property(text, DRILLS_SETTING)
    broker = Child(
        "broker",
        [sys.executable, "-m", "fairlead_broker", "--config", path, *arguments[2:]],
        environment,
        allows_faults=allows_drills.lower() == "true",
    )
    return Supervisor([broker]).run()


def _expanded(path: str, environment: dict[str, str]) -> str:
    """Return FILE with its placeholders replaced, and `broker-ID.properties` appended.

    That file has addresses that only Kubernetes knows, such as a broker's load balancer.
    """
    values = pod_values(environment)
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 (pathlib costs memory for good)
        text = file.read()
    own = os.path.join(os.path.dirname(path), f"broker-{values.get('BROKER_ID')}.properties")  # noqa: PTH118, PTH120
    if os.path.exists(own):  # noqa: PTH110
        with open(own, encoding="utf-8") as file:  # noqa: PTH123
            text += ("" if text.endswith("\n") else "\n") + file.read()
    return expand_properties(text, values)


def _write_expanded(text: str, environment: dict[str, str]) -> str:
    path = environment.get("TMPDIR", "/tmp") + "/server.properties"  # noqa: S108 (the pod's own)
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
