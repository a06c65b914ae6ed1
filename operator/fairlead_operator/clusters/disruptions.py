"""How many brokers may be evicted by drains of nodes, autoscalers and the like. Pure.

A PodDisruptionBudget knows only whether pods are ready. A broker that has come back is ready long
before its replicas have caught up, and no other broker must stop meanwhile. So the budget is 0
unless every partition has all its replicas in sync and every broker's pod is ready. Anything
unknown counts as missing, because it is always safe to wait. A broker may stop only after some calm
time, so that a replica that leaves the ISR and returns every other second does not change the
budget all the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

USUAL: Final = 1
CALM_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionSight:
    """The facts about a cluster that the budget depends on."""

    under_replicated: int | None
    """Partitions that lack replicas in sync; None if the controller cannot be reached."""
    offline: int | None
    brokers_away: int
    """Pods that are not ready, or are terminating."""

    @property
    def is_whole(self) -> bool:
        """Whether it is known that nothing is missing."""
        counts = (self.under_replicated, self.offline)
        return counts == (0, 0) and not self.brokers_away


def decide_disruptions(sight: DisruptionSight, *, calm_s: float, present: int | None) -> int:
    """Return how many brokers may be evicted.

    `calm_s` is how long nothing has been missing, as far as known; `present` is the present value
    of the budget, None if there is no budget.
    """
    if not sight.is_whole:
        return 0
    return USUAL if present != 0 or calm_s >= CALM_S else 0


def read_budget(manifest: Mapping[str, Any] | None) -> int | None:
    """Return the value of a live budget; None if it is missing or has another form."""
    value = None if manifest is None else (manifest.get("spec") or {}).get("maxUnavailable")
    return value if isinstance(value, int) else None
