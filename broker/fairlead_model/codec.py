"""Encoding of cluster image changes as plain values for msgpack; the decoder checks every field.

A change is a list: its kind, then its fields in the order of the dataclass. With lists instead of
mappings a partition takes some 60 bytes. The decoder raises `CodecError` for invalid values.

Lists grow only at their end. The decoder ignores fields beyond those that this release knows.
Fields that an older release does not send have a default, which is the worst case that is safe: a
broker counts as fenced and not clean. Unknown kinds are optional or end the session: see
`fairlead_model.session.session_protocol`.
"""

from collections.abc import Callable, Iterable, Sequence
from sys import float_info
from typing import Any, Final, TypeVar

from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.delta import (
    AclChanged,
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    ClientQuotaChanged,
    CredentialChanged,
    FeaturesChanged,
    GroupConfigsChanged,
    PartitionChanged,
    TopicChanged,
    TopicRemoved,
)
from fairlead_model.features import UNSAID_FEATURES, FeatureRange, FinalizedFeatures
from fairlead_model.ids import NO_BROKER_EPOCH, TOPIC_ID_SIZE, TopicId
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration
from fairlead_model.security.acl import (
    ACL_TEXT_MAX,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    binding_problem,
)
from fairlead_model.security.client_quota import (
    KEY_LENGTH_MAX,
    QuotaEntity,
    Quotas,
    quota_entity,
)
from fairlead_model.security.scram import ScramCredential, ScramMechanism, credential_problem
from fairlead_model.session.session_protocol import OPTIONAL_MARK
from fairlead_model.topic import TopicHeader, TopicOrigin, TopicState

T = TypeVar("T")

_BROKER: Final = "b"
_BROKER_REMOVED: Final = "-b"
_TOPIC: Final = "t"
_TOPIC_REMOVED: Final = "-t"
_PARTITION: Final = "p"
_CONFIGS: Final = "c"
_GROUP_CONFIGS: Final = f"{OPTIONAL_MARK}group-configs"
"""A broker that does not know this kind uses its own settings for all groups."""
_FEATURES: Final = f"{OPTIONAL_MARK}features"
"""A broker that does not know this kind is of a release that supports only the lowest levels. The
controller refuses it once a level is raised."""

_ACL: Final = f"{OPTIONAL_MARK}acl"
_CREDENTIAL: Final = f"{OPTIONAL_MARK}scram"
"""A broker that does not know these kinds authorizes nobody and accepts no login, as before."""

_CLIENT_QUOTA: Final = f"{OPTIONAL_MARK}client-quota"
"""A broker that does not know this kind throttles no client, as before."""

USER_LENGTH_MAX: Final = 1_000
KIND_LENGTH_MAX: Final = 40
FEATURE_LEVEL_MAX: Final = (1 << 15) - 1
"""Kafka's protocol carries levels in two bytes."""
INT_32_MAX: Final = (1 << 31) - 1
"""Kafka's protocol carries ids of brokers in four bytes."""

_REGISTRATION_REQUIRED: Final = 3
_REGISTRATION_DEFAULTS: Final = (
    *("", None, True, False, "", "", "", "", False, NO_BROKER_EPOCH, False, 1),
    *(UNSAID_FEATURES, (), False, False),
)
_ENDPOINT_REQUIRED: Final = 3
_ENDPOINT_DEFAULTS: Final = (False,)
_PARTITION_REQUIRED: Final = 7
_PARTITION_DEFAULTS: Final = ((), (), int(LeaderRecoveryState.RECOVERED), (), (), (), 1, ())
_TOPIC_REQUIRED: Final = 4
_TOPIC_DEFAULTS: Final[tuple[Any, ...]] = ({}, str(TopicOrigin.KAFKA), "", "Retain", False, ())
"""Fields at the end of a list that an older release may omit, in the order of the list."""


class CodecError(ValueError):
    """A value is not valid for its field."""


def encode_changes(changes: Iterable[Change]) -> list[list[Any]]:
    """Return the plain form of changes, in order."""
    return [encode_change(change) for change in changes]


def encode_change(change: Change) -> list[Any]:
    """Return the plain form of one change."""
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
        case GroupConfigsChanged():
            return [_GROUP_CONFIGS, change.group_id, dict(change.configs)]
        case FeaturesChanged():
            finalized = change.features
            return [_FEATURES, finalized.epoch, dict(finalized.levels), finalized.release]
        case AclChanged() | CredentialChanged() | ClientQuotaChanged():
            return _encode_security_change(change)


def _encode_security_change(
    change: AclChanged | CredentialChanged | ClientQuotaChanged,
) -> list[Any]:
    if isinstance(change, AclChanged):
        return [_ACL, change.is_removed, *encode_acl(change.rule)]
    if isinstance(change, ClientQuotaChanged):
        return [_CLIENT_QUOTA, encode_quota_entity(change.entity), dict(change.quotas)]
    fields = [] if change.credential is None else encode_credential(change.credential)
    return [_CREDENTIAL, change.user, int(change.mechanism), fields]


