"""Setting and removing quotas, as ClientQuotaControlManager does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import pytest

from fairlead_controller.decisions.events import AlterClientQuotas, QuotaChanges
from fairlead_model.cluster import ClusterImage
from fairlead_model.security.client_quota import quota_entity
from fairlead_model.session.refusals import RefusalCode

if TYPE_CHECKING:
    from decision_world import World

ALICE = (("user", "alice"),)
EVERYBODY = (("user", None),)
HOST = (("ip", "10.0.0.1"),)


def altered(world: World, *entries: Any, validate_only: bool = False) -> list[Any]:
    """Codes in the order of the entries."""
    changes = tuple(QuotaChanges(entity, tuple(values.items())) for entity, values in entries)
    reply = world.do(AlterClientQuotas(changes, validate_only, "User:admin"))
    return [entry["error_code"] for entry in reply["entries"]]


def known(world: World) -> dict[Any, Any]:
    return dict(world.state.image.client_quotas)


def test_quotas_come_change_and_go(world: World) -> None:
    assert altered(world, (ALICE, {"producer_byte_rate": 1e6, "request_percentage": 0.5})) == [0]
    assert altered(world, (ALICE, {"producer_byte_rate": 2e6}), (EVERYBODY, {})) == [0, 0]
    assert known(world) == {ALICE: {"producer_byte_rate": 2e6, "request_percentage": 0.5}}
    gone = {"producer_byte_rate": None, "request_percentage": None, "consumer_byte_rate": None}
    assert altered(world, (ALICE, gone)) == [0]
    assert known(world) == {}


def test_nothing_is_written_where_nothing_changes(world: World) -> None:
    altered(world, (ALICE, {"producer_byte_rate": 1e6}))
    before = world.state.image
    assert altered(world, (ALICE, {"producer_byte_rate": 1e6, "consumer_byte_rate": None})) == [0]
    assert world.state.image is before


def test_what_is_valid_is_done_beside_what_is_not(world: World) -> None:
    codes = altered(
        world,
        (ALICE, {"producer_byte_rate": 1e6, "consumer_byte_rate": -1.0}),
        (HOST, {"connection_creation_rate": 5.0}),
        (EVERYBODY, {"request_percentage": 1.0}),
        (EVERYBODY, {"request_percentage": 2.0}),
    )
    assert codes == [42, 0, 42, 42]
    assert known(world) == {HOST: {"connection_creation_rate": 5.0}}


def test_the_highest_rate_is_javas_highest_long(world: World) -> None:
    """What tools write for no limit; as a double it is 2^63."""
    highest = float(2**63 - 1)
    assert altered(world, (ALICE, {"producer_byte_rate": highest})) == [0]
    assert known(world) == {ALICE: {"producer_byte_rate": highest}}


def test_validation_changes_nothing(world: World) -> None:
    wrong = (HOST, {"producer_byte_rate": 1.0})
    entries = ((ALICE, {"producer_byte_rate": 1e6}), wrong)
    assert altered(world, *entries, validate_only=True) == [0, RefusalCode.INVALID_REQUEST]
    assert known(world) == {}


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (ALICE, "connection_creation_rate", 1.0),
        (ALICE, "no_such_rate", 1.0),
        (ALICE, "producer_byte_rate", 0.0),
        (ALICE, "producer_byte_rate", -5.0),
        (ALICE, "producer_byte_rate", 1.5),
        (ALICE, "consumer_byte_rate", 1e19),
        (ALICE, "consumer_byte_rate", math.nextafter(2.0**63, math.inf)),
        (ALICE, "request_percentage", float("nan")),
        (ALICE, "request_percentage", float("inf")),
        (ALICE, "controller_mutation_rate", -0.1),
        (HOST, "connection_creation_rate", 2.0**31),
        (HOST, "request_percentage", 1.0),
    ],
)
def test_what_is_no_quota_is_refused(
    world: World, entity: tuple[tuple[str, str]], key: str, value: float
) -> None:
    assert altered(world, (entity, {key: value})) == [RefusalCode.INVALID_REQUEST]
    assert known(world) == {}


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("user", "")],
        [("group", "a")],
        [("user", "a"), ("user", "b")],
        [("ip", "10.0.0.1"), ("user", "a")],
        [("ip", "localhost")],
        [("ip", "10.0.0.256")],
        [("client-id", "x" * 1001)],
    ],
)
def test_what_is_no_entity_is_refused(parts: list[tuple[str, ...]]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        quota_entity(cast("Any", parts))


def test_entities_are_written_one_way() -> None:
    pair = (("user", "a"), ("client-id", None))
    assert quota_entity(reversed(pair)) == quota_entity(pair) == pair
    assert quota_entity([("ip", "2001:DB8:0::1")]) == (("ip", "2001:db8::1"),)


def test_images_with_other_quotas_differ_by_them(world: World) -> None:
    altered(world, (ALICE, {"producer_byte_rate": 1e6}), (HOST, {"connection_creation_rate": 5.0}))
    older = world.state.image
    altered(world, (ALICE, {"producer_byte_rate": 2e6}), (HOST, {"connection_creation_rate": None}))
    newer = world.state.image
    assert dict(older.apply(newer.changes_since(older)).client_quotas) == known(world)
    fresh = ClusterImage().apply(newer.changes_from_nothing())
    assert dict(fresh.client_quotas) == {ALICE: {"producer_byte_rate": 2e6}}
