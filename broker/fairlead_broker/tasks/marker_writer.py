"""Has markers written, here and on other brokers, as `transaction.marker_plan` says.

All decisions of one turn of the loop are sent together: one request to each broker. A partition
that this broker leads itself costs no socket.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from fairlead_broker.limits import MARKERS_PER_REQUEST_MAX
from fairlead_broker.replication.leader_epoch_check import LATEST_KNOWN_EPOCH
from fairlead_broker.tasks.peer_link import PeerLinks
from fairlead_broker.transaction.marker_appends import append_markers
from fairlead_broker.transaction.marker_plan import MarkerPlan
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.transaction.ending import EndingTransaction, TopicPartition
    from fairlead_broker.transaction.marker_appends import Codes
    from fairlead_broker.transaction.marker_plan import MarkerBatch
    from fairlead_model.cluster import ClusterDelta, ClusterImage

logger = logging.getLogger(__name__)

REQUEST_VERSION = 2
_CODES = {int(code): code for code in ErrorCode}


class MarkerWriter:
    """The `MarkerWriting` of a broker; the outcomes go to its transaction coordinator."""

    def __init__(self, broker: Broker, secret: bytes) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._loop = asyncio.get_running_loop()
        self._plan = MarkerPlan(broker.image, markers_per_batch=MARKERS_PER_REQUEST_MAX)
        self._links = PeerLinks(broker, secret, client_id=f"transactions-{broker.node_id}")
        self._is_pump_due = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, ending: EndingTransaction) -> None:
        """Have a marker written to each partition."""
        self._plan.begin(ending, self._clock.monotonic_ms())
        self._pump_soon()

    def forget_shard(self, shard_index: int) -> None:
        """Stop sending what was decided for a partition that this broker no longer leads."""
        self._plan.forget_shard(shard_index)

    def publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Go by a new image."""
        self._plan.publish(image, delta.changes, self._clock.monotonic_ms())
        self._links.publish(image)
        self._pump_soon()

    def stop(self) -> None:
        """Send nothing any more; the next coordinator of each transaction sends all again."""
        self._links.close()
        if self._timer is not None:
            self._timer.cancel()

    def _pump_soon(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pump_due = False
        for batch in self._plan.take(self._clock.monotonic_ms()):
            if batch.broker_id == self._broker.node_id:
                self._write_here(batch)
            else:
                self._send(batch)
        self._broker.metrics.leaderless_markers = self._plan.leaderless_count
        self._tell()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._plan.next_due_ms()
        if due_ms is not None:
            delay_ms = max(due_ms - self._clock.monotonic_ms(), 0)
            self._timer = self._loop.call_later(delay_ms / 1000, self._pump)

    def _write_here(self, batch: MarkerBatch) -> None:
        # A marker that is written within this turn cannot be late.
        markers = [
            (marker, dict.fromkeys(partitions, LATEST_KNOWN_EPOCH))
            for marker, partitions in batch.markers()
        ]

        def settle(codes: Codes) -> None:
            answers = {
                marker.producer_id: found for (marker, _), found in zip(markers, codes, strict=True)
            }
            self._plan.answered(batch, answers, self._clock.monotonic_ms())
            self._pump_soon()

        try:
            append_markers(self._broker, markers, settle)
        except Exception:
            self._broker.metrics.task_failures += 1
            logger.exception("markers could not be written here")
            self._plan.failed(batch, self._clock.monotonic_ms())
            self._pump_soon()

    def _send(self, batch: MarkerBatch) -> None:
        def settle(response: Any) -> None:
            now_ms = self._clock.monotonic_ms()
            if response is None:
                self._plan.failed(batch, now_ms)
            else:
                self._plan.answered(batch, _read(response), now_ms)
            self._pump_soon()

        self._links.to(batch.broker_id).call(_request(batch), REQUEST_VERSION, settle)

    def _tell(self) -> None:
        coordinator = self._broker.transaction_coordinator
        for transaction, partitions, is_fenced in self._plan.take_outcomes():
            if is_fenced:
                coordinator.ending_fenced(transaction)
            else:
                coordinator.partitions_ended(transaction, partitions)


def _request(batch: MarkerBatch) -> WriteTxnMarkersRequest:
    asked = []
    for marker, partitions in batch.markers():
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for (name, index), leader_epoch in partitions.items():
            topic = topics.setdefault(name, WritableTxnMarkerTopic(name))
            topic.partition_indexes.append(index)
            topic.leader_epochs.append(leader_epoch)
        asked.append(
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=list(topics.values()),
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        )
    return WriteTxnMarkersRequest(asked)


def _read(response: Any) -> dict[int, dict[TopicPartition, ErrorCode]]:
    return {
        result.producer_id: {
            (topic.name, each.partition_index): _CODES.get(
                each.error_code, ErrorCode.UNKNOWN_SERVER_ERROR
            )
            for topic in result.topics
            for each in topic.partitions
        }
        for result in response.markers
    }
