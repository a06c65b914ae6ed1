"""Names of files and directories in a data directory; Kafka's, so that its tools find them.

A segment's files have its base offset as name, in 20 digits: the offset of the first record that
the segment may have. Working suffixes follow the type: `.deleted` waits to be removed, `.cleaned`
is unfinished output of compaction, `.swap` is finished output that replaces segments.
"""

import re
from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
RETENTION_SUFFIX: Final = ".retention.deleted"
"""Deleted by retention: all older segments are deleted, too, even if a power loss restores them."""
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
TOMBSTONE_CHECKPOINT: Final = "fairlead-tombstone-checkpoint"
"""Not a file of Kafka: when the last tombstone of a log's clean part may be removed, in ms."""
FAILED_FLUSH: Final = "fairlead-failed-flush"
HOLES_MARK: Final = "fairlead-compacted"
CHECKPOINTED_MARK: Final = "fairlead-checkpointed"
CUT_START: Final = "fairlead-start-before-cut"
MOVED_MARK: Final = "fairlead-moved-to"
"""In a log that may have moved: the id of the target directory, which may have the log by now."""
COPIED_SEGMENTS: Final = "fairlead-copied-segments"
"""In a copy that becomes the log: the segments that it has whole."""
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
START_RECORD: Final = "fairlead-start.json"
BOOT_RECORD: Final = "fairlead-boot.json"
METADATA_RECORD: Final = "fairlead-metadata.json"
ROLE_JOURNAL: Final = "fairlead-roles"
TAKEN_SUFFIX: Final = ".taken"
LOCK: Final = ".lock"
RESERVE: Final = "fairlead-reserve"

DELETE_DIRECTORY_SUFFIX: Final = "-delete"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
FUTURE_DIRECTORY_SUFFIX: Final = "-future"
FILE_NAME_BYTES_MAX: Final = 255

SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
OFFSET_DIGITS: Final = 20
OFFSET_MAX: Final = 2**63 - 1

_PARTITION_DIRECTORY: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})"
)

_FUTURE_DIRECTORY: Final = re.compile(r"(?P<name>.+)\.[0-9a-f]{32}-future")


def offset_name(offset: int) -> str:
    """Return an offset as in file names: 20 digits, so that names sort like offsets."""
    return f"{offset:020d}"


def parse_offset_name(name: str, suffix: str) -> int | None:
    """Return the offset in `<20 digits><suffix>`, or None if the name is not of that form."""
    digits = name[:OFFSET_DIGITS]
    if name[OFFSET_DIGITS:] != suffix or not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return offset if len(digits) == OFFSET_DIGITS and offset <= OFFSET_MAX else None


def partition_directory(topic: str, partition: int) -> str:
    """Return the directory of a partition: `<topic>-<partition>`."""
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """Return topic and partition of a directory name, None if it is not that of a partition.

    The name must have the canonical form: `a-07` is not partition 7 of `a`.
    """
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    topic, partition = match["topic"], int(match["partition"])
    if partition_directory(topic, partition) != name or partition > 2**31 - 1:
        return None
    return topic, partition


def future_directory(topic: str, partition: int, unique: str) -> str:
    """Return the directory of a copy that will be the log; it may be too long for a file name."""
    return f"{partition_directory(topic, partition)}.{unique}{FUTURE_DIRECTORY_SUFFIX}"


def parse_future_directory(name: str) -> tuple[str, int] | None:
    """Return topic and partition of a `-future` directory; None if the name is not of that form."""
    match = _FUTURE_DIRECTORY.fullmatch(name)
    return None if match is None else parse_partition_directory(match["name"])
