"""Runs in a client pod: an idempotent producer under load until it is stopped, then the verdict.

Started with the source on standard input (`kubectl exec -i … python - BOOTSTRAP TOPIC …`), so it
uses nothing but what the image has. Writes a line of JSON when records have been acknowledged, and
one when it has finished.
"""

import json
import sys
import time
from pathlib import Path

from fairlead_cli.drill.checker import check
from fairlead_cli.drill.history import History
from fairlead_cli.drill.reader import read_back
from fairlead_cli.drill.workload import Workload

POLL_S = 0.05
BEGIN_S = 60.0
"""Limit for the first acknowledgements: the network of a new pod is sometimes slow."""


def main() -> None:
    bootstrap, topic, partitions, rate, stop_file = sys.argv[1:]
    history = History()
    workload = Workload(
        bootstrap,
        topic,
        partitions=int(partitions),
        rate=int(rate),
        record_size=256,
        history=history,
    )
    stop = Path(stop_file)
    stop.unlink(missing_ok=True)
    workload.start()
    begun = time.monotonic()
    while not history.acknowledged:
        if time.monotonic() - begun > BEGIN_S:
            sys.exit(f"nothing acknowledged within {BEGIN_S:.0f} s: {dict(workload.errors)}")
        time.sleep(POLL_S)
    print(json.dumps({"begun": True}), flush=True)
    # The longest time in which nothing at all was acknowledged, as the application sees it.
    longest_s, last, count = 0.0, time.monotonic(), 0
    while not stop.exists():
        time.sleep(POLL_S)
        now = time.monotonic()
        if history.acknowledged != count:
            count, last = history.acknowledged, now
        longest_s = max(longest_s, now - last)
    workload.stop()
    findings = check(history, read_back(bootstrap, topic, int(partitions)))
    verdict = {
        "acknowledged": findings.acknowledged,
        "lost": findings.lost,
        "duplicated": findings.duplicated,
        "reordered": findings.reordered,
        "errors": dict(workload.errors),
        "unanswered": workload.unanswered_after_flush,
        "longestSilenceMs": round(longest_s * 1000),
        "examples": findings.examples[:5],
    }
    print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
