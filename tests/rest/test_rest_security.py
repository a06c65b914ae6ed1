"""A cluster whose HTTP API asks who somebody is: what he may, wherever it is led."""

import http.client
import ssl
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from rest_client import V2_JSON, Reply, RestClient
from secure_listener import Certificates
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

V2 = "application/vnd.kafka.v2+json"
PASSWORDS = {"ada": "right", "bob": "secret", "eve": "evil"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.issue("server")
    return made


@pytest.fixture(scope="module")
def rest_settings(certificates: Certificates) -> dict[str, str]:
    """Kafka's listener stays open, for an administrator; the HTTP API does not."""
    return {
        "listener.security.protocol.map": "CLIENT:PLAINTEXT",
        "fairlead.rest.listener": "https://127.0.0.1:0",
        "fairlead.rest.authentication": "BASIC",
        "listener.name.rest.ssl.keystore.location": str(certificates.directory / "server.pem"),
        "listener.name.rest.ssl.truststore.location": str(certificates.ca),
        "listener.name.rest.ssl.client.auth": "requested",
        "listener.name.rest.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
        "super.users": "User:ANONYMOUS",
    }


@pytest.fixture(scope="module")
def cluster(rest_cluster: Any) -> Any:
    return rest_cluster


@pytest.fixture(scope="module")
def admin(cluster: Any) -> AdminClient:
    made = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for user, password in PASSWORDS.items():
        set_password(made, user, password)
    return made


@pytest.fixture(scope="module")
def connect(cluster: Any, admin: AdminClient, certificates: Certificates) -> Any:
    """Make a client of a broker, who logs in as a user, or shows a certificate."""

    def act(user: str | None, broker: int = 0, *, certificate: str | None = None) -> RestClient:
        context = ssl.create_default_context(cafile=str(certificates.ca))
        if certificate is not None:
            context.load_cert_chain(certificates.issue(certificate, is_client=True))
        who = None if user is None else (user, PASSWORDS[user])
        made = RestClient(cluster.brokers[broker].rest_url, user=who, tls=context)
        wait_until(lambda: made.get("/brokers").status == 200 or user is None)
        return made

    return act


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    for future in admin.create_topics([NewTopic(name, 3, 3)]).values():
        future.result(60)
    return name


def rule(
    principal: str,
    operation: AclOperation,
    name: str,
    *,
    kind: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{principal}", "*", operation,
        AclPermissionType.ALLOW,
    )  # fmt: skip


def allow(admin: AdminClient, *rules: AclBinding) -> None:
    for future in admin.create_acls(list(rules)).values():
        future.result(60)


def same(one: Reply, other: Reply, name: str, missing: str) -> bool:
    """Whether two refusals differ in nothing but the name of what was asked for."""
    return (one.status, one.body.replace(name.encode(), b"")) == (
        other.status,
        other.body.replace(missing.encode(), b""),
    )


def test_what_is_forbidden_looks_like_what_is_not_there(connect: Any, topic: str) -> None:
    eve = connect("eve")
    missing = topic[:-1] + "_"
    records = {"records": [{"value": 1}]}
    asks: tuple[Callable[[str], Any], ...] = (
        lambda name: eve.get(f"{eve.v3}/topics/{name}"),
        lambda name: eve.get(f"{eve.v3}/topics/{name}/partitions"),
        lambda name: eve.get(f"{eve.v3}/topics/{name}/configs"),
        lambda name: eve.get(f"{eve.v3}/topics/{name}/partitions/0/offset"),
        lambda name: eve.ask("DELETE", f"{eve.v3}/topics/{name}"),
        lambda name: eve.get(f"/topics/{name}"),
        lambda name: eve.get(f"/topics/{name}/partitions/0/records?timeout=0"),
        lambda name: eve.post(f"/topics/{name}", records, content_type=V2_JSON),
        lambda name: eve.records(name, {"value": {"type": "JSON", "data": 1}}),
        lambda name: eve.get(f"{eve.v3}/consumer-groups/{name}"),
        lambda name: eve.get(f"{eve.v3}/consumer-groups/{name}/lags"),
        lambda name: eve.post(f"/consumers/{name}", {}, content_type=V2),
    )
    for ask in asks:
        forbidden, unknown = ask(topic), ask(missing)
        assert same(forbidden, unknown, topic, missing), (forbidden, unknown)
        assert b"40301" in forbidden.body, forbidden
    assert topic not in eve.get("/topics").json
    assert eve.get(f"{eve.v3}/topics").json["data"] == []
    created = eve.post(f"{eve.v3}/topics", {"topic_name": missing})
    assert (created.status, created.json["error_code"]) == (403, 40301)
    assert eve.get(f"{eve.v3}/brokers/1/configs").status == 403


def test_who_may_writes_and_reads_wherever_it_is_led(
    connect: Any, admin: AdminClient, topic: str
) -> None:
    allow(
        admin,
        *(rule("ada", each, topic) for each in (AclOperation.WRITE, AclOperation.READ)),
    )
    clients = [connect("ada", broker) for broker in range(3)]
    for index, client in enumerate(clients):
        for partition in range(3):
            record = {"partition_id": partition, "value": {"type": "JSON", "data": index}}
            report = wait_until(lambda: permitted(client, topic, record))  # noqa: B023
            assert report["partition_id"] == partition
    for client in clients:
        for partition in range(3):
            path = f"/topics/{topic}/partitions/{partition}/records?format=json&timeout=30000"
            assert sorted(each["value"] for each in client.get(path).json) == [0, 1, 2]


def permitted(client: RestClient, topic: str, record: Any) -> Any:
    """A report, once all brokers know the rules."""
    report = client.records(topic, record).json
    return report if report["error_code"] == 200 else None


def test_an_instance_is_its_makers_at_every_broker(
    connect: Any, admin: AdminClient, topic: str
) -> None:
    groups = [f"{topic}-by-password", f"{topic}-by-certificate"]
    for user in ("ada", "carol", "eve"):
        allow(
            admin,
            rule(user, AclOperation.READ, topic),
            rule(user, AclOperation.WRITE, topic),
            *(rule(user, AclOperation.READ, each, kind=ResourceType.GROUP) for each in groups),
        )
    ada, elsewhere, eve = connect("ada", 0), connect("ada", 1), connect("eve", 1)
    by_certificate = connect(None, 0, certificate="carol"), connect(None, 2, certificate="carol")
    wait_until(lambda: permitted(ada, topic, {"value": {"type": "JSON", "data": "hello"}}))
    config = {"format": "json", "auto.offset.reset": "earliest"}
    for group, (here, there) in zip(groups, ((ada, elsewhere), by_certificate), strict=True):
        made = wait_until(lambda: created(here, group, config))  # noqa: B023
        base = f"/consumers/{group}/instances/{made['instance_id']}"
        # Whom the other broker passes it on for is who has logged in there.
        subscribed = there.post(f"{base}/subscription", {"topics": [topic]}, content_type=V2)
        assert subscribed.status == 204, subscribed
        assert there.get(f"{base}/subscription").json == {"topics": [topic]}
        found = wait_until(
            lambda: there.get(f"{base}/records?timeout=30000", headers={"Accept": V2_JSON}).json  # noqa: B023
        )
        assert [each["value"] for each in found] == ["hello"]
        # Nobody else finds it, here or there, whatever headers he makes up.
        spoofed = {
            "Fairlead-Forwarded-By": "2",
            "Fairlead-Principal": "User:ada",
            "X-Forwarded-User": "ada",
            "X-Forwarded-For": "127.0.0.1",
        }
        for headers in ({}, spoofed):
            for asker in (eve, connect("eve", 0)):
                refused = asker.get(f"{base}/subscription", headers=headers)
                assert (refused.status, refused.json["error_code"]) == (404, 40403)
                ended = asker.ask("DELETE", base, headers=headers)
                assert (ended.status, ended.json["error_code"]) == (404, 40403)
        assert there.ask("DELETE", base).status == 204
        assert here.get(f"{base}/subscription").status == 404


def created(client: RestClient, group: str, config: Any) -> Any:
    reply = client.post(f"/consumers/{group}", config, content_type=V2)
    return reply.json if reply.status == 200 else None


def test_a_pattern_finds_what_its_user_may_see_wherever_its_group_is(
    connect: Any, admin: AdminClient, topic: str
) -> None:
    secret = f"{topic}-secret"
    for future in admin.create_topics([NewTopic(secret, 1, 3)]).values():
        future.result(60)
    groups = [f"{topic}-{number}" for number in range(8)]
    allow(
        admin,
        rule("ada", AclOperation.READ, topic),
        rule("ada", AclOperation.WRITE, topic),
        *(rule("ada", AclOperation.READ, each, kind=ResourceType.GROUP) for each in groups),
    )
    ada = connect("ada", 0)
    wait_until(lambda: permitted(ada, topic, {"value": {"type": "JSON", "data": "hello"}}))
    bases = []
    for group in groups:
        config = {"format": "json", "auto.offset.reset": "earliest"}
        made = wait_until(lambda: created(ada, group, config))  # noqa: B023
        bases.append(f"/consumers/{group}/instances/{made['instance_id']}")
        pattern = {"topic_pattern": f"{topic}.*"}
        assert ada.post(f"{bases[-1]}/subscription", pattern, content_type=V2).status == 204
    for base in bases:
        found = wait_until(
            lambda: ada.get(f"{base}/records?timeout=30000", headers={"Accept": V2_JSON}).json  # noqa: B023
        )
        assert [each["value"] for each in found] == ["hello"], found
        assert ada.get(f"{base}/subscription").json == {"topics": [topic]}
        assert ada.ask("DELETE", base).status == 204


def test_a_group_of_topics_that_may_not_be_seen_is_told_by_no_broker(
    connect: Any, admin: AdminClient, topic: str
) -> None:
    groups = [f"{topic}-{number}" for number in range(6)]
    allow(
        admin,
        rule("ada", AclOperation.READ, topic),
        *(rule("ada", AclOperation.READ, each, kind=ResourceType.GROUP) for each in groups),
        *(rule("eve", AclOperation.DESCRIBE, each, kind=ResourceType.GROUP) for each in groups),
    )
    ada, eve = connect("ada"), connect("eve")
    for group in groups:
        made = wait_until(lambda: created(ada, group, {}))  # noqa: B023
        base = f"/consumers/{group}/instances/{made['instance_id']}"
        assert ada.post(f"{base}/subscription", {"topics": [topic]}, content_type=V2).status == 204
        wait_until(lambda: ada.get(f"{base}/assignments").json["partitions"])  # noqa: B023
        found = eve.get(f"{eve.v3}/consumer-groups/{group}")
        assert (found.status, found.json["error_code"]) == (403, 40301), found
        assert ada.get(f"{ada.v3}/consumer-groups/{group}").status == 200
    told = [
        {each["consumer_group_id"] for each in who.get(f"{who.v3}/consumer-groups").json["data"]}
        for who in (eve, ada)
    ]
    assert told[0].isdisjoint(groups)
    assert told[1] >= set(groups)


def test_what_waits_ends_with_the_right_to_it(
    cluster: Any, connect: Any, admin: AdminClient, topic: str
) -> None:
    given = rule("bob", AclOperation.READ, topic)
    allow(admin, given)
    bob = connect("bob", 0)
    replies: list[Reply] = []

    def read(partition: int) -> None:
        path = f"/topics/{topic}/partitions/{partition}/records?timeout=60000&offset=latest"
        replies.append(bob.get(path))

    brokers = [connect("bob", broker) for broker in range(3)]

    def rights() -> set[bool]:
        """Of each broker for each partition: a leader judges a read that is passed on, too."""
        paths = [f"/topics/{topic}/partitions/{each}/records?timeout=0" for each in range(3)]
        return {broker.get(path).status == 200 for broker in brokers for path in paths}

    wait_until(lambda: rights() == {True})
    waiting = [threading.Thread(target=read, args=(partition,)) for partition in range(3)]
    for thread in waiting:
        thread.start()
    in_flight = f"fairlead_rest_requests_in_flight {len(waiting)}\n"
    wait_until(lambda: in_flight in cluster.brokers[0].get("/metrics")[1])
    for future in admin.delete_acls([filter_of(given)]).values():
        future.result(60)
    wait_until(lambda: rights() == {False})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition in range(3):
        producer.produce(topic, b'"a secret"', partition=partition)
    assert producer.flush(60) == 0
    for thread in waiting:
        thread.join(90)
    assert [(each.status, each.json["error_code"]) for each in replies] == [(403, 40301)] * 3


def test_a_stream_of_events_ends_with_the_password_that_began_it(
    connect: Any, admin: AdminClient, topic: str
) -> None:
    PASSWORDS["dan"] = "first"
    set_password(admin, "dan", "first")
    allow(admin, rule("dan", AclOperation.READ, topic))
    dan = connect("dan")
    path = f"/topics/{topic}/partitions/0/records"
    wait_until(lambda: dan.get(f"{path}?timeout=0").status == 200)
    connection = dan.connect()
    connection.request("GET", path, headers=dan.headers | {"Accept": "text/event-stream"})
    stream = connection.getresponse()
    assert stream.status == 200
    assert stream.readline() == b"retry: 1000\n"
    set_password(admin, "dan", "second")
    with pytest.raises((http.client.IncompleteRead, ConnectionError, ssl.SSLError)):
        stream.read()
    connection.close()
    wait_until(lambda: dan.get(f"{path}?timeout=0").status == 401)


def set_password(admin: AdminClient, user: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(60)


def filter_of(given: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        given.restype, given.name, given.resource_pattern_type, given.principal, given.host,
        given.operation, given.permission_type,
    )  # fmt: skip
