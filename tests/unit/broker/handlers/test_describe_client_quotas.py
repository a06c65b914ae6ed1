"""Quotas of the image, by the filters of DescribeClientQuotas (`ClientQuotasImage.describe`)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlead_broker.handlers import in_turns
from fairlead_broker.security.standard_authorizer import StandardAuthorizer
from fairlead_model.cluster import ClientQuotaChanged
from fairlead_model.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

INVALID = ErrorCode.INVALID_REQUEST
EXACT, DEFAULT, ANY = range(3)
ALICE = (("user", "alice"),)
EVERY_USER = (("user", None),)
ALICES_APP = (("user", "alice"), ("client-id", "app"))
ALICES_REST = (("user", "alice"), ("client-id", None))
APP = (("client-id", "app"),)
HOST = (("ip", "2001:db8::1"),)
EVERY_HOST = (("ip", None),)
ALL = (ALICE, EVERY_USER, ALICES_APP, ALICES_REST, APP, HOST, EVERY_HOST)


def ask(stage: Any, version: int, *components: tuple[str, int, str | None], strict: bool) -> Any:
    wanted = [ComponentData(*each) for each in components]
    return stage.ask(DescribeClientQuotasRequest(wanted, strict), version)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "loose", "strict"),
    [
        ([], ALL, ()),
        ([("user", EXACT, "alice")], (ALICE, ALICES_APP, ALICES_REST), (ALICE,)),
        ([("user", DEFAULT, None)], (EVERY_USER,), (EVERY_USER,)),
        (
            [("user", ANY, None)],
            (ALICE, EVERY_USER, ALICES_APP, ALICES_REST),
            (ALICE, EVERY_USER),
        ),
        (
            [("user", ANY, None), ("client-id", ANY, None)],
            (ALICES_APP, ALICES_REST),
            (ALICES_APP, ALICES_REST),
        ),
        ([("client-id", EXACT, "app")], (ALICES_APP, APP), (APP,)),
        ([("client-id", EXACT, "other")], (), ()),
        ([("ip", EXACT, "2001:DB8:0::1")], (HOST,), (HOST,)),
        ([("ip", EXACT, "host")], (), ()),
        ([("ip", ANY, None)], (HOST, EVERY_HOST), (HOST, EVERY_HOST)),
    ],
)
def test_entities_are_found_by_names_defaults_and_types(
    stage: Any, version: int, components: Any, loose: Any, strict: Any
) -> None:
    stage.publish(
        *(ClientQuotaChanged(entity, {"a": index + 0.5}) for index, entity in enumerate(ALL))
    )
    for is_strict, expected in ((False, loose), (True, strict)):
        reply = ask(stage, version, *components, strict=is_strict)
        assert reply.error_code == 0
        found = {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): [
                (value.key, value.value) for value in entry.values
            ]
            for entry in reply.entries
        }
        assert found == {entity: [("a", ALL.index(entity) + 0.5)] for entity in expected}


def test_very_many_entities_are_described_in_order_while_others_are_served(
    stage: Any, later_steps: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 took the loop more than the second and a half after which a broker leads nothing."""
    names = [f"user-{number:03}" for number in random.Random(1).sample(range(1000), 900)]
    entities = [(("user", name),) for name in (*names, None)]
    stage.publish(*(ClientQuotaChanged(entity, {"a": 1.0}) for entity in entities))
    for most, count in ((901, 0), (900, 8 + 10)):
        monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", most)
        reply = ask(stage, 1, strict=False)
        told = [entry.entity[0].entity_name for entry in reply.entries]
        assert told == [*sorted(names), None]
        assert len(later_steps) == count


def test_very_many_entities_are_not_told_to_who_may_not_see_them_any_more(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I13."""
    stage.publish(ClientQuotaChanged(ALICE, {"a": 1.0}))
    authorizer = StandardAuthorizer((), allows_without_rules=True)
    authorizer.load(())
    stage.authorizer = authorizer

    async def revoke(steps: Any, clock: Any) -> None:
        rule = AclBinding(
            ResourceType.CLUSTER,
            PatternType.LITERAL,
            CLUSTER_NAME,
            "User:*",
            "*",
            Operation.ALL,
            Permission.DENY,
        )
        authorizer.load((rule,))

    monkeypatch.setattr(in_turns, "in_slices", revoke)
    assert ask(stage, 1, strict=False).error_code == 0
    monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", 0)
    code = ask(stage, 1, strict=False).error_code
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], INVALID),
        ([("user", ANY, None), ("user", DEFAULT, None)], INVALID),
        ([("broker", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("ip", ANY, None), ("user", ANY, None)], INVALID),
        ([("user", EXACT, None)], INVALID),
        ([("user", DEFAULT, "alice")], INVALID),
        ([("user", 7, None)], INVALID),
    ],
)
def test_wrong_questions_are_refused(stage: Any, version: int, components: Any, code: int) -> None:
    reply = ask(stage, version, *components, strict=False)
    assert (reply.error_code, reply.entries) == (code, None)
