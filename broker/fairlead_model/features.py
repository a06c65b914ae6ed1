"""Feature levels: what a cluster may do since all of its brokers and controllers can. Pure.

A level is a number that belongs to a name (KIP-584). A broker says of each feature which levels it
supports (`BrokerRegistration.features`). The level that is in force, the *finalized* one, is in the
cluster's metadata (`FinalizedFeatures`). Only a person raises it, and only when every broker that
the cluster knows supports the higher one, those that are out of service included. From then on a
broker or controller that does not support it is refused.

So the releases of a rollout speak and write what the older of them reads, until a person says that
there is no way back. How a release adds something that an older one could not read:

* The next level of `FAIRLEAD_VERSION` gets an entry in `FEATURES`, with a sentence that says what
  it allows. A level that was released keeps its meaning, and none is put in below it.
* Whoever writes or sends the new thing asks `image.features.level(FAIRLEAD_VERSION)` first. Whoever
  reads it does not ask: the sender decides, and may have heard of the level earlier.
* `lowest` rises two releases later; then what asks for the old level can go.

What an older release may ignore, or keep without knowing it, needs no level: see
`fairlead_model.session.session_protocol`, and `lines` of the controller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from fairlead_model.release import RELEASE

FAIRLEAD_VERSION: Final = "fairlead.version"
"""What brokers and controllers write and say to each other; it never falls."""
GROUP_VERSION: Final = "group.version"
"""1: groups of KIP-848. 0 turns them off."""
TRANSACTION_VERSION: Final = "transaction.version"
"""2: an epoch for each transaction (KIP-890). Java clients choose their protocol by it."""


class Feature(NamedTuple):
    """The levels of one feature that this release supports."""

    lowest: int
    highest: int
    implied: int
    """Level of a cluster whose metadata says nothing: it was made before there were levels."""
    may_fall: bool
    meanings: Mapping[int, str]
    """What each level allows, for people."""


FEATURES: Final[Mapping[str, Feature]] = {
    FAIRLEAD_VERSION: Feature(
        1,
        2,
        implied=1,
        may_fall=False,
        meanings={
            1: "builds that know no feature levels may take part",
            2: "every broker says which levels it supports, so that later ones can be raised",
        },
    ),
    GROUP_VERSION: Feature(
        0,
        1,
        implied=1,
        may_fall=True,
        meanings={0: "no groups of KIP-848", 1: "groups of KIP-848 (group.protocol=consumer)"},
    ),
    TRANSACTION_VERSION: Feature(
        0,
        2,
        implied=2,
        may_fall=True,
        meanings={
            0: "transactions as before KIP-890",
            1: "transactions as before KIP-890; in Kafka with other records in its log",
            2: "an epoch for each transaction (KIP-890)",
        },
    ),
}


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports, both ends included."""

    name: str
    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.name} {self.lowest} to {self.highest}"


SUPPORTED_FEATURES: Final = tuple(
    FeatureRange(name, feature.lowest, feature.highest) for name, feature in FEATURES.items()
)
"""What a broker of this release says of itself."""

UNSAID_FEATURES: Final = tuple(
    FeatureRange(name, feature.implied, feature.implied) for name, feature in FEATURES.items()
)
"""What a broker supports that says nothing of features: what was in force before there were any."""


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The levels in force."""

    epoch: int = 0
    """Rises with every change; clients believe the highest that they have heard."""
    levels: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By name; a feature that is not there has its implied level, or is off."""
    release: str = ""
    """The release that has set them, which reads them; empty for no release."""

    def level(self, name: str) -> int:
        """Return the level in force."""
        level = self.levels.get(name)
        if level is not None:
            return level
        feature = FEATURES.get(name)
        return 0 if feature is None else feature.implied

    def all_levels(self) -> dict[str, int]:
        """Return the levels of all features that are known or in force, by name."""
        return {name: self.level(name) for name in {**FEATURES, **self.levels}}

    def with_levels(self, levels: Mapping[str, int]) -> "FinalizedFeatures":
        """Return these features after some got another level."""
        return FinalizedFeatures(self.epoch + 1, {**self.all_levels(), **levels}, RELEASE)


NO_FEATURES_SET: Final = FinalizedFeatures()
"""Of a cluster that was made before there were levels."""


def features_of_new_cluster() -> FinalizedFeatures:
    """Return the levels that a cluster begins with: nothing of an older release is there."""
    levels = {name: feature.highest for name, feature in FEATURES.items()}
    return FinalizedFeatures(epoch=1, levels=levels, release=RELEASE)


def supports(ranges: Iterable[FeatureRange], name: str, level: int) -> bool:
    """Tell whether somebody of these ranges may take part while a feature has this level."""
    for each in ranges:
        if each.name == name:
            return each.lowest <= level <= each.highest
    return level == 0


def unsupported_levels(
    finalized: FinalizedFeatures, ranges: tuple[FeatureRange, ...] = SUPPORTED_FEATURES
) -> str:
    """Say which levels in force somebody of these ranges does not support; empty for none."""
    known = {each.name: each for each in ranges}
    problems = []
    for name, level in sorted(finalized.all_levels().items()):
        if not supports(ranges, name, level):
            own = known.get(name)
            has = "nothing of it" if own is None else f"{own.lowest} to {own.highest}"
            problems.append(f"{name} is at level {level}, supported is {has}")
    return "; ".join(problems)


def who_reads(finalized: FinalizedFeatures) -> str:
    """Say which release supports the levels in force."""
    if not finalized.release:
        return "a release from before there were feature levels"
    return f"release {finalized.release}, or a later one"
