"""Handle AlterPartition: leaders propose other in-sync replicas for their partitions.

Each proposal is accepted or refused by itself (R9). Epochs are checked before the eligibility of
members, so that a leader with an old record learns that, and not that its members are wrong.
"""

from typing import NamedTuple

from fairlead_controller.decisions.draft import LEFT_OUT, Draft
from fairlead_controller.decisions.events import AlterPartition, Decision, PartitionMove
from fairlead_controller.decisions.full_disks import relieve
from fairlead_controller.decisions.leader_election import ElectionReason, Outcome, with_leader
from fairlead_controller.decisions.leadership import elect_in, moved
from fairlead_controller.decisions.membership import members_with_isr, present_members
from fairlead_controller.decisions.reassignment.progress import finishing
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.cluster import TopicImage
from fairlead_model.ids import NO_LEADER, BrokerEpoch, BrokerId, topic_id_text
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.calls import AlteredPartition, IsrProposal
from fairlead_model.session.refusals import RefusalCode, RefusedError


def check_broker_epoch(
    state: ControllerState, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> None:
    """Raise RefusedError if the broker epoch is that of another start of the broker."""
    known = state.image.brokers.get(broker_id)
    if known is None or known.broker_epoch != broker_epoch:
        raise RefusedError(
            RefusalCode.STALE_BROKER_EPOCH,
            f"epoch {broker_epoch} of broker {broker_id} is not the current one",
        )


def decide_isr_changes(state: ControllerState, event: AlterPartition) -> Decision:
    """Accept or refuse the proposals of one leader."""
    try:
        check_broker_epoch(state, event.broker_id, event.call["broker_epoch"])
    except RefusedError as refusal:
        return Decision(reply=refusal)
    draft = Draft(state)
    answers: list[_Answer] = []
    moves: list[PartitionMove] = []
    named: set[tuple[bytes, int]] = set()
    for proposal in event.call["partitions"]:
        key = (proposal["topic_id"], proposal["index"])
        partition: PartitionRegistration | None = None
        code, message = RefusalCode.NONE, None
        try:
            topic, partition = _find_partition(state, proposal)
            if key in named:
                raise RefusedError(RefusalCode.INVALID_REQUEST, "a partition is named twice")
            named.add(key)
            _check_epochs(partition, proposal, event.broker_id)
            _check_members(state, topic, partition, proposal, event.broker_id)
        except RefusedError as refusal:
            code, message = refusal.code, refusal.message
        else:
            outcome = _accept(state, topic, proposal)
            if partition.is_being_reassigned:
                outcome = finishing(state, topic, proposal["index"], outcome)
            cause = f"its leader {event.broker_id} proposed it"
            moves += moved(topic, proposal["index"], outcome, cause)
            partition = outcome.partition
        answers.append(_Answer(proposal, partition, code, message))
    draft.move(moves)
    return draft.decision({"partitions": [_result(answer, draft) for answer in answers]})


class _Answer(NamedTuple):
    """The answer to one proposal, and the partition's record if that is known."""

    proposal: IsrProposal
    partition: PartitionRegistration | None
    code: RefusalCode
    message: str | None


def _find_partition(
    state: ControllerState, proposal: IsrProposal
) -> tuple[TopicImage, PartitionRegistration]:
    topic = state.image.topic_by_id(proposal["topic_id"])
    if topic is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_TOPIC_ID,
            f"there is no topic with id {topic_id_text(proposal['topic_id'])}",
        )
    if not 0 <= proposal["index"] < len(topic.partitions):
        raise RefusedError(
            RefusalCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name!r} has no partition {proposal['index']}",
        )
    return topic, topic.partitions[proposal["index"]]


