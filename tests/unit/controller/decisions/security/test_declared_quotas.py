"""Quotas that User resources declare: who sets them, how high, and when they end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead_controller.decisions.events import (
    AlterClientQuotas,
    ApplyUserResources,
    QuotaChanges,
)
from fairlead_model.resources.user_declaration import UserDeclaration
from fairlead_model.security.client_quota import QuotaEntity, Quotas, quota_entity
from fairlead_model.session.refusals import RefusalCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from decision_world import World

WRITES, READS = "producer_byte_rate", "consumer_byte_rate"
APP, BOB, EVERYBODY = (quota_entity([("user", name)]) for name in ("app", "bob", None))
ONE_CLIENT = quota_entity([("user", "app"), ("client-id", "etl")])
ANY_CLIENT = quota_entity([("user", "app"), ("client-id", None)])
SILENT = UserDeclaration("app", "User:app", frozenset())
DECLARED = replace(SILENT, quotas={WRITES: 1000.0})


def apply(world: Any, *declared: UserDeclaration, **more: Any) -> dict[str, Any]:
    """What was lowered, by resource; all were applied."""
    results = world.do(ApplyUserResources(tuple(declared), **more))["results"]
    assert {result["state"] for result in results.values()} == {"ok"}
    return {name: result.get("lowered") for name, result in results.items()}


def alter(
    world: Any,
    *entries: tuple[QuotaEntity, Mapping[str, float | None]],
    validate_only: bool = False,
) -> list[int]:
    """Codes in the order of the entries."""
    changes = tuple(QuotaChanges(entity, tuple(values.items())) for entity, values in entries)
    reply = world.do(AlterClientQuotas(changes, validate_only, "User:admin"))
    return [entry["error_code"] for entry in reply["entries"]]


def known(world: Any) -> dict[Any, Quotas]:
    return dict(world.state.image.client_quotas)


def test_declared_quotas_come_change_and_go_with_the_field(world: World) -> None:
    apply(world, SILENT)
    assert known(world) == {}
    assert apply(world, DECLARED) == {"app": {}}
    assert known(world) == {APP: {WRITES: 1000.0}}
    apply(world, replace(DECLARED, quotas={READS: 5.0, "request_percentage": 10.0}))
    assert known(world) == {APP: {READS: 5.0, "request_percentage": 10.0}}
    apply(world, SILENT)
    assert known(world) == {}


def test_they_go_with_the_user(world: World) -> None:
    alter(world, (BOB, {WRITES: 7.0}))
    apply(world, DECLARED)
    apply(world, forget=("app",))
    assert known(world) == {BOB: {WRITES: 7.0}}
    apply(world, DECLARED)
    apply(world, complete=frozenset())
    assert known(world) == {BOB: {WRITES: 7.0}}


def test_they_follow_a_resource_to_another_principal(world: World) -> None:
    apply(world, DECLARED)
    apply(world, replace(DECLARED, principal="User:bob"))
    assert known(world) == {BOB: {WRITES: 1000.0}}


def test_another_resource_takes_a_principal_over(world: World) -> None:
    apply(world, DECLARED)
    apply(world, replace(SILENT, resource="other", quotas={READS: 9.0}), forget=("app",))
    assert known(world) == {APP: {READS: 9.0}}


def test_a_user_who_declares_none_leaves_them_to_others(world: World) -> None:
    apply(world, SILENT)
    assert alter(world, (APP, {WRITES: 3.0}), (ONE_CLIENT, {WRITES: 2.0})) == [0, 0]
    apply(world, SILENT)
    apply(world, forget=("app",))
    assert known(world) == {APP: {WRITES: 3.0}, ONE_CLIENT: {WRITES: 2.0}}


def test_what_others_gave_the_user_is_removed_also_for_his_clients(world: World) -> None:
    default = quota_entity([("user", None), ("client-id", "etl")])
    alter(
        world,
        *((each, {READS: 2.0}) for each in (APP, BOB, ONE_CLIENT, ANY_CLIENT, default)),
    )
    apply(world, replace(SILENT, quotas={}))
    assert known(world) == {BOB: {READS: 2.0}, default: {READS: 2.0}}


def test_others_cannot_change_them(world: World) -> None:
    apply(world, DECLARED)
    refused = RefusalCode.POLICY_VIOLATION
    entries: list[tuple[QuotaEntity, Mapping[str, float | None]]] = [
        (APP, {WRITES: 5.0}),
        (APP, {WRITES: None}),
        (ONE_CLIENT, {READS: 5.0}),
        (ANY_CLIENT, {READS: 5.0}),
        (BOB, {WRITES: 5.0}),
    ]
    for validate_only in (True, False):
        for entry in entries[:-1]:
            assert alter(world, entry, validate_only=validate_only) == [refused]
    assert alter(world, (APP, {READS: 1.0}), (BOB, {WRITES: 5.0})) == [refused, 0]
    assert known(world) == {APP: {WRITES: 1000.0}, BOB: {WRITES: 5.0}}
    changes = (QuotaChanges(APP, ((WRITES, 5.0),)),)
    reply = world.do(AlterClientQuotas(changes, False, "User:admin"))
    assert "User resource 'app'" in reply["entries"][0]["error_message"]


def test_they_never_lift_a_user_above_what_the_cluster_has_for_everybody(world: World) -> None:
    alter(world, (EVERYBODY, {WRITES: 100.0}))
    assert apply(world, replace(DECLARED, quotas={WRITES: 1000.0, READS: 50.0})) == {
        "app": {WRITES: 100.0}
    }
    assert known(world)[APP] == {WRITES: 100.0, READS: 50.0}
    # Whoever has no quota of his own is bound by each of these, whatever he calls his client.
    alter(world, (quota_entity([("client-id", None)]), {READS: 20.0}))
    alter(world, (quota_entity([("user", None), ("client-id", None)]), {READS: 10.0}))
    assert known(world)[APP] == {WRITES: 100.0, READS: 10.0}
    alter(world, (EVERYBODY, {WRITES: 300.0}))
    assert known(world)[APP] == {WRITES: 300.0, READS: 10.0}
    alter(world, (EVERYBODY, {WRITES: None}))
    assert known(world)[APP] == {WRITES: 1000.0, READS: 10.0}


def test_where_the_cluster_lets_users_exceed_the_defaults_they_do(world: World) -> None:
    free = replace(DECLARED, exceeds_defaults=True)
    alter(world, (EVERYBODY, {WRITES: 100.0}))
    assert apply(world, free) == {"app": {}}
    alter(world, (EVERYBODY, {WRITES: 10.0}))
    assert known(world)[APP] == {WRITES: 1000.0}
    assert apply(world, DECLARED) == {"app": {WRITES: 10.0}}
    assert known(world)[APP] == {WRITES: 10.0}


def test_to_only_ask_about_defaults_changes_nothing(world: World) -> None:
    apply(world, DECLARED)
    assert alter(world, (EVERYBODY, {WRITES: 1.0}), validate_only=True) == [0]
    assert known(world) == {APP: {WRITES: 1000.0}}


def test_a_resource_that_says_the_same_again_writes_nothing(world: World) -> None:
    alter(world, (EVERYBODY, {WRITES: 100.0}))
    apply(world, DECLARED)
    assert world.decide(ApplyUserResources((DECLARED,))).changes == ()
