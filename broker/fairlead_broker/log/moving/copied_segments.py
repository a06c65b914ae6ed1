"""The list of segments that a copy has whole, from which a later process goes on.

The list lies beside the copied segments. A line has the base offset of a segment, the sizes of its
files, and the version of the original `.log` when it was copied. It is appended once the segment
is sealed, and its copy is durable; so a start reads nothing again. What has no line, or a line that
does not fit, is copied anew. So nobody has to tell the list that a segment was compacted, cut off,
or made anew under the same name: its file has another version then. All of this runs in threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.disk import (
    FileVersion,
    read_file,
    replace_file,
    unlink_if_present,
    write_fully,
)
from fairlead_broker.limits import COPIED_SEGMENTS_BYTES_MAX
from fairlead_broker.log.files.file_names import (
    COPIED_SEGMENTS,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead_broker.disk import Disk
    from fairlead_broker.log.moving.segment_copies import Place

Sizes = tuple[int, ...]
"""Sizes of the files of a segment, in the order of SEGMENT_SUFFIXES."""

_FIELDS = 1 + len(SEGMENT_SUFFIXES) + len(FileVersion._fields)
_DIGITS_MAX = 20


class CopiedSegment(NamedTuple):
    """A line of the list."""

    base_offset: int
    sizes: Sizes
    version: FileVersion

    def files(self) -> dict[str, int]:
        """Return the names of the segment's files, with their sizes."""
        stem = offset_name(self.base_offset)
        return {
            stem + suffix: size
            for suffix, size in zip(SEGMENT_SUFFIXES, self.sizes, strict=True)
            if size or suffix != TRANSACTION_INDEX_SUFFIX
        }


def encode_copied(segments: Sequence[CopiedSegment]) -> bytes:
    """Return the lines of segments."""
    return b"".join(
        b"%s\n" % b" ".join(b"%d" % each for each in (base_offset, *sizes, *version))
        for base_offset, sizes, version in segments
    )


def decode_copied(content: bytes) -> dict[int, CopiedSegment]:
    """Return the latest line of each segment, up to a line that is no whole one."""
    found = {}
    for line in content.split(b"\n")[:-1]:
        fields = line.split(b" ")
        if len(fields) != _FIELDS:
            break
        if not all(each.isdigit() and len(each) <= _DIGITS_MAX for each in fields):
            break
        base_offset, *sizes, number, changed_ns = map(int, fields)
        found[base_offset] = CopiedSegment(
            base_offset, tuple(sizes), FileVersion(number, changed_ns)
        )
    return found


def record_copied(old: Place, copy: Place, segments: Mapping[int, Sizes]) -> None:
    """Append lines of segments, whose copies are durable, to the list. OSError."""
    lines = [
        CopiedSegment(base_offset, sizes, version)
        for base_offset, sizes in segments.items()
        if (version := _version(old, base_offset)) is not None
    ]
    writing = copy.disk.open_write(_path(copy))
    try:
        write_fully(copy.disk, writing, encode_copied(lines), copy.disk.size(writing))
    finally:
        copy.disk.close(writing)


def keep_copied(old: Place, copy: Place, sealed: Mapping[int, Sizes]) -> list[int]:
    """Remove all files of a copy but those of segments that it has whole; return their bases.

    `sealed` are the sealed segments of the log, and the sizes of their files. OSError.
    """
    disk = copy.disk
    sizes = {entry.name: entry.size for entry in disk.list_directory(copy.path)}
    listed = _read(disk, _path(copy)) if COPIED_SEGMENTS in sizes else {}
    kept = [
        each
        for each in listed.values()
        if sealed.get(each.base_offset) == each.sizes
        and all(sizes.get(name) == size for name, size in each.files().items())
        and _version(old, each.base_offset) == each.version
    ]
    names = {name for each in kept for name in each.files()}
    for name in sizes.keys() - names - {COPIED_SEGMENTS}:
        unlink_if_present(disk, f"{copy.path}/{name}")
    if kept:
        replace_file(disk, _path(copy), encode_copied(kept), durable=True)
    else:
        forget_copied(copy)
    return [each.base_offset for each in kept]


def forget_copied(copy: Place) -> None:
    """Remove the list. OSError."""
    unlink_if_present(copy.disk, _path(copy))


def _read(disk: Disk, path: str) -> dict[int, CopiedSegment]:
    try:
        return decode_copied(read_file(disk, path, size_max=COPIED_SEGMENTS_BYTES_MAX))
    except ValueError:
        return {}


def _version(old: Place, base_offset: int) -> FileVersion | None:
    try:
        return old.disk.version(f"{old.path}/{offset_name(base_offset)}{LOG_SUFFIX}")
    except FileNotFoundError:
        return None  # Retention or compaction has just removed it.


def _path(copy: Place) -> str:
    return f"{copy.path}/{COPIED_SEGMENTS}"
