"""Commands about the controller's decisions: events go into `decide`, and what it changes is told.

A decision's own sentences are its output, and why each partition changes; then the brokers, topics
and partitions that have changed, as they are now. What is not stored is marked as such.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.events import (
    AlterConfigs,
    AlterPartition,
    BalanceLeaders,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DrainBrokers,
    ElectLeaders,
    ElectOnRequest,
    FenceBroker,
    FenceReason,
    RegisterBroker,
    ReportLogs,
    ReportOffline,
    ShutDownBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.observations import LogsReported, ReplicasOffline
from fairlead_controller.decisions.state import (
    BrokerConfirmed,
    BrokerDraining,
    CountersChanged,
    initial_state,
)
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.cluster import empty_image
from fairlead_model.delta import (
    BrokerChanged,
    BrokerConfigsChanged,
    PartitionChanged,
    TopicChanged,
    TopicRemoved,
)
from fairlead_model.ids import ZERO_TOPIC_ID
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration
from fairlead_model.session.calls import AlterOperation, ElectionType, ResourceType
from fairlead_model.session.refusals import RefusalCode, RefusedError
from transcripts.transcript import CommandError, Ids, Interpreter, command

if TYPE_CHECKING:
    from fairlead_controller.decisions.events import Event
    from fairlead_controller.decisions.state import ControllerChange, ControllerState
    from fairlead_model.cluster import TopicImage
    from fairlead_model.session.calls import (
        AlterableResource,
        AlterConfigsCall,
        AlterPartitionCall,
        ConfigAlteration,
        CreatableTopic,
        CreateTopicsCall,
        DeletableTopic,
        ElectablePartition,
        ElectLeadersCall,
        GrowableTopic,
        IsrProposal,
        LocatedPartition,
        LogEnd,
        ReportLogsCall,
        ReportOfflineCall,
    )

RETURNS = ("clean", "killed", "power-lost", "empty-disk")


class ControllerTranscript(Interpreter):
    """The state that the decisions so far have led to, as if each were committed at once."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(1)
        self._controller_epoch = 1
        self._state: ControllerState = initial_state(
            empty_image("transcript"), controller_epoch=1, counters=CountersChanged(1, 0)
        )

    @command
    def register(self, broker: int, *, host: str = "", min_insync: int = 1) -> None:
        """Register a broker for the first time."""
        self._register(self._registration(broker, host=host, min_insync=min_insync))

    @command
    def unfence(self, broker: int) -> None:
        """Put a registered broker into service."""
        self._decide(UnfenceBroker(broker, self._known(broker).broker_epoch))

    @command
    def brokers(self, ids: Ids) -> None:
        """Register brokers, put them into service, and say nothing of it."""
        for broker_id in ids:
            self.register(broker_id)
            self.unfence(broker_id)
        self._said.clear()

    @command
    def fence(self, *brokers: int) -> None:
        """Declare brokers dead, one after the other."""
        for broker_id in brokers:
            epoch = self._known(broker_id).broker_epoch
            self._decide(FenceBroker(broker_id, epoch, FenceReason.SESSION_EXPIRED))

    @command
    def restart(self, broker: int, how: str) -> None:
        """Register a new start: clean, killed (the page cache is there), power-lost, empty-disk."""
        if how not in RETURNS:
            raise CommandError(f"a broker restarts as one of {', '.join(RETURNS)}, not {how!r}")
        known = self._known(broker)
        start = f"start-after-{known.broker_epoch}"
        previous = -1 if how == "empty-disk" else known.broker_epoch
        self._register(
            self._registration(
                broker,
                host=known.host_name,
                min_insync=known.min_insync_replicas,
                start_id=start,
                directory_id=start if how == "empty-disk" else known.directory_id,
                previous_broker_epoch=previous,
                is_clean=how == "clean",
                boot_id="boot" if how == "killed" else start,
                is_recovered_whole=how == "killed",
            )
        )
        self.unfence(broker)

    @command
    def shut_down(self, broker: int) -> None:
        """Tell that a broker is about to stop, as it asks until it leads nothing."""
        self._decide(ShutDownBroker(broker, self._known(broker).broker_epoch))

    @command
    def drain(self, brokers: Ids) -> None:
        """Name all brokers that are to lead only what nobody else can."""
        self._decide(DrainBrokers(dict.fromkeys(brokers, "somebody asked for it")))

    @command
    def new_controller(self) -> None:
        """Let another controller load what is stored and take over."""
        self._controller_epoch += 1
        self._state = initial_state(
            self._state.image,
            controller_epoch=self._controller_epoch,
            counters=self._state.counters,
        )
        self._decide(ElectLeaders())

    @command
    def back(self, broker: int) -> None:
        """Register the same start of a broker again, as it does with each new controller."""
        self._decide(RegisterBroker(self._known(broker), ""))

    @command
    def create(
        self,
        topic: str,
        *,
        replicas: Ids | None = None,
        partitions: int = 1,
        replication_factor: int = 1,
        **configs: str,
    ) -> None:
        """Create a topic: one partition on these replicas, or partitions that are placed."""
        is_assigned = replicas is not None
        creatable: CreatableTopic = {
            "name": topic,
            "partitions": -1 if is_assigned else partitions,
            "replication_factor": -1 if is_assigned else replication_factor,
            "assignments": {0: list(replicas)} if replicas is not None else {},
            "configs": {**configs},
        }
        call: CreateTopicsCall = {
            "topics": [creatable],
            "validate_only": False,
            "default_partitions": 1,
            "default_replication_factor": 1,
        }
        self._decide(CreateTopics(call))

    @command
    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        growable: GrowableTopic = {"name": topic, "count": partitions, "assignments": None}
        self._decide(CreatePartitions({"topics": [growable], "validate_only": False}))

    @command
    def delete(self, topic: str) -> None:
        """Delete a topic."""
        deletable: DeletableTopic = {"name": topic, "topic_id": ZERO_TOPIC_ID}
        self._decide(DeleteTopics({"topics": [deletable]}))

    @command
    def alter(self, resource: str, *unset: str, **configs: str) -> None:
        """Set configs of a topic, or of all brokers (`cluster`); names alone are unset."""
        is_cluster = resource == "cluster"
        alterations = [
            *(_alteration(name, AlterOperation.SET, value) for name, value in configs.items()),
            *(_alteration(name, AlterOperation.DELETE, None) for name in unset),
        ]
        altered: AlterableResource = {
            "resource_type": ResourceType.BROKER if is_cluster else ResourceType.TOPIC,
            "name": "" if is_cluster else resource,
            "alterations": alterations,
        }
        call: AlterConfigsCall = {
            "resources": [altered],
            "validate_only": False,
            "incremental": True,
        }
        self._decide(AlterConfigs(call))

    @command
    def propose(
        self,
        topic: str,
        *,
        isr: Ids,
        by: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        broker_epoch: int | None = None,
    ) -> None:
        """Ask as a leader for another set in sync; unless said otherwise, with today's epochs."""
        partition = self._topic(topic).partitions[0]
        leader = partition.leader if by is None else by
        proposal: IsrProposal = {
            **self._located(topic),
            "leader_epoch": _or(leader_epoch, partition.leader_epoch),
            "partition_epoch": _or(partition_epoch, partition.partition_epoch),
            "isr": [[member, self._known(member).broker_epoch] for member in isr],
        }
        epoch = _or(broker_epoch, self._known(leader).broker_epoch)
        call: AlterPartitionCall = {"broker_epoch": epoch, "partitions": [proposal]}
        self._decide(AlterPartition(leader, call))

    @command
    def elect(self, topic: str, how: str) -> None:
        """Ask by hand for an election: preferred or unclean."""
        if how.upper() not in ElectionType.__members__:
            raise CommandError(f"an election is preferred or unclean, not {how!r}")
        partitions: list[ElectablePartition] = [{"topic": topic, "index": 0}]
        election = ElectionType[how.upper()]
        call: ElectLeadersCall = {"election_type": election, "partitions": partitions}
        self._decide(ElectOnRequest(call))

    @command
    def balance(self) -> None:
        """Let preferred leaders lead again where too many do not."""
        self._decide(BalanceLeaders())

    @command
    def report_log(self, broker: int, topic: str, *, last_epoch: int, end: int) -> None:
        """Tell how far a broker's log of a leaderless partition goes."""
        log: LogEnd = {
            **self._located(topic),
            "leader_epoch": self._topic(topic).partitions[0].leader_epoch,
            "last_epoch": last_epoch,
            "log_end_offset": end,
        }
        epoch = self._known(broker).broker_epoch
        call: ReportLogsCall = {"broker_epoch": epoch, "partitions": [log]}
        self._decide(ReportLogs(broker, call))

    @command
    def report_offline(self, broker: int, topic: str) -> None:
        """Tell that a broker's disk has failed its replica."""
        call: ReportOfflineCall = {
            "broker_epoch": self._known(broker).broker_epoch,
            "partitions": [self._located(topic)],
            "is_unclean": True,
        }
        self._decide(ReportOffline(broker, call))

    @command
    def show(self, *topics: str) -> None:
        """Print topics and their partitions, all if none is named."""
        image = self._state.image
        for name in topics or tuple(sorted(topic.name for topic in image.topics())):
            topic = self._topic(name)
            for index, partition in enumerate(topic.partitions):
                self.say(_partition(name, index, partition))

    def _decide(self, event: Event) -> None:
        before = self._state
        decision = decide(before, event, now_ms=0, random=self._random)
        self._state = before.apply(decision.changes)
        for sentence in decision.explanations:
            self.say(sentence)
        for move in sorted(decision.moves, key=lambda move: (move.topic, move.index)):
            why = f": {move.reason}" if move.reason else ""
            self.say(f"{move.topic}-{move.index}: {move.cause}{why}")
        self._say_refusals(decision.reply)
        partitions: set[tuple[str, int]] = set()
        for change in decision.changes:
            if isinstance(change, PartitionChanged):
                topic = self._state.image.topics_by_id[change.topic_id]
                partitions.add((topic.name, change.index))
            elif (said := self._describe(change, before)) is not None:
                self.say(said)
        for name, index in sorted(partitions):
            self.say(f"=> {_partition(name, index, self._topic(name).partitions[index])}")

    def _say_refusals(self, reply: Any) -> None:
        if isinstance(reply, RefusedError):
            self.say(f"refused: {reply.code.name}: {reply.message}")
            return
        for results in (reply or {}).values():
            for result in results if isinstance(results, list) else ():
                if code := result["error_code"]:
                    self.say(f"refused: {RefusalCode(code).name}: {result['error_message']}")
        remaining = (reply or {}).get("remaining_leaders")
        if remaining:
            total = sum(remaining.values()) if isinstance(remaining, dict) else remaining
            self.say(f"leaders that remain: {total}")

    def _describe(self, change: ControllerChange, before: ControllerState) -> str | None:
        image = self._state.image
        match change:
            case BrokerChanged(registration):
                state = "fenced" if registration.fenced else "in service"
                if registration.in_controlled_shutdown:
                    state += ", stopping"
                epoch = registration.broker_epoch
                return f"=> broker {registration.broker_id}: epoch {epoch}, {state}"
            case TopicChanged(header):
                configs = " ".join(f"{key}={value}" for key, value in header.configs.items())
                about = f"{header.state.value}, partitions {header.partition_count}"
                return f"=> topic {header.name}: {about}{', ' if configs else ''}{configs}"
            case TopicRemoved(topic_id):
                return f"=> topic {before.image.topics_by_id[topic_id].name} is removed"
            case BrokerConfigsChanged(broker, configs):
                said = " ".join(f"{key}={value}" for key, value in configs.items()) or "nothing set"
                return f"=> configs of {broker or 'all brokers'}: {said}"
            case BrokerDraining(broker_id, is_draining):
                return (
                    f"=> broker {broker_id} {'drains' if is_draining else 'may lead'}, not stored"
                )
            case ReplicasOffline(broker_id):
                return f"=> replicas of broker {broker_id} are offline, not stored"
            case LogsReported(broker_id):
                return f"=> the log of broker {broker_id} is known, not stored"
            case BrokerConfirmed() | CountersChanged() | PartitionChanged():
                return None
        raise AssertionError(f"{change} has no words yet, in {image.cluster_id}")

    def _registration(
        self, broker_id: int, *, host: str, min_insync: int, **fields: Any
    ) -> BrokerRegistration:
        about: dict[str, Any] = {
            "endpoints": (
                Endpoint("CLIENT", "127.0.0.1", 9092 + broker_id),
                Endpoint("INTERNAL", "127.0.0.1", 9192 + broker_id, is_internal=True),
            ),
            "host_name": host or f"host-{broker_id}",
            "directory_id": f"disk-{broker_id}",
            "start_id": f"start-{broker_id}",
            "boot_id": "boot",
            "min_insync_replicas": min_insync,
        }
        return BrokerRegistration(broker_id, **(about | fields))

    def _register(self, registration: BrokerRegistration) -> None:
        self._decide(RegisterBroker(registration, ""))

    def _known(self, broker_id: int) -> BrokerRegistration:
        known = self._state.image.brokers.get(broker_id)
        if known is None:
            raise CommandError(f"broker {broker_id} was never registered")
        return known

    def _topic(self, name: str) -> TopicImage:
        topic = self._state.image.topic(name)
        if topic is None:
            raise CommandError(f"there is no topic {name!r}")
        return topic

    def _located(self, name: str) -> LocatedPartition:
        return {"topic_id": self._topic(name).topic_id, "index": 0}


def _alteration(name: str, operation: AlterOperation, value: str | None) -> ConfigAlteration:
    return {"name": name, "operation": operation, "value": value}


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "none"


def _partition(name: str, index: int, partition: PartitionRegistration) -> str:
    """Return a partition's record in one line, without what is empty."""
    words = [f"{name}-{index}:"]
    words.append(f"leader {partition.leader}" if partition.has_leader else "no leader")
    words.append(f"(epoch {partition.leader_epoch})")
    words.append(f"isr {_ids(partition.isr)}")
    if partition.elr:
        words.append(f"elr {_ids(partition.elr)}")
    if partition.last_known_elr:
        words.append(f"last known elr {_ids(partition.last_known_elr)}")
    words.append(f"of {_ids(partition.replicas)}")
    if partition.min_insync_replicas != 1:
        words.append(f"min.insync {partition.min_insync_replicas}")
    if partition.leader_recovery_state is LeaderRecoveryState.RECOVERING:
        words.append("recovering")
    return " ".join(words)
