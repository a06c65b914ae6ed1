"""Requested reassignments (KIP-455, KIP-860); each partition is decided by itself.

A target is checked when it comes and again when its turn comes (`progress`). A reassignment that
copies nothing begins at once: another order, or fewer replicas.
"""

from collections import Counter

from fairlead_controller.decisions.draft import LEFT_OUT, Draft
from fairlead_controller.decisions.events import (
    AlterReassignments,
    Decision,
    ListReassignments,
    PartitionMove,
)
from fairlead_controller.decisions.leader_election import ElectionReason, Outcome
from fairlead_controller.decisions.leadership import moved
from fairlead_controller.decisions.reassignment.planning import Holdings
from fairlead_controller.decisions.reassignment.progress import Slots, begun, reverted
from fairlead_controller.decisions.running_reassignments import located
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_controller.decisions.topic_lookup import find_topic, refuse_declared
from fairlead_model.cluster import TopicImage
from fairlead_model.ids import BrokerId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.calls import (
    AlteredReassignment,
    OngoingReassignment,
    ReassignablePartition,
)
from fairlead_model.session.refusals import RefusalCode, RefusedError


def decide_reassignments(
    state: ControllerState, event: AlterReassignments, room: TableRoom | None = None
) -> Decision:
    """Queue, begin, replace or cancel reassignments."""
    draft = Draft(state, room)
    requests = _Requests(state, is_factor_fixed=not event.call["allow_replication_factor_change"])
    asked = Counter((item["topic"], item["index"]) for item in event.call["partitions"])
    results: list[AlteredReassignment] = []
    for item in event.call["partitions"]:
        code, message = RefusalCode.NONE, None
        try:
            if asked[item["topic"], item["index"]] > 1:
                raise RefusedError(RefusalCode.INVALID_REQUEST, "the partition is named twice")
            moves = requests.decide(item)
            draft.move(moves)
            if any((move.topic_id, move.index) in draft.left_out for move in moves):
                raise RefusedError(RefusalCode.UNKNOWN_SERVER_ERROR, LEFT_OUT)
        except RefusedError as refusal:
            code, message = refusal.code, refusal.message
        results.append(
            AlteredReassignment(
                topic=item["topic"],
                index=item["index"],
                error_code=int(code),
                error_message=message,
            )
        )
    return draft.decision({"partitions": results})


