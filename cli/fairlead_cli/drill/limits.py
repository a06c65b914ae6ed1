"""The limits of a drill. Pure.

The limited time ends with the first new acknowledgement on every partition that the faulty broker
led or followed in sync. After a clean stop, with a slow broker, and without a faulty broker, the
longest gap counts instead: there is nothing to recover from, so no producer may wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.drill.faults import FaultKind
from fairlead_cli.drill.timings import TIMINGS, summarize

if TYPE_CHECKING:
    from fairlead_cli.drill.checker import Findings
    from fairlead_cli.drill.timings import RunTimings

RECOVERY_MS_MAX = {
    FaultKind.KILL: 250,
    FaultKind.STOP: 100,
    FaultKind.PAUSE: 2000,
    FaultKind.ISOLATE: 2000,
    FaultKind.SLOW: 2000,
    FaultKind.DISK_FULL: 2000,
    FaultKind.ROLL: 250,
}
CONTROLLER_TOO_MS_MAX = 4500
CONTROLLER_ALONE_MS_MAX = 250


def default_limit_ms(kind: FaultKind, *, is_broker: bool, is_controller: bool) -> int:
    """Return the documented limit for a fault, in milliseconds at the 99th percentile."""
    if not is_controller:
        return RECOVERY_MS_MAX[kind]
    return CONTROLLER_TOO_MS_MAX if is_broker else CONTROLLER_ALONE_MS_MAX


def judged_timing(kind: FaultKind, *, is_broker: bool) -> str:
    """Return the name of the timing that the limit applies to."""
    is_gap = kind in (FaultKind.STOP, FaultKind.SLOW, FaultKind.ROLL)
    return "recovery_ms" if is_broker and not is_gap else "longest_gap_ms"


def find_failures(
    runs: list[RunTimings],
    findings: Findings,
    client_errors: dict[str, int],
    *,
    timing: str,
    limit_ms: int,
) -> list[str]:
    """Return why a drill has failed, in words; empty if it has passed."""
    failures = [
        f"{count} {what}"
        for count, what in (
            (findings.lost, "acknowledged records are lost"),
            (findings.duplicated, "records are there twice"),
            (findings.reordered, "records are out of order"),
            (findings.misplaced, "records are not where they were acknowledged"),
            (findings.foreign, "records are damaged or were never sent"),
        )
        if count
    ]
    failures += [
        f"the application saw {name}, {count} times" for name, count in client_errors.items()
    ]
    failures += [f"run {i}: {run.problem}" for i, run in enumerate(runs, 1) if run.problem]
    distribution = summarize(runs).get(timing)
    if distribution is not None and distribution.p99 > limit_ms:
        failures.append(
            f"{TIMINGS[timing]}: {distribution.p99} ms at the 99th percentile, "
            f"{limit_ms} ms are allowed"
        )
    return failures
