"""Asks coordinators about transactions, for partitions that this broker leads (KIP-890)."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_broker.limits import (
    HELD_REQUEST_OVERHEAD_BYTES,
    PARTITIONS_PER_REQUEST_MAX,
    TRANSACTIONAL_ID_BYTES_MAX,
    VERIFICATIONS_MAX,
)
from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_1, TRANSACTION_VERSION_2
from fairlead_broker.log.producers.producer_state import NO_COORDINATOR_EPOCH
from fairlead_broker.tasks.peer_link import PeerLinks
from fairlead_broker.transaction.verification_plan import (
    Question,
    QuestionQueue,
)
from fairlead_model.ids import NO_LEADER, TRANSACTION_STATE
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairlead_broker.broker import Broker
    from fairlead_broker.transaction.ending import TopicPartition
    from fairlead_broker.transaction.verification import OnVerdicts, Verdicts
    from fairlead_model.cluster import ClusterImage

logger = logging.getLogger(__name__)

REQUEST_VERSION: Final = 5
_CODES: Final = {int(code): code for code in ErrorCode}


class TransactionVerifier:
    """The `TransactionVerification` of a broker: a queue for each broker that coordinates."""

    def __init__(self, broker: Broker, secret: bytes) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._loop = asyncio.get_running_loop()
        self._links = PeerLinks(broker, secret, client_id=f"verification-{broker.node_id}")
        self._queues: dict[int, QuestionQueue] = {}
        self._open: dict[Question, int] = {}
        """Questions without an answer, each with the time when it came up."""
        self._number = 0
        self._read_config()
        broker.on_altered.append(self._read_config)

    def _read_config(self) -> None:
        value = self._broker.running_values().value("transaction.partition.verification.enable")
        self._verifies = value is True

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        supports_epoch_bump: bool,
        answer: OnVerdicts,
    ) -> None:
        """Have `answer` called once, in this call or later, with a verdict on each partition.

        Without `transaction.partition.verification.enable` all are right, but for clients that have
        their partitions added by this (Kafka's `ReplicaManager`).
        """
        if not (supports_epoch_bump or self._verifies):
            answer(dict.fromkeys(partitions, ErrorCode.NONE))
            return
        if len(transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
            # No coordinator takes it, and each would be kept from others by many of them.
            answer(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
            return
        self._number += 1
        question = Question(
            transactional_id,
            producer_id,
            producer_epoch,
            frozenset(partitions),
            supports_epoch_bump=supports_epoch_bump,
            answer=answer,
            number=self._number,
            asked_ms=self._clock.monotonic_ms(),
        )
        if len(self._open) >= VERIFICATIONS_MAX:
            answer(question.same_for_all(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._open[question] = perf_counter_ns()
        self._ask(question)

    def publish(self, image: ClusterImage) -> None:
        """Wait for no answer of a broker that is out of service."""
        self._links.publish(image)

    def stop(self) -> None:
        """Ask nobody any more; whoever waits for an answer is gone already, or asks elsewhere."""
        self._links.close()
        self._queues.clear()
        self._open.clear()

    def _ask(self, question: Question) -> None:
        if question not in self._open:
            return  # Stopped meanwhile.
        leader, epoch = self._coordinator_of(question.transactional_id)
        if epoch < self._find_newest_epoch(question):
            # A marker came before the news of who wrote it. Whoever coordinated before may take the
            # transaction that it has ended for open still, and a late batch would open another one.
            self._settle(question, question.same_for_all(ErrorCode.NOT_COORDINATOR))
        elif leader == NO_LEADER:
            self._settle(question, question.same_for_all(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif leader == self._broker.node_id:
            self._ask_here_once_awake(question)
        else:
            queue = self._queues.setdefault(leader, QuestionQueue())
            refused = queue.add(question)
            self._send(leader)
            for each, code in refused:
                self._settle(each, each.same_for_all(code))

    def _coordinator_of(self, transactional_id: str) -> tuple[int, int]:
        """Return who coordinates an id, and in which epoch, as far as this broker has heard."""
        topic = self._broker.image.topic(TRANSACTION_STATE)
        if topic is None or not topic.partitions:
            return NO_LEADER, NO_COORDINATOR_EPOCH
        index = coordinator_partition(transactional_id, len(topic.partitions))
        return topic.partitions[index].leader, topic.partitions[index].leader_epoch

    def _find_newest_epoch(self, question: Question) -> int:
        """Return the newest epoch of a coordinator whose markers partitions have."""
        newest = NO_COORDINATOR_EPOCH
        for key in question.partitions:
            partition = self._broker.partitions.get(key)
            if partition is None:
                continue
            entry = partition.log.producers.get(question.producer_id)
            if entry is not None:
                newest = max(newest, entry.coordinator_epoch)
        return newest

    def _ask_here_once_awake(self, question: Question) -> None:
        """Ask the coordinator of this process, when that knows whether it still is one."""
        wake_check = self._broker.wake_check
        if not wake_check.must_hold():
            self._ask_here(question)
        elif not wake_check.hold(lambda: self._ask(question), HELD_REQUEST_OVERHEAD_BYTES):
            self._settle(question, question.same_for_all(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _ask_here(self, question: Question) -> None:
        bumps = question.supports_epoch_bump
        self._broker.transaction_coordinator.add_partitions(
            question.transactional_id,
            question.producer_id,
            question.producer_epoch,
            question.partitions,
            verify_only=not bumps,
            transaction_version=TRANSACTION_VERSION_2 if bumps else TRANSACTION_VERSION_1,
            may_wait=False,
            answer=lambda verdicts: self._settle(question, verdicts),
        )

    def _send(self, leader: int) -> None:
        """Send what waits for a broker, unless an answer of it is on its way."""
        link = self._links.to(leader)
        queue = self._queues.get(leader)
        if link.is_busy or not queue:
            return
        questions = queue.take(PARTITIONS_PER_REQUEST_MAX)
        if not queue:
            del self._queues[leader]

        def settle(response: Any) -> None:
            found = {} if response is None else _read(response, questions)
            self._send(leader)
            for each in questions:
                unanswered = each.same_for_all(ErrorCode.NETWORK_EXCEPTION)
                self._settle(each, {**unanswered, **found.get(each.transactional_id, {})})

        link.call(_request(questions), REQUEST_VERSION, settle)

    def _settle(self, question: Question, verdicts: Verdicts) -> None:
        if question not in self._open:
            return
        pause_ms = question.next_try_ms(verdicts, self._clock.monotonic_ms())
        if pause_ms is not None:
            self._loop.call_later(pause_ms / 1000, self._ask, question)
            return
        metrics = self._broker.metrics
        metrics.verification_times.note(perf_counter_ns() - self._open.pop(question))
        metrics.verification_failures += sum(code != ErrorCode.NONE for code in verdicts.values())
        try:
            question.answer(verdicts)
        except Exception:
            # One who cannot take its answer must not keep the others from theirs.
            metrics.task_failures += 1
            logger.exception("the answer about %a was not taken", question.transactional_id)


def _request(questions: Collection[Question]) -> AddPartitionsToTxnRequest:
    asked = []
    for question in questions:
        topics: dict[str, list[int]] = {}
        for topic, index in question.partitions:
            topics.setdefault(topic, []).append(index)
        asked.append(
            AddPartitionsToTxnTransaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer_id,
                producer_epoch=question.producer_epoch,
                verify_only=not question.supports_epoch_bump,
                topics=[AddPartitionsToTxnTopic(*topic) for topic in topics.items()],
            )
        )
    return AddPartitionsToTxnRequest(transactions=asked)


def _read(
    response: Any, questions: Collection[Question]
) -> dict[str, dict[TopicPartition, ErrorCode]]:
    """Return the verdicts by transactional id; what is missing was not answered."""
    if response.error_code:
        code = _CODES.get(response.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
        return {each.transactional_id: dict(each.same_for_all(code)) for each in questions}
    return {
        result.transactional_id: {
            (topic.name, each.partition_index): _CODES.get(
                each.partition_error_code, ErrorCode.UNKNOWN_SERVER_ERROR
            )
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
