"""What a pool may become: how many brokers, and how large their volumes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead_operator.resources.quantity import quantity_value
from fairlead_operator.specs.views import PoolView


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """How many brokers a pool shall have; `blocked` says why not as many as asked for."""

    replicas: int
    blocked: str = ""


def decide_scale(
    pool: PoolView, live_replicas: int | None, replicas_by_broker: Mapping[int, int] | None
) -> ScaleDecision:
    """Let a pool grow at once, and shrink only when the brokers that leave hold no replica.

    `live_replicas` is None before there is a StatefulSet; `replicas_by_broker` is None where the
    controller cannot be asked, which keeps everyone.
    """
    wanted = pool.spec.replicas
    if live_replicas is None or wanted >= live_replicas:
        return ScaleDecision(wanted)
    if replicas_by_broker is None:
        return ScaleDecision(
            live_replicas,
            "the controller cannot be asked whether the leaving brokers hold replicas",
        )
    leaving = pool.broker_ids(live_replicas)[wanted:]
    holding = [broker for broker in leaving if replicas_by_broker.get(broker, 0) > 0]
    if not holding:
        return ScaleDecision(wanted)
    shown = ", ".join(f"{broker} ({replicas_by_broker[broker]})" for broker in holding[:10])
    return ScaleDecision(
        live_replicas,
        f"brokers hold replicas: {shown}; move these partitions to other brokers first, or set "
        f"replicas back to {live_replicas}",
    )


def find_overlaps(pools: Sequence[PoolView]) -> dict[str, str]:
    """Give, by pool, why its broker ids meet another's; the older one of two keeps its ids.

    Pools come in the order of their age.
    """
    problems: dict[str, str] = {}
    accepted: list[PoolView] = []
    for pool in pools:
        ids = pool.broker_ids(max(pool.spec.replicas, 1))
        other = next((older for older in accepted if _meets(ids, _reach(older))), None)
        if other is None:
            accepted.append(pool)
            continue
        problems[pool.name] = (
            f"broker ids {ids.start} to {ids.stop - 1} meet those of BrokerPool {other.name} "
            f"({_reach(other).start} to {_reach(other).stop - 1}): make this pool anew with "
            "another idBase"
        )
    return problems


def _reach(pool: PoolView) -> range:
    return pool.broker_ids(max(pool.spec.replicas, 1))


def _meets(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


@dataclass(frozen=True, slots=True)
class GrowthDecision:
    """How to get larger volumes: claims to patch, then a StatefulSet to make anew."""

    claims: tuple[str, ...] = ()
    recreates: bool = False
    template_size: str = ""
    """What the StatefulSet's claims say until it is made anew."""


def decide_growth(
    pool: PoolView, template_size: str | None, claim_sizes: Mapping[str, str]
) -> GrowthDecision:
    """Give the next step; `claim_sizes` are those of the pool's claims that exist.

    `template_size` is that of the live StatefulSet's claims, None where there is none.
    """
    wanted = pool.spec.storage.size
    if template_size is None or quantity_value(template_size) >= quantity_value(wanted):
        return GrowthDecision(template_size=template_size or wanted)
    smaller = tuple(
        name
        for name, size in sorted(claim_sizes.items())
        if quantity_value(size) < quantity_value(wanted)
    )
    return GrowthDecision(smaller, recreates=not smaller, template_size=template_size)
