"""Partitions that moved after the copy was made that is restored: who holds them leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fairlead_controller.decisions.events import (
    AdvanceReassignments,
    ElectOnRequest,
    RegisterBroker,
    ReportLogs,
    UnfenceBroker,
)
from fairlead_controller.decisions.restored_holders import unheard_brokers
from fairlead_controller.decisions.state import initial_state
from fairlead_controller.decisions.tables.new_beginning import new_beginning
from fairlead_controller.decisions.tables.stored_table import HighestSeen
from fairlead_model.cluster import BrokerConfigsChanged, PartitionChanged
from fairlead_model.configs.config_values import BROKER_DRAIN

if TYPE_CHECKING:
    from collections.abc import Callable


class Restored:
    """A cluster that begins anew with a copy, in which brokers 0 and 1 hold partition t-0."""

    def __init__(self, world: Any, registration: Callable[..., Any], **fields: Any) -> None:
        self.world = world
        self._registration = registration
        if fields:
            record = world.partition().changed(**fields)
            self.apply(PartitionChanged(self.topic_id, 0, record))
        self.apply(*new_beginning(world.state, HighestSeen()))
        world.state = initial_state(
            world.state.image, controller_epoch=9, counters=world.state.counters
        )

    @property
    def topic_id(self) -> Any:
        return self.world.topic("t").topic_id

    def apply(self, *changes: Any) -> None:
        self.world.state = self.world.state.apply(changes)

    def register(self, broker_id: int, *, holds: bool, index: int = 0, **fields: Any) -> None:
        asking = self._registration(broker_id, **({"start_id": f"after-{broker_id}"} | fields))
        held = ((self.topic_id, index), (b"x" * 16, 0)) if holds else ()
        self.world.do(RegisterBroker(asking, "", held=held))

    def serve(self, broker_id: int, last_epoch: int = -1, end: int = 0) -> None:
        """Put a broker into service, which reports how far its log goes if it is a replica."""
        epoch, partition = self.world.epoch(broker_id), self.world.partition()
        self.world.do(UnfenceBroker(broker_id, epoch))
        entry: Any = {
            "topic_id": self.topic_id,
            "index": 0,
            "leader_epoch": partition.leader_epoch,
            "last_epoch": last_epoch,
            "log_end_offset": end,
        }
        self.world.do(ReportLogs(broker_id, {"broker_epoch": epoch, "partitions": [entry]}))

    @property
    def leader(self) -> int:
        return int(self.world.partition().leader)


@pytest.fixture
def restored(make_world: Any, make_registration: Any) -> Callable[..., Restored]:
    def restore(brokers: int = 4, **fields: Any) -> Restored:
        world = make_world(brokers)
        world.create("t", assignments={0: [0, 1]}, partitions=-1, replication_factor=-1)
        return Restored(world, make_registration, **fields)

    return restore


def test_the_new_holders_of_a_partition_that_moved_become_replicas_and_lead(restored: Any) -> None:
    cluster = restored()
    for broker_id in (2, 3):
        cluster.register(broker_id, holds=True)
    for broker_id in (0, 1):
        cluster.register(broker_id, holds=False)
    partition = cluster.world.partition()
    assert partition.replicas == partition.last_known_elr == (0, 1, 2, 3)
    assert partition.directories == ("disk-0", "disk-1", "disk-2", "disk-3")
    for broker_id in (0, 1):
        cluster.serve(broker_id)
    cluster.serve(2, 7, 90)
    assert cluster.leader == -1, "3 may have more"
    cluster.serve(3, 7, 100)
    assert cluster.leader == 3


def test_a_new_holder_whose_settings_have_another_minimum_registers(restored: Any) -> None:
    """`min.insync.replicas` was raised in the brokers' settings since the copy was made."""
    cluster = restored()
    cluster.register(2, holds=True, min_insync_replicas=2)
    partition = cluster.world.partition()
    assert (partition.replicas, partition.min_insync_replicas) == ((0, 1, 2), 2)


