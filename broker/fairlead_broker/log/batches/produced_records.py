"""What a leader checks in the records of a produced batch: their number and timestamps.

Small uncompressed batches are always walked. Others are walked only if the largest timestamp in
their header cannot be right, as with sarama before 1.45.1, or if the topic has other limits of
timestamps than the defaults. The body is not trusted. This is the hot path: the walk keeps only the
least and the largest timestamp, and reads short varints inline.
"""

import struct
from typing import Final, NoReturn, TypeAlias

from fairlead_broker.limits import (
    NAMED_RECORDS_MAX,
    RECOMPRESSED_BYTES_MAX,
    UNCHARGED_WALK_BYTES_MAX,
    WALKED_ALWAYS_RECORDS_MAX,
    WALKED_RECORDS_MAX,
)
from fairlead_broker.log.batches.keyed_records import (
    RECORD_BYTES_MIN,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    UnreadableRecordsError,
    timestamp_deltas,
)
from fairlead_broker.log.batches.recompression import is_packed_anew
from fairlead_broker.log.batches.record_walk import RefusedRecordsError, records_outside
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.compression import UnpackedSizeError, decompress
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.record_batch import (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    BATCH_OVERHEAD,
    CODEC_MASK,
    NO_TIMESTAMP,
    BatchHeader,
    batch_crc,
)

HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of `BatchHeader` in order, as `struct` gives them: cheaper than the named tuple."""

_UNPACKED_RATIOS: Final = (1, 1_032, 64, 255, 32_768, 0, 0, 0)
"""Largest factor by which records can grow when decompressed, by codec."""
_CRC: Final = slice(17, 21)
_CODEC_AT: Final = 22
"""The low byte of the attributes."""
_TIMESTAMPS: Final = struct.Struct(">qq")
_BASE_TIMESTAMP_AT: Final = 27
_MAX_TIMESTAMP: Final = slice(35, 43)


def takes_long(batch: memoryview, config: LogConfig) -> bool:
    """Tell whether a batch blocks others: it is compressed again, decompressed or walked at length.

    This uses the bytes as received; nothing is checked yet.
    """
    if len(batch) < BATCH_HEADER_SIZE:
        return False
    if not batch[_CODEC_AT] & CODEC_MASK and len(batch) <= UNCHARGED_WALK_BYTES_MAX:
        return is_packed_anew(batch, config)
    if config.is_compacted or is_packed_anew(batch, config):
        return True
    return (
        _is_untold(*_TIMESTAMPS.unpack_from(batch, _BASE_TIMESTAMP_AT)) or config.limits_timestamps
    ) and not config.is_log_append_time


def check_records(
    header: HeaderFields, batch: memoryview, config: LogConfig, now_ms: int
) -> HeaderFields:
    """Return the header with the largest timestamp of the records, which is set in the batch, too.

    KafkaError INVALID_RECORD if there cannot be as many records as the header says, or they cannot
    be read; INVALID_TIMESTAMP, a RefusedRecordsError, if the topic refuses their timestamps.
    """
    _, length, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = header
    codec = attributes & CODEC_MASK
    if count * RECORD_BYTES_MIN > (length - BATCH_LENGTH_MIN) * _UNPACKED_RATIOS[codec]:
        raise _broken(f"{count} of them in {length - BATCH_LENGTH_MIN} bytes")
    is_log_append_time = config.is_log_append_time
    if not codec and count <= WALKED_ALWAYS_RECORDS_MAX:
        is_walked = True
    elif is_log_append_time:
        return header
    else:
        is_walked = config.limits_timestamps or _is_untold(base_timestamp, max_timestamp)
    found = _walk(header, batch) if is_walked else None
    if is_log_append_time:
        return header
    if found is not None:
        least, largest = found
    else:
        largest = max_timestamp
        if _is_untold(base_timestamp, max_timestamp):
            # The batch is too large to walk. If this timestamp is too late, retention keeps the
            # records longer, and lookups of an earlier time still find them.
            largest = max(base_timestamp, now_ms)
        least = largest if base_timestamp == NO_TIMESTAMP else base_timestamp
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    if largest > latest or least < earliest or least > latest:
        fields = BatchHeader._make(header)._replace(max_timestamp=largest)
        _check_range(fields, batch, earliest, latest, is_walked=found is not None)
    if largest == max_timestamp:
        return header
    size = length + BATCH_OVERHEAD
    batch[_MAX_TIMESTAMP] = largest.to_bytes(8, "big", signed=True)
    batch[_CRC] = batch_crc(batch, 0, size).to_bytes(4, "big")
    return (*header[:8], largest, *header[9:])


def _is_untold(base_timestamp: int, max_timestamp: int) -> bool:
    """Tell whether a header lacks the largest timestamp of its records."""
    return max_timestamp < base_timestamp or max_timestamp == NO_TIMESTAMP


def _walk(header: HeaderFields, batch: memoryview) -> tuple[int, int] | None:
    """Return the least and the largest timestamp of a batch; None if it is too large to walk."""
    length, attributes, base_timestamp, count = header[1], header[5], header[7], header[12]
    if count > WALKED_RECORDS_MAX:
        return None
    codec = attributes & CODEC_MASK
    body = bytes(batch[BATCH_HEADER_SIZE : length + BATCH_OVERHEAD])
    try:
        if codec:
            body = decompress(body, codec, max_size=RECOMPRESSED_BYTES_MAX)
        least, largest = timestamp_deltas(body, count)
    except UnpackedSizeError:
        return None
    except (RemoteProtocolError, UnreadableRecordsError) as error:
        raise _broken(str(error)) from error
    least += base_timestamp
    largest += base_timestamp
    if least < TIMESTAMP_MIN or largest > TIMESTAMP_MAX:
        raise _broken(f"timestamps {least} to {largest}")
    return least, largest if largest > NO_TIMESTAMP else NO_TIMESTAMP


def _check_range(
    header: BatchHeader, batch: memoryview, earliest: int, latest: int, *, is_walked: bool
) -> None:
    """Refuse a batch by the timestamps of its records, or by those of its header if it is large.

    Records without a timestamp are always accepted.
    """
    outside: list[int] = []
    if is_walked:
        outside = records_outside(header, batch, earliest, latest)
        if not outside:
            return
    elif header.records_count <= NAMED_RECORDS_MAX:
        try:
            outside = records_outside(header, batch, earliest, latest)
        except KafkaError:
            # The batch is refused anyway, because of its header.
            outside = []
    _refuse_timestamps(header, outside, earliest, latest)


def _refuse_timestamps(
    header: BatchHeader, outside: list[int], earliest: int, latest: int
) -> NoReturn:
    raise RefusedRecordsError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamps {header.base_timestamp} to {header.max_timestamp} are not within {earliest}"
        f" to {latest}",
        outside,
        f"its timestamp is not within {earliest} to {latest}",
    )


def _broken(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"unreadable records: {reason}")
