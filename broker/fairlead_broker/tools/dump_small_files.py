"""Snapshots, checkpoints and property files, one row an entry; damage is a problem, no error."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from fairlead_broker.limits import SMALL_FILE_BYTES_MAX
from fairlead_broker.log.files.text_files import (
    NewerFormatError,
    decode_epoch_checkpoint,
    decode_json_object,
    decode_meta_properties,
    decode_offset_checkpoint,
    decode_partition_metadata,
)
from fairlead_broker.log.producers.producer_snapshot import decode_snapshot
from fairlead_model.ids import topic_id_text

Decoded = TypeVar("Decoded")

SNAPSHOT_COLUMNS: Final = (
    "producer_id",
    "producer_epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "timestamp",
    "coordinator_epoch",
    "transaction_first_offset",
)
EPOCH_COLUMNS: Final = ("leader_epoch", "start_offset")
OFFSET_COLUMNS: Final = ("topic", "partition", "offset")
PROPERTY_COLUMNS: Final = ("name", "value")
NUMBER_COLUMNS: Final = ("recovery_point",)
CUT_START_COLUMNS: Final = ("known_start",)


def dump_snapshot(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield the producers of a `.snapshot`, as far as its CRC holds."""
    for entry in _decoded(path, decode_snapshot, problems) or ():
        last = entry.batches[-1] if entry.batches else None
        yield (
            entry.producer_id,
            entry.epoch,
            last.last_sequence if last else -1,
            last.last_offset if last else -1,
            last.last_offset - last.first_offset if last else 0,
            last.timestamp if last else -1,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )


def dump_epochs(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """`leader-epoch-checkpoint`."""
    yield from _decoded(path, decode_epoch_checkpoint, problems) or ()


def dump_offsets(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield the checkpoints of a data directory: recovery points, log starts, high watermarks."""
    for (topic, partition), offset in (
        _decoded(path, decode_offset_checkpoint, problems) or {}
    ).items():
        yield topic, partition, offset


def dump_partition_metadata(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """`partition.metadata`."""
    topic_id = _decoded(path, decode_partition_metadata, problems)
    if topic_id is not None:
        yield "topic_id", topic_id_text(topic_id)


def dump_meta_properties(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """`meta.properties`."""
    yield from (_decoded(path, decode_meta_properties, problems) or {}).items()


def dump_holes_mark(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """`fairlead-compacted`: its presence says all."""
    size = path.stat().st_size
    if size:
        problems.append(f"{size} bytes in a file that should be empty")
    yield "offsets", "may have gaps"


def dump_json(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield files that hold one JSON object."""
    yield from (_decoded(path, decode_json_object, problems) or {}).items()


def dump_number(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield a file with one number."""
    number = _decoded(path, int, problems)
    if number is not None:
        yield (number,)


def _decoded(path: Path, decode: Callable[[bytes], Decoded], problems: list[str]) -> Decoded | None:
    with path.open("rb") as file:
        content = file.read(SMALL_FILE_BYTES_MAX + 1)
    if len(content) > SMALL_FILE_BYTES_MAX:
        problems.append(f"more than {SMALL_FILE_BYTES_MAX} bytes")
        return None
    try:
        return decode(content)
    except (ValueError, NewerFormatError) as error:
        problems.append(str(error))
        return None
