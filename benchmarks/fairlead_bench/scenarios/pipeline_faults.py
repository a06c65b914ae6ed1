"""Which processes die while a pipeline runs, and when. Pure: a seed gives the same faults."""

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Target(Enum):
    """What a fault kills; the process is looked up when the fault is due."""

    EXECUTOR = "an executor"
    TASK = "the Python process of a task"
    DRIVER = "the driver"
    SOURCE_LEADER = "the leader of an input partition"
    RESULT_LEADER = "the leader of an output partition"
    DECISIONS_LEADER = "the leader of the decisions"
    COORDINATOR = "a coordinator of transactions"


BROKERS: Final = frozenset(
    {Target.SOURCE_LEADER, Target.RESULT_LEADER, Target.DECISIONS_LEADER, Target.COORDINATOR}
)
FIRST_SHARE: Final = 0.02
LAST_SHARE: Final = 0.95
"""Share of the input after which no fault begins: all faults hit a job at work."""
WITHIN_S: Final = 4.0
"""A fault occurs at any moment within this time after it is due: also between batches."""
AWAY_S: Final = (1.0, 10.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One kill. It is due when the job is done with `share` of its input, and `delay_s` later."""

    target: Target
    share: float
    delay_s: float
    away_s: float
    """Of a broker: time until its restart. Other processes are restarted by those who run them."""
    choice: float
    """Selects one of several targets, from 0 to 1."""


def plan_faults(seed: int, count: int) -> list[Fault]:
    """Return the faults of a seed in order; kinds of targets alternate, so that none is missed."""
    chance = random.Random(seed)
    targets = list(Target)
    chance.shuffle(targets)
    shares = sorted(chance.uniform(FIRST_SHARE, LAST_SHARE) for _ in range(count))
    return [
        Fault(
            target=targets[index % len(targets)],
            share=share,
            delay_s=chance.uniform(0, WITHIN_S),
            away_s=chance.uniform(*AWAY_S),
            choice=chance.random(),
        )
        for index, share in enumerate(shares)
    ]
