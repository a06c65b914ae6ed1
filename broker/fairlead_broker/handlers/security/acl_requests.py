"""Common code of the APIs of access rules: their numbers, and the check for an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fairlead_model.security.acl import (
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    filter_problem,
)
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from enum import IntEnum

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.broker import Broker

    Number = TypeVar("Number", bound=IntEnum)


def require_authorizer(broker: Broker) -> None:
    """Raise the KafkaError of a broker without an authorizer."""
    if broker.authorizer is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED,
            "this broker authorizes nothing: authorizer.class.name is not set, and no listener "
            "asks clients who they are",
        )


def asked_by(context: RequestContext) -> str:
    """Return the client's principal, for the controller's log."""
    return f"{context.principal} from {context.client_host}"


def known_number(numbers: type[Number], value: int) -> Number:
    """Return the member of a number on the wire; UNKNOWN for one that is not known here."""
    try:
        return numbers(value)
    except ValueError:
        return numbers(0)


def read_filter(
    resource: tuple[int, int],
    texts: tuple[str | None, str | None, str | None],
    rest: tuple[int, int],
) -> AclFilter:
    """Read a filter: types of resource and pattern; name, principal, host; operation, permission.

    KafkaError if it cannot be applied.
    """
    wanted = AclFilter(
        known_number(ResourceType, resource[0]),
        known_number(PatternType, resource[1]),
        *texts,
        known_number(Operation, rest[0]),
        known_number(Permission, rest[1]),
    )
    if problem := filter_problem(wanted):
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    return wanted
