"""A level is raised by a person, once all brokers support it, and by nobody else."""

import random
from collections.abc import Sequence

import pytest
from decision_world import World

from fairlead_controller.decisions.events import Decision, ElectLeaders, UpdateFeatures
from fairlead_controller.decisions.state import initial_state
from fairlead_controller.decisions.tables import lines
from fairlead_model.cluster import FeaturesChanged
from fairlead_model.features import (
    FAIRLEAD_VERSION,
    FEATURES,
    GROUP_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    UNSAID_FEATURES,
    FeatureRange,
    FinalizedFeatures,
    features_of_new_cluster,
)
from fairlead_model.release import RELEASE
from fairlead_model.session.refusals import RefusalCode, RefusedError

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
LOWEST, HIGHEST = FEATURES[FAIRLEAD_VERSION][:2]
NEXT = tuple(FeatureRange(name, low, high + 1) for name, low, high in SUPPORTED_FEATURES)
"""What a broker of the next release supports."""
AFTER_NEXT = (FeatureRange(FAIRLEAD_VERSION, HIGHEST + 1, HIGHEST + 2), *SUPPORTED_FEATURES[1:])


def update(*updates: tuple[str, int, int], validate_only: bool = False) -> UpdateFeatures:
    asked = [
        {"feature": name, "level": level, "upgrade_type": kind} for name, level, kind in updates
    ]
    return UpdateFeatures({"updates": asked, "validate_only": validate_only})  # type: ignore[typeddict-item]


RAISE = update((FAIRLEAD_VERSION, HIGHEST, UPGRADE))


def level(world: World, name: str = FAIRLEAD_VERSION) -> int:
    return int(world.state.image.features.level(name))


def refusal(decision: Decision) -> str:
    assert isinstance(decision.reply, RefusedError)
    assert decision.reply.code is RefusalCode.INVALID_UPDATE_VERSION
    assert decision.changes == ()
    return decision.reply.message


