"""Changes of the cluster image as plain values for msgpack, and back with every field checked.

A change is a list: its tag, then its fields in the order of the dataclass. Lists instead of
mappings keep a partition at some 60 bytes. What does not fit raises `CodecError`: a peer that
sends it is not one of ours, or of another version.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.delta import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    PartitionChanged,
    TopicChanged,
    TopicRemoved,
)
from fairlead_model.ids import TOPIC_ID_SIZE, TopicId
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration
from fairlead_model.topic import TopicHeader, TopicOrigin, TopicState

T = TypeVar("T")

_BROKER: Final = "b"
_BROKER_REMOVED: Final = "-b"
_TOPIC: Final = "t"
_TOPIC_REMOVED: Final = "-t"
_PARTITION: Final = "p"
_CONFIGS: Final = "c"

REGISTRATION_FIELDS: Final = 15


class CodecError(ValueError):
    """A value is not what its place asks for."""


def encode_changes(changes: Iterable[Change]) -> list[list[Any]]:
    """Give the plain form of changes, in order."""
    return [encode_change(change) for change in changes]


def encode_change(change: Change) -> list[Any]:
    """Give the plain form of one change."""
    match change:
        case PartitionChanged():
            return [_PARTITION, change.topic_id, change.index, *_partition_fields(change.partition)]
        case TopicChanged():
            return [_TOPIC, *_header_fields(change.header)]
        case TopicRemoved():
            return [_TOPIC_REMOVED, change.topic_id]
        case BrokerChanged():
            return [_BROKER, *encode_registration(change.registration)]
        case BrokerRemoved():
            return [_BROKER_REMOVED, change.broker_id]
        case BrokerConfigsChanged():
            return [_CONFIGS, change.broker, dict(change.configs)]


def _partition_fields(partition: PartitionRegistration) -> list[Any]:
    return [
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.elr,
        partition.last_known_elr,
        int(partition.leader_recovery_state),
        partition.adding_replicas,
        partition.removing_replicas,
        partition.directories,
        partition.min_insync_replicas,
    ]


def _header_fields(header: TopicHeader) -> list[Any]:
    return [
        header.name,
        header.topic_id,
        header.partition_count,
        str(header.state),
        dict(header.configs),
        str(header.origin),
        header.resource,
        header.reclaim_policy,
        header.deletion_protection,
        sorted(header.unconfirmed_deletions),
    ]


def encode_registration(registration: BrokerRegistration) -> list[Any]:
    """Give the plain form of a broker's registration."""
    return [
        registration.broker_id,
        registration.broker_epoch,
        [[end.name, end.host, end.port, end.is_internal] for end in registration.endpoints],
        registration.host_name,
        registration.rack,
        registration.fenced,
        registration.in_controlled_shutdown,
        registration.directory_id,
        registration.start_id,
        registration.boot_id,
        registration.pod_uid,
        registration.is_clean,
        registration.previous_broker_epoch,
        registration.is_recovered_whole,
        registration.min_insync_replicas,
    ]


def decode_changes(values: object) -> tuple[Change, ...]:
    """Read a list of changes; CodecError if anything in it is wrong."""
    return tuple(decode_change(value) for value in _list(values))


def decode_change(value: object) -> Change:
    """Read one change; CodecError if anything in it is wrong."""
    fields = _list(value)
    if not fields or not isinstance(fields[0], str) or fields[0] not in _DECODERS:
        raise CodecError(f"not a change: {str(value)[:80]}")
    count, decode = _DECODERS[fields[0]]
    if len(fields) != count + 1:
        raise CodecError(f"a change {fields[0]!r} has {len(fields) - 1} fields instead of {count}")
    return decode(fields[1:])


def decode_registration(value: object) -> BrokerRegistration:
    """Read a broker's registration; CodecError if anything in it is wrong."""
    fields = _list(value)
    if len(fields) != REGISTRATION_FIELDS:
        raise CodecError(
            f"a registration has {len(fields)} fields instead of {REGISTRATION_FIELDS}"
        )
    return BrokerRegistration(
        broker_id=whole(fields[0]),
        broker_epoch=whole(fields[1], minimum=-1),
        endpoints=tuple(_decode_endpoint(endpoint) for endpoint in _list(fields[2])),
        host_name=text(fields[3]),
        rack=None if fields[4] is None else text(fields[4]),
        fenced=flag(fields[5]),
        in_controlled_shutdown=flag(fields[6]),
        directory_id=text(fields[7]),
        start_id=text(fields[8]),
        boot_id=text(fields[9]),
        pod_uid=text(fields[10]),
        is_clean=flag(fields[11]),
        previous_broker_epoch=whole(fields[12], minimum=-1),
        is_recovered_whole=flag(fields[13]),
        min_insync_replicas=whole(fields[14], minimum=1),
    )