def encode_quota_entity(entity: QuotaEntity) -> list[list[str | None]]:
    """Return the plain form of an entity that has quotas."""
    return [[kind, name] for kind, name in entity]


def encode_acl(rule: AclBinding) -> list[Any]:
    """Return the plain form of an access rule."""
    return [int(value) if isinstance(value, int) else value for value in rule]


def encode_credential(credential: ScramCredential) -> list[Any]:
    """Return the plain form of a credential, without its mechanism and user."""
    return [
        credential.iterations,
        credential.salt,
        credential.stored_key,
        credential.server_key,
    ]


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
        partition.unconfirmed_removals,
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
    """Return the plain form of a broker's registration."""
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
        registration.features,
        registration.directory_ids,
        registration.is_cordoned,
        registration.allows_unclean_election,
    ]


def decode_changes(
    values: object, on_skipped: Callable[[str], None] = lambda kind: None
) -> tuple[Change, ...]:
    """Read a list of changes; CodecError if anything in it is invalid.

    `on_skipped` is called with each optional kind that this release does not know.
    """
    changes = []
    for value in _list(values):
        change = decode_change(value)
        if isinstance(change, str):
            on_skipped(change)
        else:
            changes.append(change)
    return tuple(changes)


def decode_change(value: object) -> Change | str:
    """Read one change. An unknown kind is returned if it is optional, else CodecError."""
    fields = _list(value)
    kind = fields[0] if fields else None
    if not isinstance(kind, str):
        raise CodecError(f"not a change: {str(value)[:80]}")
    decode = _DECODERS.get(kind)
    if decode is not None:
        return decode(fields[1:])
    if kind.startswith(OPTIONAL_MARK):
        return text(kind, length_max=KIND_LENGTH_MAX)
    raise CodecError(
        f"a change of the kind {kind[:KIND_LENGTH_MAX]!r}, which this release does not know and "
        "may not skip"
    )


def decode_registration(value: object) -> BrokerRegistration:
    """Read a broker's registration; CodecError if anything in it is invalid."""
    fields = _filled("a registration", _list(value), _REGISTRATION_REQUIRED, _REGISTRATION_DEFAULTS)
    return BrokerRegistration(
        broker_id=whole(fields[0], maximum=INT_32_MAX),
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
        min_insync_replicas=whole(fields[14], minimum=1, maximum=INT_32_MAX),
        features=tuple(_decode_range(each) for each in _list(fields[15])),
        directory_ids=tuple(text(each) for each in _list(fields[16])),
        is_cordoned=flag(fields[17]),
        allows_unclean_election=flag(fields[18]),
    )


def _decode_range(value: object) -> FeatureRange:
    fields = _filled("a range of levels", _list(value), 3)
    lowest = whole(fields[1], maximum=FEATURE_LEVEL_MAX)
    highest = whole(fields[2], minimum=lowest, maximum=FEATURE_LEVEL_MAX)
    return FeatureRange(text(fields[0]), lowest, highest)


def _decode_endpoint(value: object) -> Endpoint:
    fields = _filled("an endpoint", _list(value), _ENDPOINT_REQUIRED, _ENDPOINT_DEFAULTS)
    return Endpoint(
        name=text(fields[0]),
        host=text(fields[1]),
        port=whole(fields[2], maximum=65_535),
        is_internal=flag(fields[3]),
    )


def _decode_partition(fields: list[Any]) -> PartitionChanged:
    fields = _filled("a partition", fields, _PARTITION_REQUIRED, _PARTITION_DEFAULTS)
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
        unconfirmed_removals=_whole_tuple(fields[14]),
    )
    problems = partition.problems()
    if problems:
        raise CodecError("; ".join(problems))
    return PartitionChanged(topic_id(fields[0]), whole(fields[1]), partition)


def _decode_topic(fields: list[Any]) -> TopicChanged:
    fields = _filled("a topic", fields, _TOPIC_REQUIRED, _TOPIC_DEFAULTS)
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


def _decode_configs(fields: list[Any]) -> BrokerConfigsChanged:
    fields = _filled("configs", fields, 2)
    return BrokerConfigsChanged(text(fields[0]), _text_mapping(fields[1]))


def _decode_group_configs(fields: list[Any]) -> GroupConfigsChanged:
    fields = _filled("configs of a group", fields, 2)
    return GroupConfigsChanged(text(fields[0]), _text_mapping(fields[1]))


def _decode_features(fields: list[Any]) -> FeaturesChanged:
    fields = _filled("features", fields, 2, ("",))
    if not isinstance(fields[1], dict):
        raise CodecError(f"{str(fields[1])[:40]!r} is not a mapping")
    levels = {
        text(name): whole(level, maximum=FEATURE_LEVEL_MAX) for name, level in fields[1].items()
    }
    return FeaturesChanged(FinalizedFeatures(whole(fields[0]), levels, text(fields[2])))


