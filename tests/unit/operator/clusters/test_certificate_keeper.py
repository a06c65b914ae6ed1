"""Certificates of a cluster: made, renewed, replaced with their names, rotated with their CA."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from certificate_world import START, World
from cryptography import x509
from operator_views import pool_view

from fairlead_controller.kubernetes.cluster_tls import SECRET_SUFFIX, ClusterTls
from fairlead_operator.certificates.authority import (
    KeyPair,
    alternative_names,
    fingerprints,
    is_issued_by,
    issue,
    make_authority,
)
from fairlead_operator.certificates.keystores import build_keystore, missing_names
from fairlead_operator.clusters.tls.broker_trust import (
    TrustAnswer,
    is_issued_everywhere,
    read_answer,
)
from fairlead_operator.clusters.tls.certificate_keeper import (
    CertificateReport,
)
from fairlead_operator.refusals import Refusals
from fairlead_operator.specs.names import controller_tls_secret_name
from fairlead_operator.specs.peer_security import PEERS_MAX
from fairlead_tls.peer_names import PeerName, read_peer_names

INSIDE = {"name": "tls", "type": "Internal", "port": 9093, "tls": {}}
OUTSIDE = {"name": "out", "type": "NodePort", "port": 9095, "nodePortBase": 31090, "tls": {}}
GIVEN = INSIDE | {"tls": {"certificate": {"secretName": "given"}}}
ISSUED: dict[str, Any] = INSIDE | {"tls": {"issuerRef": {"name": "company"}}}
OPERATOR, TLS = "operator.pem", "tls.pem"


def test_a_cluster_that_secures_nothing_gets_no_certificates() -> None:
    world = World()
    assert world.look() == CertificateReport()
    assert not world.objects


def test_everything_is_made_and_then_nothing() -> None:
    world = World(INSIDE)
    assert not world.look().problems
    assert set(world.objects) == {
        ("Secret", "demo-ca"),
        ("Secret", "demo-ca-key"),
        ("Secret", "demo-main-tls"),
    }
    assert world.pem("ca.crt", "demo-ca") == world.authority
    assert "ca.key" not in world.secret("demo-ca")["data"]
    assert "ca.key" not in world.secret("demo-main-tls")["data"]
    assert alternative_names(world.pem(TLS)) >= {
        "demo-bootstrap.shop.svc",
        "*.demo-brokers.shop.svc",
    }
    assert is_issued_by(world.pem(TLS), world.authority)
    before = dict(world.objects)
    world.look()
    assert world.objects == before


def test_the_http_api_gets_a_certificate_for_the_names_that_it_is_reached_by() -> None:
    world = World()
    names = ["log.example.com"]
    world.spec = {"rest": {"enabled": True, "tls": {"alternativeNames": names}}}
    assert not world.look().problems
    found = world.pem("rest.pem")
    assert is_issued_by(found, world.authority)
    expected = {"demo-bootstrap.shop.svc", "*.demo-brokers.shop.svc", "log.example.com"}
    assert alternative_names(found) >= expected
    off = World()
    off.spec = {"rest": {"enabled": False, "tls": {}}}
    assert off.look() == CertificateReport()
    assert not off.objects


def test_a_certificate_is_renewed_while_its_authority_stays_and_pods_are_told() -> None:
    world = World(INSIDE)
    world.look()
    first, authority = world.pem(TLS), world.authority
    told = {pod["metadata"]["annotations"]["fairlead.io/certificates"] for pod in world.pods}
    assert len(told) == 1
    world.now = START + timedelta(days=55)
    world.look()
    assert world.pem(TLS) == first
    world.now = START + timedelta(days=61)
    world.look()
    assert world.pem(TLS) != first
    assert world.authority == authority
    assert told != {
        pod["metadata"]["annotations"]["fairlead.io/certificates"] for pod in world.pods
    }


@pytest.mark.parametrize("is_readable", [True, False])
def test_while_a_spec_is_not_taken_what_brokers_have_is_renewed_as_it_is(is_readable: bool) -> None:
    world = World(
        INSIDE, OUTSIDE | {"tls": {"alternativeNames": ["log.example.com"]}}, interBroker=PEERS
    )
    world.look()
    before = {name: dict(each["data"]) for (_, name), each in world.objects.items()}
    world.spec = {"listeners": [{"name": "other", "type": "Internal", "port": 9099}]}
    first, names = world.pem("out.pem"), alternative_names(world.pem("out.pem"))
    told = dict(world.pods[0]["metadata"]["annotations"])
    world.hold(is_readable=is_readable)
    assert {name: each["data"] for (_, name), each in world.objects.items()} == before
    world.now = START + timedelta(days=61)
    world.hold(is_readable=is_readable)
    for name in ("demo-main-tls", controller_tls_secret_name("demo")):
        renewed, kept = dict(world.secret(name)["data"]), dict(before[name])
        assert renewed.pop("ca.crt") == kept.pop("ca.crt")
        assert renewed.keys() == kept.keys()
        assert not {key for key, text in renewed.items() if text == kept[key]}
    assert world.secret("demo-ca-key")["data"] == before["demo-ca-key"]
    second = world.pem("out.pem")
    assert is_issued_by(second, world.authority)
    assert alternative_names(second) == names
    assert KeyPair(second, second).fits()
    assert peers(world.pem("broker-1.pem")) == [PeerName("shop/demo", 1)]
    assert world.pods[0]["metadata"]["annotations"] != told
    assert first != second


def test_while_a_spec_is_not_taken_certificates_of_others_are_followed_where_it_names_them() -> (
    None
):
    world, other = World(GIVEN), make_authority("company", START)
    for days in (0, 40):
        given = issue(other, "x", START + timedelta(days=days), hosts=["demo-bootstrap"])
        world.give("given", **{"tls.crt": given.certificate, "tls.key": given.key})
        world.now = START + timedelta(days=days)
        if not days:
            world.look()
    first = world.pem(TLS)
    world.hold(is_readable=False)
    assert world.pem(TLS) == first
    world.hold()
    assert world.pem(TLS) == build_keystore(given)


def test_while_a_spec_is_not_taken_users_and_other_clusters_are_left_alone() -> None:
    world = World(INSIDE)
    world.look()
    world.now = START + timedelta(days=61)
    user = {**world.secret("demo-main-tls"), "metadata": {"name": "app", "labels": {}}}
    world.objects["Secret", "app"] = user
    world.hold()
    assert world.secret("app") == user
    first = world.pem(TLS)
    world.now = START + timedelta(days=130)
    owner = {"kind": "LogCluster", "uid": "of an earlier one"}
    world.secret("demo-ca-key")["metadata"]["ownerReferences"] = [owner]
    world.hold()
    assert world.pem(TLS) == first


def test_names_outside_follow_the_nodes_that_brokers_are_on() -> None:
    world = World(INSIDE, OUTSIDE | {"tls": {"alternativeNames": ["log.example.com"]}})
    world.look()
    key = "out.pem"
    assert alternative_names(world.pem(key)) >= {"192.0.2.0", "192.0.2.2", "log.example.com"}
    first = world.pem(key)
    world.pods[2] = world._pod(2, "192.0.2.9")
    world.look()
    assert "192.0.2.9" in alternative_names(world.pem(key))
    second = world.pem(key)
    assert second != first
    world.pods.pop()  # names that are too many do no harm
    world.look()
    assert world.pem(key) == second


def test_brokers_get_the_names_that_templates_give_them() -> None:
    template = {"advertisedHostTemplate": "b{brokerId}-{ordinal}.example.com"}
    world = World(INSIDE, OUTSIDE | template)
    world.look()
    expected = {f"b{number}-{number}.example.com" for number in range(3)}
    assert alternative_names(world.pem("out.pem")) >= expected


def test_an_address_is_the_same_however_it_is_written() -> None:
    world = World(INSIDE, OUTSIDE | {"tls": {"alternativeNames": ["2001:DB8:0:0::1"]}})
    world.look()
    first = world.pem("out.pem")
    assert "2001:db8::1" in alternative_names(first)
    world.look()
    assert world.pem("out.pem") == first, "nothing has changed"
    assert missing_names(first, ["2001:DB8:0:0::1", "2001:db8::2"]) == ["2001:db8::2"]


def test_a_secret_of_somebody_else_is_not_overwritten() -> None:
    world = World(INSIDE)
    world.look()
    foreign = {"metadata": {"name": "demo-main-tls"}, "data": {}}
    world.objects["Secret", "demo-main-tls"] = foreign
    world.unlabelled = {("Secret", "demo-main-tls")}
    report = world.look()
    assert "main" in report.blocked
    assert "demo-main-tls" in report.blocked["main"]
    assert world.secret("demo-main-tls") is foreign


COMPANY = make_authority("company", START)


@pytest.mark.parametrize("damage", [b"\xff\x00", b"no certificate", b""])
def test_what_nobody_can_read_in_a_secret_of_brokers_is_made_anew(damage: bytes) -> None:
    world = World(INSIDE, interBroker={"tls": True})
    world.look()
    secret = world.secret("demo-main-tls")
    for key in (OPERATOR, TLS, "broker-1.pem"):
        text = base64.b64encode(damage + world.pem(key)[: len(damage)]).decode()
        world.objects["Secret", "demo-main-tls"] = secret | {"data": secret["data"] | {key: text}}
        assert not world.look().problems
        present = world.pem(key)
        assert KeyPair(present, present).fits()
        assert is_issued_by(present, world.authority)


def test_a_given_certificate_is_checked_taken_and_followed() -> None:
    world = World(GIVEN)
    report = world.look()
    assert "there is no Secret given" in report.problems[0]
    assert "main" in report.blocked
    names = ["demo-bootstrap.shop.svc", "*.demo-brokers.shop.svc"]
    pair = issue(COMPANY, "kafka", START, hosts=names)
    world.give("given", **{"tls.crt": pair.certificate, "tls.key": pair.key})
    world.now += timedelta(seconds=1)
    report = world.look()
    assert not report.blocked
    assert world.pem(TLS) == build_keystore(pair)
    assert "lacks them: " in report.problems[0]  # such as demo-bootstrap alone
    # What cannot serve leaves the one of before.
    world.give("given", **{"tls.crt": pair.certificate, "tls.key": COMPANY.key})
    world.now += timedelta(seconds=20)
    report = world.look()
    assert "tls.key is not the key" in report.problems[0]
    assert not report.blocked
    assert world.pem(TLS) == build_keystore(pair)


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"now": START - timedelta(days=400)}, "not now"), ({"is_client": True}, "serverAuth")],
)
def test_a_given_certificate_that_cannot_serve_is_refused(
    options: dict[str, Any], problem: str
) -> None:
    world = World(GIVEN)
    pair = issue(COMPANY, "kafka", **({"now": START} | options))
    world.give("given", **{"tls.crt": pair.certificate, "tls.key": pair.key})
    report = world.look()
    assert problem in report.problems[0]
    assert report.blocked


def test_cert_manager_is_asked_and_its_secret_taken() -> None:
    world = World(ISSUED)
    report = world.look()
    wanted = world.objects["Certificate", "demo-main-tls-issued"]["spec"]
    assert wanted["issuerRef"] == {
        "name": "company",
        "kind": "Issuer",
        "group": "cert-manager.io",
    }
    assert "*.demo-brokers.shop.svc" in wanted["dnsNames"]
    assert wanted["privateKey"]["encoding"] == "PKCS8"
    assert "there is no Secret demo-main-tls-issued yet" in report.problems[0]
    pair = issue(COMPANY, "demo", START, hosts=wanted["dnsNames"])
    world.give("demo-main-tls-issued", **{"tls.crt": pair.certificate, "tls.key": pair.key})
    assert not world.look().problems
    assert world.pem(TLS) == build_keystore(pair)
    # Other names are asked for as they come.
    world.spec["listeners"] = [
        {**ISSUED, "tls": {**ISSUED["tls"], "alternativeNames": ["more.org"]}}
    ]
    world.look()
    assert "more.org" in world.objects["Certificate", "demo-main-tls-issued"]["spec"]["dnsNames"]


OWN = {**ISSUED, "tls": {}}


@pytest.mark.parametrize("left", [[], [OUTSIDE], [OWN]], ids=["none", "another", "of our own"])
def test_a_certificate_goes_with_the_listener_that_it_was_asked_for(
    left: list[dict[str, Any]],
) -> None:
    world = World(ISSUED, OUTSIDE | {"tls": ISSUED["tls"]})
    world.look()
    issued = {name for kind, name in world.objects if kind == "Certificate"}
    assert issued == {"demo-main-tls-issued", "demo-main-out-issued"}
    # While a spec is not taken, what was asked for is not forgotten.
    world.now += timedelta(days=70)
    world.hold(is_readable=False)
    theirs = {"metadata": {"name": "demo-main-out-issued"}, "spec": {}}
    world.objects["Certificate", "demo-main-out-issued"] = theirs
    world.spec["listeners"] = left
    world.look()
    found = [each for (kind, _), each in world.objects.items() if kind == "Certificate"]
    assert found == [theirs], "nobody else's is deleted"
    world.objects.pop(("Certificate", "demo-main-out-issued"))
    # It may come again, also at once.
    world.spec["listeners"] = [ISSUED]
    world.look()
    assert ("Certificate", "demo-main-tls-issued") in world.objects


def test_a_certificate_that_may_not_be_deleted_is_named_until_it_is_gone() -> None:
    world, refusals = World(ISSUED, OUTSIDE), Refusals()
    world.look()
    world.may_delete = False
    world.spec["listeners"] = [OUTSIDE]
    world.look(refusals)
    assert "certificates is forbidden" in refusals.text
    assert TLS not in world.secret("demo-main-tls")["data"], "the rest goes on"
    world.may_delete = True
    refusals = Refusals()
    world.look(refusals)
    assert not refusals.by_part
    assert ("Certificate", "demo-main-tls-issued") not in world.objects
    before = dict(world.objects)
    world.look()
    assert world.objects == before


def test_without_cert_manager_an_issuer_is_a_problem_that_says_what_to_do() -> None:
    world = World(ISSUED)
    world.has_cert_manager = False
    report = world.look()
    assert "install cert-manager" in report.problems[0]
    assert "install cert-manager" in report.blocked["main"]


def test_a_rotation_waits_for_every_broker_at_each_step() -> None:
    world = World(INSIDE, certificateAuthority={"overlapDays": 0})
    world.look()
    world.mount()
    first = world.authority
    world.rotate = "now"
    world.look()
    assert world.authority == first, "the next one is trusted before it issues"
    trusted = world.pem("ca.crt", "demo-ca")
    assert len(fingerprints(trusted)) == 2
    world.now += timedelta(minutes=1)
    assert "trusted beside" in world.look().rotation  # brokers have not read it yet
    assert world.authority == first
    world.mount()
    world.down = {2}
    world.look()
    assert world.authority == first, "a broker that is down has not said so"
    world.down = set()
    world.look()
    assert world.authority != first
    world.look()
    assert is_issued_by(world.pem(TLS), world.authority)
    assert len(fingerprints(world.pem("ca.crt"))) == 2, "what the old one issued is good still"
    assert "still trusted" in world.look().rotation  # brokers show the old certificates
    world.mount()
    user = issue(COMPANY, "user", START, is_client=True)
    world.give("user", **{"tls.crt": user.certificate})
    world.look()
    assert len(fingerprints(world.pem("ca.crt", "demo-ca"))) == 2, "a user has the old one's"
    del world.objects["Secret", "user"]
    world.look()
    assert world.look().rotation == ""
    assert world.pem("ca.crt", "demo-ca") == world.authority
    world.look()
    assert len(fingerprints(world.pem("ca.crt"))) == 1


def test_an_authority_that_cannot_be_read_stops_new_brokers_and_is_not_replaced() -> None:
    world = World(INSIDE)
    world.look()
    world.secret("demo-ca-key")["data"]["ca.key"] = ""
    before = world.pem(TLS)
    report = world.look()
    assert "holds no authority" in report.problems[0]
    assert "main" in report.blocked
    assert world.pem(TLS) == before


PEERS = {"tls": True}
CONTROLLER = "demo-controller-tls"


def peers(certificate: bytes) -> list[PeerName]:
    return list(read_peer_names(x509.load_pem_x509_certificate(certificate)))


def test_each_broker_and_the_controller_get_a_certificate_with_their_name() -> None:
    world = World(interBroker=PEERS)
    assert not world.look().problems
    assert set(world.objects) == {
        ("Secret", "demo-ca"),
        ("Secret", "demo-ca-key"),
        ("Secret", "demo-controller-tls"),
        ("Secret", "demo-main-tls"),
    }
    keys = {f"broker-{number}.pem" for number in range(3)}
    # There is no listener for the operator, because no listener of clients asks for one.
    assert set(world.secret("demo-main-tls")["data"]) == keys | {"ca.crt"}
    for number in range(3):
        pem = world.pem(f"broker-{number}.pem")
        assert peers(pem) == [PeerName("shop/demo", number)]
        assert is_issued_by(pem, world.authority)
    shown = world.pem("tls.crt", CONTROLLER)
    assert peers(shown) == [PeerName("shop/demo")]
    assert KeyPair(shown, world.pem("tls.key", CONTROLLER)).fits()
    assert world.pem("ca.crt", CONTROLLER) == world.authority
    # By this label candidates find it.
    assert world.secret(CONTROLLER)["metadata"]["labels"]["fairlead.io/cluster"] == "demo"
    before = dict(world.objects)
    world.look()
    assert world.objects == before


def test_the_controller_takes_the_secret_that_it_is_given() -> None:
    world = World(interBroker=PEERS)
    world.now = datetime.now(UTC)
    world.look()
    tls = ClusterTls({("shop", "demo"): world.secret(CONTROLLER)}.get)
    identity = tls._identity_of(("shop", "demo"))
    assert identity is not None
    assert identity.name == PeerName("shop/demo")
    assert "have to come over TLS" in (tls.problem_of(("shop", "demo"), None) or "")
    assert controller_tls_secret_name("demo") == f"demo-{SECRET_SUFFIX}"


def test_certificates_of_peers_are_renewed_and_made_for_brokers_that_are_to_come() -> None:
    world = World(interBroker=PEERS)
    world.look()
    first = world.pem("broker-0.pem"), world.pem("tls.crt", CONTROLLER)
    world.pool = pool_view(replicas=4)
    world.look()
    assert peers(world.pem("broker-3.pem")) == [PeerName("shop/demo", 3)]
    assert (world.pem("broker-0.pem"), world.pem("tls.crt", CONTROLLER)) == first
    world.now = START + timedelta(days=61)
    world.look()
    after = world.pem("broker-0.pem"), world.pem("tls.crt", CONTROLLER)
    assert not set(first) & set(after)
    assert peers(after[0]) == [PeerName("shop/demo", 0)]
    assert all(is_issued_by(each, world.authority) for each in after)
    # One that says it is somebody else does not stay, whoever has written it there.
    data = world.secret("demo-main-tls")["data"]
    data["broker-0.pem"] = data["broker-1.pem"]
    world.look()
    assert peers(world.pem("broker-0.pem")) == [PeerName("shop/demo", 0)]


def test_a_rotation_waits_until_peers_trust_and_show_another_authority() -> None:
    world = World(interBroker=PEERS, certificateAuthority={"overlapDays": 0})
    world.look()
    world.mount()
    first = world.authority
    world.rotate = "now"
    world.look()
    assert len(fingerprints(world.pem("ca.crt", CONTROLLER))) == 2
    assert is_issued_by(world.pem("tls.crt", CONTROLLER), first)
    world.look()
    assert world.authority == first, "no broker has read yet what to trust"
    world.mount()
    world.look()
    assert world.authority != first
    assert is_issued_by(world.pem("tls.crt", CONTROLLER), world.authority)
    assert is_issued_by(world.pem("broker-2.pem"), world.authority)
    world.look()
    assert len(fingerprints(world.pem("ca.crt", CONTROLLER))) == 2, "brokers show the old ones"
    world.mount()
    world.look()
    world.look()
    assert world.pem("ca.crt", CONTROLLER) == world.authority
    assert world.pem("ca.crt") == world.authority


def test_the_old_authority_stays_while_the_controller_shows_its_certificate() -> None:
    world = World(interBroker=PEERS)
    world.look()
    world.mount()
    (told,) = asyncio.run(world.ask(world.pods[:1], ("INTERNAL", "CONTROLLER")))
    secrets = [each for (kind, _), each in world.objects.items() if kind == "Secret"]
    assert is_issued_everywhere([told], 1, secrets, world.authority)
    pair = issue(COMPANY, "controller", START)
    world.secret(CONTROLLER)["data"]["tls.crt"] = base64.b64encode(pair.certificate).decode()
    assert not is_issued_everywhere([told], 1, secrets, world.authority)


def test_a_broker_that_leaves_out_a_listener_has_not_answered() -> None:
    told: dict[str, Any] = {"OPERATOR": {"certificate": "a", "trusted": ["x", "y"]}}
    assert read_answer(told, ("OPERATOR",)) == TrustAnswer(frozenset("a"), frozenset("xy"))
    assert read_answer(told, ("OPERATOR", "INTERNAL")) is None
    told["INTERNAL"] = {"certificate": "b", "trusted": ["x"]}
    answer = read_answer(told, ("OPERATOR", "INTERNAL"))
    assert answer == TrustAnswer(frozenset("ab"), frozenset("x"))


@pytest.mark.parametrize(
    ("owners", "problem"),
    [
        ([], "was not made by the operator"),
        ([{"kind": "LogCluster", "uid": "earlier"}], "to an earlier LogCluster"),
    ],
)
def test_a_controllers_secret_of_somebody_else_is_not_overwritten(
    owners: list[dict[str, str]], problem: str
) -> None:
    world = World(interBroker=PEERS)
    foreign = {"metadata": {"name": CONTROLLER, "ownerReferences": owners}, "data": {}}
    world.objects["Secret", CONTROLLER] = foreign
    world.unlabelled = {("Secret", CONTROLLER)}
    report = world.look()
    assert problem in report.problems[0]
    assert problem in report.blocked["main"]
    assert world.secret(CONTROLLER) is foreign


@pytest.mark.parametrize("spec", [{"interBroker": PEERS}, {"listeners": [INSIDE]}])
def test_no_pool_takes_the_name_of_the_controllers_secret(spec: dict[str, Any]) -> None:
    world = World(pool="controller")
    world.spec |= spec
    report = world.look()
    assert "for the certificate of the controller" in report.blocked["controller"]
    kept = world.objects.get(("Secret", CONTROLLER))
    assert kept is None or "tls.crt" in kept["data"]


def test_a_pool_whose_certificates_do_not_fit_in_a_secret_is_told_so() -> None:
    world = World(interBroker=PEERS)
    world.pool = pool_view(replicas=501)
    assert "more than 500 brokers" in world.look().blocked["main"]
    assert ("Secret", "demo-main-tls") not in world.objects


def test_certificates_of_as_many_brokers_as_a_pool_may_have_fit_in_a_secret() -> None:
    authority = make_authority("a" * 32, START)
    uri = f"fairlead://{'n' * 63}/{'c' * 32}/broker/2147483647"
    pem = build_keystore(issue(authority, "fairlead brokers", START, uris=[uri]))
    assert PEERS_MAX * len(base64.b64encode(pem)) < 900 * 1024
