"""User resources are created, changed and deleted, on a real API server and on one in memory."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from controller_bench import CLUSTER
from user_bench import Bench, allow, encoded

from fairlead_controller.decisions.events import (
    AlterClientQuotas,
    AlterCredentials,
    CreateAcls,
    QuotaChanges,
)
from fairlead_kube.kinds import LOG_CLUSTER, SECRET, USER
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.security.client_quota import quota_entity
from fairlead_model.security.scram import ScramMechanism, derive
from fairlead_model.session.refusals import RefusalCode
from fairlead_operator.certificates.authority import KeyPair, is_due, make_authority
from fairlead_operator.certificates.rotation import Authorities, write_authorities
from fairlead_operator.controller_client import ControllerUnavailableError
from fairlead_operator.specs.names import (
    CLUSTER_LABEL,
    authority_secret_name,
    trust_secret_name,
)
from fairlead_operator.topics.topic_resource import FINALIZER
from fairlead_operator.users.user_secret import revision_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from fairlead_model.security.scram import ScramCredential

MANY: Final = 120
BY_HAND = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:bob",
    "*",
    Operation.READ,
    Permission.ALLOW,
)


def verifies(credential: ScramCredential, password: str) -> bool:
    return derive(credential.mechanism, password, credential.iterations, credential.salt) == (
        credential
    )


async def a_user_gets_rights_and_a_secret_and_loses_both(world: Bench) -> None:
    await world.remote.controller.submit(CreateAcls((BY_HAND,), "User:admin"))
    await world.create("app", acls=[allow("Read", "Describe")])
    item = await world.until("app", "Ready")
    assert item["spec"]["clusterName"] == CLUSTER
    assert item["metadata"]["finalizers"] == [FINALIZER]
    status = item["status"]
    assert (status["principal"], status["secret"], status["rules"]) == ("User:app", "app", 2)
    assert world.operations("app") == {"READ", "DESCRIBE"}
    data = await world.data("app")
    assert verifies(world.credentials["app"], data["password"])
    address = f"{CLUSTER}-bootstrap.{world.namespace}.svc:9093"
    assert (data["username"], data["bootstrap.servers"]) == ("app", address)
    assert (
        f"bootstrap.servers={address}\nsecurity.protocol=SASL_PLAINTEXT\n"
        in (data["client.properties"])
    )
    assert f"sasl.password={data['password']}\n" in data["librdkafka.config"]
    secret = await world.secret("app")
    assert secret is not None
    assert secret["metadata"]["ownerReferences"][0]["uid"] == item["metadata"]["uid"]

    await world.patch("app", acls=[allow("Write"), allow("Write", type="deny")])
    await world.until("app", "Ready")
    assert world.operations("app") == {"WRITE", "-WRITE"}
    assert (await world.data("app"))["password"] == data["password"]

    world.remote.sessions.behind = {1}
    await world.delete("app")
    await world.until_so(lambda: not world.credentials, "the credential to go")
    assert world.rules == {BY_HAND}
    assert await world.get("app") is not None, "a broker does not go by it yet"
    world.remote.sessions.behind = set()
    await world.until_gone("app")
    await world.until_so(lambda: no_secret(world, "app"), "the Secret to be collected")


async def knows_secret(world: Bench, name: str) -> bool:
    secret = await world.secret(name)
    assert secret is not None
    return world.remote.controller.committed.users[name].revision == revision_of(secret)


async def no_secret(world: Bench, name: str) -> bool:
    return await world.secret(name) is None


async def what_others_change_in_the_secret_is_put_back(world: Bench) -> None:
    await world.create("app")
    await world.until("app", "Ready")
    before, credential = await world.data("app"), world.credentials["app"]
    await world.set_data("app", password="mine", username="root", more="x")

    async def is_back() -> bool:
        return await world.data("app") == before

    await world.until_so(is_back, "the Secret to be put back")
    await world.until_so(lambda: world.events("SecretPutBack"), "an Event about it")
    await world.until_so(lambda: knows_secret(world, "app"), "the controller to know it")
    # The credential is the same, so no session was closed.
    assert world.credentials["app"] == credential

    # A deleted Secret is made again with a new password: so users change passwords.
    await world.kube.delete(SECRET, world.namespace, "app")

    async def is_another() -> bool:
        secret = await world.secret("app")
        return secret is not None and (await world.data("app")) != before

    await world.until_so(is_another, "another Secret")
    data = await world.data("app")
    await world.until_so(
        lambda: verifies(world.credentials["app"], data["password"]), "the new password"
    )
    assert data["password"] != before["password"]

    # A restarted operator keeps the password in the Secret, so no session is closed.
    credential = world.credentials["app"]
    await world.stop_operator()
    await world.start_operator()
    await world.patch("app", acls=[allow("Write")])
    await world.until("app", "Ready")
    assert world.credentials["app"] == credential
    derived = [each for each in world.remote.requests[-1]["apply"] if "credential" in each]
    assert not derived, "the controller knows the password by its revision"


async def a_password_of_somebody_else_is_taken_and_followed(world: Bench) -> None:
    source = {"valueFrom": {"secretKeyRef": {"name": "chosen", "key": "word"}}}
    login = {"type": "scram-sha-512", "password": source}
    await world.create("app", authentication=login)
    await world.until("app", "PasswordMissing")
    assert world.operations("app") == {"READ"}, "rules do not wait for passwords"
    chosen = {"metadata": {"name": "chosen"}, "data": {"word": encoded("first one\n")}}
    await world.kube.create(
        SECRET, world.namespace, {"apiVersion": "v1", "kind": "Secret", **chosen}
    )
    await world.until("app", "InvalidPassword")
    await world.set_data("chosen", word='first "one"')
    await world.until("app", "Ready")
    assert (await world.data("app"))["password"] == 'first "one"'
    assert verifies(world.credentials["app"], 'first "one"')
    await world.set_data("chosen", word="second")
    await world.until_so(lambda: verifies(world.credentials["app"], "second"), "the second")
    assert (await world.data("app"))["password"] == "second"
    assert not await world.events("SecretPutBack")


async def who_declares_a_principal_first_has_it(world: Bench) -> None:
    await world.create("a-first", authentication={"type": "oauth", "subject": "shared"})
    await world.until("a-first", "NoListener")
    assert world.operations("shared") == {"READ"}
    await world.create("shared", acls=[allow("Write")])
    item = await world.until("shared", "Conflict")
    assert "a-first is older" in item["status"]["conditions"][0]["message"]
    assert await world.secret("shared") is None
    assert world.operations("shared") == {"READ"}
    await world.delete("a-first")
    await world.until("shared", "Ready")
    assert world.operations("shared") == {"WRITE"}


async def a_secret_of_somebody_else_is_left_alone(world: Bench) -> None:
    theirs = {"metadata": {"name": "app"}, "data": {"password": encoded("theirs")}}
    await world.kube.create(
        SECRET, world.namespace, {"apiVersion": "v1", "kind": "Secret", **theirs}
    )
    await world.create("app")
    await world.until("app", "SecretConflict")
    assert await world.data("app") == {"password": "theirs"}
    assert not world.credentials
    await world.kube.delete(SECRET, world.namespace, "app")
    await world.until("app", "Ready")


async def a_secret_that_goes_while_it_is_looked_at_is_made(world: Bench) -> None:
    """The operator does not watch foreign Secrets, so it has to try again by itself."""
    kube: Any = world.kube
    await kube.create(
        SECRET, world.namespace, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app"}}
    )
    get = kube.get
    looks: list[str] = []

    async def get_late(kind: Any, namespace: str, name: str) -> Any:
        if kind is SECRET and name == "app" and not looks:
            looks.append(name)
            await kube.delete(SECRET, namespace, name)
        return await get(kind, namespace, name)

    await world.create("app")
    await world.until("app", "SecretConflict")
    kube.get = get_late
    await world.until("app", "Ready")
    assert looks == ["app"]


async def declared_rights_refuse_imperative_changes(world: Bench) -> None:
    controller = world.remote.controller
    credential = derive(ScramMechanism.SCRAM_SHA_512, "x", 4096, b"salt of tests")
    await world.create("app")
    await world.until("app", "Ready")
    rule = BY_HAND._replace(principal="User:app", operation=Operation.ALL)
    reply: Any = await controller.submit(CreateAcls((rule, BY_HAND), "User:admin"))
    codes = [each["error_code"] for each in reply["acls"]]
    assert codes == [RefusalCode.POLICY_VIOLATION, 0]
    event = AlterCredentials((), (("app", credential),), "User:admin")
    reply = await controller.submit(event)
    assert reply["users"][0]["error_code"] == RefusalCode.POLICY_VIOLATION
    assert "'app'" in reply["users"][0]["error_message"]


async def a_user_gives_no_more_than_the_cluster_allows(world: Bench) -> None:
    cluster = {"resource": {"type": "cluster"}, "operations": ["Alter", "Describe"]}
    await world.create("app", acls=[cluster, allow("Read")])
    item = await world.until("app", "NotAllowed")
    assert "left out: Alter on the cluster" in item["status"]["conditions"][0]["message"]
    assert world.operations("app") == {"DESCRIBE", "READ"}
    await world.create("root")
    await world.until("root", "NotAllowed")
    assert "root" not in world.credentials
    policy = {"spec": {"userPolicy": {"clusterOperations": ["Alter"]}}}
    await world.kube.patch(LOG_CLUSTER, world.namespace, CLUSTER, policy)
    await world.until_so(lambda: world.operations("app") == {"ALTER", "READ"}, "the policy to hold")


async def quotas_come_and_go_with_a_user(world: Bench) -> None:
    controller = world.remote.controller
    app, everybody = (quota_entity([("user", name)]) for name in ("app", None))

    async def alter(entity: Any, key: str, value: float | None) -> int:
        event = AlterClientQuotas((QuotaChanges(entity, ((key, value),)),), False, "User:admin")
        reply: Any = await controller.submit(event)
        return int(reply["entries"][0]["error_code"])

    assert await alter(everybody, "producer_byte_rate", 2000.0) == 0
    await world.create("app", quotas={"producerByteRate": 1000, "requestPercentage": 50})
    await world.until("app", "Ready")
    wanted = {"producer_byte_rate": 1000.0, "request_percentage": 50.0}
    assert world.quotas("app") == wanted
    assert await alter(app, "producer_byte_rate", 5.0) == RefusalCode.POLICY_VIOLATION
    assert world.quotas("app") == wanted

    # A User gets no more than the cluster's default, unless its userPolicy allows that.
    await world.patch("app", quotas={"producerByteRate": 9000, "requestPercentage": None})
    item = await world.until("app", "NotAllowed")
    assert "producerByteRate to 2000" in item["status"]["conditions"][0]["message"]
    assert world.quotas("app") == {"producer_byte_rate": 2000.0}
    policy = {"spec": {"userPolicy": {"quotas": "Any"}}}
    await world.kube.patch(LOG_CLUSTER, world.namespace, CLUSTER, policy)
    await world.until("app", "Ready")
    assert world.quotas("app") == {"producer_byte_rate": 9000.0}

    await world.patch("app", quotas=None)
    await world.until_so(lambda: not world.quotas("app"), "the quotas to go with the field")
    assert await alter(app, "consumer_byte_rate", 5.0) == 0
    await world.patch("app", quotas={"controllerMutationRate": 3})
    mutations = {"controller_mutation_rate": 3.0}
    await world.until_so(lambda: world.quotas("app") == mutations, "the quotas to be the User's")
    await world.delete("app")
    await world.until_gone("app")
    assert not world.quotas("app")


async def a_new_reign_is_told_which_users_there_are(world: Bench) -> None:
    await world.create("kept")
    await world.create("goes")
    await world.until("kept", "Ready")
    await world.until("goes", "Ready")
    await world.stop_operator()
    await world.kube.patch(USER, world.namespace, "goes", {"metadata": {"finalizers": None}})
    await world.delete("goes")
    world.remote.epoch += 1
    await world.start_operator()
    await world.until_so(lambda: set(world.credentials) == {"kept"}, "the rights to go")


async def a_user_that_is_made_anew_at_once_keeps_its_rights(world: Bench) -> None:
    """One call tells the controller that a User is gone and that there is a new one of its name."""
    remote, is_away = world.remote, True
    apply_users = remote.apply_users

    async def apply_unless_away(*call: Any) -> dict[str, Any]:
        if is_away:
            raise ControllerUnavailableError("it takes over")
        return await apply_users(*call)

    await world.create("app")
    await world.until("app", "Ready")
    remote.apply_users = apply_unless_away  # type: ignore[method-assign, assignment]
    await world.delete("app")
    await world.kube.patch(USER, world.namespace, "app", {"metadata": {"finalizers": None}})
    await world.until_so(lambda: world.sync.scope.gone, "the operator to hear that it is gone")
    await world.create("app", acls=[allow("Write")])
    await world.until("app", "ControllerUnavailable")
    is_away = False
    await world.until("app", "Ready")
    await world.until_so(lambda: not world.sync.scope.gone, "an end of revoking its rights")
    assert world.operations("app") == {"WRITE"}
    assert verifies(world.credentials["app"], (await world.data("app"))["password"])


async def a_user_that_is_replaced_without_its_cluster_keeps_its_rights(world: Bench) -> None:
    """As by `kubectl replace` with its first file: the operator had added the cluster's name."""
    await world.create("app")
    item = await world.until("app", "Ready")
    told = len(world.remote.requests)
    del item["spec"]["clusterName"]
    await world.kube.replace(USER, world.namespace, "app", item)
    await world.until("app", "Ready")
    assert not [each["forget"] for each in world.remote.requests[told:] if each.get("forget")]
    found = await world.get("app")
    assert found is not None and found["spec"]["clusterName"] == CLUSTER