def _check_epochs(
    partition: PartitionRegistration, proposal: IsrProposal, broker_id: BrokerId
) -> None:
    for name, theirs, ours, code in (
        (
            "leader epoch",
            proposal["leader_epoch"],
            partition.leader_epoch,
            RefusalCode.FENCED_LEADER_EPOCH,
        ),
        (
            "partition epoch",
            proposal["partition_epoch"],
            partition.partition_epoch,
            RefusalCode.INVALID_UPDATE_VERSION,
        ),
    ):
        if theirs > ours:
            raise RefusedError(
                RefusalCode.NOT_CONTROLLER, f"{name} {theirs} is not known here yet, only {ours}"
            )
        if theirs < ours:
            raise RefusedError(code, f"{name} {theirs} has been followed by {ours}")
        if name == "leader epoch" and partition.leader != broker_id:
            raise RefusedError(
                RefusalCode.INVALID_REQUEST,
                f"broker {broker_id} does not lead the partition, {partition.leader} does",
            )


def _check_members(
    state: ControllerState,
    topic: TopicImage,
    partition: PartitionRegistration,
    proposal: IsrProposal,
    broker_id: BrokerId,
) -> None:
    members = [member for member, _ in proposal["isr"]]
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        raise RefusedError(
            RefusalCode.INVALID_REQUEST,
            f"isr {members} is not within the replicas {list(partition.replicas)}",
        )
    if broker_id not in members:
        raise RefusedError(
            RefusalCode.INVALID_REQUEST, f"isr {members} lacks the leader {broker_id}"
        )
    offline = state.observations.offline_replicas(topic.topic_id, proposal["index"])
    full = state.observations.full_replicas(topic.topic_id, proposal["index"])
    for member, epoch in proposal["isr"]:
        problem = None
        known = state.image.brokers.get(member)
        if known is None:
            problem = "is not registered"
        elif known.broker_epoch != epoch:
            problem = f"has epoch {known.broker_epoch}, not {epoch}"
        elif known.fenced:
            problem = "is fenced"
        elif known.in_controlled_shutdown and member != broker_id:
            problem = "is stopping"
        elif member in offline:
            problem = "cannot use its replica"
        elif member in full and member not in partition.isr:
            problem = "has no room for records"
        if problem is not None:
            raise RefusedError(RefusalCode.INELIGIBLE_REPLICA, f"broker {member} {problem}")


def _accept(state: ControllerState, topic: TopicImage, proposal: IsrProposal) -> Outcome:
    """Return the record with the proposed members.

    A leader that is shutting down, and only waited for another in-sync replica, is replaced, and
    so is one whose disk is full.
    """
    index = proposal["index"]
    partition = topic.partitions[index]
    isr = {member for member, _ in proposal["isr"]}
    members = members_with_isr(partition, present_members(partition), isr)
    relieved = relieve(state, topic, index, members)
    if relieved is not None:
        return relieved
    is_stopping = not state.image.is_live(partition.leader)
    if is_stopping and len(isr) > 1:
        rest = members_with_isr(partition, members, isr - {partition.leader})
        outcome = elect_in(state, topic, index, rest, without=partition.leader)
        if outcome.partition.leader != NO_LEADER:
            return outcome
    return Outcome(with_leader(partition, members, partition.leader), ElectionReason.STAYS)


def _result(answer: _Answer, draft: Draft) -> AlteredPartition:
    proposal, partition, code, message = answer
    if code is RefusalCode.NONE and (proposal["topic_id"], proposal["index"]) in draft.left_out:
        partition = _find_partition(draft.state, proposal)[1]
        code, message = RefusalCode.UNKNOWN_SERVER_ERROR, LEFT_OUT
    return AlteredPartition(
        topic_id=proposal["topic_id"],
        index=proposal["index"],
        error_code=int(code),
        error_message=message,
        leader=-1 if partition is None else partition.leader,
        leader_epoch=-1 if partition is None else partition.leader_epoch,
        partition_epoch=-1 if partition is None else partition.partition_epoch,
        isr=[] if partition is None else list(partition.isr),
    )
