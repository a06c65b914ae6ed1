"""The faults of a run. Pure: the same seed gives the same faults."""

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Target(Enum):
    """What a fault hits; its broker is found when the fault begins."""

    BROKER = "a broker"
    LEADER = "the leader of an output partition"
    TRANSACTION_COORDINATOR = "the transaction coordinator"
    GROUP_COORDINATOR = "the group coordinator"
    CONTROLLER = "the controller"
    APPLICATION = "one instance of each application"


class Kind(Enum):
    """What happens to the target until the fault is healed."""

    KILL = "killed"
    PAUSE = "paused"


@dataclass(frozen=True)
class Fault:
    """One target or two, which are hit one shortly after the other, and healed together."""

    kind: Kind
    targets: tuple[Target, ...]
    after_ms: int
    """Time since the previous fault was healed."""
    apart_ms: int
    hold_ms: int

    def __str__(self) -> str:
        who = " and ".join(target.value for target in self.targets)
        return f"{who} {self.kind.value} for {self.hold_ms} ms"


FAULTS_EACH: Final = 4
# Sometimes longer than the applications' sessions (4 s): a resumed one was fenced meanwhile.
HOLDS_MS: Final = (300, 1500, 6000)


def plan_faults(seed: int, count: int = FAULTS_EACH) -> list[Fault]:
    """Return the faults of a seed.

    The targets take turns: none is the first of a fault again before all others were.
    """
    chance = random.Random(seed)
    targets = list(Target)
    chance.shuffle(targets)
    plan = []
    for index in range(count):
        first = targets[index % len(targets)]
        pair = (first, chance.choice(list(Target))) if chance.random() < 0.5 else (first,)
        plan.append(
            Fault(
                kind=chance.choice(list(Kind)),
                targets=pair,
                after_ms=chance.randint(200, 1500),
                apart_ms=chance.choice((0, 20, 300)),
                hold_ms=chance.choice(HOLDS_MS),
            )
        )
    return plan
