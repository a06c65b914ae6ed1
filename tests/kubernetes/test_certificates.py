"""Certificates of secured clusters on a real API server: our own, given ones, cert-manager's."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from operator_bench import QUIET_S, cluster_manifest, pool_manifest

from fairlead_controller.kubernetes.cluster_tls import ClusterTls
from fairlead_controller.kubernetes.watches import CLUSTER_LABEL
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import CERTIFICATE, LOG_CLUSTER, SECRET, STATEFUL_SET, ResourceKind
from fairlead_operator.certificates.authority import alternative_names, issue, make_authority
from fairlead_tls.peer_names import PeerName, read_peer_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from operator_bench import Bench, Operator

    from fairlead_kube.client import KubeClient

pytestmark = pytest.mark.kubernetes

CRD = ResourceKind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    is_namespaced=False,
)
INSIDE = {"name": "tls", "type": "Internal", "port": 9093}
ISSUED = INSIDE | {"tls": {"issuerRef": {"name": "company"}}}
GIVEN = INSIDE | {"tls": {"certificate": {"secretName": "given"}}}


@asynccontextmanager
async def cert_manager_kind(kube: KubeClient) -> AsyncIterator[None]:
    """The kind Certificate, without anybody who issues any."""
    name = "certificates.cert-manager.io"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": "Certificate", "plural": "certificates", "listKind": "CertificateList"}
    await kube.create(
        CRD,
        None,
        {
            "apiVersion": CRD.api_version,
            "kind": CRD.kind,
            "metadata": {"name": name},
            "spec": {
                "group": "cert-manager.io",
                "names": names,
                "scope": "Namespaced",
                "versions": [version],
            },
        },
    )
    try:
        yield
    finally:
        await kube.delete(CRD, None, name)


def secret(name: str, **texts: bytes) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {key: base64.b64encode(text).decode() for key, text in texts.items()},
    }


async def pem(bench: Bench, name: str, key: str) -> bytes:
    data = (await bench.get(SECRET, name))["data"]
    return base64.b64decode(data.get(key, ""))


def peers(certificate: bytes) -> list[PeerName]:
    return list(read_peer_names(x509.load_pem_x509_certificate(certificate)))


async def condition(bench: Bench) -> dict[str, Any]:
    cluster = await bench.get(LOG_CLUSTER, "demo")
    found = (cluster.get("status") or {}).get("conditions") or ()
    return next((each for each in found if each["type"] == "CertificatesReady"), {})


def test_secrets_appear_and_then_nothing_is_written(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(listeners=[INSIDE | {"tls": {}}]), pool_manifest(2))
        await bench.start(2)
        await bench.until_may_go(1, "calm")
        before = await bench.until_quiet()
        await asyncio.sleep(QUIET_S)
        assert operator.writes() == before, "converged, and still writing"
        names = alternative_names(await pem(bench, "demo-main-tls", "tls.pem"))
        assert f"demo-bootstrap.{bench.namespace}.svc" in names
        assert (await condition(bench))["reason"] == "Issued"
        # What somebody deletes is made again, and the authority stays.
        authority = await pem(bench, "demo-ca", "ca.crt")
        await bench.kube.delete(SECRET, bench.namespace, "demo-ca")
        await bench.until(lambda: bench.get(SECRET, "demo-ca"), "what is trusted comes back")
        assert await pem(bench, "demo-ca", "ca.crt") == authority
        shown = await pem(bench, "demo-main-tls", "tls.pem")
        await bench.kube.delete(SECRET, bench.namespace, "demo-ca-key")
        await bench.until(lambda: bench.get(SECRET, "demo-ca-key"), "what issues comes back")
        await bench.until_quiet()
        assert await pem(bench, "demo-ca", "ca.crt") == authority
        assert await pem(bench, "demo-main-tls", "tls.pem") == shown

    run(scenario())


def test_brokers_and_the_controller_get_certificates_for_each_other(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(interBroker={"tls": True}), pool_manifest(2))
        await bench.start(2)
        cluster = f"{bench.namespace}/demo"
        # What a candidate finds by the label, as the API server has it.
        selector = f"{CLUSTER_LABEL}=demo"
        found = (await bench.kube.list(SECRET, bench.namespace, label_selector=selector)).items
        (shown,) = (each for each in found if each["metadata"]["name"] == "demo-controller-tls")
        assert shown["type"] == "kubernetes.io/tls"
        tls = ClusterTls({(bench.namespace, "demo"): shown}.get)
        assert "come over TLS" in (tls.problem_of((bench.namespace, "demo"), None) or "")
        first = await pem(bench, "demo-main-tls", "broker-1.pem")
        assert peers(first) == [PeerName(cluster, 1)]
        # One that is there no more is issued anew, and nodes are told at once.
        annotation = (await bench.pods())["demo-main-1"]["metadata"]["annotations"]
        patch = {"data": {"broker-1.pem": None}}
        await bench.kube.patch(SECRET, bench.namespace, "demo-main-tls", patch)
        emptied = {"data": {"tls.crt": "", "tls.key": ""}}
        await bench.kube.patch(SECRET, bench.namespace, "demo-controller-tls", emptied)

        async def is_renewed() -> bool:
            broker = await pem(bench, "demo-main-tls", "broker-1.pem")
            controller = await pem(bench, "demo-controller-tls", "tls.crt")
            if not broker or not controller:
                return False
            assert peers(broker) == [PeerName(cluster, 1)]
            assert peers(controller) == [PeerName(cluster)]
            return broker != first

        await bench.until(is_renewed, "certificates come back")

        async def is_told() -> bool:
            pod = (await bench.pods())["demo-main-1"]
            return bool(pod["metadata"]["annotations"] != annotation)

        await bench.until(is_told, "the pod says that its Secret has changed")
        # A broker that is to come has its own before its pod is there.
        await bench.scale(3)
        await bench.make_ready_when_there("demo-main-2")
        assert peers(await pem(bench, "demo-main-tls", "broker-2.pem")) == [PeerName(cluster, 2)]

        async def is_issued() -> bool:
            return (await condition(bench)).get("reason") == "Issued"

        await bench.until(is_issued, "the condition is well")

    run(scenario())


def test_brokers_wait_for_a_given_certificate_and_get_it(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(listeners=[GIVEN]), pool_manifest(1))

        async def is_missed() -> bool:
            return "there is no Secret given" in (await condition(bench)).get("message", "")

        await bench.until(is_missed, "the condition names the Secret")
        with pytest.raises(ApiError) as missing:
            await bench.get(STATEFUL_SET, "demo-main")
        assert missing.value.is_not_found
        now = datetime.now(UTC)
        pair = issue(make_authority("company", now), "kafka", now, hosts=["kafka.example.com"])
        given = secret("given", **{"tls.crt": pair.certificate, "tls.key": pair.key})
        await bench.kube.create(SECRET, bench.namespace, given)
        await bench.until(lambda: bench.get(STATEFUL_SET, "demo-main"), "brokers start")
        assert pair.certificate in await pem(bench, "demo-main-tls", "tls.pem")

        async def is_warned() -> bool:
            return "lacks them" in (await condition(bench)).get("message", "")

        await bench.until(is_warned, "the condition names what the certificate lacks")

    run(scenario())


def test_cert_manager_is_asked_once_it_is_there(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(listeners=[ISSUED]), pool_manifest(1))

        async def is_advised() -> bool:
            return "install cert-manager" in (await condition(bench)).get("message", "")

        await bench.until(is_advised, "the condition says what is missing")
        async with cert_manager_kind(bench.kube):
            name = "demo-main-tls-issued"
            made = await bench.until(lambda: bench.get(CERTIFICATE, name), "it is asked")
            spec = made["spec"]
            assert spec["issuerRef"]["name"] == "company"
            assert f"*.demo-brokers.{bench.namespace}.svc" in spec["dnsNames"]
            now = datetime.now(UTC)
            authority = make_authority("company", now)
            pair = issue(authority, "demo", now, hosts=spec["dnsNames"])
            given = secret(name, **{"tls.crt": pair.certificate, "tls.key": pair.key})
            await bench.kube.create(SECRET, bench.namespace, given)

            async def is_taken() -> bool:
                return pair.certificate in await pem(bench, "demo-main-tls", "tls.pem")

            await bench.until(is_taken, "its certificate is taken")

            async def is_issued() -> bool:
                return (await condition(bench)).get("reason") == "Issued"

            await bench.until(is_issued, "the condition is well")

    run(scenario())
