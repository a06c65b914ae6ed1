"""Stopping one log so that the next start need not recover it: flushed, with a snapshot."""

from fairlead_broker.disk import unlink_if_present
from fairlead_broker.log.files.file_names import SNAPSHOT_SUFFIX, parse_offset_name
from fairlead_broker.log.flush import FlushJob, complete_flush
from fairlead_broker.log.log import Log
from fairlead_wire.errors import KafkaError


def stop_log(log: Log, now_ms: int) -> bool:
    """Flush and write everything; False if the disk fails. Blocks."""
    if log.is_offline:
        return False
    try:
        if log.epochs.is_dirty:
            log.write_epochs()
        if not log.active.is_sealed:
            log.active.append_time_entry()
        # Also without new batches: the time entry and the files of a new segment need a flush.
        job = FlushJob(log)
        job.run()
        complete_flush(log, job, now_ms)
        if job.error is not None:
            return False
        _leave_one_snapshot(log)
    except KafkaError:
        return False
    except OSError as error:
        log.go_offline(error)
        return False
    return True


def _leave_one_snapshot(log: Log) -> None:
    """Keep snapshots only at the bases of segments (truncation needs them) and at the end."""
    offsets = {
        offset: entry.name
        for entry in log.disk.list_directory(log.path)
        if (offset := parse_offset_name(entry.name, SNAPSHOT_SUFFIX)) is not None
    }
    if (len(log.producers) or offsets) and log.log_end_offset not in offsets:
        log.write_snapshot()
    kept = {*log.bases, log.log_end_offset}
    for offset, name in offsets.items():
        if offset not in kept and unlink_if_present(log.disk, f"{log.path}/{name}"):
            log.deferred.note_directory(log.path)
