"""Compresses batches with the codec of their topic (`compression.type`).

If a producer used another codec, the leader compresses the batch again before it writes it;
followers and readers get the batch as the leader stored it. This runs on the event loop, so the
size of decompressed records is limited.
"""

from typing import Final, NoReturn

from fairlead_broker.limits import RECOMPRESSED_BYTES_MAX, ZSTD_LEVEL_MAX
from fairlead_model.configs.log_config import PRODUCERS_CODEC, LogConfig
from fairlead_wire.compression import Codec, UnpackedSizeError, compress, decompress
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.record_batch import BATCH_HEADER_SIZE, BATCH_OVERHEAD, CODEC_MASK, batch_crc

_CODECS: Final = {"uncompressed": Codec.NONE} | {
    codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE
}
_LENGTH: Final = slice(8, 12)
_CRC: Final = slice(17, 21)
_CODEC_AT: Final = 22
"""The low byte of the attributes."""


def is_packed_anew(batch: memoryview, config: LogConfig) -> bool:
    """Tell whether a batch has another codec than its topic stores."""
    return (
        config.compression_type != PRODUCERS_CODEC
        and len(batch) > _CODEC_AT
        and batch[_CODEC_AT] & CODEC_MASK != _CODECS[config.compression_type]
    )


def as_stored(batch: memoryview, config: LogConfig) -> memoryview:
    """Return an intact batch with its topic's codec: the batch itself if it has it, or a copy.

    KafkaError INVALID_RECORD if its records cannot be decompressed; MESSAGE_TOO_LARGE if they are
    too large to be compressed here, or the result is larger than `max.message.bytes` or a segment.
    """
    codec = _CODECS[config.compression_type]
    if batch[_CODEC_AT] & CODEC_MASK == codec:
        return batch
    packed = _pack(_unpack(batch), codec, config)
    size = BATCH_HEADER_SIZE + len(packed)
    if size > min(config.max_message_bytes, config.segment_bytes):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes as {config.compression_type}; max.message.bytes is"
            f" {config.max_message_bytes}, segment.bytes {config.segment_bytes}",
        )
    stored = memoryview(bytearray(size))
    stored[:BATCH_HEADER_SIZE] = batch[:BATCH_HEADER_SIZE]
    stored[BATCH_HEADER_SIZE:] = packed
    stored[_LENGTH] = (size - BATCH_OVERHEAD).to_bytes(4, "big")
    stored[_CODEC_AT] = batch[_CODEC_AT] & ~CODEC_MASK | codec
    stored[_CRC] = batch_crc(stored, 0, size).to_bytes(4, "big")
    return stored


def _unpack(batch: memoryview) -> memoryview | bytes:
    records, codec = batch[BATCH_HEADER_SIZE:], batch[_CODEC_AT] & CODEC_MASK
    if codec == Codec.NONE:
        return records if len(records) <= RECOMPRESSED_BYTES_MAX else _refuse_unpacked()
    try:
        return decompress(records, codec, max_size=RECOMPRESSED_BYTES_MAX)
    except UnpackedSizeError:
        _refuse_unpacked()
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"unreadable records: {error}") from error


def _refuse_unpacked() -> NoReturn:
    raise KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch whose records are more than {RECOMPRESSED_BYTES_MAX} bytes, too many to be packed"
        " anew: lower batch.size, or compress as the topic's compression.type says",
    )


def _pack(records: memoryview | bytes, codec: Codec, config: LogConfig) -> bytes:
    level = None
    if codec is Codec.GZIP and config.gzip_level > 0:
        level = config.gzip_level
    elif codec is Codec.ZSTD:
        level = min(config.zstd_level, ZSTD_LEVEL_MAX)
    return compress(records, codec, level)
