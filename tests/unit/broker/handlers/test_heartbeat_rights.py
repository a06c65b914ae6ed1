"""Of which topics a regular expression may find: by the rights of whose member it is."""

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_broker.authorization import Operation, Principal, ResourceType
from fairlead_broker.handlers.groups.consumer_group_heartbeat import _describer
from fairlead_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

OWN = Principal("User", "eve")


def context(*, is_internal: bool, is_authorizing: bool = True) -> Any:
    def would_allow(
        principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        assert (operation, kind) == (Operation.DESCRIBE, ResourceType.TOPIC)
        return name == f"{principal} at {host}"

    authorizer = SimpleNamespace(would_allow=would_allow) if is_authorizing else None
    own = "User:fairlead-broker at 10.0.0.9" if is_internal else f"{OWN} at 10.0.0.1"
    return SimpleNamespace(
        broker=SimpleNamespace(authorizer=authorizer),
        listener=SimpleNamespace(is_internal=is_internal),
        would_allow=lambda operation, kind, name: is_internal or name == own,
    )


ASKED = ConsumerGroupHeartbeatRequest(asked_by="User:a:b", asked_from="::1")


def test_a_broker_says_whose_member_it_is() -> None:
    may_describe = _describer(ASKED, context(is_internal=True))
    assert may_describe("User:a:b at ::1")
    assert not may_describe("anything")


def test_a_client_cannot_say_that_it_is_somebody_else() -> None:
    may_describe = _describer(ASKED, context(is_internal=False))
    assert not may_describe("User:a:b at ::1")
    assert may_describe(f"{OWN} at 10.0.0.1")


@pytest.mark.parametrize("is_authorizing", [True, False])
def test_a_broker_that_does_not_say_so_or_is_not_asked_sees_all(is_authorizing: bool) -> None:
    """As one of a release before, or in a cluster without rules."""
    asked = ConsumerGroupHeartbeatRequest() if is_authorizing else ASKED
    may_describe = _describer(asked, context(is_internal=True, is_authorizing=is_authorizing))
    assert may_describe("anything")
