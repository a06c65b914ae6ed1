"""Whether new topics wait because brokers of a starting cluster are still expected.

A topic that is placed while a cluster starts would get the brokers that register first. So it waits
until every broker of the cluster's pools has registered once, or until no new broker has registered
for a while. In a cluster whose brokers have all registered before, no topic waits, even if some
brokers are down.

If pools may not be read, the expected brokers are unknown; then only the time decides.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Final

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.cluster import BrokerChanged, Change
from fairlead_model.ids import BrokerId

QUIET_S: Final = 5.0
"""New topics are placed without the missing brokers so long after the last new broker
registered."""
NAMED_MAX: Final = 5

Manifest = Mapping[str, Any]


def expected_brokers(pools: Iterable[Manifest], cluster: str) -> frozenset[BrokerId]:
    """Return the broker ids of a cluster's BrokerPools; a malformed pool has none."""
    ids: set[BrokerId] = set()
    for pool in pools:
        spec = pool.get("spec") or {}
        if spec.get("clusterName") != cluster or pool["metadata"].get("deletionTimestamp"):
            continue
        base, replicas = spec.get("idBase", 0), spec.get("replicas", 0)
        if isinstance(base, int) and isinstance(replicas, int):
            ids.update(range(base, base + replicas))
    return frozenset(ids)


def describe_wait(expected: Set[BrokerId] | None, registered: Set[BrokerId], quiet_s: float) -> str:
    """Return what new topics wait for; empty if they need not wait.

    `registered` are the brokers that have ever registered, `quiet_s` is the time since the last new
    one did, `expected` is None while it is unknown.
    """
    if quiet_s >= QUIET_S:
        return ""
    if expected is None:
        return (
            "which brokers the cluster has is not known, because its BrokerPools cannot be read; "
            f"it goes on {QUIET_S:.0f} s after the last new one that came"
        )
    missing = sorted(expected - registered)
    if not missing:
        return ""
    named = ", ".join(map(str, missing[:NAMED_MAX]))
    more = ", …" if len(missing) > NAMED_MAX else ""
    return (
        f"the cluster starts: {len(expected) - len(missing)} of {len(expected)} brokers have "
        f"registered, broker {named}{more} not yet; it goes on with them, or {QUIET_S:.0f} s after "
        "the last one that came"
    )


class BrokerArrivals:
    """Follows the brokers of one controller during one reign."""

    def __init__(
        self,
        controller: Controller,
        find_expected: Callable[[], Set[BrokerId] | None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._controller = controller
        self._find_expected = find_expected
        self._now = now
        self._known = frozenset(controller.committed.image.brokers)
        self._last_came_at = now()
        controller.subscribe(self._on_changes)

    def wait(self) -> str:
        """Return what new topics wait for now; empty if they need not wait."""
        quiet_s = self._now() - self._last_came_at
        return describe_wait(self._find_expected(), self._known, quiet_s)

    def _on_changes(self, changes: tuple[Change, ...], state: ControllerState) -> None:
        if not any(isinstance(change, BrokerChanged) for change in changes):
            return
        known = frozenset(state.image.brokers)
        if known - self._known:
            self._last_came_at = self._now()
        self._known = known
