"""Whether a drill kept its limits; the same for a cluster and for `fairlead up`. Pure."""

from dataclasses import dataclass, field
from typing import Final

from fairlead_model.resources.failover_drill import DrillLimits, FailoverDrillSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillMeasurement:
    """The results of a drill, over all of its runs."""

    recovery_max_ms: int | None
    """None if nothing was measured."""
    commit_p99_ms: int | None = None
    lost: int = 0
    duplicates: int = 0
    reordered: int = 0
    client_errors: int = 0
    problems: list[str] = field(default_factory=list)
    """Failures that no limit allows: runs that did not end, records that differ from those sent."""


GRACEFUL: Final = frozenset({"Delete", "Slow", "RollingRestart"})


def measures_gaps(spec: FailoverDrillSpec) -> bool:
    """Tell whether recovery is the longest time without an acknowledgement, not until the first.

    There is nothing to recover from after a graceful end, with a slow broker, and if the target is
    not a broker: records are accepted at once. What counts then is whether a producer had to wait
    later.
    """
    return spec.fault.type in GRACEFUL or spec.target.type == "Controller"


def find_exceeded(limits: DrillLimits, measured: DrillMeasurement) -> list[str]:
    """Return why a drill has failed, in words; empty if it has passed."""
    counts = (
        (measured.lost, limits.lost, "acknowledged records are lost"),
        (measured.duplicates, limits.duplicates, "records are there twice"),
        (measured.reordered, limits.reordered, "records are out of order"),
        (measured.client_errors, limits.client_errors, "records failed in the client for good"),
    )
    exceeded = [
        f"{count} {what}, {limit} are allowed"
        for count, limit, what in counts
        if limit is not None and count > limit
    ]
    exceeded += measured.problems
    if limits.recovery_ms is not None:
        if measured.recovery_max_ms is None:
            exceeded.append("no recovery was measured")
        elif measured.recovery_max_ms > limits.recovery_ms:
            exceeded.append(
                f"recovery took {measured.recovery_max_ms} ms, {limits.recovery_ms} ms are allowed"
            )
    if limits.commit_p99_ms is not None:
        if measured.commit_p99_ms is None:
            exceeded.append("no commit was measured while the fault lasted")
        elif measured.commit_p99_ms > limits.commit_p99_ms:
            exceeded.append(
                f"commits took {measured.commit_p99_ms} ms at the 99th percentile, "
                f"{limits.commit_p99_ms} ms are allowed"
            )
    return exceeded
