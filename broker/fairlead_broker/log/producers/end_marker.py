"""The marker that ends a transaction in one partition: a control batch of one record.

Layout of the record (KIP-98, Kafka's `EndTransactionMarker`): key = version i16 = 0, type i16 (0
abort, 1 commit); value = version i16 = 0, coordinator_epoch i32. Readers take a later version of
the value as version 0, because fields may be added at its end.
"""

from typing import Final, NamedTuple

from fairlead_wire.records import (
    ControlType,
    EndOfTransaction,
    decode_batch,
    decode_end_of_transaction,
    encode_end_of_transaction,
)
from fairlead_wire.segments import Buffer

TRANSACTION_VERSION_1: Final = 1
TRANSACTION_VERSION_2: Final = 2
"""From this version on, each end of a transaction bumps the epoch; its marker has the new one."""


class EndMarker(NamedTuple):
    """The end of one transaction, which its coordinator asks the leader of a partition to write.

    `transaction_version` decides how strictly a leader checks it (KIP-1228); it is not written.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


def encode_end_marker(
    marker: EndMarker, *, offset: int, leader_epoch: int, timestamp_ms: int
) -> memoryview:
    """Return the control batch as it goes into the log."""
    batch = bytearray(
        encode_end_of_transaction(
            EndOfTransaction(
                ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
                marker.coordinator_epoch,
            ),
            offset=offset,
            timestamp=timestamp_ms,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )
    )
    batch[12:16] = leader_epoch.to_bytes(4, "big", signed=True)
    return memoryview(batch)


def decode_end(batch: Buffer, position: int = 0) -> EndOfTransaction | None:
    """Return the end of a transaction in the control batch at `position`; None if it has none.

    RemoteProtocolError if it cannot be read. The caller has checked its CRC.
    """
    records = decode_batch(batch, position, is_crc_checked=False)
    return decode_end_of_transaction(records[0]) if records else None
