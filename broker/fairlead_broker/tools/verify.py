"""Do the files of a partition agree with one another? The library behind `log dump --verify`.

Each batch is read and its CRC checked; offsets must follow one another (where compaction has been,
they must rise), leader epochs must not fall, and every index entry must point at the batch that it
names. Answers findings instead of raising; an empty list means that everything fits. Nothing is
written, so it may run beside a live broker (whose newest batch may then look cut off).
"""

from bisect import bisect_left
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlead_broker.log.files.file_names import (
    HOLES_MARK,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_DIGITS,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_offset_name,
)
from fairlead_broker.tools.dump import open_dump, segment_files
from fairlead_broker.tools.dump_log import read_batches
from fairlead_wire.record_batch import BatchHeader, batch_crc


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not fit, and where."""

    path: Path
    problem: str


@dataclass(slots=True)
class _Batches:
    """What the indexes of a segment are compared with: parallel lists, in file order."""

    positions: list[int]
    last_offsets: list[int]
    largest_timestamps: list[int]


def verify_partition(directory: str | Path) -> Iterator[Finding]:
    """Yield the findings about one partition directory, as they are made."""
    directory = Path(directory)
    previous: BatchHeader | None = None
    has_holes = (directory / HOLES_MARK).exists()
    for path in segment_files(directory):
        previous = yield from _verify_segment(path, previous, has_holes=has_holes)
    for child in sorted(directory.iterdir()):
        if child.name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA) or (
            parse_offset_name(child.name, SNAPSHOT_SUFFIX) is not None
        ):
            yield from _dump_findings(child)


def verify_segment(path: str | Path) -> Iterator[Finding]:
    """Yield the findings about one `.log` file and its indexes."""
    path = Path(path)
    yield from _verify_segment(path, None, has_holes=path.with_name(HOLES_MARK).exists())


def _verify_segment(
    path: Path, previous: BatchHeader | None, *, has_holes: bool
) -> Generator[Finding, None, BatchHeader | None]:
    base_offset = int(path.name[:OFFSET_DIGITS])
    problems: list[str] = []
    batches = _Batches([], [], [])
    largest = -1
    for position, header, batch in read_batches(path, problems):
        for problem in _batch_problems(header, batch, previous, base_offset, has_holes=has_holes):
            yield Finding(path, f"position {position}: {problem}")
        largest = max(largest, header.max_timestamp)
        batches.positions.append(position)
        batches.last_offsets.append(header.last_offset)
        batches.largest_timestamps.append(largest)
        previous = header
    for problem in problems:
        yield Finding(path, problem)
    yield from _verify_index(path.with_suffix(INDEX_SUFFIX), batches)
    yield from _verify_time_index(path.with_suffix(TIME_INDEX_SUFFIX), batches)
    return previous


def _batch_problems(
    header: BatchHeader,
    batch: bytes,
    previous: BatchHeader | None,
    base_offset: int,
    *,
    has_holes: bool,
) -> Iterator[str]:
    if batch_crc(batch, 0, header.size) != header.crc:
        yield "the CRC does not match"
    if header.last_offset < base_offset:
        yield f"offset {header.last_offset} below the segment's base"
    if previous is None:
        return
    if header.base_offset <= previous.last_offset:
        yield f"offset {header.base_offset} after {previous.last_offset}"
    elif header.base_offset != previous.next_offset and not has_holes:
        # Compaction leaves such gaps, and says so; anything else must not.
        yield f"offsets {previous.next_offset} to {header.base_offset - 1} are missing"
    if header.partition_leader_epoch < previous.partition_leader_epoch:
        yield (
            f"leader epoch {header.partition_leader_epoch} after {previous.partition_leader_epoch}"
        )


def _verify_index(path: Path, batches: _Batches) -> Iterator[Finding]:
    if not path.exists():
        yield Finding(path, "is missing")
        return
    yield from _dump_findings(path)
    for offset, position in open_dump(path).rows:
        at = bisect_left(batches.positions, int(str(position)))
        if at == len(batches.positions) or batches.positions[at] != position:
            yield Finding(path, f"no batch starts at position {position}")
        elif batches.last_offsets[at] != offset:
            yield Finding(
                path,
                f"the batch at position {position} ends with offset {batches.last_offsets[at]}, "
                f"not {offset}",
            )


def _verify_time_index(path: Path, batches: _Batches) -> Iterator[Finding]:
    if not path.exists():
        yield Finding(path, "is missing")
        return
    yield from _dump_findings(path)
    for timestamp, offset in open_dump(path).rows:
        at = bisect_left(batches.last_offsets, int(str(offset)))
        if at == len(batches.last_offsets):
            yield Finding(path, f"offset {offset} is behind the last batch")
        elif batches.largest_timestamps[at] != timestamp:
            yield Finding(
                path,
                f"the largest timestamp up to offset {offset} is "
                f"{batches.largest_timestamps[at]}, not {timestamp}",
            )


def _dump_findings(path: Path) -> Iterator[Finding]:
    """Yield what is wrong with a file by itself."""
    dump = open_dump(path)
    for _ in dump.rows:
        pass
    for problem in dump.problems:
        yield Finding(path, problem)
