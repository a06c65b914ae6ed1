"""The protocol of a query as a member of its group. Pure.

A query is a member like any consumer: protocol type `consumer`, ConsumerProtocolSubscription and
ConsumerProtocolAssignment of Kafka, so that every tool shows which member reads which partition. It
claims the partitions in its checkpoint, and the leader of the group assigns each member what it
claims. No consumer has a protocol of this name, so consumers cannot join such a group.

Members identify each other by their instance ids, `fairlead-spark.DRIVER.PROCESS`, which
DescribeGroups returns in every state of a group. A driver that starts removes members of other
drivers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct, error
from typing import Final, NamedTuple

from fairlead_spark.offsets import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
PROTOCOL_NAME: Final = "fairlead-spark"
# Version 1 has the partitions that a member owns; Kafka's readers of later ones take it, too.
_SUBSCRIPTION_VERSION: Final = 1
_ASSIGNMENT_VERSION: Final = 0
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_SINCE: Final = Struct(">q")


class Instance(NamedTuple):
    """A process that reads a stream: its driver, and its number in that driver."""

    driver: str
    process: int

    def __str__(self) -> str:
        return f"{PROTOCOL_NAME}.{self.driver}.{self.process}"


def read_instance(text: str | None) -> Instance | None:
    """Return the process that has this `group.instance.id`; None for any other consumer."""
    name, _, rest = (text or "").partition(".")
    driver, _, process = rest.rpartition(".")
    if name != PROTOCOL_NAME or not driver or not process.isdecimal():
        return None
    return Instance(driver, int(process))


@dataclass(frozen=True)
class Claim:
    """The partitions that a member claims; `since_ms` is when its process began."""

    partitions: frozenset[TopicPartition]
    since_ms: int


class MalformedError(ValueError):
    """Bytes are no subscription of a query, or no assignment."""


def encode_claim(claim: Claim) -> bytes:
    """Encode a claim as ConsumerProtocolSubscription."""
    topics = sorted({each.topic for each in claim.partitions})
    return b"".join(
        (
            _INT16.pack(_SUBSCRIPTION_VERSION),
            _INT32.pack(len(topics)),
            *(_text(topic) for topic in topics),
            _INT32.pack(_SINCE.size),
            _SINCE.pack(claim.since_ms),
            _partitions(claim.partitions),
        )
    )


def decode_claim(metadata: bytes) -> Claim:
    """Decode the result of `encode_claim`; MalformedError for anything else."""
    reader = _Reader(metadata)
    reader.number(_INT16)
    for _ in range(reader.number(_INT32)):
        reader.text()
    if reader.number(_INT32) != _SINCE.size:
        raise MalformedError("the user data is not a query's")
    since_ms = reader.number(_SINCE)
    return Claim(reader.partitions(), since_ms)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode partitions as ConsumerProtocolAssignment."""
    return _INT16.pack(_ASSIGNMENT_VERSION) + _partitions(partitions) + _INT32.pack(-1)


def decode_assignment(assignment: bytes) -> frozenset[TopicPartition]:
    """Return partitions that a member was given; none for an empty assignment."""
    if not assignment:
        return frozenset()
    reader = _Reader(assignment)
    reader.number(_INT16)
    return reader.partitions()


def assign(claims: Mapping[str, Claim]) -> dict[str, frozenset[TopicPartition]]:
    """Assign each member all partitions that it claims; each partition goes to one member.

    If two queries of one driver claim the same partition, the one that began last gets it.
    """
    owners: dict[TopicPartition, str] = {}
    for member, claim in sorted(claims.items(), key=lambda each: (each[1].since_ms, each[0])):
        owners.update(dict.fromkeys(claim.partitions, member))
    given: dict[str, set[TopicPartition]] = {member: set() for member in claims}
    for partition, member in owners.items():
        given[member].add(partition)
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _text(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    numbers: dict[str, list[int]] = {}
    for each in sorted(partitions):
        numbers.setdefault(each.topic, []).append(each.partition)
    parts = [_INT32.pack(len(numbers))]
    for topic, indexes in numbers.items():
        parts += [_text(topic), _INT32.pack(len(indexes)), *map(_INT32.pack, indexes)]
    return b"".join(parts)


class _Reader:
    """Goes through bytes that another member wrote."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: Struct) -> int:
        try:
            (value,) = form.unpack_from(self._data, self._at)
        except error:
            raise MalformedError("it ends too early") from None
        self._at += form.size
        return int(value)

    def text(self) -> str:
        size = self.number(_INT16)
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise MalformedError("it ends within a name")
        try:
            text = self._data[self._at : end].decode()
        except UnicodeDecodeError:
            raise MalformedError("a name is not UTF-8") from None
        self._at = end
        return text

    def partitions(self) -> frozenset[TopicPartition]:
        found = set()
        for _ in range(self.number(_INT32)):
            topic = self.text()
            found |= {
                TopicPartition(topic, self.number(_INT32)) for _ in range(self.number(_INT32))
            }
        return frozenset(found)
