"""What only clients with Fetch below version 10 need: no zstd, which they can't decompress.

Nothing is ever rewritten for them: a slice that holds zstd is refused. Their replies are cut after
so many batches, because each batch header has to be looked at.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import BATCH_OVERHEAD, CODEC_MASK

if TYPE_CHECKING:
    from fairlead_broker.log.files.file_slice import FileSlice

_BATCHES_MAX: Final = 256
_ZSTD: Final = 4
_ATTRIBUTES_END: Final = 23


def check_codec(records: FileSlice) -> FileSlice:
    """Return the slice, cut if it is long; KafkaError if a batch in it is compressed with zstd."""
    fd = records.file.read_fd
    position = records.position
    end = position + records.length
    for _ in range(_BATCHES_MAX):
        header = os.pread(fd, _ATTRIBUTES_END, position)
        if len(header) < _ATTRIBUTES_END:
            break
        if header[-1] & CODEC_MASK == _ZSTD:
            if position > records.position:
                # What comes before it can be read; the next fetch meets the error.
                break
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Fetch version 10 or later"
            )
        position += int.from_bytes(header[8:12], "big", signed=True) + BATCH_OVERHEAD
        if position >= end:
            return records
    return replace(records, length=position - records.position)