async def hundreds_of_users_take_few_calls(world: Bench) -> None:
    gate = asyncio.Semaphore(16)

    async def create(number: int) -> None:
        async with gate:
            await world.create(f"app-{number:03d}")

    await asyncio.gather(*map(create, range(MANY)))
    await world.until_so(lambda: len(world.credentials) == MANY, "all credentials")
    assert len(world.rules) == MANY
    assert len(world.remote.requests) < MANY / 2
    await world.until(f"app-{MANY - 1:03d}", "Ready")


async def set_authority(world: Bench, authority: KeyPair, *others: KeyPair) -> None:
    """Create or change the Secrets of the cluster's authority, as the operator would."""
    key = write_authorities(Authorities(current=authority))
    trusted = b"".join(each.certificate for each in (authority, *others)).decode()
    for name, data in (
        (authority_secret_name(CLUSTER), key),
        (trust_secret_name(CLUSTER), {"ca.crt": encoded(trusted)}),
    ):
        if await world.secret(name) is not None:
            await world.kube.patch(SECRET, world.namespace, name, {"data": data})
            continue
        metadata = {"name": name, "labels": {CLUSTER_LABEL: CLUSTER}}
        manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        await world.kube.create(SECRET, world.namespace, manifest)


def is_of(authority: KeyPair, certificate: bytes) -> bool:
    return not is_due(certificate, datetime.now(UTC), authority=authority.certificate)


