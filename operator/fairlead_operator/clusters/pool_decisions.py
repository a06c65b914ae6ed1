"""How many brokers a pool may have, and with which ids. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from fairlead_operator.clusters.scale_down import BrokerHoldings, count_remaining
from fairlead_operator.specs.names import DATA_VOLUME
from fairlead_operator.specs.views import PoolView


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTraces:
    """What exists of a pool's brokers, whatever its StatefulSet says, each by ordinal."""

    pods: Collection[int] = ()
    """Existing pods; they go on running when their StatefulSet is deleted with orphans."""
    claims: Collection[int] = ()
    """Existing volume claims, including those of brokers that were removed long ago."""
    registered: Collection[int] = ()
    """Brokers that registered with the controller from a pod of this pool."""

    @classmethod
    def find(
        cls,
        stateful_set: str,
        *,
        pods: Iterable[str],
        claims: Iterable[str],
        registered: Iterable[str] = (),
    ) -> Self:
        """Pick one pool's entries from the pods, claims and registrations of a cluster."""
        return cls(
            pods=_find_ordinals(re.escape(stateful_set), pods),
            claims=_find_ordinals(f"{DATA_VOLUME}(-[0-9]+)?-{re.escape(stateful_set)}", claims),
            registered=_find_ordinals(re.escape(stateful_set), registered),
        )


def _find_ordinals(stem: str, names: Iterable[str]) -> set[int]:
    found = (re.fullmatch(f"{stem}-(?P<ordinal>[0-9]+)", name) for name in names)
    return {int(each["ordinal"]) for each in found if each is not None}


def count_brokers(
    id_base: int,
    live_replicas: int | None,
    traces: PoolTraces,
    replicas_by_broker: Mapping[int, int] | None,
    others: Mapping[str, range] | None = None,
) -> int:
    """Count the brokers that a pool has: each of them has to be considered.

    A StatefulSet may be missing while its brokers exist: its volumes grow, somebody has deleted it
    and kept the pods, or it could not be created again. Then the pods count, and the brokers that
    hold replicas; if the controller cannot be reached, every volume may hold some. If there is a
    StatefulSet (`live_replicas`), which somebody else may have scaled down, only replicas count in
    addition. `others` has the ids of the brokers of other pools.
    """
    taken = [ids for ids in (others or {}).values() if ids]

    def may_be_ours(ordinal: int) -> bool:
        return not any(id_base + ordinal in ids for ids in taken)

    def holds(ordinal: int) -> bool:
        return (replicas_by_broker or {}).get(id_base + ordinal, 0) > 0

    seen = {*traces.pods, *traces.claims, *traces.registered}
    counted = {ordinal for ordinal in seen if holds(ordinal)}
    if live_replicas is None:
        counted |= seen if replicas_by_broker is None else set(traces.pods)
    return max([live_replicas or 0, *(each + 1 for each in counted if may_be_ours(each))])


REPLICAS_REMAIN: Final = "ReplicasRemain"
"""Reason for a pool whose brokers cannot be emptied."""


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """How many brokers a pool should have; `blocked` says why not as many as requested."""

    replicas: int
    blocked: str = ""
    reason: str = ""
    """The reason of the condition with `blocked`."""
    leaving: tuple[int, ...] = ()
    """Brokers that the pool has only until they are empty."""


def decide_scale(
    pool: PoolView,
    present: int,
    brokers: Mapping[int, BrokerHoldings] | None,
    taken: Mapping[str, range],
) -> ScaleDecision:
    """Let a pool grow at once into free ids, and shrink as far as the leaving brokers are empty.

    `present` is how many brokers it has (`count_brokers`). `brokers` is None if the controller
    cannot be reached; then no broker leaves. `taken` has the ids of others, by their names.
    """
    wanted = pool.spec.replicas
    if wanted >= present:
        grown = pool.broker_ids(wanted)[present:]
        other = _find_meeting(grown, taken)
        if other is None:
            return ScaleDecision(wanted)
        free = max(present, taken[other].start - pool.spec.id_base)
        return ScaleDecision(
            present,
            f"broker ids {_shown(grown)} overlap with those of {other} "
            f"({_shown(taken[other])}): set replicas to {free} at most, or create another pool",
            "IdsOverlap",
        )
    if brokers is None:
        return ScaleDecision(
            present,
            "the controller cannot be asked whether the leaving brokers hold replicas",
            REPLICAS_REMAIN,
        )
    remaining = count_remaining(pool, present, brokers)
    return ScaleDecision(remaining, leaving=tuple(pool.broker_ids(remaining)[wanted:]))


@dataclass(frozen=True, slots=True)
class IdClaims:
    """Which pools may have their broker ids."""

    refused: Mapping[str, str]
    """By pool: why it may have no broker at all."""
    taken: Mapping[str, Mapping[str, range]]
    """By pool: the ids that others have or should have, by owner."""


def decide_ids(pools: Sequence[PoolView], running: Mapping[str, range]) -> IdClaims:
    """Assign broker ids: a pool keeps those of its running brokers; then older pools go first.

    `pools` are ordered by age. `running` has the ids of running brokers, by the name of their
    StatefulSet, including pools that are being deleted or cannot be read: two brokers with the same
    id would fence each other.
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
        # Running brokers are not stopped, unless an older pool already runs brokers with these ids.
        held = own or reach
        other = _find_meeting(held, accepted if own else accepted | others)
        if other is not None:
            ids = (accepted | others)[other]
            refused[pool.name] = (
                f"broker ids {_shown(held)} overlap with those of {other} "
                f"({_shown(ids)}): create this pool again with another idBase"
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
