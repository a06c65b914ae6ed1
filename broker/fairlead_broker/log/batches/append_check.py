"""What a leader demands of a produced batch before anything is written.

Called once per batch on the hot path, so it checks the header. It checks records only if
`produced_records` does, or for compacted topics, whose records need keys. The order of the checks
and the codes are Kafka's, so that clients get the errors that they know.
"""

from typing import Final, NoReturn

from fairlead_broker.log.batches.produced_records import HeaderFields, check_records
from fairlead_broker.log.batches.record_walk import check_keyed_records
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    MAGIC_POSITION,
    MAGIC_V2,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    batch_crc,
)

_REFUSED_ATTRIBUTES: Final = TIMESTAMP_TYPE_MASK | CONTROL_MASK | DELETE_HORIZON_MASK
_LAST_CODEC: Final = 4
"""zstd; batches with a codec from 5 to 7 would stop every consumer that reads them."""


def check_produced_batch(
    batch: memoryview,
    config: LogConfig,
    now_ms: int,
    *,
    is_compacted: bool,
    is_from_coordinator: bool = False,
) -> HeaderFields:
    """Return the header of the one intact batch in `batch`; KafkaError otherwise.

    Batches that a group coordinator writes for a producer have no sequences.

    Bytes after the batch are tolerated unless they are a second whole batch (clients may cut one
    off): the caller has to use the header's size. The header's largest timestamp is that of
    the records; if `batch` differs, it is corrected, so it has to be writable.
    """
    given = len(batch)
    if given < BATCH_HEADER_SIZE:
        _refuse_short(batch)
    header: HeaderFields = BATCH_HEADER.unpack_from(batch, 0)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        _,
        _,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    ) = header
    size = length + BATCH_OVERHEAD
    if magic != MAGIC_V2:
        _refuse_magic(magic)
    if size != given:
        _check_given_size(batch, size, given)
    if base_offset != 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"base offset {base_offset} instead of 0")
    if size > config.max_message_bytes or size > config.segment_bytes:
        _refuse_size(size, config)
    if batch_crc(batch, 0, size) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match")
    if records_count <= 0 or last_offset_delta != records_count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{records_count} records with a last offset delta of {last_offset_delta}",
        )
    if attributes & _REFUSED_ATTRIBUTES or attributes & CODEC_MASK > _LAST_CODEC:
        _refuse_attributes(attributes)
    if (producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0)) or (
        producer_id < 0 and attributes & TRANSACTIONAL_MASK
    ):
        _check_producer(
            producer_id, producer_epoch, base_sequence, is_from_coordinator=is_from_coordinator
        )
    header = check_records(header, batch, config, now_ms)
    if is_compacted:
        check_keyed_records(BatchHeader._make(header), batch[:size])
    return header


def _refuse_short(batch: memoryview) -> NoReturn:
    """Refuse fewer bytes than a header: old formats, which may be shorter, get their own error."""
    if len(batch) > MAGIC_POSITION and batch[MAGIC_POSITION] != MAGIC_V2:
        _refuse_magic(batch[MAGIC_POSITION])
    raise KafkaError(ErrorCode.INVALID_RECORD, f"{len(batch)} bytes hold no record batch")


def _refuse_magic(magic: int) -> NoReturn:
    if magic in (0, 1):
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"record format v{magic} is no longer accepted, only v2"
        )
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"invalid magic {magic}")


def _check_given_size(batch: memoryview, size: int, given: int) -> None:
    if size < BATCH_LENGTH_MIN + BATCH_OVERHEAD:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch that claims {size} bytes")
    if size > given:
        # Kafka refuses this as well. After CORRUPT_MESSAGE clients would send it again for ever.
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"a batch that claims {size} bytes in {given} given"
        )
    rest = given - size
    if rest > BATCH_OVERHEAD:
        next_length = int.from_bytes(batch[size + 8 : size + 12], "big", signed=True)
        if next_length + BATCH_OVERHEAD <= rest:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "a partition takes exactly one batch per request"
            )


def _refuse_size(size: int, config: LogConfig) -> NoReturn:
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}",
        )
    raise KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"a batch of {size} bytes; segment.bytes is {config.segment_bytes}",
    )


def _refuse_attributes(attributes: int) -> NoReturn:
    if attributes & CONTROL_MASK:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if attributes & DELETE_HORIZON_MASK:
        # The first compaction would remove its tombstones before any reader has seen them.
        raise KafkaError(ErrorCode.INVALID_RECORD, "only compaction sets a delete horizon")
    if attributes & CODEC_MASK > _LAST_CODEC:
        codec = attributes & CODEC_MASK
        raise KafkaError(ErrorCode.INVALID_RECORD, f"there is no compression codec {codec}")
    raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker may set the type LogAppendTime")


def _check_producer(
    producer_id: int, producer_epoch: int, base_sequence: int, *, is_from_coordinator: bool
) -> None:
    if producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a transaction without a producer id")
    if producer_epoch < 0 or not is_from_coordinator:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"producer {producer_id} with epoch {producer_epoch}, sequence {base_sequence}",
        )
