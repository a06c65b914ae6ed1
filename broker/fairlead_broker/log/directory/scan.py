"""The subdirectories of a data directory, classified by their names."""

from dataclasses import dataclass, field

from fairlead_broker.disk import Disk
from fairlead_broker.log.files.file_names import (
    DELETE_DIRECTORY_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    parse_future_directory,
    parse_partition_directory,
)
from fairlead_broker.log.files.text_files import TopicPartition


@dataclass(slots=True)
class DirectoryScan:
    """Directory names: logs by partition, deleted logs, copies of moving logs, and others."""

    partitions: dict[TopicPartition, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    futures: list[tuple[TopicPartition, str]] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def scan_directory(disk: Disk, path: str) -> DirectoryScan:
    """Classify the subdirectories; stray logs and files are left out."""
    scan = DirectoryScan()
    for entry in disk.list_directory(path):
        if not entry.is_directory or entry.name.endswith(STRAY_DIRECTORY_SUFFIX):
            continue
        if entry.name.endswith(DELETE_DIRECTORY_SUFFIX):
            scan.deleted.append(entry.name)
            continue
        future = parse_future_directory(entry.name)
        if future is not None:
            scan.futures.append((future, entry.name))
            continue
        key = parse_partition_directory(entry.name)
        if key is None:
            scan.foreign.append(entry.name)
        else:
            scan.partitions[key] = entry.name
    return scan
