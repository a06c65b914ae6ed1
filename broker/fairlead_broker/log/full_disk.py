"""A disk without room: what was begun is undone, and the log takes no records until there is room.

Such a log is whole, unlike one that its disk has failed: it is read, it is led, and retention goes
on. What a refused append has left behind is cut off at once, because a clean stop takes the length
of the files for the end of the log. Before the next append the cut is made durable, as that of a
truncation: pages of the refused batch must not come back between those of later ones.

Only ENOSPC is that. A quota (EDQUOT) says nothing of when there is room again, and a flush that
fails for want of room may have lost what was acknowledged: both take the log offline.
"""

import errno

from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_wire.errors import ErrorCode, KafkaError


def is_lack_of_room(error: OSError) -> bool:
    """Tell whether a file system had no room for what was asked."""
    return error.errno == errno.ENOSPC


def refuse(log: SegmentedLog, error: OSError) -> KafkaError:
    """Return what is told of a write that failed: the log lacks room, or is offline."""
    if not is_lack_of_room(error):
        return log.go_offline(error)
    run_out(log, error)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.path}: {error}")


def refuse_append(log: SegmentedLog, error: OSError) -> KafkaError:
    """Undo an append that failed behind the end of the log; return what is told of it."""
    if is_lack_of_room(error) and not log.active.is_sealed:
        try:
            log.active.truncate(log.active.size)
        except OSError as second:
            return log.go_offline(second)
    return refuse(log, error)


def run_out(log: SegmentedLog, error: OSError) -> None:
    """Take no records from now on."""
    log.lacks_room = True
    log.refusal = f"without room: {error}"


def take_records_again(log: SegmentedLog) -> bool:
    """There is room: take records once a checkpoint has made the end durable.

    False if there was none after all.
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
