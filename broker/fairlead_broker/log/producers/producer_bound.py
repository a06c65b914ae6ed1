"""How many idle producers each log may keep where all logs of a broker remember too many.

Pure. The largest logs give most: who fills some logs with producers takes the memory of nobody
else's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def idle_producers_a_log(idle_counts: Collection[int], kept_count: int) -> int:
    """Return the largest bound of each log with which all keep `kept_count` at most, together."""
    left = kept_count
    for number, count in enumerate(sorted(idle_counts)):
        bound = left // (len(idle_counts) - number)
        if count > bound:
            return max(0, bound)
        left -= count
    return max(idle_counts, default=0)
