"""Carries changes of in-sync replicas to the controller, and looks for those that time brings."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import HOUSEKEEPING_SLICE_MS, ISR_PROPOSALS_PER_CALL_MAX
from fairlead_broker.replication.isr_proposals import IsrProposals, SentProposal
from fairlead_broker.replication.leader_state import Refusal
from fairlead_model.session.calls import AlterPartitionCall, Method
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.replication.isr import IsrProposal
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 5_000
_CODES: Final = {int(code): code for code in ErrorCode}


class IsrProposer:
    """Runs while the broker does. Partitions hand in proposals on the loop, at any time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._proposals: IsrProposals[Partition] = IsrProposals(
            batch_max=ISR_PROPOSALS_PER_CALL_MAX
        )
        self._has_work = asyncio.Event()

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller for this soon."""
        self._proposals.add(partition, proposal)
        self._has_work.set()

    async def run(self) -> None:
        """Until cancelled: one call at a time, each with all that waits."""
        clock = self._broker.clock
        while True:
            await self._has_work.wait()
            # Further proposals of this turn of the loop are sent, too.
            await asyncio.sleep(0)
            now_ms = clock.monotonic_ms()
            batch = self._proposals.take(now_ms)
            if not batch:
                if len(self._proposals):
                    await asyncio.sleep((self._proposals.due_ms - now_ms) / 1000)
                else:
                    self._has_work.clear()
                continue
            repeated = batch
            try:
                repeated = await self._ask(batch)
            except Exception:
                self._broker.metrics.task_failures += 1
                logger.exception("proposing in-sync replicas failed")
            finally:
                self._proposals.settle(repeated, clock.monotonic_ms())

    async def tick(self) -> None:
        """Time has passed: members that lag leave, others that are fit join (R12)."""
        broker = self._broker
        clock = broker.clock
        max_lag_ms = broker.settings.replica_lag_time_max_ms
        broker.follower_sessions.note_alive()
        deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        for partition in list(broker.partitions.values()):
            if partition.leader is None:
                continue
            now_ms = clock.monotonic_ms()
            partition.tick(now_ms, max_lag_ms)
            if now_ms >= deadline_ms:
                await asyncio.sleep(0)
                broker.follower_sessions.note_alive()
                deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS

    async def _ask(self, batch: list[SentProposal[Partition]]) -> list[SentProposal[Partition]]:
        """Make one call; return what has to be sent again."""
        body: AlterPartitionCall = {
            "broker_epoch": self._broker.broker_epoch,
            "partitions": [
                {
                    "topic_id": partition.topic_id,
                    "index": partition.index,
                    "leader_epoch": proposal.leader_epoch,
                    "partition_epoch": proposal.partition_epoch,
                    "isr": [list(member) for member in proposal.isr],
                }
                for partition, proposal in batch
            ],
        }
        metrics = self._broker.metrics
        try:
            reply = await self._broker.controller.call(
                Method.ALTER_PARTITION, dict(body), timeout_ms=CALL_TIMEOUT_MS
            )
            answers: list[dict[str, Any]] = reply["partitions"]
        except KafkaError as error:
            metrics.isr_changes_failed += len(batch)
            logger.warning("in-sync replicas cannot change now: %s", error.message or error)
            return [
                sent
                for sent in batch
                if sent.partition.proposal_refused(sent.proposal, error.code) is Refusal.RETRIED
            ]
        now_ms = self._broker.clock.monotonic_ms()
        return [
            sent
            for sent, answer in zip(batch, answers, strict=True)
            if not _settle(sent, answer, metrics, now_ms)
        ]


def _settle(
    sent: SentProposal[Partition], answer: dict[str, Any], metrics: BrokerMetrics, now_ms: int
) -> bool:
    """Tell a partition how its proposal was answered; False if it has to be sent again."""
    partition, proposal = sent
    code = _CODES.get(answer["error_code"], ErrorCode.UNKNOWN_SERVER_ERROR)
    if code is ErrorCode.NONE:
        partition.proposal_accepted(
            proposal,
            answer["isr"],
            leader_epoch=answer["leader_epoch"],
            partition_epoch=answer["partition_epoch"],
            now_ms=now_ms,
        )
        if proposal.is_shrink:
            metrics.isr_shrinks += 1
        else:
            metrics.isr_expands += 1
        logger.info("in-sync replicas of %s: %s", partition, answer["isr"])
        return True
    metrics.isr_changes_failed += 1
    refusal = partition.proposal_refused(proposal, code)
    logger.info(
        "in-sync replicas of %s stay: %s (%s, %s)",
        partition,
        code.name,
        answer.get("error_message"),
        refusal.value,
    )
    return refusal is not Refusal.RETRIED