def test_a_level_is_raised_when_all_brokers_support_it(world: World) -> None:
    assert level(world) == LOWEST
    assert world.do(RAISE) == {}
    features = world.state.image.features
    assert (features.epoch, features.release) == (1, RELEASE)
    assert features.levels == {FAIRLEAD_VERSION: HIGHEST, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    assert world.decide(RAISE).changes == ()  # Asked again, it holds already.


@pytest.mark.parametrize("sleeps", [False, True])
def test_it_is_not_raised_while_a_known_broker_does_not_support_it(
    world: World, sleeps: bool
) -> None:
    world.register(2, start_id="older", features=UNSAID_FEATURES)
    if sleeps:
        world.state = initial_state(
            world.state.image, controller_epoch=2, counters=world.state.counters
        )
    why = refusal(world.decide(RAISE))
    assert why == (
        f"level {HIGHEST} of fairlead.version is not supported by broker 2 (fairlead.version 1 to "
        "1; group.version 1 to 1; transaction.version 2 to 2, out of service)"
    )
    world.register(2, start_id="newer")
    world.do(RAISE)
    assert level(world) == HIGHEST


def test_a_broker_of_the_older_release_is_refused_once_the_level_is_raised(world: World) -> None:
    world.do(RAISE)
    before = world.state.image
    with pytest.raises(RefusedError, match=f"at level {HIGHEST}, supported is 1 to 1; run") as told:
        world.register(2, start_id="rolled back", features=UNSAID_FEATURES)
    assert told.value.code is RefusalCode.UNSUPPORTED_VERSION
    assert world.state.image == before
    # Neither does anybody else raise or lower it: not a reign that begins, not one that registers.
    world.do(ElectLeaders())
    world.register(2, start_id="next release", features=NEXT)
    assert level(world) == HIGHEST


def test_brokers_of_the_next_release_join_at_the_level_of_this_one(world: World) -> None:
    for broker_id in range(3):
        world.register(broker_id, start_id="next", features=NEXT)
    assert "this controller supports 1 to 2" in refusal(
        world.decide(update((FAIRLEAD_VERSION, HIGHEST + 1, UPGRADE)))
    )
    with pytest.raises(RefusedError, match="is at level 1, supported is 3 to 4"):
        world.register(3, start_id="too new", features=AFTER_NEXT)


@pytest.mark.parametrize("kind", [UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_our_level_never_falls(world: World, kind: int) -> None:
    world.do(RAISE)
    why = refusal(world.decide(update((FAIRLEAD_VERSION, LOWEST, kind))))
    assert "never falls" in why


@pytest.mark.parametrize("kind", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_features_of_kafka_fall_if_that_is_asked_for(world: World, kind: int) -> None:
    assert "would be a downgrade" in refusal(world.decide(update((GROUP_VERSION, 0, UPGRADE))))
    world.do(update((GROUP_VERSION, 0, kind), (TRANSACTION_VERSION, 1, kind)))
    assert (level(world, GROUP_VERSION), level(world, TRANSACTION_VERSION)) == (0, 1)
    assert "would be an upgrade" in refusal(world.decide(update((GROUP_VERSION, 1, kind))))
    world.do(update((GROUP_VERSION, 1, UPGRADE)))
    assert world.state.image.features.epoch == 2


def test_a_broker_that_cannot_turn_a_feature_off_keeps_it_on(world: World) -> None:
    world.register(2, start_id="older", features=UNSAID_FEATURES)
    assert "broker 2" in refusal(world.decide(update((GROUP_VERSION, 0, SAFE_DOWNGRADE))))


@pytest.mark.parametrize(
    ("updates", "why"),
    [
        ([("metadata.version", 25, UPGRADE)], "no feature 'metadata.version'; it has fairlead"),
        ([(FAIRLEAD_VERSION, 0, SAFE_DOWNGRADE)], "supports 1 to 2"),
        ([(GROUP_VERSION, -1, UPGRADE)], "supports 0 to 1"),
        ([(GROUP_VERSION, 1, 0)], "0 is no type"),
    ],
)
def test_what_makes_no_sense_is_refused_with_all_of_its_request(
    world: World, updates: Sequence[tuple[str, int, int]], why: str
) -> None:
    good = (TRANSACTION_VERSION, 1, SAFE_DOWNGRADE)
    assert why in refusal(world.decide(update(good, *updates)))


def test_one_feature_has_one_level_in_a_request(world: World) -> None:
    twice = world.decide(update((GROUP_VERSION, 1, UPGRADE), (GROUP_VERSION, 0, SAFE_DOWNGRADE)))
    assert isinstance(twice.reply, RefusedError)
    assert twice.reply.code is RefusalCode.INVALID_REQUEST


def test_who_only_asks_changes_nothing(world: World) -> None:
    asked = world.decide(update((FAIRLEAD_VERSION, HIGHEST, UPGRADE), validate_only=True))
    assert (asked.reply, asked.changes) == ({}, ())


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_registered_broker_supports_what_is_in_force(
    world: World, seed: int
) -> None:
    """Brokers come with any release while people ask for any level (R28)."""
    chance = random.Random(seed)
    releases = (UNSAID_FEATURES, SUPPORTED_FEATURES, NEXT, AFTER_NEXT)
    last = FinalizedFeatures()
    for number in range(60):
        try:
            if chance.random() < 0.5:
                broker_id = chance.randrange(4)
                features = chance.choice(releases)
                world.register(broker_id, start_id=str(number), features=features)
            else:
                name = chance.choice(list(FEATURES))
                world.do(update((name, chance.randrange(4), chance.randrange(1, 4))))
        except RefusedError:
            continue
        now = world.state.image.features
        for broker in world.state.image.brokers.values():
            ranges = {each.name: each for each in broker.features}
            for name, in_force in now.all_levels().items():
                assert ranges[name].lowest <= in_force <= ranges[name].highest
        assert now.level(FAIRLEAD_VERSION) >= last.level(FAIRLEAD_VERSION)
        assert now.epoch == last.epoch + (now != last)
        last = now


def test_a_new_cluster_begins_with_the_highest_levels() -> None:
    features = features_of_new_cluster()
    assert features.level(FAIRLEAD_VERSION) == HIGHEST
    assert lines.build_features(lines.read_line(lines.features_line(features))) == features


def test_an_image_that_is_sent_whole_or_in_part_has_the_levels(world: World) -> None:
    older = world.state.image
    world.do(RAISE)
    newer = world.state.image
    (change,) = newer.changes_since(older)
    assert change == FeaturesChanged(newer.features)
    assert older.apply([change]) == newer
    assert change in newer.changes_from_nothing()
