"""The joint report of several log directories, each with its own past, on the broker's start. Pure.

The controller compares one broker epoch, one boot and one marker of a clean stop with those of the
start that was registered last (`fairlead_controller/decisions/clean_return`). So this module
derives one report from all directories, and lists the logs to which it does not apply as unclean:

* The newest broker epoch in any directory is reported. Each broker epoch is given only once. So a
  directory with an older one (a restored copy, a disk that was missing) was not part of that start,
  and may lack records that it acknowledged. A new directory has no epoch, and no logs.
* If one directory has the marker of a clean stop, and another of the same epoch has none, the disk
  or the flush of the other one failed when the broker stopped. The other one is trusted only if the
  kernel has run since and recovery found no loss: the controller asks the same of a killed process.
* If no directory has the marker, the process was killed, and the controller compares boot and pod.
  If recovery finds a loss in a directory, only the logs of that directory are unclean.

The reported ids are derived from those of all directories: they change if one directory changes.
An older controller, which compares nothing else, then trusts nothing; that is safe. The logs of a
missing directory are not known here: the controller sees that the broker does not report their
replicas.
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
    """One directory: the record in its files, and the results of loading it."""

    record: StartRecord
    is_whole: bool
    """True if recovery found at most a torn last batch in each log, and the disk works."""
    logs: Sequence[TopicPartition]
    damaged: Sequence[TopicPartition]
    """Logs that are lost or have lost records, also if `is_whole`."""


@dataclass(frozen=True, slots=True)
class JointStart:
    """What the registration reports on the start."""

    record: StartRecord
    is_recovered_whole: bool
    """Without a marker: nothing that the previous process had written was lost."""
    unclean: list[TopicPartition]
    directory_ids: tuple[str, ...] = ()
    """The id of each directory, if there are several."""


def join_starts(starts: Sequence[DirectoryStart]) -> JointStart:
    """Return the joint report of one or more directories."""
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
    """Return one id for a set of ids, in any order; other sets have other ids."""
    digest = sha256("\n".join(sorted(ids)).encode()).digest()[:ID_BYTES]
    return urlsafe_b64encode(digest).decode().rstrip("=")