async def a_certificate_is_of_the_clusters_authority(world: Bench) -> None:
    first, second = (make_authority(name, datetime.now(UTC)) for name in ("one", "two"))
    await world.create("app", authentication={"type": "tls"})
    await world.until("app", "NoAuthority")
    assert world.operations("app") == {"READ"}
    await set_authority(world, first)
    await world.until("app", "Ready")
    before = await world.data("app")
    assert is_of(first, before["user.crt"].encode())
    assert KeyPair(before["user.crt"].encode(), before["user.key"].encode()).fits()
    assert before["ca.crt"].encode() == first.certificate
    assert "security.protocol=SSL\n" in before["client.properties"]
    assert not world.credentials

    await set_authority(world, second, first)

    async def is_renewed() -> bool:
        data = await world.data("app")
        return is_of(second, data["user.crt"].encode())

    await world.until_so(is_renewed, "a certificate of the new authority")
    assert first.certificate.decode() in (await world.data("app"))["ca.crt"]
    assert not await world.events("SecretPutBack")

    # With a password instead, the Secret has no certificate any more.
    await world.patch("app", authentication={"type": "scram-sha-512"})
    await world.until_so(lambda: "app" in world.credentials, "a credential")
    await world.until("app", "Ready")
    assert not {"user.crt", "user.key"} & set(await world.data("app"))


