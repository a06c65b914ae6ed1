"""How a pool loses brokers: they are emptied first; the highest ids leave first. Pure.

The controller keeps the order to empty brokers, so each step begins with what it reports of them:

    3 4 hold replicas         order the controller to drain both
    3 4 drained, 3 holds      4 is empty, and its data is deleted: its pod may be deleted
    3 4 drained, both empty   3 may leave as well
    no pods 3 4 any more      both are unregistered, because no pod will register as them
    replicas: 5 again         order the controller to let 3 and 4 stay

A drained broker gets no new replica, so an empty one stays empty until its pod is deleted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead_operator.specs.names import stateful_set_name
from fairlead_operator.specs.views import PoolView

NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHoldings:
    """The controller's facts about one broker's replicas."""

    replicas: int = 0
    removals: int = 0
    """Replicas that it gave up and has not reported as deleted."""
    is_live: bool = True
    is_fenced: bool = False
    """It is out of service; a broker may be neither fenced nor live while it starts or stops."""
    is_drained: bool = False
    leaves: str = ""
    """The pool that has given it up; empty if none has."""

    @property
    def may_go(self) -> bool:
        """Whether the cluster loses nothing without it, now and later.

        A broker that is down cannot delete anything; it is told to when it comes back.
        """
        return self.is_drained and not self.replicas and not (self.is_live and self.removals)

    @property
    def has_left(self) -> bool:
        """Whether it is empty, was given up by its pool, and no longer serves.

        A broker that has data to delete has not left: it is told so when it comes back.
        """
        is_given_up = bool(self.leaves) and self.is_drained and self.is_fenced
        return is_given_up and not self.replicas and not self.removals


def read_holdings(controller: Mapping[str, Any] | None) -> dict[int, BrokerHoldings] | None:
    """Read a controller's status; None if it cannot be reached."""
    if controller is None:
        return None
    return {
        int(each["id"]): BrokerHoldings(
            replicas=int(each["replicas"]),
            removals=int(each.get("unconfirmedRemovals") or 0),
            is_live=each.get("state") == "live",
            is_fenced=each.get("state") == "fenced",
            is_drained=bool(each.get("isDrained")),
            leaves=str(each.get("leavesPool") or ""),
        )
        for each in controller["brokers"]
    }


@dataclass(frozen=True, slots=True)
class ScaleDownOrder:
    """An order to the controller."""

    leaving: tuple[int, ...] = ()
    staying: tuple[int, ...] = ()
    """Brokers that were to leave, and shall now stay."""
    is_news: bool = False
    """Whether it changes anything; otherwise it only asks what prevents the drain."""


def decide_order(
    pool: PoolView, present: int, brokers: Mapping[int, BrokerHoldings] | None
) -> ScaleDownOrder | None:
    """Return the order for the controller, None if nothing has to change.

    `present` is how many brokers the pool has. Brokers that have left count as leaving as long as
    they are registered, so that no replica is placed on them.
    """
    if brokers is None:
        return None
    kept, there = pool.broker_ids(pool.spec.replicas), pool.broker_ids(present)
    leaving = tuple(
        broker_id
        for broker_id, each in sorted(brokers.items())
        if broker_id >= kept.stop and (broker_id in there or each.leaves == pool.name)
    )
    staying = tuple(each for each in kept if each in brokers and brokers[each].leaves)
    is_news = bool(staying) or not all(brokers[each].is_drained for each in leaving)
    if not is_news and present <= len(kept):
        return None
    return ScaleDownOrder(leaving, staying, is_news)


def count_remaining(pool: PoolView, present: int, brokers: Mapping[int, BrokerHoldings]) -> int:
    """Return how many brokers a pool has to have for now, `present` at most.

    A StatefulSet deletes its pods in the order of their ordinals, the highest first.
    """
    remaining = present
    while remaining > pool.spec.replicas:
        last = brokers.get(pool.spec.id_base + remaining - 1)
        if last is not None and not last.may_go:
            break
        remaining -= 1
    return remaining


def find_departed(
    pool: PoolView,
    live_replicas: int | None,
    pods: Collection[str],
    brokers: Mapping[int, BrokerHoldings] | None,
) -> tuple[int, ...]:
    """Return the brokers to unregister: emptied by the pool's order, and gone for good.

    `live_replicas` is None without a StatefulSet, which could otherwise create pods.
    """
    if brokers is None or live_replicas is None:
        return ()
    first = pool.spec.id_base + max(pool.spec.replicas, live_replicas)
    return tuple(
        broker_id
        for broker_id, each in sorted(brokers.items())
        if broker_id >= first
        and each.has_left
        and each.leaves == pool.name
        and pool.pod_name(broker_id - pool.spec.id_base) not in pods
    )


def find_departed_with_pool(
    cluster: str,
    pools: Collection[str],
    stateful_sets: Collection[str],
    pods: Iterable[str],
    brokers: Mapping[int, BrokerHoldings] | None,
) -> tuple[int, ...]:
    """Return the brokers to unregister whose pool is deleted, with its StatefulSet and pods.

    `pools` are the names of all existing pools, whatever problems they have.
    """
    owners = {*stateful_sets, *(pod.rpartition("-")[0] for pod in pods)}
    return tuple(
        broker_id
        for broker_id, each in sorted((brokers or {}).items())
        if each.has_left
        and each.leaves not in pools
        and stateful_set_name(cluster, each.leaves) not in owners
    )


def named_brokers(brokers: Sequence[int]) -> str:
    """Return the ids of brokers as a text."""
    if len(brokers) == 1:
        return f"broker {brokers[0]}"
    more = ", …" if len(brokers) > NAMED_MAX else ""
    return f"brokers {', '.join(map(str, brokers[:NAMED_MAX]))}{more}"


def describe_holdings(leaving: Iterable[int], brokers: Mapping[int, BrokerHoldings]) -> str:
    """Return what keeps brokers from leaving."""
    known = [(each, brokers[each]) for each in leaving if each in brokers]
    holding = [f"{each} ({one.replicas})" for each, one in known if one.replicas]
    removals = sum(one.removals for _, one in known if one.is_live)
    said = []
    if holding:
        more = ", …" if len(holding) > NAMED_MAX else ""
        said.append(f"brokers hold replicas: {', '.join(holding[:NAMED_MAX])}{more}")
    if removals:
        said.append(f"{removals} removed replicas are not deleted yet")
    return "; ".join(said) or "brokers are about to be drained"
