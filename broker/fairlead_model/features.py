"""Feature levels: what a cluster may do because all of its brokers and controllers can. Pure.

A level is a number that belongs to a feature name (KIP-584). A broker registers with the levels of
each feature that it supports (`BrokerRegistration.features`). The level in force, the *finalized*
one, is in the cluster's metadata (`FinalizedFeatures`). Only a person raises it, and only when
every broker that the cluster knows supports the higher level, also brokers that are out of service.
From then on the controller refuses a broker or controller that does not support the level.

So during a rollout the new release sends and writes only what the older release reads, until a
person decides that there is no way back. How a release adds what an older release could not read:

* The next level of `FAIRLEAD_VERSION` gets an entry in `FEATURES`, with a sentence that says what
  it allows. A released level keeps its meaning, and no level is inserted below it.
* Code that writes or sends the new thing asks `image.features.level(FAIRLEAD_VERSION)` first. Code
  that reads it does not ask: the sender decides, and may know of the new level earlier.
* `lowest` rises two releases later; then the code for the old level can be deleted.

What an older release may ignore, or may store without knowing it, needs no level: see
`fairlead_model.session.session_protocol`, and `lines` of the controller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from fairlead_model.release import RELEASE

FAIRLEAD_VERSION: Final = "fairlead.version"
"""The level of what brokers and controllers write and send to each other; it never falls."""
GROUP_VERSION: Final = "group.version"
"""1: groups of KIP-848. 0 turns them off."""
TRANSACTION_VERSION: Final = "transaction.version"
"""2: an epoch for each transaction (KIP-890). Java clients choose their protocol by it."""


class Feature(NamedTuple):
    """The levels of one feature that this release supports."""

    lowest: int
    highest: int
    implied: int
    """Level of a cluster whose metadata has no levels: it is older than feature levels."""
    may_fall: bool
    meanings: Mapping[int, str]
    """What each level allows, in words for people."""


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
"""The levels with which a broker of this release registers."""

UNSAID_FEATURES: Final = tuple(
    FeatureRange(name, feature.implied, feature.implied) for name, feature in FEATURES.items()
)
"""The levels of a broker that registers without features: those before there were features."""


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The levels in force."""

    epoch: int = 0
    """Rises with every change; clients use the levels with the highest epoch that they know."""
    levels: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By name. A feature that is missing here has its implied level, or is off."""
    release: str = ""
    """The release that set the levels, and so supports them; empty if none did."""

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
        """Return these features with new levels for some of them."""
        return FinalizedFeatures(self.epoch + 1, {**self.all_levels(), **levels}, RELEASE)


NO_FEATURES_SET: Final = FinalizedFeatures()
"""The features of a cluster that is older than feature levels."""


def features_of_new_cluster() -> FinalizedFeatures:
    """Return the levels of a new cluster: the highest, because no broker has an older release."""
    levels = {name: feature.highest for name, feature in FEATURES.items()}
    return FinalizedFeatures(epoch=1, levels=levels, release=RELEASE)


def supports(ranges: Iterable[FeatureRange], name: str, level: int) -> bool:
    """Tell whether a process that supports these ranges may take part at this feature level."""
    for each in ranges:
        if each.name == name:
            return each.lowest <= level <= each.highest
    return level == 0


def unsupported_levels(
    finalized: FinalizedFeatures, ranges: tuple[FeatureRange, ...] = SUPPORTED_FEATURES
) -> str:
    """Name the levels in force that these ranges do not support; empty if there are none."""
    known = {each.name: each for each in ranges}
    problems = []
    for name, level in sorted(finalized.all_levels().items()):
        if not supports(ranges, name, level):
            own = known.get(name)
            has = "nothing of it" if own is None else f"{own.lowest} to {own.highest}"
            problems.append(f"{name} is at level {level}, supported is {has}")
    return "; ".join(problems)


def who_reads(finalized: FinalizedFeatures) -> str:
    """Return which release supports the levels in force, in words."""
    if not finalized.release:
        return "a release from before there were feature levels"
    return f"release {finalized.release}, or a later one"
