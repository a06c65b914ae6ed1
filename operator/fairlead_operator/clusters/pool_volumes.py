"""Which volumes the brokers of a pool have, and how volumes grow and are added. Pure.

The claims of a StatefulSet cannot be changed. So it is created again around its pods once every
claim is as large as it should be, and once for all volumes that are added or removed:

    volume 0: 1Gi, wanted 2Gi           enlarge the claims, then create the StatefulSet again
    volume 1 added                      create it again; brokers restart one by one and use it
    volume 1 removed, claims unbound    create it again without, delete the claims
    volume 1 removed, claims bound      keep it, until every broker that has it has emptied it;
                                        then create it again without, and leave the claims
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairlead_operator.clusters.volume_use import ClaimUse
from fairlead_operator.resources.quantity import quantity_value
from fairlead_operator.specs.claim_template import ClaimTemplate
from fairlead_operator.specs.names import claim_name, log_directory
from fairlead_operator.specs.views import PoolView

VOLUME_IN_USE: Final = "VolumeInUse"
"""Reason for a pool that no longer names a volume which its brokers have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldVolume:
    """What exists of one volume of the pool's brokers."""

    volume: int
    size: str
    """The largest size that a claim requests."""
    claims: int = 0
    bound: int = 0
    """Number of claims that are bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeDecision:
    """How to get the volumes that a pool requests."""

    claims: Mapping[str, str] = field(default_factory=dict)
    """Claims that have to grow first, and the size that each should have."""
    recreates: bool = False
    """Whether the StatefulSet is to be created again."""
    templates: tuple[ClaimTemplate, ...] = ()
    """The claim templates of the StatefulSet until then."""
    held: tuple[HeldVolume, ...] = ()
    """Volumes of which something exists, in the order of their ids."""
    added: tuple[int, ...] = ()
    """Ids of volumes that the StatefulSet does not have yet."""
    dropped: tuple[int, ...] = ()
    """Ids of volumes that it still has, and that no broker needs."""
    leftovers: tuple[str, ...] = ()
    """Claims of volumes that were removed from the pool before they were bound."""
    blocked: str = ""
    """Which volume has to stay, although the pool no longer names it."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing remains to be done."""
        return not (self.claims or self.recreates or self.leftovers)


def decide_volumes(
    pool: PoolView,
    present: int,
    templates: Sequence[ClaimTemplate] | None,
    claim_sizes: Mapping[str, str],
    bound: Collection[str],
    *,
    use: ClaimUse,
) -> VolumeDecision:
    """Return the next step for the volumes of a pool, which has `present` brokers.

    `templates` are those of its live StatefulSet, None without one. `claim_sizes` has the sizes
    that claims request, `bound` names the bound claims.
    """
    wanted = {each.id: ClaimTemplate.from_volume(each) for each in pool.spec.storage.each_volume}
    made = {each.volume: each for each in templates or ()}
    seen = {
        volume: _claims_of(pool, volume, present, claim_sizes)
        for volume in {*wanted, *made, *_volumes_of(pool, present, claim_sizes)}
    }
    unwanted = {
        # A volume that the StatefulSet no longer has is being removed, unless a broker uses it
        # again.
        volume: sizes.keys() & use.in_use
        if templates is not None and volume not in made
        else (sizes.keys() & set(bound)) - use.unused
        for volume, sizes in sorted(seen.items())
        if volume not in wanted
    }
    kept = {volume: sorted(holders) for volume, holders in unwanted.items() if holders}
    unnamed = {volume: made.get(volume) or _template_of(pool, volume, seen) for volume in kept}
    goal = wanted | unnamed
    smaller = {
        name: goal[volume].size
        for volume in sorted(goal)
        for name, size in sorted(seen[volume].items())
        if quantity_value(size) < quantity_value(goal[volume].size)
    }
    added, dropped = goal.keys() - made.keys(), made.keys() - goal.keys()
    is_outgrown = any(
        quantity_value(made[volume].size) < quantity_value(goal[volume].size)
        for volume in goal.keys() & made.keys()
    )
    is_other = templates is not None and bool(added or dropped or is_outgrown)
    shown = goal if templates is None else made
    return VolumeDecision(
        claims=smaller,
        recreates=is_other and not smaller,
        templates=tuple(shown[volume] for volume in sorted(shown)),
        held=_held(seen, made, bound),
        added=tuple(sorted(added)) if is_other else (),
        dropped=tuple(sorted(dropped)),
        leftovers=tuple(
            name
            for volume in sorted(seen.keys() - goal.keys() - made.keys())
            for name in sorted(seen[volume])
            if templates is not None and name not in bound
        ),
        blocked=_in_use(kept),
    )


def _claims_of(
    pool: PoolView, volume: int, present: int, claim_sizes: Mapping[str, str]
) -> dict[str, str]:
    """Return the existing claims of one volume, each with the size that it requests."""
    names = (
        claim_name(pool.spec.cluster_name, pool.name, ordinal, volume) for ordinal in range(present)
    )
    return {name: claim_sizes[name] for name in names if name in claim_sizes}


def _volumes_of(pool: PoolView, present: int, claim_sizes: Mapping[str, str]) -> set[int]:
    """Return the ids of volumes of which the pool's brokers have claims."""
    found = set()
    for name in claim_sizes:
        head, _, rest = name.removeprefix("data-").partition("-")
        if head.isascii() and head.isdecimal() and rest.startswith(f"{pool.stateful_set}-"):
            found.add(int(head))
    return found if present else set()


def _template_of(
    pool: PoolView, volume: int, seen: Mapping[int, Mapping[str, str]]
) -> ClaimTemplate:
    """Return a template like the claims of a volume that neither pool nor StatefulSet names."""
    return ClaimTemplate(
        volume=volume,
        size=max(seen[volume].values(), key=quantity_value),
        storage_class_name=pool.spec.storage.storage_class_name,
    )


def _held(
    seen: Mapping[int, Mapping[str, str]],
    made: Mapping[int, ClaimTemplate],
    bound: Collection[str],
) -> tuple[HeldVolume, ...]:
    held = []
    for volume in sorted(seen):
        sizes = [*seen[volume].values(), *([made[volume].size] if volume in made else [])]
        if sizes:
            one = HeldVolume(
                volume=volume,
                size=max(sizes, key=quantity_value),
                claims=len(seen[volume]),
                bound=sum(name in bound for name in seen[volume]),
            )
            held.append(one)
    return tuple(held)


def _in_use(kept: Mapping[int, Sequence[str]]) -> str:
    """Return which volumes stay although the pool does not name them; empty if there are none."""
    if not kept:
        return ""
    named = "; ".join(
        f"volume {volume} is not named any more, but brokers have not drained it "
        f"({', '.join(claims[:3])})"
        for volume, claims in kept.items()
    )
    folder = log_directory(next(iter(kept)))
    return (
        f"{named}: put it back into spec.storage.volumes, or drain it on each of these brokers: "
        f"fairlead broker disks ID --drain {folder} --wait"
    )