def test_who_comes_first_does_not_lead_before_all_have_said_what_they_hold(restored: Any) -> None:
    """The replicas of the copy are back and empty before the new holders ask."""
    cluster = restored()
    for broker_id in (0, 1, 3):
        cluster.register(broker_id, holds=False)
        cluster.serve(broker_id)
    assert (cluster.leader, list(unheard_brokers(cluster.world.state))) == (-1, [2])
    cluster.register(2, holds=True)
    assert cluster.leader == -1
    cluster.serve(2, 7, 90)
    assert cluster.leader == 2


def test_the_only_replica_of_the_copy_waits_for_others_too(restored: Any) -> None:
    cluster = restored(replicas=(0,), isr=(0,), directories=())
    cluster.register(0, holds=False)
    cluster.serve(0)
    assert cluster.leader == -1
    for broker_id in (1, 2):
        cluster.register(broker_id, holds=False)
        assert cluster.leader == -1
    cluster.register(3, holds=False)
    assert cluster.leader == 0, "nobody else holds it"


def test_a_drained_broker_that_holds_nothing_is_not_waited_for(restored: Any) -> None:
    cluster = restored()
    for drained in ("1", "3"):
        cluster.apply(BrokerConfigsChanged(drained, {BROKER_DRAIN: "true"}))
    assert list(unheard_brokers(cluster.world.state)) == [0, 1, 2]
    cluster.register(2, holds=False)
    for broker_id in (0, 1):
        cluster.register(broker_id, holds=False)
        cluster.serve(broker_id)
    assert cluster.leader == 0


def test_who_does_not_come_back_and_holds_nothing_may_be_drained(restored: Any) -> None:
    cluster = restored()
    for broker_id in (0, 1, 2):
        cluster.register(broker_id, holds=False)
    for broker_id in (0, 1):
        cluster.serve(broker_id)
    cluster.world.do(AdvanceReassignments())
    assert (cluster.leader, list(unheard_brokers(cluster.world.state))) == (-1, [3])
    cluster.apply(BrokerConfigsChanged("3", {BROKER_DRAIN: "true"}))
    cluster.world.do(AdvanceReassignments())
    assert cluster.leader == 0


def test_a_holder_of_which_the_copy_knows_nothing_is_a_replica_too(restored: Any) -> None:
    cluster = restored(brokers=2)
    cluster.register(7, holds=True)
    cluster.serve(7, 7, 90)
    assert (cluster.world.partition().replicas, cluster.leader) == ((0, 1, 7), -1)
    for broker_id in (0, 1):
        cluster.register(broker_id, holds=False)
        cluster.serve(broker_id)
    assert cluster.leader == 7


def test_only_the_first_registration_of_a_partition_that_nobody_leads_counts(restored: Any) -> None:
    cluster = restored()
    cluster.register(2, holds=True, index=1)
    cluster.register(2, holds=True)
    cluster.register(2, holds=True, start_id="later")
    assert cluster.world.partition().replicas == (0, 1)
    for broker_id in (0, 1, 3):
        cluster.register(broker_id, holds=False)
        cluster.serve(broker_id)
    assert cluster.leader == 0
    cluster.register(8, holds=True)
    assert cluster.world.partition().replicas == (0, 1)


def test_nothing_is_removed_on_the_word_of_a_copy(restored: Any) -> None:
    """Broker 2, which was removed then, may have got the partition again."""
    cluster = restored(unconfirmed_removals=(2,))
    assert cluster.world.partition().unconfirmed_removals == ()
    cluster.register(2, holds=True)
    assert cluster.world.partition().replicas == (0, 1, 2)


def test_an_unclean_election_by_hand_takes_the_fullest_log_that_is_known(restored: Any) -> None:
    """Broker 1 does not return; broker 0 is back empty, and first of the assignment."""
    cluster = restored()
    cluster.register(0, holds=False)
    cluster.serve(0)
    cluster.register(2, holds=True)
    cluster.serve(2, 7, 90)
    assert cluster.leader == -1
    partitions: Any = [{"topic": "t", "index": 0}]
    cluster.world.do(ElectOnRequest({"election_type": 1, "partitions": partitions}))
    assert cluster.leader == 2
