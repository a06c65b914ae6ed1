"""Writes compacted topics: a few keys in every partition, each with values that are numbered.

Of a key only the last value has to stay, so whatever is read of it must rise, and end with the last
number that was acknowledged. Now and then a value is a tombstone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from numbered_load import DIGITS, NumberedLoad, Place, Record, Series
from numbered_reader import EXAMPLES_MAX, Progress

KEYS_EACH: Final = 8
TOMBSTONE_EVERY: Final = 13
NUMBER: Final = "number"
"""The header that says which value of its key a record is; tombstones have it, too."""
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "5000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": "5000",
    "delete.retention.ms": "5000",
}
CLEANING: Final = {"log.cleaner.backoff.ms": "500", "log.retention.check.interval.ms": "2000"}
"""Settings of brokers that keep their cleaners at work."""


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

    Nothing is missing in between: what is gone may have been cleaned away.
    """

    def __init__(self) -> None:
        super().__init__()
        self._offsets: dict[Place, int] = {}

    def begin(self, at: Mapping[Series, int]) -> None:
        """Expect anything: a reader begins at the first record, wherever that is."""

    def first_offset(self, _place: Place) -> int:
        return 0

    def take(self, message: Any) -> None:
        """One record. What does not rise counts as repeated."""
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
        """Return of how many keys the last value is lacking; a tombstone may be gone."""
        return sum(
            self.next[series] < count and not is_tombstone(count - 1)
            for series, count in acknowledged.items()
        )
