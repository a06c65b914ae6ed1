"""What the controller decided recently and why, for people. In memory only; pure.

Sentences are built when somebody reads them: a dead broker moves thousands of partitions at once.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead_controller.decisions.events import Decision, PartitionMove
from fairlead_controller.decisions.leader_election import elect_leader
from fairlead_controller.decisions.restored_holders import unheard_brokers
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.views.status import broker_state
from fairlead_model.cluster import TopicImage
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration

MOVES_KEPT_MAX: Final = 10_000
SENTENCES_KEPT_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class TimedMove:
    """A partition's move and when it became durable."""

    at_ms: int
    move: PartitionMove


class DecisionJournal:
    """The newest decisions of one reign, in order."""

    def __init__(self) -> None:
        self._moves: deque[TimedMove] = deque(maxlen=MOVES_KEPT_MAX)
        self._sentences: deque[tuple[int, str]] = deque(maxlen=SENTENCES_KEPT_MAX)

    def note(self, decision: Decision, now_ms: int) -> None:
        """Keep a decision that was committed."""
        self._sentences.extend((now_ms, sentence) for sentence in decision.explanations)
        self._moves.extend(TimedMove(now_ms, move) for move in decision.moves)

    def sentences(self) -> list[dict[str, Any]]:
        """Return what happened to the cluster, newest last."""
        return [{"atMs": at_ms, "what": sentence} for at_ms, sentence in self._sentences]

    def since(self, at_ms: int) -> dict[str, Any]:
        """Return what was decided after a time: sentences, and the leaders that changed."""
        moves = []
        for entry in reversed(self._moves):
            if entry.at_ms <= at_ms:
                break
            if entry.move.changes_leader:
                moves.append(_leader_change(entry))
        sentences = [each for each in self.sentences() if each["atMs"] > at_ms]
        return {"decisions": sentences, "moves": moves[::-1]}

    def moves_of(self, topic_id: bytes, index: int) -> Iterator[TimedMove]:
        """Yield what happened to one partition, oldest first."""
        for entry in self._moves:
            if entry.move.topic_id == topic_id and entry.move.index == index:
                yield entry


def _leader_change(entry: TimedMove) -> dict[str, Any]:
    move = entry.move
    return {
        "atMs": entry.at_ms,
        "topic": move.topic,
        "partition": move.index,
        "from": move.before.leader,
        "to": move.after.leader,
        "leaderEpoch": move.after.leader_epoch,
        "cause": move.cause,
        "reason": move.reason,
    }


def explain_partition(
    state: ControllerState, topic: TopicImage, index: int, moves: Sequence[TimedMove]
) -> dict[str, Any]:
    """Return why a partition has its leader, or none, and what led to that."""
    partition = topic.partitions[index]
    why = [move.move.reason for move in moves if move.move.reason]
    may_lead = state.electability(topic.topic_id, index)
    return {
        "topic": topic.name,
        "partition": index,
        "leader": partition.leader,
        "why": why[-1] if why else _derived_reason(state, topic, index),
        "replicas": [
            {
                "broker": broker_id,
                "role": _role(partition, broker_id),
                "state": _broker_state(state, broker_id),
                "mayLead": may_lead(broker_id),
            }
            for broker_id in partition.replicas
        ],
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
        "minInsyncReplicas": partition.min_insync_replicas,
        "lossPossible": partition.leader_recovery_state is LeaderRecoveryState.RECOVERING,
        "waitsFor": _waits_for(state, topic, index),
        "history": [{"atMs": move.at_ms, "what": move.move.sentence()} for move in moves],
    }


def _derived_reason(state: ControllerState, topic: TopicImage, index: int) -> str:
    """Return why an election would choose this leader now; for leaders older than the journal."""
    partition = topic.partitions[index]
    return str(elect_leader(partition, state.electability(topic.topic_id, index)).reason)


def _role(partition: PartitionRegistration, broker_id: int) -> str:
    if broker_id == partition.leader:
        return "leader"
    for name, members in (
        ("in sync", partition.isr),
        ("eligible", partition.elr),
        ("last known eligible", partition.last_known_elr),
    ):
        if broker_id in members:
            return name
    return "out of sync"


def _broker_state(state: ControllerState, broker_id: int) -> str:
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        return "unknown"
    return broker_state(broker, is_confirmed=broker_id not in state.unconfirmed)


def _waits_for(state: ControllerState, topic: TopicImage, index: int) -> str | None:
    partition = topic.partitions[index]
    if partition.has_leader:
        return None
    holders = partition.isr + partition.elr
    if holders:
        return f"one of the brokers {list(holders)}, which hold every acknowledged record"
    unheard = sorted(unheard_brokers(state))
    if unheard:
        return f"the brokers {unheard}, which have not said since the restore what they hold"
    facts = state.log_facts(topic.topic_id, index, partition)
    may_lead = state.electability(topic.topic_id, index)
    absent = [broker for broker in partition.last_known_elr if not may_lead(broker)]
    if absent:
        return f"the brokers {absent}, which may hold acknowledged records"
    silent = [broker for broker in partition.replicas if may_lead(broker) and broker not in facts]
    return f"reports of the brokers {silent} how far their logs go"
