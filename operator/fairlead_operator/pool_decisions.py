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
    reason: str = ""
    """Of the condition that says so."""


def decide_scale(
    pool: PoolView,
    live_replicas: int | None,
    replicas_by_broker: Mapping[int, int] | None,
    taken: Mapping[str, range],
) -> ScaleDecision:
    """Let a pool grow at once into ids that are free, and shrink only when the brokers that leave
    hold no replica.

    `live_replicas` is None before there is a StatefulSet; `replicas_by_broker` is None where the
    controller cannot be asked, which keeps everyone. `taken` has the ids of others, by their names.
    """
    wanted = pool.spec.replicas
    if live_replicas is None:
        return ScaleDecision(wanted)
    if wanted >= live_replicas:
        grown = pool.broker_ids(wanted)[live_replicas:]
        other = _find_meeting(grown, taken)
        if other is None:
            return ScaleDecision(wanted)
        free = max(live_replicas, taken[other].start - pool.spec.id_base)
        return ScaleDecision(
            live_replicas,
            f"broker ids {_shown(grown)} meet those of {other} "
            f"({_shown(taken[other])}): set replicas to {free} at most, or make another pool",
            "IdsOverlap",
        )
    if replicas_by_broker is None:
        return ScaleDecision(
            live_replicas,
            "the controller cannot be asked whether the leaving brokers hold replicas",
            "ReplicasRemain",
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
        "ReplicasRemain",
    )


@dataclass(frozen=True, slots=True)
class IdClaims:
    """Which pools may have their broker ids."""

    refused: Mapping[str, str]
    """By pool: why it may have no broker at all."""
    taken: Mapping[str, Mapping[str, range]]
    """By pool: the ids that others have or shall have, by who has them."""


def decide_ids(pools: Sequence[PoolView], running: Mapping[str, range]) -> IdClaims:
    """Share out broker ids: who runs with some keeps them, then the older pool goes first.

    Pools come in the order of their age. `running` has the ids with which brokers run, by the name
    of their StatefulSet, also those of pools that are going or cannot be read: two brokers with
    one id would shut each other out.
    """
    refused: dict[str, str] = {}
    taken: dict[str, dict[str, range]] = {}
    accepted: dict[str, range] = {}
    for pool in pools:
        others = {
            f"StatefulSet {name}": ids
            for name, ids in running.items()
            if ids and name != pool.stateful_set
        }
        own = running.get(pool.stateful_set) or range(0)
        reach = pool.broker_ids(max(pool.spec.replicas, 1))
        # What runs is not stopped, but for ids that an older pool runs with already.
        held = own or reach
        other = _find_meeting(held, accepted if own else accepted | others)
        if other is not None:
            ids = (accepted | others)[other]
            refused[pool.name] = (
                f"broker ids {_shown(held)} meet those of {other} "
                f"({_shown(ids)}): make this pool anew with another idBase"
            )
            continue
        taken[pool.name] = accepted | others
        granted = reach if _find_meeting(reach, accepted | others) is None else own
        accepted[f"BrokerPool {pool.name}"] = granted
    return IdClaims(refused, taken)


def _find_meeting(ids: range, others: Mapping[str, range]) -> str | None:
    return next(
        (
            name
            for name, other in others.items()
            if ids.start < other.stop and other.start < ids.stop
        ),
        None,
    )


def _shown(ids: range) -> str:
    return f"{ids.start} to {ids.stop - 1}" if len(ids) > 1 else str(ids.start)


@dataclass(frozen=True, slots=True)
class GrowthDecision:
    """How to get larger volumes: claims to patch, then a StatefulSet to make anew."""

    claims: tuple[str, ...] = ()
    recreates: bool = False
    template_size: str = ""
    """What the StatefulSet's claims say until it is made anew."""
    held_size: str = ""
    """The largest size that a claim asks for; empty before there is a StatefulSet."""


def decide_growth(
    pool: PoolView, template_size: str | None, claim_sizes: Mapping[str, str]
) -> GrowthDecision:
    """Give the next step; `claim_sizes` are those of the pool's claims that exist.

    `template_size` is that of the live StatefulSet's claims, None where there is none.
    """
    wanted = pool.spec.storage.size
    if template_size is None:
        return GrowthDecision(template_size=wanted)
    held = max([template_size, *claim_sizes.values()], key=quantity_value)
    if quantity_value(template_size) >= quantity_value(wanted):
        return GrowthDecision(template_size=template_size, held_size=held)
    smaller = tuple(
        name
        for name, size in sorted(claim_sizes.items())
        if quantity_value(size) < quantity_value(wanted)
    )
    return GrowthDecision(
        smaller, recreates=not smaller, template_size=template_size, held_size=held
    )
