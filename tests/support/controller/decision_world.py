"""Short forms of a controller's state and events, for tests of decisions."""

import random
from collections.abc import Mapping
from typing import Any

from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.events import (
    AlterPartition,
    CreateTopics,
    Decision,
    Event,
    FenceBroker,
    FenceReason,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.state import ControllerState, CountersChanged, initial_state
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.cluster import TopicImage, empty_image
from fairlead_model.session.calls import CreatableTopic, CreateTopicsCall
from fairlead_model.session.refusals import RefusedError


def registration(broker_id: int, **fields: Any) -> BrokerRegistration:
    """Return a broker's registration."""
    defaults: dict[str, Any] = {
        "endpoints": (
            Endpoint("CLIENT", "127.0.0.1", 9092 + broker_id),
            Endpoint("INTERNAL", "127.0.0.1", 9192 + broker_id, is_internal=True),
        ),
        "host_name": f"host-{broker_id}",
        "directory_id": f"disk-{broker_id}",
        "start_id": f"start-{broker_id}",
    }
    return BrokerRegistration(broker_id, **(defaults | fields))


def creatable(name: str, **fields: Any) -> CreatableTopic:
    """One topic of a CreateTopics request."""
    topic = CreatableTopic(
        name=name, partitions=1, replication_factor=1, assignments={}, configs={}
    )
    topic.update(fields)  # type: ignore[typeddict-item]
    return topic


def create_topics(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopics:
    """Return a CreateTopics request in the form in which a broker forwards it."""
    return CreateTopics(
        CreateTopicsCall(
            topics=list(topics),
            validate_only=validate_only,
            default_partitions=2,
            default_replication_factor=1,
        )
    )


def there(topic: TopicImage | None) -> TopicImage:
    """Return a topic, which must exist."""
    assert topic is not None
    return topic


def reply_of(decision: Decision) -> Mapping[str, Any]:
    """Return the reply of a decision that is no refusal."""
    assert decision.reply is not None and not isinstance(decision.reply, RefusedError)
    return decision.reply


class World:
    """A state to which decisions are applied at once."""

    def __init__(self, brokers: int = 0) -> None:
        self.random = random.Random(1)
        self.state: ControllerState = initial_state(
            empty_image("this-cluster"), controller_epoch=1, counters=CountersChanged(1, 0)
        )
        for broker_id in range(brokers):
            self.start_broker(broker_id)

    def decide(self, event: Event) -> Decision:
        """Decide without applying."""
        return decide(self.state, event, now_ms=0, random=self.random)

    def do(self, event: Event) -> Any:
        """Decide and apply; return the reply, or raise it if it is a refusal."""
        decision = self.decide(event)
        self.state = self.state.apply(decision.changes)
        if isinstance(decision.reply, RefusedError):
            raise decision.reply
        return decision.reply

    def register(self, broker_id: int, **fields: Any) -> int:
        """Register a broker; return its epoch."""
        event = RegisterBroker(registration(broker_id, **fields), "")
        return int(self.do(event)["broker_epoch"])

    def start_broker(self, broker_id: int, **fields: Any) -> int:
        """Register a broker and unfence it; return its epoch."""
        epoch = self.register(broker_id, **fields)
        self.do(UnfenceBroker(broker_id, epoch))
        return epoch

    def epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's registration."""
        return self.state.image.brokers[broker_id].broker_epoch

    def fence(self, *broker_ids: int) -> None:
        """Declare brokers dead, one after the other."""
        for broker_id in broker_ids:
            self.do(FenceBroker(broker_id, self.epoch(broker_id), FenceReason.SESSION_EXPIRED))

    def restart(self, broker_id: int, start_id: str, *, clean: bool = True) -> int:
        """Register a new start of a broker, with the disk of the last one, and unfence it."""
        return self.start_broker(
            broker_id,
            start_id=start_id,
            is_clean=clean,
            previous_broker_epoch=self.epoch(broker_id),
        )

    def propose(self, *isr: int, name: str = "t") -> Any:
        """Let the leader of partition 0 propose an ISR; return the outcome."""
        topic = self.topic(name)
        partition = topic.partitions[0]
        proposal: Any = {
            "topic_id": topic.topic_id,
            "index": 0,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "isr": [[each, self.epoch(each)] for each in isr],
        }
        call: Any = {"broker_epoch": self.epoch(partition.leader), "partitions": [proposal]}
        return self.do(AlterPartition(partition.leader, call))["partitions"][0]

    def partition(self, name: str = "t", index: int = 0) -> Any:
        """One partition."""
        return self.partitions(name)[index]

    def sets(self, name: str = "t", index: int = 0) -> tuple[int, str, str, str]:
        """Return a partition's leader, ISR, ELR and last known ELR in short form."""
        partition = self.partition(name, index)
        members = (partition.isr, partition.elr, partition.last_known_elr)
        texts = ["".join(map(str, each)) for each in members]
        return (partition.leader, texts[0], texts[1], texts[2])

    def create(self, name: str, **fields: Any) -> Any:
        """Create a topic; return the outcome."""
        return self.do(create_topics(creatable(name, **fields)))["topics"][0]

    def partitions(self, name: str) -> Any:
        """The partitions of a topic."""
        return self.topic(name).partitions

    def leaders(self, name: str) -> list[int]:
        """The leaders of a topic's partitions."""
        return [partition.leader for partition in self.partitions(name)]

    def topic(self, name: str) -> TopicImage:
        """Return a topic, which must exist."""
        return there(self.state.image.topic(name))
