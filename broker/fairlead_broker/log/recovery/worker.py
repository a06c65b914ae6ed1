"""`python -m fairlead_broker.log.recovery.worker`: recovers logs for its parent process.

Each line of input is a `RecoveryOrder` in JSON. Lines of output in JSON are `{"progress": bytes}`
during the scan and then `{"report": …}`, `{"error": …}`, or `{"newer": …}` for a file of a newer
release. The process ends when its input ends, and dies with its parent, even during an order.
"""

import json
import logging
import sys
import time
from dataclasses import asdict

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.files.text_files import NewerFormatError
from fairlead_broker.log.parent_death import die_with_parent
from fairlead_broker.log.recovery.log_recovery import recover_log
from fairlead_broker.log.recovery.start import RecoveryOrder


def main() -> None:
    """Serve orders until the input ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    die_with_parent()
    disk = RealDisk()
    for line in sys.stdin:
        order = RecoveryOrder(**json.loads(line))
        try:
            report = recover_log(
                disk,
                order,
                now_ms=int(time.time() * 1000),
                on_progress=lambda scanned: _say({"progress": scanned}),
            )
        except NewerFormatError as error:
            _say({"newer": str(error)})
        except OSError as error:
            _say({"error": f"{order.directory}: {error}"})
        else:
            _say({"report": asdict(report)})


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
