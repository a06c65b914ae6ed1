"""What reassignments do next: those that can finish do, others begin as there is room. Pure.

Thousands may wait, but a broker receives or sends only few at a time (`MOVES_PER_BROKER_MAX`), and
one decision begins a limited number, so that copies and writes of the store come in a stream. A
waiting move is in the partition's record (`queued_target`). The moves off a cordoned broker are
planned when their turn comes, with the facts of that time.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import AdvanceReassignments, Decision, PartitionMove
from fairlead_controller.decisions.leader_election import ElectionReason, IsElectable, Outcome
from fairlead_controller.decisions.leadership import elect_in, elect_leaderless, moved
from fairlead_controller.decisions.reassignment.planning import Holdings
from fairlead_controller.decisions.reassignment.steps import (
    as_next_of,
    cancelled,
    finished,
    with_target,
)
from fairlead_controller.decisions.restored_holders import awaiting_recovery, awaits_testimony
from fairlead_controller.decisions.running_reassignments import PartitionKey, located
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.cluster import TopicImage
from fairlead_model.ids import BrokerId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.refusals import RefusedError

MOVES_PER_BROKER_MAX: Final = 10
"""Replicas that a broker receives, or that a leader's broker sends, at the same time."""
STARTS_PER_DECISION_MAX: Final = 200
"""Bound on the lines that one decision writes."""
PLANS_PER_DECISION_MAX: Final = 500
"""Plans of one decision that nothing comes of now, because the broker that would take or send the
copy is busy. Each looks at all brokers: those of ten thousands of partitions would keep the
controller from its brokers for longer than their sessions last."""

ELECTIONS_PER_DECISION_MAX: Final = 1_000
"""Leaders of drained brokers that one decision looks at. `DrainLeaders` moves them by thousands;
here each is a step by itself, for those that have nobody else in sync until later."""


def finishing(state: ControllerState, topic: TopicImage, index: int, outcome: Outcome) -> Outcome:
    """Return the outcome with the reassignment finished in the same record, if it can be."""
    before = topic.partitions[index]
    finished_record = _finished(state, topic, index, outcome.partition)
    if finished_record is None:
        return outcome
    reason = outcome.reason
    if finished_record.leader != outcome.partition.leader:
        reason = ElectionReason.FIRST_IN_SYNC
    return Outcome(as_next_of(before, finished_record), reason)


def _finished(
    state: ControllerState, topic: TopicImage, index: int, partition: PartitionRegistration
) -> PartitionRegistration | None:
    is_electable = state.electability(topic.topic_id, index)
    if state.spared and (shape := finished(partition, _unspared(state, is_electable))):
        return shape
    return finished(partition, is_electable)


def _unspared(state: ControllerState, is_electable: IsElectable) -> IsElectable:
    return lambda broker_id: broker_id not in state.spared and is_electable(broker_id)


def begun(
    state: ControllerState, topic: TopicImage, index: int, target: Sequence[BrokerId]
) -> PartitionRegistration:
    """Return the next record with a reassignment begun, or finished if it only takes away."""
    before = topic.partitions[index]
    brokers = state.image.brokers
    shape = with_target(before, target, lambda each: brokers[each].directory_id)
    if shape.removing_replicas:
        shape = _finished(state, topic, index, shape) or shape
    return as_next_of(before, shape)


def reverted(state: ControllerState, topic: TopicImage, index: int) -> PartitionRegistration | None:
    """Return the next record without its running reassignment; None if that could lose records."""
    partition = topic.partitions[index]
    is_electable = state.electability(topic.topic_id, index)
    shape = cancelled(partition, _unspared(state, is_electable)) or cancelled(
        partition, is_electable
    )
    return None if shape is None else as_next_of(partition, shape)


