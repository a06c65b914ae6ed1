"""How many idle producers each log may keep if all logs of a broker remember too many.

Pure. The logs with most producers lose most: a client that fills some logs with producers does not
take memory from other logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def idle_producers_a_log(idle_counts: Collection[int], kept_count: int) -> int:
    """Return the largest bound for each log with which all together keep at most `kept_count`."""
    left = kept_count
    for number, count in enumerate(sorted(idle_counts)):
        bound = left // (len(idle_counts) - number)
        if count > bound:
            return max(0, bound)
        left -= count
    return max(idle_counts, default=0)
