"""Positions in topics: the JSON in options and checkpoints, and its validity.

The JSON is that of Spark's Kafka source, `{"orders": {"0": 23, "1": -2}}`. A stream's offset has
one more entry, `"@topicIds": {"orders": "…"}` (no topic can have that name), so that a topic that
was deleted and created again can be distinguished. The end of a query's first batch also has
`"@begun": {"orders": {"0": 20}}`: Spark stores the ends of batches, but not where the first one
began.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from fairlead_spark.errors import OptionError, SourceError

EARLIEST: Final = -2
LATEST: Final = -1
EARLIEST_LOCAL: Final = -4
"""The first offset on the broker's own disks; earlier ones are in remote storage (KIP-405)."""
TOPIC_IDS: Final = "@topicIds"
BEGUN: Final = "@begun"
_MOST: Final = 2**63 - 1
"""Largest offset or time in Kafka's requests."""
NO_TOPIC_ID: Final = bytes(16)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PartitionValues = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class StreamOffset:
    """The position of a stream: the next offset of each partition, and the id of each topic.

    `begun`: where the query began, if its first batch ends here, else None. It is empty if the
    query found no partition then.
    """

    positions: PartitionValues
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    begun: PartitionValues | None = None

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the form that Spark stores; equal offsets give equal text."""
        nested: dict[str, dict[str, Any]] = _nest(self.positions)
        known = {topic: self.topic_ids.get(topic, NO_TOPIC_ID) for topic in nested}
        ids = {topic: _id_text(each) for topic, each in known.items() if each != NO_TOPIC_ID}
        if self.begun is not None:
            nested = {BEGUN: _nest(self.begun), **nested}
        return {TOPIC_IDS: ids, **nested} if ids else nested

    @classmethod
    def from_json(cls, nested: Mapping[str, Any]) -> "StreamOffset":
        """Read what `to_json` wrote, or Spark's Kafka source; SourceError for anything else."""
        try:
            ids = {topic: _id_bytes(text) for topic, text in nested.get(TOPIC_IDS, {}).items()}
            positions = _flatten(
                {name: each for name, each in nested.items() if name not in (TOPIC_IDS, BEGUN)}
            )
            begun = _flatten(nested[BEGUN]) if BEGUN in nested else None
        except (AttributeError, TypeError, ValueError) as error:
            raise SourceError(
                f"the checkpoint's offset cannot be read ({error}): {json.dumps(nested)[:500]}; "
                "start the query with another checkpointLocation"
            ) from error
        return cls(positions, ids, begun)

    def is_at(self, other: "StreamOffset") -> bool:
        """Tell whether both are at the same position, wherever they began."""
        return replace(self, begun=None).to_json() == replace(other, begun=None).to_json()


def parse_offsets(text: str, *, option: str) -> PartitionValues:
    """`{"topic": {"0": 23}}`; -2 stands for earliest, -1 for latest."""
    return _parse(text, option, least=EARLIEST)


def parse_timestamps(text: str, *, option: str) -> PartitionValues:
    """`{"topic": {"0": 1577836800000}}`, milliseconds since 1970."""
    return _parse(text, option, least=0)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [0, 1]}`."""
    try:
        nested = json.loads(text)
        found = {
            TopicPartition(str(topic), _whole(partition))
            for topic, partitions in nested.items()
            for partition in partitions
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise OptionError(
            f"assign is '{text}' ({error}); write it as {{\"orders\": [0, 1]}}"
        ) from None
    if not found or any(each.partition < 0 for each in found):
        raise OptionError("assign names no partition, or one below 0")
    return tuple(sorted(found))


def check_same_partitions(
    wanted: PartitionValues, existing: set[TopicPartition], *, option: str
) -> None:
    """Check Spark's rule: the option names every partition that is read and no other."""
    missing = sorted(existing - wanted.keys())
    if missing:
        raise OptionError(
            f"{option} says nothing about {_listing(missing)}: name every partition, "
            "with -2 for earliest or -1 for latest"
        )
    unknown = sorted(wanted.keys() - existing)
    if unknown:
        raise OptionError(f"{option} names {_listing(unknown)}, which the query does not read")


def _parse(text: str, option: str, *, least: int) -> PartitionValues:
    try:
        nested = json.loads(text)
        values = {
            TopicPartition(str(topic), _index(partition)): _whole(value)
            for topic, partitions in nested.items()
            for partition, value in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise OptionError(
            f'{option} is \'{text}\' ({error}); write it as {{"orders": {{"0": 23}}}}'
        ) from None
    if not values:
        raise OptionError(f"{option} names no partition")
    wrong = sorted(each for each, value in values.items() if value < least or each.partition < 0)
    if wrong:
        raise OptionError(f"{option}: {wrong[0]} has {values[wrong[0]]}, the least is {least}")
    return values


def _index(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is no partition")
    return int(text)


def _nest(positions: PartitionValues) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), position in sorted(positions.items()):
        nested.setdefault(topic, {})[str(partition)] = position
    return nested


def _flatten(nested: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): _whole(position)
        for topic, partitions in nested.items()
        for partition, position in partitions.items()
    }


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no whole number")
    if value > _MOST:
        raise ValueError(f"{value} is above {_MOST}")
    return value


def _listing(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:10]))
    return shown if len(partitions) <= 10 else f"{shown} and {len(partitions) - 10} more"


def _id_text(topic_id: bytes) -> str:
    """Return an id in the form of Kafka's tools."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def _id_bytes(text: str) -> bytes:
    topic_id = urlsafe_b64decode(text + "==")
    if len(topic_id) != len(NO_TOPIC_ID):
        raise ValueError(f"{text!r} is no topic id")
    return topic_id
