"""What an application's acknowledgements say about a fault. Pure.

A record counts when it was handed to the client after the fault: what was on its way then may have
been answered by the broker that died. Times are nanoseconds of the machine's monotonic clock, which
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
    """From the fault until the slowest of these partitions worked again; None until all do."""
    first_ns: dict[int, int] = {}
    for each in acknowledgements:
        if each.partition in partitions and each.handed_over_ns > fault_ns:
            earliest_ns = first_ns.get(each.partition, each.acknowledged_ns)
            first_ns[each.partition] = min(earliest_ns, each.acknowledged_ns)
    if len(first_ns) < len(partitions):
        return None
    return (max(first_ns.values()) - fault_ns) / NS_PER_MS


def percentile(values: Collection[float], share: float) -> float:
    """The smallest value that at least this share of them do not exceed (nearest rank)."""
    if not values:
        raise ValueError("a percentile of nothing")
    rank = max(math.ceil(share * len(values)), 1)
    return sorted(values)[rank - 1]
