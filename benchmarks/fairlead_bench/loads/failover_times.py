"""The effect of a fault, from an application's acknowledgements. Pure.

Only records that were passed to the client after the fault count: the broker that died may have
answered those that were under way. Times are nanoseconds of the machine's monotonic clock, which
all processes share.
"""

import math
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

NS_PER_MS: Final = 1_000_000


class Acknowledgement(NamedTuple):
    """A record that a broker has promised to keep."""

    partition: int
    sequence: int
    handed_over_ns: int
    acknowledged_ns: int
    offset: int


def waited_ms(
    acknowledgements: Iterable[Acknowledgement], partitions: Collection[int], fault_ns: int
) -> float | None:
    """Return the time from the fault until each of these partitions worked again, or None."""
    first_ns: dict[int, int] = {}
    for each in acknowledgements:
        if each.partition in partitions and each.handed_over_ns > fault_ns:
            earliest_ns = first_ns.get(each.partition, each.acknowledged_ns)
            first_ns[each.partition] = min(earliest_ns, each.acknowledged_ns)
    if len(first_ns) < len(partitions):
        return None
    return (max(first_ns.values()) - fault_ns) / NS_PER_MS


def percentile(values: Collection[float], share: float) -> float:
    """Return the smallest value that is at least this share of all of them (nearest rank)."""
    if not values:
        raise ValueError("a percentile of nothing")
    rank = max(math.ceil(share * len(values)), 1)
    return sorted(values)[rank - 1]
