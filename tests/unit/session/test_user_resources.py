"""A User resource is forgotten once brokers go by that, over real sockets."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead_broker.session import controller_session
from fairlead_controller.kubernetes import user_resource_calls
from fairlead_controller.kubernetes.user_resource_calls import (
    UserRequestError,
    apply_users,
    read_user_request,
)
from fairlead_model.configs.controller_configs import SessionTiming
from fairlead_model.resources.user_declaration import UserDeclaration, encode_declaration
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.security.scram import ScramMechanism, derive

READ = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:app",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
APP = UserDeclaration(
    "app",
    "User:app",
    frozenset({READ}),
    "1",
    derive(ScramMechanism.SCRAM_SHA_512, "x", 4096, b"salt of it"),
)


async def ask(stage: Any, **request: Any) -> dict[str, str]:
    """Reasons by resource."""
    body = json.loads(json.dumps(request))
    reply = await apply_users(stage.controller, stage.server.sessions, body)
    return {name: result["reason"] for name, result in reply["results"].items()}


def test_a_resource_is_forgotten_once_every_broker_goes_by_it(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        nodes = [await stage.start_node(broker_id) for broker_id in range(2)]
        assert await ask(stage, apply=[encode_declaration(APP)]) == {"app": "Applied"}
        await wait_until(lambda: all(node.image.credentials for node in nodes))
        assert await ask(stage, forget=["app"]) == {"app": "Revoked"}
        for node in nodes:
            assert not node.image.acls
            assert not node.image.credentials

    play(story)


def test_a_broker_that_does_not_tell_holds_up_what_was_forgotten(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(user_resource_calls, "HEARD_S", 0.1)
    # The first heartbeat is due before a controller has said how often they come.
    monkeypatch.setattr(controller_session, "HEARTBEAT_INTERVAL_MS", 600_000)

    async def story(stage: Any) -> None:
        await stage.start_controller(timing=SessionTiming(600_000, 6_000_000))
        node = await stage.start_node(0)
        await ask(stage, apply=[encode_declaration(APP)])
        await wait_until(lambda: bool(node.image.acls))
        assert await ask(stage, forget=["app"]) == {"app": "BrokersBehind"}

    play(story)


def test_a_complete_request_revokes_what_it_does_not_name(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        await ask(stage, apply=[encode_declaration(APP)])
        assert await ask(stage, isComplete=True, keep=["app"]) == {}
        assert await ask(stage, isComplete=True, keep=[]) == {"app": "Revoked"}
        assert not stage.controller.committed.users

    play(story)


@pytest.mark.parametrize(
    "request_",
    [{"apply": {"a": 1}}, {"apply": ["x"]}, {"apply": [{"resource": "x"}]}, {"forget": "x"}],
)
def test_a_malformed_request_says_what_is_wrong(request_: dict[str, Any]) -> None:
    with pytest.raises(UserRequestError):
        read_user_request(request_)
