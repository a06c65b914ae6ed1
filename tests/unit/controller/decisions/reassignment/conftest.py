"""Words for tests of reassignments."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fairlead_controller.decisions.events import (
    AdvanceReassignments,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    ConfirmDeletions,
    ListReassignments,
)
from fairlead_model.configs.broker_configs import BROKER_DRAIN
from fairlead_model.ids import topic_id_text
from fairlead_model.session.calls import (
    AlterConfigsCall,
    AlterOperation,
    AlterPartitionCall,
    AlterReassignmentsCall,
    ConfirmedRemoval,
    IsrProposal,
    ListReassignmentsCall,
    ReassignablePartition,
    ResourceType,
)
from fairlead_model.session.refusals import RefusalCode


class Mover:
    """A world, and what users, leaders and removed replicas say in it."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def ask(
        self, *partitions: tuple[str, int, list[int] | None], may_resize: bool = True
    ) -> list[RefusalCode]:
        """Ask for reassignments; the code of each."""
        call = AlterReassignmentsCall(
            partitions=[
                ReassignablePartition(topic=topic, index=index, replicas=replicas)
                for topic, index, replicas in partitions
            ],
            allow_replication_factor_change=may_resize,
        )
        self.answers = self.world.do(AlterReassignments(call))["partitions"]
        return [RefusalCode(answer["error_code"]) for answer in self.answers]

    def move(self, *replicas: int, topic: str = "t", index: int = 0) -> RefusalCode:
        """Ask for one reassignment."""
        return self.ask((topic, index, list(replicas)))[0]

    def cancel(self, topic: str = "t", index: int = 0) -> RefusalCode:
        return self.ask((topic, index, None))[0]

    def propose(self, *isr: int, topic: str = "t", index: int = 0) -> dict[str, Any]:
        """Let the leader propose an ISR; the answer."""
        partition = self.world.partition(topic, index)
        proposal = IsrProposal(
            topic_id=self.world.state.image.topic(topic).topic_id,
            index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=[[member, self.world.epoch(member)] for member in isr],
        )
        call = AlterPartitionCall(
            broker_epoch=self.world.epoch(partition.leader), partitions=[proposal]
        )
        (answer,) = self.world.do(AlterPartition(partition.leader, call))["partitions"]
        return dict(answer)

    def catch_up(self) -> None:
        """Let every live replica of what moves come in sync."""
        image = self.world.state.image
        for topic_id, index in sorted(self.world.state.moves.running):
            topic = image.topic_by_id(topic_id)
            partition = topic.partitions[index]
            live = [each for each in partition.replicas if image.is_live(each)]
            if set(live) != set(partition.isr) and partition.has_leader:
                self.propose(*live, topic=topic.name, index=index)

    def tick(self, *given_up: int) -> dict[int, int]:
        """Let the controller look after reassignments; what cannot be moved, by broker."""
        return dict(self.world.do(AdvanceReassignments(frozenset(given_up)))["waiting"])

    def settle(self) -> None:
        """Let everything move to its end."""
        for _ in range(1000):
            before = self.world.state
            self.catch_up()
            self.tick()
            if self.world.state.image.topics_by_id is before.image.topics_by_id:
                return
        raise AssertionError("it never comes to an end")

    def confirm(self, broker_id: int, topic: str = "t", index: int = 0, *, epoch: int = -1) -> None:
        """Let a broker say that it has deleted its replica, in the epoch of its record."""
        partition = self.world.partition(topic, index)
        removal = ConfirmedRemoval(
            topic_id=self.world.state.image.topic(topic).topic_id,
            index=index,
            leader_epoch=partition.leader_epoch if epoch < 0 else epoch,
        )
        self.world.do(ConfirmDeletions(broker_id, [], [removal]))

    def listed(self, *partitions: tuple[str, int]) -> list[tuple[list[int], list[int], list[int]]]:
        """Replicas, adding, removing of what moves."""
        wanted: Any = [{"topic": topic, "index": index} for topic, index in partitions] or None
        call = ListReassignmentsCall(partitions=wanted)
        found = self.world.do(ListReassignments(call))["partitions"]
        return [(each["replicas"], each["adding"], each["removing"]) for each in found]

    def drain(self, broker_id: int, value: str | None = "true") -> tuple[RefusalCode, str]:
        """Set or, with None, unset the order to drain."""
        return self.set_configs(broker_id, {BROKER_DRAIN: value})

    def set_configs(
        self, broker_id: int, configs: Mapping[str, str | None]
    ) -> tuple[RefusalCode, str]:
        """Set or, with None, unset dynamic configs of a broker."""
        call = AlterConfigsCall(
            resources=[
                {
                    "resource_type": ResourceType.BROKER,
                    "name": str(broker_id),
                    "alterations": [
                        {
                            "name": name,
                            "operation": AlterOperation.DELETE
                            if value is None
                            else AlterOperation.SET,
                            "value": value,
                        }
                        for name, value in configs.items()
                    ],
                }
            ],
            validate_only=False,
            incremental=True,
        )
        (answer,) = self.world.do(AlterConfigs(call))["resources"]
        return RefusalCode(answer["error_code"]), str(answer["error_message"])

    def undrain(self, broker_id: int) -> tuple[RefusalCode, str]:
        return self.drain(broker_id, None)

    def held(self, broker_id: int) -> list[str]:
        """The replicas that a broker has or may still have."""
        return sorted(
            f"{topic.name}-{index}"
            for topic in self.world.state.image.topics()
            for index, partition in enumerate(topic.partitions)
            if broker_id in (*partition.replicas, *partition.unconfirmed_removals)
        )

    def topic_id(self, topic: str = "t") -> str:
        return topic_id_text(self.world.state.image.topic(topic).topic_id)


@pytest.fixture
def make_mover(make_world: Callable[..., Any]) -> Callable[[int], Mover]:
    return lambda brokers: Mover(make_world(brokers))


@pytest.fixture
def mover(make_mover: Callable[[int], Mover]) -> Mover:
    """Six brokers, and a topic t of one partition on brokers 0 1 2, led by 0."""
    mover = make_mover(6)
    mover.world.create(
        "t",
        partitions=-1,
        replication_factor=-1,
        assignments={0: [0, 1, 2]},
        configs={"min.insync.replicas": "2"},
    )
    return mover
