"""What User resources declare becomes rules and credentials, and others cannot change it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fairlead_controller.decisions.events import (
    AlterCredentials,
    ApplyUserResources,
    CreateAcls,
    DeleteAcls,
)
from fairlead_controller.decisions.state import (
    DeclaredUser,
    UserDeclared,
)
from fairlead_model.codec import CodecError, encode_acl
from fairlead_model.resources.user_declaration import (
    UserDeclaration,
    decode_declaration,
    encode_declaration,
)
from fairlead_model.security.acl import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from fairlead_model.security.scram import ScramCredential, ScramMechanism
from fairlead_model.session.refusals import RefusalCode

if TYPE_CHECKING:
    from typing import Any

    from decision_world import World


SHA_256, SHA_512 = ScramMechanism
CREDENTIAL = ScramCredential(SHA_512, 4096, b"s" * 26, b"k" * 64, b"v" * 64)
ORDERS = "User:orders-app"


def rule(principal: str = ORDERS, **fields: Any) -> AclBinding:
    plain = AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        "orders",
        principal,
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    return plain._replace(**fields)


READ, WRITE = rule(), rule(operation=Operation.WRITE)
BY_HAND = rule("User:bob")
DECLARED = UserDeclaration("orders-app", ORDERS, frozenset({READ}), "1", CREDENTIAL)


def apply(
    world: World,
    *declared: UserDeclaration,
    **more: Any,
) -> dict[str, str]:
    """Reasons by resource."""
    results = world.do(ApplyUserResources(tuple(declared), **more))["results"]
    return {name: result["reason"] for name, result in results.items()}


def rules(world: World) -> set[AclBinding]:
    return set(world.state.image.acls)


def credentials(world: World) -> set[tuple[ScramMechanism, str]]:
    return set(world.state.image.credentials)


def create(world: World, *bindings: AclBinding) -> list[int]:
    reply = world.do(CreateAcls(bindings, "User:admin"))
    return [each["error_code"] for each in reply["acls"]]


def test_a_resource_is_the_one_source_of_its_principals_rights(world: World) -> None:
    world.do(
        AlterCredentials(
            (),
            (
                (
                    "orders-app",
                    replace(
                        CREDENTIAL, mechanism=SHA_256, stored_key=b"k" * 32, server_key=b"v" * 32
                    ),
                ),
            ),
            "User:admin",
        )
    )
    assert create(world, WRITE, BY_HAND) == [0, 0]
    assert apply(world, DECLARED) == {"orders-app": "Applied"}
    assert rules(world) == {READ, BY_HAND}
    assert credentials(world) == {(SHA_512, "orders-app")}
    denied = rule(permission=Permission.DENY)
    assert apply(world, replace(DECLARED, rules=frozenset({READ, denied}))) == {
        "orders-app": "Applied"
    }
    assert rules(world) == {READ, denied, BY_HAND}
    assert apply(world, forget=("orders-app",)) == {"orders-app": "Revoked"}
    assert (rules(world), credentials(world)) == ({BY_HAND}, set())
    assert not world.state.users
    assert not world.state.principals
    assert apply(world, forget=("orders-app",)) == {"orders-app": "Unknown"}


def test_a_resource_that_says_the_same_again_writes_nothing(world: World) -> None:
    apply(world, DECLARED)
    again = ApplyUserResources((DECLARED, replace(DECLARED, credential=None)))
    assert world.decide(again).changes == ()


def test_a_credential_is_kept_only_if_it_was_given_for_this_password(world: World) -> None:
    silent = replace(DECLARED, credential=None)
    assert apply(world, silent) == {"orders-app": "CredentialNeeded"}
    assert (rules(world), credentials(world)) == (set(), set())
    apply(world, DECLARED)
    assert apply(world, silent) == {"orders-app": "Applied"}
    assert apply(world, replace(silent, revision="2")) == {"orders-app": "CredentialNeeded"}
    assert credentials(world) == {(SHA_512, "orders-app")}


def test_rules_change_also_while_the_password_is_not_known(world: World) -> None:
    apply(world, DECLARED)
    unknown = replace(DECLARED, revision=None, credential=None, rules=frozenset({WRITE}))
    assert apply(world, unknown) == {"orders-app": "Applied"}
    assert (rules(world), credentials(world)) == ({WRITE}, {(SHA_512, "orders-app")})
    # The password is still known by its revision.
    assert apply(world, replace(DECLARED, credential=None)) == {"orders-app": "Applied"}


def test_another_way_to_log_in_takes_the_credential_away(world: World) -> None:
    apply(world, DECLARED)
    subject = "User:CN=orders-app"
    by_certificate = UserDeclaration("orders-app", subject, frozenset({rule(subject)}))
    assert apply(world, by_certificate) == {"orders-app": "Applied"}
    assert (rules(world), credentials(world)) == ({rule(subject)}, set())
    assert dict(world.state.principals) == {subject: "orders-app"}


def test_a_principal_is_declared_by_one_resource(world: World) -> None:
    apply(world, DECLARED)
    other = UserDeclaration("other", ORDERS, frozenset({WRITE}))
    assert apply(world, other) == {"other": "Conflict"}
    assert rules(world) == {READ}
    # The one that owns it lets go in the same call.
    assert apply(world, other, forget=("orders-app",)) == {
        "orders-app": "Revoked",
        "other": "Applied",
    }
    assert (rules(world), credentials(world)) == ({WRITE}, set())
    assert dict(world.state.users) == {"other": DeclaredUser(ORDERS)}


def test_a_complete_set_revokes_what_vanished_resources_declared(world: World) -> None:
    create(world, BY_HAND)
    apply(world, DECLARED, UserDeclaration("b", "User:b", frozenset({rule("User:b")})))
    assert apply(world, complete=frozenset({"b"})) == {"orders-app": "Revoked"}
    assert rules(world) == {BY_HAND, rule("User:b")}


@pytest.mark.parametrize("names", [("old", "orders-app"), ("orders-app", "old")])
def test_a_principal_that_a_crash_left_to_two_resources_is_still_declared(
    world: World, names: tuple[str, ...]
) -> None:
    """The line of the new one was written, and that of the one before it was still there."""
    declared = DeclaredUser(ORDERS, "1")
    world.state = world.state.apply([UserDeclared(name, declared) for name in names])
    apply(world, complete=frozenset({"orders-app"}))
    apply(world, DECLARED)
    reply = world.do(CreateAcls((WRITE,), "User:admin"))
    assert reply["acls"][0]["error_code"] == RefusalCode.POLICY_VIOLATION
    assert rules(world) == {READ}


def test_others_cannot_change_what_a_resource_declares(world: World) -> None:
    apply(world, DECLARED)
    create(world, BY_HAND)
    reply = world.do(CreateAcls((WRITE, READ, rule("User:bob", name="x")), "User:admin"))
    codes = [each["error_code"] for each in reply["acls"]]
    assert codes == [RefusalCode.POLICY_VIOLATION, 0, 0]
    assert "User resource 'orders-app'" in reply["acls"][0]["error_message"]
    everything = AclFilter(
        ResourceType.ANY, PatternType.ANY, None, None, None, Operation.ANY, Permission.ANY
    )
    reply = world.do(DeleteAcls((everything,), "User:admin"))
    assert reply["removed"] == [
        [encode_acl(each) for each in sorted((BY_HAND, rule("User:bob", name="x")))]
    ]
    assert [(each["acl"], each["error_code"]) for each in reply["kept"][0]] == [
        (encode_acl(READ), RefusalCode.POLICY_VIOLATION)
    ]
    altered = world.do(
        AlterCredentials((("orders-app", SHA_512),), (("bob", CREDENTIAL),), "User:admin")
    )
    assert [user["error_code"] for user in altered["users"]] == [RefusalCode.POLICY_VIOLATION, 0]
    assert rules(world) == {READ}
    assert credentials(world) == {(SHA_512, "orders-app"), (SHA_512, "bob")}


def test_a_declaration_travels_as_json() -> None:
    for declared in (
        DECLARED,
        replace(DECLARED, credential=None, revision=None),
        replace(DECLARED, quotas={}),
        replace(DECLARED, quotas={"producer_byte_rate": 1e6}, exceeds_defaults=True),
    ):
        assert decode_declaration(json.loads(json.dumps(encode_declaration(declared)))) == declared


def test_a_declaration_of_an_operator_that_knows_no_quotas_leaves_them_to_others() -> None:
    plain = encode_declaration(DECLARED)
    del plain["quotas"], plain["exceedsDefaults"]
    assert decode_declaration(plain) == DECLARED


@pytest.mark.parametrize(
    "wrong",
    [
        {"principal": "User:"},
        {"principal": "Group:x"},
        {"principal": None},
        {"rules": [encode_acl(BY_HAND)]},
        {"rules": None},
        {"rules": [[1]]},
        {"credential": [2, 4096, "$", "", ""]},
        {"credential": [2]},
        {"credential": "secret"},
        {"revision": 1},
        {"resource": "a" * 254},
        {"quotas": []},
        {"quotas": {"producer_byte_rate": 0}},
        {"quotas": {"producer_byte_rate": 1.5}},
        {"quotas": {"connection_creation_rate": 1}},
    ],
)
def test_what_is_no_declaration_is_refused_and_shows_no_credential(wrong: dict[str, Any]) -> None:
    with pytest.raises(CodecError) as refused:
        decode_declaration(encode_declaration(DECLARED) | wrong)
    assert "secret" not in str(refused.value)
