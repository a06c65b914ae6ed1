"""Certificates of a cluster: made, renewed, replaced with their names, rotated with their CA."""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from operator_views import SETTINGS, cluster_view, pool_view

from fairlead_kube.errors import ApiError
from fairlead_operator.certificates.authority import (
    alternative_names,
    fingerprints,
    is_issued_by,
    issue,
    make_authority,
)
from fairlead_operator.certificates.keystores import build_keystore
from fairlead_operator.clusters.broker_trust import ListenerTrust
from fairlead_operator.clusters.certificate_keeper import (
    CertificateKeeper,
    CertificateReport,
    CertificateSight,
)
from fairlead_operator.clusters.plan import ClusterObserved, WantedObject, plan_cluster
from fairlead_operator.refusals import Refusals
from fairlead_operator.specs.certificates import decode_secret

START = datetime(2030, 1, 1, tzinfo=UTC)
INSIDE = {"name": "tls", "type": "Internal", "port": 9093, "tls": {}}
OUTSIDE = {"name": "out", "type": "NodePort", "port": 9095, "nodePortBase": 31090, "tls": {}}
GIVEN = INSIDE | {"tls": {"certificate": {"secretName": "given"}}}
ISSUED = INSIDE | {"tls": {"issuerRef": {"name": "company"}}}
OPERATOR, TLS = "operator.pem", "tls.pem"


class World:
    """Secrets, pods and brokers; everything that is written is there at once.

    It takes the place of the ApiWriter, and of BrokerTrust.
    """

    def __init__(self, *listeners: Mapping[str, Any], **spec: Any) -> None:
        self.spec: dict[str, Any] = {"listeners": list(listeners), **spec}
        self.rotate = ""
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods = [self._pod(ordinal, f"192.0.2.{ordinal}") for ordinal in range(3)]
        self.has_cert_manager = True
        self.now = START
        self.mounted: dict[str, bytes] = {}
        """What brokers have read."""
        self.down: set[int] = set()
        self.unlabelled: set[tuple[str, str]] = set()
        """Objects that the operator does not follow."""
        self.keeper = CertificateKeeper(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            wall_clock=lambda: self.now,
            monotonic=self._seconds,
        )

    def _pod(self, ordinal: int, host: str) -> dict[str, Any]:
        return {
            "metadata": {"name": f"demo-main-{ordinal}", "namespace": "shop"},
            "status": {"hostIP": host},
        }

    def _seconds(self) -> float:
        return (self.now - START).total_seconds()

    def look(self) -> CertificateReport:
        cluster = replace(cluster_view(**self.spec), rotate_authority=self.rotate)
        observed = ClusterObserved(
            cluster=cluster,
            pools=[pool_view()],
            live=self.objects,
            claim_sizes={},
            brokers={},
        )
        sight = CertificateSight(
            cluster=cluster,
            plan=plan_cluster(observed, SETTINGS),
            live={key: each for key, each in self.objects.items() if key not in self.unlabelled},
            pods=self.pods,
        )
        return asyncio.run(self.keeper.look_after(sight, Refusals()))

    def secret(self, name: str) -> dict[str, Any]:
        return self.objects["Secret", name]

    def pem(self, key: str, name: str = "demo-main-tls") -> bytes:
        return decode_secret(self.secret(name), key)

    @property
    def authority(self) -> bytes:
        return self.pem("ca.crt", "demo-ca-key")

    def mount(self) -> None:
        """Brokers read what is in their Secret."""
        self.mounted = {key: self.pem(key) for key in self.secret("demo-main-tls")["data"]}

    def give(self, name: str, **texts: bytes) -> None:
        data = {key: base64.b64encode(text).decode() for key, text in texts.items()}
        self.objects["Secret", name] = {"metadata": {"name": name}, "data": data}

    async def find(self, kind: Any, manifest: dict[str, Any]) -> dict[str, Any] | None:
        if kind.kind == "Certificate" and not self.has_cert_manager:
            return None
        return self.objects.get((kind.kind, manifest["metadata"]["name"]))

    async def create(self, kind: Any, manifest: dict[str, Any]) -> bool:
        if kind.kind == "Certificate" and not self.has_cert_manager:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        self.objects[kind.kind, manifest["metadata"]["name"]] = manifest
        return True

    async def replace_spec(self, kind: Any, manifest: dict[str, Any]) -> None:
        self.objects[kind.kind, manifest["metadata"]["name"]]["spec"] = manifest["spec"]

    async def apply(self, child: WantedObject) -> None:
        self.objects[child.key] = child.manifest

    async def patch(self, _kind: Any, _namespace: str, name: str, patch: dict[str, Any]) -> None:
        (pod,) = (pod for pod in self.pods if pod["metadata"]["name"] == name)
        pod["metadata"]["annotations"] = patch["metadata"]["annotations"]

    async def ask(self, pods: list[dict[str, Any]]) -> list[ListenerTrust]:
        told = ListenerTrust(
            fingerprints(self.mounted[OPERATOR])[0],
            frozenset(fingerprints(self.mounted["ca.crt"])),
        )
        return [told for number, _ in enumerate(pods) if number not in self.down]


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
    world.spec["listeners"] = [ISSUED | {"tls": ISSUED["tls"] | {"alternativeNames": ["more.org"]}}]
    world.look()
    assert "more.org" in world.objects["Certificate", "demo-main-tls-issued"]["spec"]["dnsNames"]


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
    assert "trusted still" in world.look().rotation  # brokers show the old certificates
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