async def set_bytes(world: Bench, name: str, key: str, value: bytes) -> None:
    patch = {"data": {key: base64.b64encode(value).decode()}}
    await world.kube.patch(SECRET, world.namespace, name, patch)


async def a_damaged_secret_holds_up_no_other_user(world: Bench) -> None:
    """Otherwise a person who edits Secrets of one namespace could stop the operator for all."""
    now = datetime.now(UTC)
    authority, another = make_authority("one", now), make_authority("two", now)
    await set_authority(world, authority)
    await world.create("app", authentication={"type": "tls"})
    await world.until("app", "Ready")
    unknown_kind = b"-----BEGIN PRIVATE KEY-----\nMA0CAQAwBAYCKgMEAgAA\n-----END PRIVATE KEY-----\n"
    for damaged in (b"\x30\x82\xff\x00", b"\xff\n" + another.key, another.key, unknown_kind):
        await world.stop_operator()
        await set_bytes(world, "app", "user.key", damaged)
        await world.start_operator()

        async def is_whole() -> bool:
            data = await world.data("app")
            return KeyPair(data["user.crt"].encode(), data["user.key"].encode()).fits()

        await world.until_so(is_whole, "a key that fits the certificate")
    await set_bytes(world, trust_secret_name(CLUSTER), "ca.crt", b"\xff" + authority.certificate)
    await world.until("app", "NoAuthority")
    await set_authority(world, authority)
    await world.until("app", "Ready")
    # An unexpected error of one User does not stop the others either.
    await set_authority(world, make_authority("over", now - timedelta(days=4000)))
    await world.create("other")
    await world.until("other", "Ready")
    await set_authority(world, authority)
    await world.patch("app", acls=[allow("Write")])
    await world.until("app", "Ready")


STORIES: Final[Mapping[Callable[[Bench], Awaitable[None]], Mapping[str, Any]]] = {
    a_user_gets_rights_and_a_secret_and_loses_both: {},
    what_others_change_in_the_secret_is_put_back: {},
    a_password_of_somebody_else_is_taken_and_followed: {},
    who_declares_a_principal_first_has_it: {},
    a_secret_of_somebody_else_is_left_alone: {},
    a_secret_that_goes_while_it_is_looked_at_is_made: {},
    declared_rights_refuse_imperative_changes: {},
    quotas_come_and_go_with_a_user: {},
    a_user_gives_no_more_than_the_cluster_allows: {"authorization": {"superUsers": ["root"]}},
    a_new_reign_is_told_which_users_there_are: {},
    a_user_that_is_made_anew_at_once_keeps_its_rights: {},
    a_user_that_is_replaced_without_its_cluster_keeps_its_rights: {},
    hundreds_of_users_take_few_calls: {},
    a_certificate_is_of_the_clusters_authority: {},
    a_damaged_secret_holds_up_no_other_user: {},
}
"""Each with the fields of its LogCluster besides listeners."""