def decode_acl(value: object) -> AclBinding:
    """Read an access rule; CodecError if Kafka would not keep it."""
    fields = _filled("an access rule", _list(value), 7)
    try:
        rule = AclBinding(
            ResourceType(whole(fields[0])),
            PatternType(whole(fields[1])),
            text(fields[2], length_max=ACL_TEXT_MAX),
            text(fields[3], length_max=ACL_TEXT_MAX),
            text(fields[4], length_max=ACL_TEXT_MAX),
            Operation(whole(fields[5])),
            Permission(whole(fields[6])),
        )
    except CodecError:
        raise
    except ValueError as error:
        raise CodecError(str(error)) from None
    problem = binding_problem(rule)
    if problem:
        raise CodecError(problem)
    return rule


def decode_mechanism(value: object) -> ScramMechanism:
    """Read Kafka's number of a SCRAM mechanism."""
    try:
        return ScramMechanism(whole(value))
    except ValueError:
        raise CodecError(f"{str(value)[:40]!r} is not a SCRAM mechanism") from None


def decode_credential(mechanism: ScramMechanism, value: object) -> ScramCredential:
    """Read a credential; CodecError, without secrets in it, if it cannot verify a login."""
    fields = _filled("a credential", _list(value), 4)
    if not all(isinstance(field, bytes) for field in fields[1:4]):
        raise CodecError("the salt and the keys of a credential are bytes")
    credential = ScramCredential(mechanism, whole(fields[0]), *fields[1:4])
    problem = credential_problem(credential)
    if problem:
        raise CodecError(problem)
    return credential


def _decode_acl_change(fields: list[Any]) -> AclChanged:
    fields = _filled("an access rule", fields, 8)
    return AclChanged(decode_acl(fields[1:]), is_removed=flag(fields[0]))


def _decode_credential_change(fields: list[Any]) -> CredentialChanged:
    fields = _filled("a credential", fields, 3)
    user, mechanism = text(fields[0], length_max=USER_LENGTH_MAX), decode_mechanism(fields[1])
    credential = decode_credential(mechanism, fields[2]) if _list(fields[2]) else None
    return CredentialChanged(user, mechanism, credential)


def decode_quota_entity(value: object) -> QuotaEntity:
    """Read an entity that has quotas; CodecError if Kafka has no such kind of entity."""
    parts = []
    for each in _list(value):
        kind, name = _filled("a part of an entity", _list(each), 2)[:2]
        parts.append((text(kind), None if name is None else text(name)))
    try:
        return quota_entity(parts)
    except ValueError as error:
        raise CodecError(str(error)) from None


def decode_quotas(value: object) -> Quotas:
    """Read the quotas of an entity; CodecError if a quota is not a number above 0.

    Unknown keys, which another release may have written, are kept; a broker ignores them.
    """
    if not isinstance(value, dict):
        raise CodecError(f"{str(value)[:40]!r} is not a mapping")
    return {text(key, length_max=KEY_LENGTH_MAX): limit(each) for key, each in value.items()}


def limit(value: object) -> float:
    """Check the value of a quota."""
    if type(value) not in (int, float) or not 0 < value <= float_info.max:  # type: ignore[operator]
        raise CodecError(f"{str(value)[:40]!r} is not a number above 0")
    return float(value)  # type: ignore[arg-type]


def _decode_quota_change(fields: list[Any]) -> ClientQuotaChanged:
    fields = _filled("client quotas", fields, 2)
    return ClientQuotaChanged(decode_quota_entity(fields[0]), decode_quotas(fields[1]))


_DECODERS: Final[dict[str, Callable[[list[Any]], Change]]] = {
    _BROKER: lambda fields: BrokerChanged(decode_registration(fields)),
    _BROKER_REMOVED: lambda fields: BrokerRemoved(whole(_filled("an id", fields, 1)[0])),
    _TOPIC: _decode_topic,
    _TOPIC_REMOVED: lambda fields: TopicRemoved(topic_id(_filled("an id", fields, 1)[0])),
    _PARTITION: _decode_partition,
    _CONFIGS: _decode_configs,
    _GROUP_CONFIGS: _decode_group_configs,
    _FEATURES: _decode_features,
    _ACL: _decode_acl_change,
    _CREDENTIAL: _decode_credential_change,
    _CLIENT_QUOTA: _decode_quota_change,
}


def _filled(what: str, fields: list[Any], required: int, defaults: Sequence[Any] = ()) -> list[Any]:
    """Return all fields that this release knows, with defaults for those that were not sent."""
    missing = required + len(defaults) - len(fields)
    if missing <= 0:
        return fields
    if missing > len(defaults):
        raise CodecError(f"{what} has {len(fields)} fields instead of {required} at least")
    return [*fields, *defaults[-missing:]]


def whole(value: object, *, minimum: int = 0, maximum: int = 2**63 - 1) -> int:
    """Check a whole number; True and False are refused."""
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
