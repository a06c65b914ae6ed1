"""Who asks, for which resource, and whether that is allowed: what an authorizer decides.

A request is authorized in one place before its handler sees it (`Handler.call_if_allowed`), where
the request alone tells what it needs. Handlers of requests that name many resources ask for each of
them with `RequestContext.may` or `require`, and answer as Kafka does: an error in the slot of a
denied resource; lists leave denied resources out.

Without an authorizer, and between brokers, which have proved that they know the cluster's secret,
everything is allowed and nothing is asked. The rules are those of `KafkaApis` and `ControllerApis`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from fairlead_model.security.acl import CLUSTER_NAME, Operation, ResourceType
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = [
    "ANONYMOUS",
    "AUTHORIZED_OPERATIONS",
    "BROKER",
    "CLUSTER_NAME",
    "DENIALS",
    "Access",
    "Authorizer",
    "Need",
    "Operation",
    "Principal",
    "Refuse",
    "ResourceType",
    "needs_cluster",
    "needs_group",
]


class Principal(NamedTuple):
    """Who a connection belongs to, as Kafka writes it: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Every client of a listener without authentication."""
BROKER: Final = Principal("User", "fairlead-broker")
"""A peer that has proved that it knows the cluster's secret."""


AUTHORIZED_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""The operations of which replies say whether they are authorized, if a request asks (KIP-430;
`AclEntry.supportedOperations`)."""

DENIALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Authorizer(Protocol):
    """Decides what is allowed. It is asked on the event loop, so it answers from memory."""

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Tell whether a principal that connects from a host may do this; log it if not."""
        ...

    def would_allow(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Tell the same of a resource that the client has not named, which is no denial."""
        ...

    def is_allowed_for_some(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Tell whether a principal may do this to any resource of a type at all."""
        ...


Refuse: TypeAlias = "Callable[[Any, Any, ErrorCode], Any]"
"""Takes a request, its context and the error code; gives the reply."""


class Need(NamedTuple):
    """What each request of an API needs; the request alone says which resource it is."""

    operation: Operation
    resource_type: ResourceType
    name_of: Callable[[Any], str]
    """The resource's name, by the request."""
    refuse: Refuse | None = None
    """Answers a denied request; None if the error code of the reply is enough."""


class Access(Enum):
    """What an API needs if it is not a single `Need`."""

    EVERYBODY = "nothing: it tells what every client has to know"
    BY_RESOURCE = "something for each resource that it names: the handler asks"


def needs_group(
    operation: Operation,
    refuse: Refuse | None = None,
) -> Need:
    """Need something of the group that the request names."""
    return Need(operation, ResourceType.GROUP, lambda request: str(request.group_id), refuse)


def needs_cluster(
    operation: Operation,
    refuse: Refuse | None = None,
) -> Need:
    """Need something of the cluster."""
    return Need(operation, ResourceType.CLUSTER, lambda request: CLUSTER_NAME, refuse)
