"""Whether offsets of a log may have gaps: then its directory has an empty file as a mark.

Recovery truncates a log where offsets are not consecutive (I8), except in compacted logs. Recovery
must know these logs before the first image brings the topics' settings. A log may also be that of
a follower whose leader sends compacted records. So the mark is created before the first gap: by a
cleaner before it replaces segments, by a follower before it appends after a gap. It is never
removed. Its name becomes durable with the directory's next fsync, which every flush and every
replacement of segments does before anything relies on it.
"""

from fairlead_broker.disk import Disk
from fairlead_broker.log.files.file_names import HOLES_MARK


def mark_holes(disk: Disk, directory: str) -> None:
    """Let the log in `directory` have gaps from now on. OSError."""
    disk.close(disk.open_write(f"{directory}/{HOLES_MARK}"))


def may_have_holes(disk: Disk, directory: str) -> bool:
    """Tell whether the directory has the mark."""
    return disk.exists(f"{directory}/{HOLES_MARK}")
