"""Giving and taking credentials, as ScramControlManager does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_controller.decisions.events import AlterCredentials, LimitCluster
from fairlead_controller.decisions.security import credential_changes
from fairlead_model.security.scram import ScramCredential, ScramMechanism
from fairlead_model.session.refusals import RefusalCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from decision_world import World

SHA_256, SHA_512 = ScramMechanism
GOOD = ScramCredential(SHA_256, 4096, b"s" * 16, b"k" * 32, b"v" * 32)


def altered(
    world: Any,
    *,
    deletions: Sequence[Any] = (),
    upsertions: Sequence[tuple[str, ScramCredential]] = (),
) -> dict[Any, Any]:
    """Codes by user."""
    reply = world.do(AlterCredentials(tuple(deletions), tuple(upsertions), "User:admin"))
    return {user["user"]: user["error_code"] for user in reply["users"]}


def known(world: Any) -> dict[Any, Any]:
    return dict(world.state.image.credentials)


def test_a_credential_comes_changes_and_goes(world: World) -> None:
    assert altered(world, upsertions=[("alice", GOOD)]) == {"alice": 0}
    assert known(world) == {(SHA_256, "alice"): GOOD}
    other = replace(GOOD, stored_key=b"o" * 32)
    assert altered(world, upsertions=[("alice", other)]) == {"alice": 0}
    assert known(world) == {(SHA_256, "alice"): other}
    assert altered(world, deletions=[("alice", SHA_512)]) == {
        "alice": RefusalCode.RESOURCE_NOT_FOUND
    }
    assert altered(world, deletions=[("alice", SHA_256)]) == {"alice": 0}
    assert known(world) == {}


def test_a_user_who_is_named_twice_keeps_what_he_has_and_others_change(world: World) -> None:
    twice = [("alice", GOOD), ("bob", GOOD)]
    assert altered(world, deletions=[("alice", SHA_512)], upsertions=twice) == {
        "alice": RefusalCode.DUPLICATE_RESOURCE,
        "bob": 0,
    }
    assert known(world) == {(SHA_256, "bob"): GOOD}


@pytest.mark.parametrize(
    "wrong",
    [
        ("", GOOD),
        ("u" * 1001, GOOD),
        ("*", GOOD),
        ("u\tv", GOOD),
        ("u\u2028v", GOOD),
        ("u", replace(GOOD, iterations=4095)),
        ("u", replace(GOOD, iterations=16385)),
        ("u", replace(GOOD, salt=b"")),
        ("u", replace(GOOD, salt=b"s" * 65)),
        ("u", replace(GOOD, stored_key=b"k" * 31)),
        ("u", replace(GOOD, mechanism=SHA_512)),
    ],
)
def test_what_verifies_nobody_is_not_kept(world: World, wrong: tuple[str, ScramCredential]) -> None:
    codes = altered(world, upsertions=[wrong, ("bob", GOOD)])
    assert codes == {wrong[0]: RefusalCode.UNACCEPTABLE_CREDENTIAL, "bob": 0}
    assert known(world) == {(SHA_256, "bob"): GOOD}


def test_a_name_that_nobody_can_have_is_taken_away_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older release let it be given."""
    with monkeypatch.context() as older:
        older.setattr(credential_changes, "is_user_name", bool)
        assert altered(world, upsertions=[("u\tv", GOOD)]) == {"u\tv": 0}
    assert altered(world, deletions=[("u\tv", SHA_256)]) == {"u\tv": 0}
    assert known(world) == {}


def test_a_store_that_everybody_may_read_keeps_no_credentials_but_lets_them_go(
    world: World,
) -> None:
    altered(world, upsertions=[("alice", GOOD)])
    world.do(LimitCluster(ClusterLimits(why_no_credentials="set zookeeper.set.acl=true")))
    event = AlterCredentials((("alice", SHA_256),), (("bob", GOOD),), "User:admin")
    results = {user["user"]: user for user in world.do(event)["users"]}
    assert results["bob"]["error_code"] == RefusalCode.POLICY_VIOLATION
    assert results["bob"]["error_message"] == "set zookeeper.set.acl=true"
    assert results["alice"]["error_code"] == RefusalCode.NONE
    assert known(world) == {}


def test_what_is_logged_of_a_change_shows_nothing_of_the_keys(world: World) -> None:
    decision = world.decide(AlterCredentials((), (("alice", GOOD),), "User:admin"))
    told = " ".join([*decision.explanations, repr(decision), repr(world.state)])
    assert "alice" in told
    for secret in (GOOD.salt, GOOD.stored_key, GOOD.server_key):
        assert secret.decode() not in told
