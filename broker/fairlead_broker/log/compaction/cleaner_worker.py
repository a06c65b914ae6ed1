"""`python -m fairlead_broker.log.compaction.cleaner_worker`: compacts logs for its parent process.

Each line of input is a `CleaningOrder` in JSON. Lines of output in JSON: `{"bytes": n}` now and
then, `{"group": …}` for each group of segments whose new files are complete, and at last
`{"report": …}`, `{"uncleanable": "why"}`, `{"no_room": "why"}` or `{"error": "why"}`. The process
runs at a low priority, and no faster than `io_bytes_per_second`. It ends when its input ends, and
dies with its parent: else it would write into the files of the next broker's child.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Final

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.compaction.batch_cleaning import CleaningCounts
from fairlead_broker.log.compaction.cleaning_plan import SegmentFacts
from fairlead_broker.log.compaction.log_cleaning import (
    CleanedGroup,
    CleaningOrder,
    CleaningReport,
    LogCleaning,
    NoRoomError,
    UncleanableLogError,
)
from fairlead_broker.log.parent_death import die_with_parent
from fairlead_wire.record_batch import NO_TIMESTAMP

NICENESS: Final = 10
PROGRESS_S: Final = 0.25


class NonsenseError(ValueError):
    """The child's output is not valid."""


class Throttle:
    """Sleeps to stay below a number of bytes a second, and reports the bytes so far."""

    def __init__(self, bytes_per_second: float, tell: Callable[[int], None]) -> None:
        self._bytes_per_second = bytes_per_second
        self._tell = tell
        self._began_s = self._told_s = time.monotonic()
        self._bytes = 0
        self._untold = 0

    def note(self, size: int) -> None:
        """Count bytes that were read or written; return when more may follow."""
        self._bytes += size
        self._untold += size
        due_s = self._began_s + self._bytes / self._bytes_per_second
        while True:
            now_s = time.monotonic()
            if now_s - self._told_s >= PROGRESS_S:
                self._tell(self._untold)
                self._untold, self._told_s = 0, now_s
            if now_s >= due_s:
                return
            time.sleep(min(due_s - now_s, PROGRESS_S))


def main() -> None:
    """Serve orders until the input ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    die_with_parent()
    os.nice(NICENESS)
    disk = RealDisk()
    for line in sys.stdin:
        order = decode_order(json.loads(line))
        throttle = Throttle(order.io_bytes_per_second, lambda size: _say({"bytes": size}))
        cleaning = LogCleaning(
            disk,
            order,
            on_group=lambda group: _say({"group": asdict(group)}),
            on_bytes=throttle.note,
        )
        try:
            report = cleaning.run()
        except UncleanableLogError as error:
            _say({"uncleanable": str(error)})
        except NoRoomError as error:
            _say({"no_room": str(error)})
        except OSError as error:
            _say({"error": f"{order.directory}: {error}"})
        else:
            _say({"report": asdict(report)})


def encode_order(order: CleaningOrder) -> bytes:
    """Return an order as a line of input."""
    return json.dumps(asdict(order)).encode() + b"\n"


def decode_order(fields: dict[str, Any]) -> CleaningOrder:
    """Return the order in a line of input."""
    fields["segments"] = [SegmentFacts(*segment) for segment in fields["segments"]]
    return CleaningOrder(**fields)


def decode_group(fields: Any) -> CleanedGroup:
    """Return the group in a message. NonsenseError if it is not valid."""
    try:
        group = CleanedGroup(**fields)
        sizes = (group.size, group.index_size, group.time_index_size, group.transaction_index_size)
        numbers = [*group.source_bases, *sizes, group.last_marker_removed]
    except TypeError as error:
        raise NonsenseError(f"no group of segments: {error}") from error
    if not group.source_bases or not _are_numbers(numbers):
        raise NonsenseError(f"no group of segments: {numbers}")
    return group


def decode_report(fields: Any) -> CleaningReport:
    """Return the report in a message. NonsenseError if it is not valid."""
    try:
        counts = CleaningCounts(**fields["counts"])
        report = CleaningReport(**fields | {"counts": counts})
    except (KeyError, TypeError) as error:
        raise NonsenseError(f"no report: {error}") from error
    if not _are_numbers([*asdict(counts).values(), report.end_offset, report.source_bytes]):
        raise NonsenseError(f"no report: {report}")
    return report


def _are_numbers(values: Iterable[object]) -> bool:
    return all(type(value) is int and value >= NO_TIMESTAMP for value in values)


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
