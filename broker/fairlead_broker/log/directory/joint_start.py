"""What several log directories, each with its own story, say together of the broker's start. Pure.

The controller compares one broker epoch, one boot and one marker of a clean stop with those of the
start that was registered last (`fairlead_controller/decisions/clean_return`). So the directories
speak with one voice here, and what does not agree with it is named as unclean, log by log:

* The newest broker epoch that a directory remembers counts. Broker epochs are never given twice, so
  a directory with an older one (a copy put back, a disk that was away) was not part of that start,
  and may lack what it acknowledged. A new directory remembers none, and holds nothing.
* If one directory has the marker of a clean stop, another of the same epoch without it had a failed
  disk or flush when the broker stopped. It counts only if the kernel has run on since and recovery
  found it whole: what the controller would ask of a killed process.
* If none has it the process was killed, and the controller asks for boot and pod. A directory of
  which recovery says that something is lost takes only its own logs with it.

Ids stand for all directories: they change as soon as one of them is another one. An older
controller, which compares nothing else, then believes nothing; that is safe. What was in a
directory that is not there is not known here at all: the controller misses it among the replicas
that the broker reports to hold.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from fairlead_broker.log.directory.identity import NO_BROKER_EPOCH, StartRecord
from fairlead_broker.log.files.text_files import TopicPartition

ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class DirectoryStart:
    """One directory: what its files say, and what loading it has found."""

    record: StartRecord
    is_whole: bool
    """True if recovery found at most a torn last batch in each log, and the disk is well."""
    logs: Sequence[TopicPartition]
    damaged: Sequence[TopicPartition]
    """Logs that are lost, or have lost something, whatever the rest is."""


@dataclass(frozen=True, slots=True)
class JointStart:
    """What the registration says."""

    record: StartRecord
    is_recovered_whole: bool
    """Without a marker: the process before lost nothing of what it had written."""
    unclean: list[TopicPartition]
    directory_ids: tuple[str, ...] = ()
    """Of each directory, where there are several."""


def join_starts(starts: Sequence[DirectoryStart]) -> JointStart:
    """Return what one or more directories say together."""
    if len(starts) == 1:
        (start,) = starts
        return JointStart(
            start.record,
            is_recovered_whole=not start.record.was_clean and start.is_whole,
            unclean=sorted(start.damaged),
        )
    newest = max(start.record.previous_broker_epoch for start in starts)
    last_used = max(_last_used_epoch(start.record) for start in starts)
    fresh = [
        start
        for start in starts
        if start.record.previous_broker_epoch == newest != NO_BROKER_EPOCH
        or _last_used_epoch(start.record) == last_used != NO_BROKER_EPOCH
    ]
    was_clean = any(start.record.was_clean for start in fresh)
    trusted = [start for start in fresh if _is_trusted(start, has_marker_beside=was_clean)]
    unclean = {key for start in starts for key in start.damaged}
    unclean.update(key for start in starts if start not in trusted for key in start.logs)
    directory_ids = tuple(start.record.directory_id for start in starts)
    return JointStart(
        replace(
            starts[0].record,
            directory_id=joint_id(directory_ids),
            start_id=joint_id(start.record.start_id for start in starts),
            was_clean=was_clean,
            previous_broker_epoch=newest,
        ),
        is_recovered_whole=not was_clean and bool(trusted),
        unclean=sorted(unclean),
        directory_ids=directory_ids,
    )


def _last_used_epoch(record: StartRecord) -> int:
    """Return the epoch of the last start that may have appended something."""
    return record.marked_broker_epoch if record.was_clean else record.previous_broker_epoch


def _is_trusted(start: DirectoryStart, *, has_marker_beside: bool) -> bool:
    """Tell whether a directory of the newest start has lost nothing, as far as it can know."""
    if start.record.was_clean:
        return True
    return start.is_whole and (start.record.is_same_boot or not has_marker_beside)


def joint_id(ids: Iterable[str]) -> str:
    """Return an id that stands for these, in whatever order, and for no others."""
    digest = sha256("\n".join(sorted(ids)).encode()).digest()[:ID_BYTES]
    return urlsafe_b64encode(digest).decode().rstrip("=")