class _Requests:
    """The partitions of one request, all compared with the same state."""

    def __init__(self, state: ControllerState, *, is_factor_fixed: bool) -> None:
        self._state = state
        self._is_factor_fixed = is_factor_fixed
        self._holdings = Holdings(state)
        self._slots = Slots(state)

    def decide(self, item: ReassignablePartition) -> list[PartitionMove]:
        """Return what becomes of one partition, nothing if it is as asked; or RefusedError."""
        topic = find_topic(self._state, item["topic"])
        index = item["index"]
        if not 0 <= index < len(topic.partitions):
            raise RefusedError(
                RefusalCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name!r} has no partition {index}",
            )
        if item["replicas"] is None:
            record = self._cancelled(topic, index)
            return _moves(topic, index, record, "its reassignment was cancelled")
        target = tuple(item["replicas"])
        self._check(topic, index, target)
        return _moves(
            topic, index, self._asked(topic, index, target), "a reassignment was asked for"
        )

    def _asked(
        self, topic: TopicImage, index: int, target: tuple[BrokerId, ...]
    ) -> PartitionRegistration:
        partition = topic.partitions[index]
        if target == (partition.queued_target or partition.target_replicas):
            return partition
        if not partition.is_being_reassigned and target == partition.replicas:
            return partition.changed(queued_target=())
        additions = [each for each in target if each not in partition.replicas]
        # A running reassignment gets its new target at once, whatever else waits.
        may_begin = partition.is_being_reassigned or not additions
        if may_begin or (partition.has_leader and self._slots.has_room_for(partition, additions)):
            record = begun(self._state, topic, index, target)
            self._slots.take(record)
            return record
        return partition.changed(queued_target=target)

    def _cancelled(self, topic: TopicImage, index: int) -> PartitionRegistration:
        partition = topic.partitions[index]
        if not partition.is_being_reassigned:
            if not partition.queued_target:
                raise RefusedError(
                    RefusalCode.NO_REASSIGNMENT_IN_PROGRESS,
                    f"{topic.name}-{index} is not being reassigned",
                )
            return partition.changed(queued_target=())
        record = reverted(self._state, topic, index)
        if record is None:
            missing = [
                str(each) for each in partition.original_replicas if each not in partition.isr
            ]
            raise RefusedError(
                RefusalCode.INVALID_REPLICA_ASSIGNMENT,
                f"{topic.name}-{index} cannot go back to brokers "
                f"{', '.join(map(str, partition.original_replicas))}: too few of them are in sync "
                f"(missing: {', '.join(missing) or 'a leader'})",
            )
        return record

    def _check(self, topic: TopicImage, index: int, target: tuple[BrokerId, ...]) -> None:
        partition = topic.partitions[index]
        what = f"{topic.name}-{index}"
        if not target or len(set(target)) != len(target):
            raise _invalid(f"{what}: brokers {list(target)} are none, or named twice")
        factor = len(partition.original_replicas)
        if len(target) != factor:
            if self._is_factor_fixed:
                raise RefusedError(
                    RefusalCode.INVALID_REPLICATION_FACTOR,
                    # Kafka's own words: the slot of the reply says which partition it is.
                    f"The replication factor is changed from {factor} to {len(target)}",
                )
            refuse_declared(topic)
        for each in target:
            broker = self._state.image.brokers.get(each)
            if broker is None:
                raise _invalid(f"{what}: there is no broker {each}")
            if each in partition.target_replicas:
                continue
            if each in self._state.cordoned:
                raise _invalid(f"{what}: broker {each} is being drained")
            if each in self._state.shut and each not in partition.replicas:
                raise _invalid(f"{what}: all log directories of broker {each} are cordoned")
            if not broker.may_lead and each not in partition.replicas:
                raise _invalid(f"{what}: broker {each} is down")
        free = self._holdings.free_hosts(target)
        shared = self._holdings.shared_hosts(target)
        if free and shared > self._holdings.shared_hosts(partition.original_replicas):
            raise _invalid(
                f"{what}: of brokers {list(target)} two are on one machine, while {free[0]} has "
                "none of them"
            )


def _moves(
    topic: TopicImage, index: int, record: PartitionRegistration, cause: str
) -> list[PartitionMove]:
    return moved(topic, index, Outcome(record, ElectionReason.FIRST_IN_SYNC), cause)


def _invalid(message: str) -> RefusedError:
    return RefusedError(RefusalCode.INVALID_REPLICA_ASSIGNMENT, message)


def decide_listing(state: ControllerState, event: ListReassignments) -> Decision:
    """List what moves and what waits; unknown and quiet partitions are left out, as in Kafka."""
    wanted = event.call["partitions"]
    named = None if wanted is None else {(item["topic"], item["index"]) for item in wanted}
    ongoing = [
        _listed(topic, index)
        for topic, index in located(state.image, {*state.moves.running, *state.moves.queued})
        if named is None or (topic.name, index) in named
    ]
    return Decision(reply={"partitions": ongoing})


def _listed(topic: TopicImage, index: int) -> OngoingReassignment:
    """Return one reassignment; one that waits as it will be once it begins."""
    partition = topic.partitions[index]
    replicas, adding = partition.replicas, partition.adding_replicas
    removing = partition.removing_replicas
    if partition.queued_target:
        target = partition.queued_target
        removing = tuple([each for each in replicas if each not in target])
        adding = tuple([each for each in target if each not in replicas])
        replicas = (*target, *removing)
    return OngoingReassignment(
        topic=topic.name,
        index=index,
        replicas=list(replicas),
        adding=list(adding),
        removing=list(removing),
    )
