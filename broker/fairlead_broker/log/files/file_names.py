"""Names of files and directories in a data directory; Kafka's, so that its tools find them.

A segment's files carry its base offset in 20 digits: the offset of the first record that the
segment may hold. Working suffixes come behind the type: `.deleted` waits to be removed,
`.cleaned` is unfinished output of compaction, `.swap` is finished output that replaces segments.
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
"""Deleted by retention: so is every segment before it, whatever a power cut brings back."""
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
"""Ours: when the last tombstone of a log's compacted part may go, in milliseconds."""
FAILED_FLUSH: Final = "fairlead-failed-flush"
HOLES_MARK: Final = "fairlead-compacted"
CHECKPOINTED_MARK: Final = "fairlead-checkpointed"
CUT_START: Final = "fairlead-start-before-cut"
MOVED_MARK: Final = "fairlead-moved-to"
"""Of a log that may have moved: the id of the log directory that has it, if that has one."""
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
    """Return an offset as file names carry it: 20 digits, so that names sort like offsets."""
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
    """Topic and partition of a directory name, or None if no partition is called so.

    The name must be the one that we would write: `a-07` is not partition 7 of `a`.
    """
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    topic, partition = match["topic"], int(match["partition"])
    if partition_directory(topic, partition) != name or partition > 2**31 - 1:
        return None
    return topic, partition


def future_directory(topic: str, partition: int, unique: str) -> str:
    """Return the directory of a copy that becomes the log; longer than a name may be, at times."""
    return f"{partition_directory(topic, partition)}.{unique}{FUTURE_DIRECTORY_SUFFIX}"


def parse_future_directory(name: str) -> tuple[str, int] | None:
    """Topic and partition that a directory is to become the log of; None if it is none such."""
    match = _FUTURE_DIRECTORY.fullmatch(name)
    return None if match is None else parse_partition_directory(match["name"])
