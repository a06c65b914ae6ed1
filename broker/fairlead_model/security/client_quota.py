"""Client quotas: their entities, their keys, and which applies to a client, as in Kafka. Pure.

An *entity* is a tuple of parts `(type, name)` in the order of `ENTITY_TYPES`: a user, a client id,
both, or an address. The name None stands for the default: it applies to every name of that type
that has no quota of its own.

For each key one quota applies to a client: that of the first level that sets the key
(`DefaultQuotaCallback` of Kafka). The level also decides who shares the quota: a pair of user and
client id has its own, all clients of a user share the user's, and all users of a client id share
the client id's.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from fairlead_model.host_address import normal_address

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
"""Keys of users and client ids (`QuotaConfig` of Kafka)."""
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)

_WHOLE_MAX: Final = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""Keys whose values are whole numbers, with the largest value. A value is sent as a `float`, in
which Java's largest long becomes larger by one."""
_EPSILON: Final = 1e-6
"""Largest distance from a whole number with which Kafka accepts a value as whole
(`ClientQuotaControlManager`)."""
THROTTLE_MS_MAX: Final = 24 * 3_600_000
"""The longest throttle time that a reply has. Kafka's field could have 24 days."""
NAME_LENGTH_MAX: Final = 1_000
KEY_LENGTH_MAX: Final = 100

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
Quotas: TypeAlias = Mapping[str, float]
"""The quotas of one entity, by key."""
SharerKey: TypeAlias = tuple[str | None, str | None]
"""Who shares a quota: user and client id; None if all users or all client ids share it."""
DEFAULT_ENTITIES: Final[tuple[QuotaEntity, ...]] = (
    ((USER, None), (CLIENT_ID, None)),
    ((USER, None),),
    ((CLIENT_ID, None),),
)
"""Entities that apply to a user without quotas of their own, whatever client id it sends."""


class FoundQuota(NamedTuple):
    """The quota that applies to a client."""

    limit: float
    sharers: SharerKey
    entity: QuotaEntity


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity with these parts, in any order; ValueError, for the user, if invalid."""
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise ValueError(f"Unhandled client quota entity type: {kind}")
        if kind in named:
            raise ValueError(f"the entity names two of the type {kind}")
        if name is not None and not name:
            raise ValueError(f"Empty {kind} not supported")
        if name is not None and len(name) > NAME_LENGTH_MAX:
            raise ValueError(f"a {kind} has at most {NAME_LENGTH_MAX} characters")
        named[kind] = address_text(name) if kind == IP and name is not None else name
    if not named:
        raise ValueError("Invalid empty client quota entity")
    if IP in named and len(named) > 1:
        raise ValueError("an ip is an entity by itself, without user and client-id")
    return tuple((kind, named[kind]) for kind in ENTITY_TYPES if kind in named)


def address_text(name: str) -> str:
    """Return the normal form of an IP address; ValueError for a host name.

    Kafka resolves names. Here a client could block the broker with the lookup of a name.
    """
    try:
        return normal_address(name)
    except ValueError:
        raise ValueError(f"{name!r} is not an IP address") from None


def quota_problem(entity: QuotaEntity, key: str, value: float) -> str:
    """Return what is wrong with a quota; empty if nothing is."""
    keys = IP_KEYS if entity[0][0] == IP else CLIENT_KEYS
    if key not in keys:
        return f"Invalid configuration key {key}: there are {', '.join(sorted(keys))}"
    if not math.isfinite(value):
        return f"Quota {key} must be a number"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    most = _WHOLE_MAX.get(key)
    if most is None:
        return ""
    if value > float(most):
        return f"Configuration {key} must be at most {most}"
    if abs(int(value + _EPSILON) - value) > _EPSILON:
        return f"Configuration {key} must be a whole number"
    return ""


def throttle_time_ms(wanted_ms: float) -> int:
    """Return the throttle time for a wanted time in milliseconds, which may be infinite."""
    return round(min(wanted_ms, THROTTLE_MS_MAX))


def find_quota(
    quotas: Mapping[QuotaEntity, Quotas], key: str, user: str, client_id: str
) -> FoundQuota | None:
    """Return the quota of a key that applies to a client; None if none does."""
    pair = (user, client_id)
    levels: tuple[tuple[QuotaEntity, SharerKey], ...] = (
        (((USER, user), (CLIENT_ID, client_id)), pair),
        (((USER, user), (CLIENT_ID, None)), pair),
        (((USER, user),), (user, None)),
        (((USER, None), (CLIENT_ID, client_id)), pair),
        (((USER, None), (CLIENT_ID, None)), pair),
        (((USER, None),), (user, None)),
        (((CLIENT_ID, client_id),), (None, client_id)),
        (((CLIENT_ID, None),), (None, client_id)),
    )
    for entity, sharers in levels:
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return FoundQuota(limit, sharers, entity)
    return None


def entity_user(entity: QuotaEntity) -> str | None:
    """Return the user in an entity; None if it has none."""
    return next((name for kind, name in entity if kind == USER), None)


def default_limits(quotas: Mapping[QuotaEntity, Quotas]) -> Quotas:
    """Return, for each key that a default entity sets, the lowest of these quotas."""
    limits: dict[str, float] = {}
    for entity in DEFAULT_ENTITIES:
        for key, limit in quotas.get(entity, {}).items():
            limits[key] = min(limit, limits.get(key, limit))
    return limits


def find_ip_quota(quotas: Mapping[QuotaEntity, Quotas], address: str) -> float | None:
    """Return how many connections a second an address may open; None if there is no limit."""
    for name in (address, None):
        limit = quotas.get(((IP, name),), {}).get(CONNECTION_CREATION_RATE)
        if limit is not None:
            return limit
    return None
