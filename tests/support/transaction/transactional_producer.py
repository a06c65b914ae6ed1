"""A producer that writes in transactions to one partition, as its leader sees it.

There is no coordinator: each transaction counts as verified.
"""

from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_broker.replication.partition import Partition
from fairlead_wire.records import Record, encode_batch


class TransactionalProducer:
    """Counts the sequence; `end` is that of transaction version 1, in the same epoch."""

    def __init__(self, producer_id: int, *, now_ms: int) -> None:
        self.producer_id = producer_id
        self.now_ms = now_ms
        self.sequence = 0

    def put(self, partition: Partition, *values: bytes) -> int:
        """Append one batch; return its first offset."""
        guard = partition.begin_verification(
            self.producer_id, 0, self.sequence, supports_epoch_bump=False
        )
        records = [Record(number, self.now_ms, None, value) for number, value in enumerate(values)]
        batch = encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        result = partition.append_as_leader(
            memoryview(bytearray(batch)),
            required_acks=ALL_IN_SYNC,
            now_ms=self.now_ms,
            guard=guard,
        )
        self.sequence += len(values)
        return result.first_offset

    def end(self, partition: Partition, *, commits: bool, coordinator_epoch: int = 0) -> int:
        """Append the marker; return its offset."""
        marker = EndMarker(self.producer_id, 0, coordinator_epoch, commits, 1)
        return partition.append_end_marker(marker, now_ms=self.now_ms).first_offset
