from collections.abc import Callable
from dataclasses import replace

import pytest
from decision_world import World, there

from fairlead_controller.decisions import registration
from fairlead_controller.decisions.events import (
    ElectLeaders,
    FenceBroker,
    FenceReason,
    RegisterBroker,
    ShutDownBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.state import CountersChanged, initial_state
from fairlead_controller.decisions.tables import lines
from fairlead_model.broker import BrokerRegistration
from fairlead_model.codec import decode_registration, encode_registration
from fairlead_model.session.refusals import RefusalCode, RefusedError


def test_each_start_of_a_broker_has_a_higher_epoch(make_world: Callable[..., World]) -> None:
    world = make_world()
    assert world.register(0) == 1
    assert world.register(1) == 2
    assert world.register(0, start_id="again") == 3
    assert world.state.counters.next_broker_epoch == 4
    assert world.state.image.brokers[0].fenced


def test_a_registration_is_idempotent_by_its_start_id(world: World) -> None:
    epoch = world.state.image.brokers[1].broker_epoch
    decision = world.decide(RegisterBroker(world.state.image.brokers[1], "this-cluster"))
    assert decision.reply == {"broker_epoch": epoch}
    assert decision.changes == ()


def test_a_start_whose_answer_was_lost_is_reached_where_the_next_process_listens(
    world: World,
) -> None:
    """The start id outlives a process that heard no answer; its addresses may be corrected."""
    known = world.state.image.brokers[1]
    moved = tuple(replace(each, host="corrected") for each in known.endpoints)
    reply = world.do(RegisterBroker(replace(known, endpoints=moved), "this-cluster"))
    assert reply == {"broker_epoch": known.broker_epoch}
    assert world.state.image.brokers[1] == replace(known, endpoints=moved)


def test_a_start_whose_answer_was_lost_is_placed_where_the_next_process_says_that_it_is(
    world: World,
) -> None:
    """`broker.rack` may be corrected, and a controller may not know the zone of a node at first."""
    known = world.state.image.brokers[1]
    there = replace(known, rack="b", host_name="elsewhere")
    for asking, expected in ((there, there), (replace(there, rack="c"), replace(there, rack="c"))):
        world.do(RegisterBroker(asking, "this-cluster"))
        assert world.state.image.brokers[1] == expected
    unknown = replace(there, rack=None)
    assert world.decide(RegisterBroker(unknown, "this-cluster")).changes == ()


def test_a_new_incarnation_takes_leadership_from_the_old_one_at_once(world: World) -> None:
    world.create("t", partitions=3)
    before = dict(enumerate(world.partitions("t")))
    world.register(1, start_id="again", is_clean=True, previous_broker_epoch=world.epoch(1))
    for index, partition in enumerate(world.partitions("t")):
        if before[index].leader == 1:
            assert partition.leader == -1
            assert partition.leader_epoch == before[index].leader_epoch + 1
            assert partition.isr == (1,)
        else:
            assert partition == before[index]


def test_a_broker_that_returns_leads_again_under_a_new_epoch(world: World) -> None:
    world.create("t", partitions=3)
    index = world.leaders("t").index(2)
    world.do(FenceBroker(2, world.state.image.brokers[2].broker_epoch, FenceReason.SESSION_EXPIRED))
    assert world.partitions("t")[index].leader == -1
    world.restart(2, "again")
    partition = world.partitions("t")[index]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (2, 2, 2)


def test_what_brokers_settings_say_of_min_insync_replicas_holds_for_topics(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    for broker_id in range(3):
        world.start_broker(broker_id, min_insync_replicas=2)
    world.create("t", replication_factor=3)
    world.create("own", replication_factor=3, configs={"min.insync.replicas": "1"})
    assert world.partition("t").min_insync_replicas == 2
    assert world.partition("own").min_insync_replicas == 1


def test_brokers_that_disagree_have_the_highest_minimum_in_force(
    make_world: Callable[..., World],
) -> None:
    world = make_world(3)
    world.create("t", replication_factor=3)
    assert world.partition("t").min_insync_replicas == 1

    def restart(broker_id: int, minimum: int) -> int:
        world.start_broker(
            broker_id,
            start_id=f"{broker_id} with {minimum}",
            is_clean=True,
            previous_broker_epoch=world.epoch(broker_id),
            min_insync_replicas=minimum,
        )
        return int(world.partition("t").min_insync_replicas)

    assert restart(1, 2) == 2, "the first one is enough: nothing is weaker than a setting says"
    world.fence(1)
    assert [restart(0, 2), restart(2, 2)] == [2, 2]
    assert [restart(0, 1), restart(2, 1)] == [2, 2], "broker 1 may come back and lead"
    assert restart(1, 1) == 1


def test_a_lower_minimum_of_all_settings_forgets_who_was_eligible(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    world.start_broker(0)
    world.start_broker(1)
    world.start_broker(2, min_insync_replicas=2)
    world.create("t", partitions=-1, replication_factor=-1, assignments={0: [0, 1]})
    world.fence(1)
    assert world.sets() == (0, "0", "1", "")
    world.register(2, start_id="again", is_clean=True, previous_broker_epoch=world.epoch(2))
    assert world.partition().min_insync_replicas == 1
    assert world.sets() == (0, "0", "", "")


def test_an_unclean_election_happens_where_the_settings_of_all_brokers_allow_it(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    for broker_id in range(3):
        world.start_broker(broker_id, allows_unclean_election=broker_id != 2)
    for name, configs in {"t": {}, "never": {"unclean.leader.election.enable": "false"}}.items():
        assignments = {0: [0, 1]}
        world.create(
            name, partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
        )
    world.fence(1, 0)
    start = {"start_id": "again", "is_clean": True, "allows_unclean_election": True}
    world.start_broker(1, previous_broker_epoch=world.epoch(1), **start)
    assert world.sets() == (-1, "0", "", ""), "the setting of broker 2 forbids it"
    world.register(2, previous_broker_epoch=world.epoch(2), **start)
    assert world.sets() == (1, "1", "", ""), "allowed means at once"
    assert world.sets("never") == (-1, "0", "", "")


def test_a_start_that_is_registered_says_that_its_settings_allow_unclean_elections(
    make_world: Callable[..., World],
) -> None:
    """A controller of an earlier release has not kept it."""
    world = make_world(2)
    world.create("t", partitions=-1, replication_factor=-1, assignments={0: [0, 1]})
    world.fence(1, 0)
    world.restart(1, "again")
    assert world.sets() == (-1, "0", "", "")
    for known in world.state.image.brokers.values():
        asking = replace(known, allows_unclean_election=True)
        assert world.do(RegisterBroker(asking, ""))["broker_epoch"] == known.broker_epoch
    assert world.sets() == (1, "1", "", "")


def test_whether_settings_allow_unclean_elections_is_kept_for_one_start(world: World) -> None:
    """A release that does not know the field keeps it in the line when a broker starts anew."""
    known = replace(world.state.image.brokers[1], allows_unclean_election=True)
    record = lines.read_line(lines.broker_line(known))
    assert lines.build_broker(record) == known
    record["epoch"] += 1
    assert not lines.build_broker(record).allows_unclean_election
    fields = encode_registration(known)
    assert decode_registration(fields) == known
    assert not decode_registration(fields[:18]).allows_unclean_election, "of an older peer"


def test_a_start_with_other_settings_is_another_start(world: World) -> None:
    known = world.state.image.brokers[1]
    asking = replace(known, min_insync_replicas=2)
    reply = world.do(RegisterBroker(asking, "this-cluster"))
    assert reply["broker_epoch"] > known.broker_epoch
    assert world.state.image.brokers[1].min_insync_replicas == 2


def test_a_broker_of_another_cluster_is_refused(
    make_world: Callable[..., World], make_registration: Callable[..., BrokerRegistration]
) -> None:
    world = make_world()
    with pytest.raises(RefusedError, match="belongs to cluster other") as refused:
        world.do(RegisterBroker(make_registration(0), "other"))
    assert refused.value.code is RefusalCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize(
    ("fields", "alive", "refused"),
    [
        ({"directory_id": "other"}, True, True),
        ({"host_name": "other"}, True, True),
        ({}, True, False),
        ({"directory_id": "other", "host_name": "other"}, False, False),
    ],
)
def test_an_id_in_use_is_refused_unless_the_disk_proves_the_other_gone(
    world: World,
    make_registration: Callable[..., BrokerRegistration],
    fields: dict[str, str],
    alive: bool,
    refused: bool,
) -> None:
    event = RegisterBroker(make_registration(1, start_id="again", **fields), "", alive)
    if not refused:
        assert world.do(event)["broker_epoch"] == 4
        return
    with pytest.raises(RefusedError, match=r"127\.0\.0\.1:9093.*another node\.id") as refusal:
        world.do(event)
    assert refusal.value.code is RefusalCode.DUPLICATE_BROKER_REGISTRATION


def test_a_registration_needs_a_start_id_and_endpoints(
    make_world: Callable[..., World], make_registration: Callable[..., BrokerRegistration]
) -> None:
    for fields in ({"start_id": ""}, {"endpoints": ()}):
        with pytest.raises(RefusedError, match="needs"):
            make_world().do(RegisterBroker(make_registration(0, **fields), ""))


def test_another_disk_is_recorded_in_the_partitions(world: World) -> None:
    world.create("t", partitions=3)
    index = world.leaders("t").index(0)
    assert world.partitions("t")[index].directories == ("disk-0",)
    world.start_broker(0, start_id="again", directory_id="new-disk")
    assert world.partitions("t")[index].directories == ("new-disk",)


def test_a_stale_incarnation_can_do_nothing(world: World) -> None:
    old = world.state.image.brokers[0].broker_epoch
    world.start_broker(0, start_id="again")
    for event in (UnfenceBroker(0, old), ShutDownBroker(0, old), UnfenceBroker(9, 1)):
        with pytest.raises(RefusedError) as refused:
            world.do(event)
        assert refused.value.code is RefusalCode.STALE_BROKER_EPOCH
    decision = world.decide(FenceBroker(0, old, FenceReason.SESSION_EXPIRED))
    assert decision.changes == ()


def test_a_fenced_broker_is_fenced_once(world: World) -> None:
    event = FenceBroker(0, world.state.image.brokers[0].broker_epoch, FenceReason.STOPPED)
    world.do(event)
    assert world.decide(event).changes == ()


def test_controlled_shutdown_gives_up_all_leaders(world: World) -> None:
    world.create("t", partitions=6)
    epoch = world.state.image.brokers[1].broker_epoch
    assert world.do(ShutDownBroker(1, epoch)) == {"remaining_leaders": 0}
    assert 1 not in world.leaders("t")
    assert not world.state.image.is_live(1)
    assert world.create("u", partitions=4)["error_code"] == 0
    assert 1 not in world.leaders("u")
    world.do(UnfenceBroker(1, epoch))
    assert not world.state.image.is_live(1), "its heartbeats do not bring it back"
    assert world.decide(ShutDownBroker(1, epoch)).changes == ()


def test_a_stop_that_was_announced_ends_with_the_broker_and_not_with_its_start_id(
    world: World,
) -> None:
    """The process after it may have the same one, if the stop came before any image did."""
    world.create("t", partitions=6)
    epoch = world.epoch(1)
    world.do(ShutDownBroker(1, epoch))
    world.fence(1)
    assert world.register(1) == epoch
    assert not world.state.image.is_live(1)
    world.do(UnfenceBroker(1, epoch))
    assert world.state.image.is_live(1)
    assert 1 in world.leaders("t")


def test_a_broker_of_very_many_partitions_leaves_them_in_parts_its_leaders_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One decision about all of them would keep the controller from renewing its Lease."""
    monkeypatch.setattr(registration, "LEFT_PER_DECISION_MAX", 2)
    world.create("t", partitions=9, replication_factor=3)
    world.create("alone", partitions=6)
    stop = ShutDownBroker(1, world.epoch(1))
    led = len([leader for name in ("t", "alone") for leader in world.leaders(name) if leader == 1])
    assert led > 2
    remaining: list[int] = []
    while not remaining or remaining[-1]:
        decision = world.decide(stop)
        assert len(decision.moves) <= 2
        remaining.append(world.do(stop)["remaining_leaders"])
        left = [leader for name in ("t", "alone") for leader in world.leaders(name) if leader == 1]
        assert len(left) == max(0, led - 2 * len(remaining)), "those that it leads come first"
    assert remaining == sorted(remaining, reverse=True)
    topic = world.state.image.topic("t")
    assert topic is not None
    assert all(1 not in partition.isr for partition in topic.partitions)


def test_after_a_restart_of_the_controller_nothing_moves_until_brokers_are_missed(
    world: World,
) -> None:
    world.create("t", partitions=3)
    image = world.state.image
    world.state = initial_state(image, controller_epoch=2, counters=CountersChanged(9, 0))
    assert world.decide(ElectLeaders()).changes == ()
    assert not world.state.is_electable(0)
    world.do(RegisterBroker(image.brokers[0], "this-cluster"))
    assert world.state.is_electable(0)
    assert world.partitions("t") == there(image.topic("t")).partitions


def test_after_loading_leaders_on_fenced_brokers_are_taken_away(world: World) -> None:
    world.create("t", partitions=3)
    image = world.state.image
    brokers = {**image.brokers, 1: replace(image.brokers[1], fenced=True)}
    torn = replace(image, brokers=brokers)
    world.state = initial_state(torn, controller_epoch=2, counters=CountersChanged(9, 0))
    world.do(ElectLeaders())
    assert sorted(world.leaders("t")) == [-1, 0, 2]


def test_loads_follow_placement_and_deletion(world: World) -> None:
    world.create("t", partitions=6)
    assert {load.replicas for load in world.state.loads.values()} == {2}
    assert {load.preferred_leaders for load in world.state.loads.values()} == {2}