class Slots:
    """How many replicas each broker receives and sends; a copy counts for both."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._arriving: Counter[BrokerId] = Counter()
        self._sending: Counter[BrokerId] = Counter()
        for topic, index in located(state.image, state.moves.running):
            self.take(topic.partitions[index])

    def take(self, partition: PartitionRegistration) -> None:
        """Count the copies of a running reassignment, without those to brokers that are down."""
        for each in partition.adding_replicas:
            if each not in partition.isr:
                self._arriving[each] += 1
                self._sending[partition.leader] += int(self._state.image.is_live(each))

    def may_send(self, broker_id: BrokerId) -> bool:
        """Tell whether a broker may send one more copy."""
        return self._sending[broker_id] < MOVES_PER_BROKER_MAX

    def has_room_for(
        self, partition: PartitionRegistration, additions: Collection[BrokerId]
    ) -> bool:
        """Tell whether copies of a partition may begin now."""
        return (
            self._sending[partition.leader] + len(additions) <= MOVES_PER_BROKER_MAX
            or not self._sending[partition.leader]
        ) and all(self._arriving[each] < MOVES_PER_BROKER_MAX for each in additions)


def decide_progress(
    state: ControllerState, event: AdvanceReassignments, room: TableRoom | None = None
) -> Decision:
    """Finish, begin and plan; nothing changes where nothing is due."""
    draft = Draft(state, room)
    _stop_waiting_for_drained(draft)
    steps = _Steps(draft, event.given_up)
    steps.finish()
    steps.start_queued()
    for broker_id in sorted(state.cordoned):
        steps.empty(broker_id, event.turn)
    return draft.decision({"waiting": steps.waiting})


def _stop_waiting_for_drained(draft: Draft) -> None:
    """Elect where only brokers were waited for, after a restore, that hold nothing and may go."""
    state = draft.state
    brokers = (state.image.brokers.get(each) for each in state.cordoned)
    if any(broker and not broker.start_id for broker in brokers) and not awaits_testimony(state):
        cause = "the brokers that have not come back since the restore are drained"
        elect_leaderless(draft, awaiting_recovery(state), cause)


class _Steps:
    """One decision about all that moves; each partition takes one step in it."""

    def __init__(self, draft: Draft, given_up: frozenset[BrokerId]) -> None:
        self._draft = draft
        self._state = draft.state
        self._given_up = given_up
        self._slots = Slots(draft.state)
        self._touched: set[PartitionKey] = set()
        self._starts = 0
        self._elections = 0
        self._holdings: Holdings | None = None
        self.waiting: dict[BrokerId, int] = {}
        """Replicas of cordoned brokers that no other broker can take now."""

    def finish(self) -> None:
        """Finish what can be, besides what did when its last addition came in sync."""
        for topic, index in located(self._state.image, self._state.moves.running):
            shape = _finished(self._state, topic, index, topic.partitions[index])
            if shape is not None:
                record = as_next_of(topic.partitions[index], shape)
                self._step(topic, index, record, "its reassignment is finished")

    def start_queued(self) -> None:
        """Begin what waits for its turn, and drop what makes no sense any more."""
        unwelcome = self._state.cordoned | self._state.shut
        for topic, index in located(self._state.image, self._state.moves.queued):
            if self._starts >= STARTS_PER_DECISION_MAX:
                return
            partition = topic.partitions[index]
            target = partition.queued_target
            gone = [
                each
                for each in target
                if each not in self._state.image.brokers
                or (each in unwelcome and each not in partition.replicas)
            ]
            if gone:
                record = partition.changed(queued_target=())
                cause = (
                    f"its reassignment is given up: broker {gone[0]} is gone, drained or cordoned"
                )
                self._step(topic, index, record, cause)
                continue
            additions = [each for each in target if each not in partition.replicas]
            is_up = all(self._state.image.is_live(each) for each in additions)
            if is_up and self._may_begin(topic, index, additions):
                self._begin(topic, index, target, "its reassignment begins")

    def empty(self, broker_id: BrokerId, turn: int = 0) -> None:
        """Move leaders and replicas off a cordoned broker.

        Each turn begins with the partitions behind those that the one before has planned for.
        """
        held = list(self._state.image.replicas_of(broker_id))
        plans_left = max(1, PLANS_PER_DECISION_MAX // len(self._state.cordoned))
        first = turn * plans_left % len(held) if len(held) > plans_left else 0
        for topic, index in (*held[first:], *held[:first]):
            partition = topic.partitions[index]
            if (topic.topic_id, index) in self._touched:
                continue
            is_leaving = broker_id not in partition.target_replicas
            lost = [each for each in partition.adding_replicas if self._is_lost(each)]
            if is_leaving and not lost:
                continue
            if self._starts >= STARTS_PER_DECISION_MAX:
                return
            if plans_left and not self._must_wait(partition):
                if self._move_off(broker_id, topic, index, lost):
                    continue
                plans_left -= 1
            if partition.leader == broker_id and self._elections < ELECTIONS_PER_DECISION_MAX:
                self._elections += 1
                outcome = elect_in(self._state, topic, index)
                self._take(moved(topic, index, outcome, f"broker {broker_id} is being drained"))

    def _must_wait(self, partition: PartitionRegistration) -> bool:
        """Tell whether no copy of a partition can begin, whichever broker received it."""
        is_moving = partition.is_being_reassigned or partition.queued_target
        return not is_moving and not (
            partition.has_leader and self._slots.may_send(partition.leader)
        )

    def _move_off(
        self, broker_id: BrokerId, topic: TopicImage, index: int, lost: Collection[BrokerId]
    ) -> bool:
        """Begin to move a partition off a cordoned broker; False if it is not its turn."""
        partition = topic.partitions[index]
        if self._holdings is None:
            self._holdings = Holdings(self._state, self._given_up)
        base = partition.queued_target or partition.target_replicas
        target = self._holdings.replaced(base, {broker_id, *lost, *self._state.cordoned})
        if target is None:
            self.waiting[broker_id] = self.waiting.get(broker_id, 0) + 1
            return False
        additions = [each for each in target if each not in partition.replicas]
        if not self._may_begin(topic, index, additions):
            return False
        self._holdings.note(base, target)
        self._begin(topic, index, target, f"broker {broker_id} is being drained")
        return True

    def _is_lost(self, broker_id: BrokerId) -> bool:
        """Tell whether a new replica does not come any more, or shall not."""
        return broker_id in self._given_up or broker_id in self._state.cordoned

    def _may_begin(self, topic: TopicImage, index: int, additions: Collection[BrokerId]) -> bool:
        partition = topic.partitions[index]
        if (topic.topic_id, index) in self._touched:
            return False
        # No broker could send a copy.
        return partition.has_leader and self._slots.has_room_for(partition, additions)

    def _begin(self, topic: TopicImage, index: int, target: Sequence[BrokerId], cause: str) -> None:
        record = begun(self._state, topic, index, target)
        if self._step(topic, index, record, cause):
            self._slots.take(record)
            self._starts += 1

    def _step(
        self, topic: TopicImage, index: int, record: PartitionRegistration, cause: str
    ) -> bool:
        outcome = Outcome(record, ElectionReason.FIRST_IN_SYNC)
        return self._take(moved(topic, index, outcome, cause))

    def _take(self, moves: list[PartitionMove]) -> bool:
        if not moves:
            return True
        self._touched.update((move.topic_id, move.index) for move in moves)
        try:
            self._draft.move(moves)
        except RefusedError as refusal:
            # The table of this partition is full until others have moved; it stays as it is.
            self._draft.explain(f"{moves[0].topic}-{moves[0].index} waits: {refusal.message}")
            return False
        return True
