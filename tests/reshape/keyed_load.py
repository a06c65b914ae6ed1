"""Writes compacted topics: a few keys in every partition, each with values that are numbered.

Compaction keeps at least the last value of a key. So the numbers that are read for a key must rise,
and end with the last one that was acknowledged. Some values are tombstones.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from numbered_load import DIGITS, NumberedLoad, Place, Record, Series
from numbered_reader import EXAMPLES_MAX, Progress

KEYS_EACH: Final = 8
TOMBSTONE_EVERY: Final = 13
NUMBER: Final = "number"
"""The header with the number of a record within its key; tombstones have it, too."""
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "5000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": "5000",
    "delete.retention.ms": "5000",
}
CLEANING: Final = {"log.cleaner.backoff.ms": "500", "log.retention.check.interval.ms": "2000"}
"""Settings of brokers with which their cleaners run often."""


def is_tombstone(number: int) -> bool:
    return number % TOMBSTONE_EVERY == TOMBSTONE_EVERY - 1


class KeyedLoad(NumberedLoad):
    """The same producer; the keys of a partition take turns."""

    def __init__(self, places: Sequence[Place], rate: int, settings: dict[str, Any]) -> None:
        super().__init__(places, rate, settings)
        self._turns = dict.fromkeys(places, 0)

    def _make(self, place: Place, size: int) -> Record:
        key = b"k%d" % (self._turns[place] % KEYS_EACH)
        self._turns[place] += 1
        series = (*place, key)
        number = self.sent[series]
        value = None if is_tombstone(number) else bytes(size)
        return Record(series, value, key, [(NUMBER, b"%0*d" % (DIGITS, number))])

    def _series_of(self, message: Any) -> Series:
        return (message.topic(), message.partition(), message.key())


class KeyedProgress(Progress):
    """Offsets of a partition rise, and so do the numbers of a key.

    Gaps are allowed, because the cleaner may have removed these records.
    """

    def __init__(self) -> None:
        super().__init__()
        self._offsets: dict[Place, int] = {}

    def begin(self, at: Mapping[Series, int]) -> None:
        """Expect any number: a reader begins at the first record, whichever that is."""

    def first_offset(self, _place: Place) -> int:
        return 0

    def take(self, message: Any) -> None:
        """Check one record. If its offset or number does not rise, it counts as repeated."""
        place = (message.topic(), message.partition())
        series: Series = (*place, message.key())
        ((_, text),) = message.headers()
        offset, number = message.offset(), int(text)
        self.count += 1
        before, expected = self._offsets.get(place, -1), self.next[series]
        self._offsets[place] = max(offset, before)
        self.next[series] = max(number + 1, expected)
        if offset > before and number >= expected:
            return
        self.repeated += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(
                f"{series}@{offset}: {number}, behind offset {before} and number {expected - 1}"
            )

    def shortfall(self, acknowledged: Mapping[Series, int]) -> int:
        """Return how many keys lack their last value, unless that is a tombstone."""
        return sum(
            self.next[series] < count and not is_tombstone(count - 1)
            for series, count in acknowledged.items()
        )