def _decode_endpoint(value: object) -> Endpoint:
    fields = _list(value)
    if len(fields) != 4:
        raise CodecError("an endpoint has not four fields")
    return Endpoint(
        name=text(fields[0]),
        host=text(fields[1]),
        port=whole(fields[2], maximum=65_535),
        is_internal=flag(fields[3]),
    )


def _decode_partition(fields: list[Any]) -> PartitionChanged:
    partition = PartitionRegistration(
        replicas=_whole_tuple(fields[2]),
        isr=_whole_tuple(fields[3]),
        leader=whole(fields[4], minimum=-1),
        leader_epoch=whole(fields[5]),
        partition_epoch=whole(fields[6]),
        elr=_whole_tuple(fields[7]),
        last_known_elr=_whole_tuple(fields[8]),
        leader_recovery_state=LeaderRecoveryState(whole(fields[9], maximum=1)),
        adding_replicas=_whole_tuple(fields[10]),
        removing_replicas=_whole_tuple(fields[11]),
        directories=tuple(text(directory) for directory in _list(fields[12])),
        min_insync_replicas=whole(fields[13], minimum=1),
    )
    problems = partition.problems()
    if problems:
        raise CodecError("; ".join(problems))
    return PartitionChanged(topic_id(fields[0]), whole(fields[1]), partition)


def _decode_topic(fields: list[Any]) -> TopicChanged:
    return TopicChanged(
        TopicHeader(
            name=text(fields[0]),
            topic_id=topic_id(fields[1]),
            partition_count=whole(fields[2]),
            state=_member(TopicState, fields[3]),
            configs=_text_mapping(fields[4]),
            origin=_member(TopicOrigin, fields[5]),
            resource=text(fields[6]),
            reclaim_policy=text(fields[7]),
            deletion_protection=flag(fields[8]),
            unconfirmed_deletions=frozenset(_whole_tuple(fields[9])),
        )
    )


_DECODERS: Final[dict[str, tuple[int, Callable[[list[Any]], Change]]]] = {
    _BROKER: (REGISTRATION_FIELDS, lambda fields: BrokerChanged(decode_registration(fields))),
    _BROKER_REMOVED: (1, lambda fields: BrokerRemoved(whole(fields[0]))),
    _TOPIC: (10, _decode_topic),
    _TOPIC_REMOVED: (1, lambda fields: TopicRemoved(topic_id(fields[0]))),
    _PARTITION: (14, _decode_partition),
    _CONFIGS: (2, lambda fields: BrokerConfigsChanged(text(fields[0]), _text_mapping(fields[1]))),
}


def whole(value: object, *, minimum: int = 0, maximum: int = 2**63 - 1) -> int:
    """Check a whole number; True and False are none."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise CodecError(f"{str(value)[:40]!r} is not a whole number of {minimum} to {maximum}")
    return value


def text(value: object, *, length_max: int = 32 * 1024) -> str:
    """Check a text."""
    if not isinstance(value, str) or len(value) > length_max:
        raise CodecError(f"{str(value)[:40]!r} is not a text of at most {length_max} characters")
    return value


def flag(value: object) -> bool:
    """Check a truth value."""
    if not isinstance(value, bool):
        raise CodecError(f"{str(value)[:40]!r} is neither true nor false")
    return value


def topic_id(value: object) -> TopicId:
    """Check sixteen bytes."""
    if not isinstance(value, bytes) or len(value) != TOPIC_ID_SIZE:
        raise CodecError(f"{str(value)[:40]!r} is not a topic id of 16 bytes")
    return TopicId(value)


def _list(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise CodecError(f"{str(value)[:40]!r} is not a list")
    return list(value)


def _whole_tuple(value: object) -> tuple[int, ...]:
    return tuple([whole(item) for item in _list(value)])


def _text_mapping(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise CodecError(f"{str(value)[:40]!r} is not a mapping")
    return {text(key): text(item) for key, item in value.items()}


def _member(enumeration: Callable[[str], T], value: object) -> T:
    try:
        return enumeration(text(value))
    except ValueError as error:
        raise CodecError(str(error)) from None
