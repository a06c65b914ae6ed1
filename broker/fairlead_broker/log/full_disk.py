"""A full disk: a failed write is undone, and the log takes no records until there is room.

The log is complete, unlike one whose disk has failed: it can be read and led, and retention goes
on. Bytes of a refused append are cut off at once, because after a clean stop the length of the
files is the end of the log. As after a truncation, this is made durable before the next append:
after a power cut, no page of the refused batch may reappear among the pages of later batches.

Only ENOSPC counts. After a quota error (EDQUOT) the broker cannot tell when there is room
again, and a flush that fails without room may have lost acknowledged records: both take the log
offline.
"""

import errno

from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_wire.errors import ErrorCode, KafkaError


def is_lack_of_room(error: OSError) -> bool:
    """Tell whether an operation failed because the file system has no room."""
    return error.errno == errno.ENOSPC


def refuse(log: SegmentedLog, error: OSError) -> KafkaError:
    """Return the error for a failed write: the log lacks room, or is offline."""
    if not is_lack_of_room(error):
        return log.go_offline(error)
    run_out(log, error)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.path}: {error}")


def refuse_append(log: SegmentedLog, error: OSError) -> KafkaError:
    """Undo a failed append after the end of the log; return its error."""
    if is_lack_of_room(error) and not log.active.is_sealed:
        try:
            log.active.truncate(log.active.size)
        except OSError as second:
            return log.go_offline(second)
    return refuse(log, error)


def run_out(log: SegmentedLog, error: OSError) -> None:
    """Refuse appends from now on, until there is room."""
    log.lacks_room = True
    log.refusal = f"without room: {error}"


def take_records_again(log: SegmentedLog) -> bool:
    """Take records again, once a checkpoint has made the log's end durable.

    Return False if there is no room after all.
    """
    if log.epochs.is_dirty:
        try:
            log.write_epochs()
        except OSError as error:
            refuse(log, error)
            return False
    log.lacks_room = False
    log.refusal = AWAITS_CHECKPOINT
    return True
