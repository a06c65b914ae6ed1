"""Filters that Spark passes to a batch read (`pushFilters`, since 4.1), as narrower ranges. Pure.

Ranges can express filters of partition, topic and offset completely. A filter of time only gives a
start: later records may be older, so Spark still checks each. Spark applies every other filter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from fairlead_spark.offsets import PartitionValues, TopicPartition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Narrowing:
    """The part of a topic that filters leave.

    `places` are the allowed values of the columns topic and partition; a column that is missing
    allows all. Offsets are `[least_offset, until_offset)`.
    """

    places: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    least_offset: int = 0
    until_offset: int | None = None
    since_ms: int | None = None
    """Records before the first one at or after this time (ms since 1970) are not wanted."""

    def is_wanted(self, where: TopicPartition) -> bool:
        """Tell whether a partition may have a wanted record."""
        columns = {"topic": where.topic, "partition": where.partition}
        return all(columns[name] in values for name, values in self.places.items())

    def narrow_start(self, start: PartitionValues) -> dict[TopicPartition, int]:
        """Return the starts of the wanted partitions."""
        return {
            each: max(offset, self.least_offset)
            for each, offset in start.items()
            if self.is_wanted(each)
        }

    def narrow_until(self, until: PartitionValues) -> dict[TopicPartition, int]:
        """Return the ends of the wanted partitions."""
        most = self.until_offset
        return {
            each: offset if most is None else min(offset, most)
            for each, offset in until.items()
            if self.is_wanted(each)
        }


def take_filters(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """Return what all filters leave, and the filters that Spark still has to apply."""
    narrowing = Narrowing()
    kept = []
    for each in filters:
        taken = _take(narrowing, each)
        if taken is not None:
            narrowing = taken
        if taken is None or _column(each) == "timestamp":
            kept.append(each)
    return narrowing, kept


def _take(narrowing: Narrowing, given: Filter) -> Narrowing | None:
    """Return the narrowing with one more filter; None for one that a range cannot express."""
    column = _column(given)
    if column in ("topic", "partition") and isinstance(given, EqualTo | In):
        return _take_place(narrowing, column, given)
    if column == "offset":
        return _take_offset(narrowing, given)
    if column == "timestamp" and isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual):
        return _take_time(narrowing, given.value)
    return None


def _take_place(narrowing: Narrowing, column: str, given: Any) -> Narrowing | None:
    values = frozenset(given.value if isinstance(given, In) else (given.value,))
    # Comparisons with null have rules that only Spark implements.
    if None in values:
        return None
    before = narrowing.places.get(column, values)
    return replace(narrowing, places={**narrowing.places, column: before & values})


def _take_offset(narrowing: Narrowing, given: Any) -> Narrowing | None:
    comparisons = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
    if not isinstance(given, comparisons) or type(given.value) is not int:
        return None
    value = given.value
    least, until = narrowing.least_offset, narrowing.until_offset
    if isinstance(given, EqualTo | GreaterThanOrEqual):
        least = max(least, value)
    elif isinstance(given, GreaterThan):
        least = max(least, value + 1)
    if isinstance(given, EqualTo | LessThan | LessThanOrEqual):
        end = value if isinstance(given, LessThan) else value + 1
        until = end if until is None else min(until, end)
    return replace(narrowing, least_offset=least, until_offset=until)


def _take_time(narrowing: Narrowing, value: Any) -> Narrowing | None:
    if not isinstance(value, datetime) or value.tzinfo is None or value < _EPOCH:
        return None
    # Rounded down: records have milliseconds, the filter may have microseconds.
    since_ms = (value - _EPOCH) // _MILLISECOND
    return replace(narrowing, since_ms=max(since_ms, narrowing.since_ms or 0))


def _column(given: Any) -> str:
    """Return the column of a filter; empty for a field inside a column."""
    return given.attribute[0] if len(getattr(given, "attribute", ())) == 1 else ""
