"""An authorizer that denies selected operations, and the error codes of any reply."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from fairlead_broker.authorization import CLUSTER_NAME, Operation, Principal, ResourceType

Question = tuple[Operation, ResourceType, str]
EVERYTHING = (
    (ResourceType.TOPIC, "t"),
    (ResourceType.GROUP, "g"),
    (ResourceType.CLUSTER, CLUSTER_NAME),
    (ResourceType.TRANSACTIONAL_ID, "x"),
)
"""What requests of the tests of rights name."""


class Denying:
    """Denies by type and name, or by operation, as a test says; stores the questions."""

    def __init__(self, *denied: tuple[ResourceType, str]) -> None:
        self.denied = set(denied)
        self.asked: list[Question] = []
        self.principals: set[tuple[Principal, str]] = set()

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        self.principals.add((principal, host))
        self.asked.append((operation, resource_type, name))
        return (resource_type, name) not in self.denied

    def would_allow(self, principal: Principal, host: str, *question: Any) -> bool:
        return self.is_allowed(principal, host, *question)

    def is_allowed_for_some(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return not any(kind is resource_type for kind, _ in self.denied)


def error_codes(message: Any) -> Iterator[int]:
    """Yield every error code in a reply, at any depth."""
    for field in fields(message):
        value = getattr(message, field.name)
        if field.name in {"error_code", "partition_error_code"}:
            yield value
        for item in value if isinstance(value, list) else [value]:
            if is_dataclass(item):
                yield from error_codes(item)


def as_bytes(reply: Any, version: int) -> bytes:
    """A reply's body, without what the clock says."""
    return b"".join(bytes(part) for part in reply.encode(version))
