"""Whether offsets of a log may have gaps: an empty file in the log's own directory says so.

Recovery cuts a log where offsets do not follow one another (I8), except where compaction has been.
Which logs that is must be known before the first image brings the topics' settings, and must hold
for a follower too, whose leader has compacted what it sends. So the mark is made before the first
gap is: by a cleaner before it replaces segments, by a follower before it appends behind a gap. It
is never removed. Its name becomes durable with the directory's next fsync, which every flush and
every replacement of segments does before anything relies on it.
"""

from fairlead_broker.disk import Disk
from fairlead_broker.log.files.file_names import HOLES_MARK


def mark_holes(disk: Disk, directory: str) -> None:
    """Let the log in `directory` have gaps from now on. OSError if the disk refuses."""
    disk.close(disk.open_write(f"{directory}/{HOLES_MARK}"))


def may_have_holes(disk: Disk, directory: str) -> bool:
    """Tell whether the mark is there."""
    return disk.exists(f"{directory}/{HOLES_MARK}")
