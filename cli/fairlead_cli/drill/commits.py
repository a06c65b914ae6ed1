"""How long commits took before and during a fault, from the answers to the probes. Pure.

A commit takes from the first attempt to send a record until all in-sync replicas have it, so it is
as slow as the slowest of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead_cli.drill.timings import P99, percentile, to_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_cli.drill.probe import Answer

FAST_MS_MIN = 50
FAST_FACTOR = 2


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """Milliseconds; None if there is no commit to measure."""

    before_p99_ms: int | None
    p99_ms: int | None
    """During the fault."""
    fast_again_ms: int | None
    """From the fault to the last slow commit; 0 if none was slow, None without commits before."""


def measure_commits(answers: Iterable[Answer], fault_at: float, until: float) -> CommitTimes:
    """Return how long commits took; `until` is the end of the fault, in the answers' clock.

    Slow means longer than twice the 99th percentile before the fault, and longer than 50 ms.
    """
    commits = list(answers)
    before = [commit_ms(answer) for answer in commits if answer.ended < fault_at]
    during = [commit_ms(answer) for answer in commits if fault_at <= answer.ended <= until]
    before_p99_ms = percentile(before, P99) if before else None
    fast_again_ms = None
    if before_p99_ms is not None:
        fast_ms = max(FAST_MS_MIN, FAST_FACTOR * before_p99_ms)
        slow = [a.ended for a in commits if a.ended >= fault_at and commit_ms(a) > fast_ms]
        fast_again_ms = to_ms(max(slow) - fault_at) if slow else 0
    return CommitTimes(before_p99_ms, percentile(during, P99) if during else None, fast_again_ms)


def commit_ms(answer: Answer) -> int:
    """Return how long a record took, including all attempts to send it."""
    return to_ms(answer.ended - answer.first_begun) or 0
