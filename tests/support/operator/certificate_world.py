"""A cluster with certificates, whose Secrets, pods and brokers are in memory."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from operator_views import SETTINGS, cluster_view, pool_view

from fairlead_kube.errors import ApiError
from fairlead_operator.certificates.authority import fingerprints
from fairlead_operator.clusters.plan import ClusterObserved, WantedObject, plan_cluster
from fairlead_operator.clusters.tls.broker_trust import TrustAnswer, read_answer
from fairlead_operator.clusters.tls.certificate_keeper import (
    CertificateKeeper,
    CertificateReport,
    CertificateSight,
    HeldSight,
)
from fairlead_operator.refusals import Refusals
from fairlead_operator.specs.certificates import decode_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

START = datetime(2030, 1, 1, tzinfo=UTC)
OPERATOR = "operator.pem"


class World:
    """Secrets, pods and brokers; everything that is written is there at once.

    It takes the place of the ApiWriter, and of BrokerTrust.
    """

    def __init__(self, *listeners: Mapping[str, Any], pool: str = "main", **spec: Any) -> None:
        self.pool = pool_view(pool)
        self.spec: dict[str, Any] = {"listeners": list(listeners), **spec}
        self.rotate = ""
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods = [self._pod(ordinal, f"192.0.2.{ordinal}") for ordinal in range(3)]
        self.has_cert_manager = True
        self.may_delete = True
        self.now = START
        self.mounted: dict[str, bytes] = {}
        """What brokers have read."""
        self.down: set[int] = set()
        self.unlabelled: set[tuple[str, str]] = set()
        """Objects that the operator does not follow."""
        self.uid = "c-1"
        """Of the LogCluster."""
        self.begin_process()

    def begin_process(self) -> None:
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

    def look(self, refusals: Refusals | None = None) -> CertificateReport:
        view = cluster_view(**self.spec)
        cluster = replace(view, rotate_authority=self.rotate, uid=self.uid)
        observed = ClusterObserved(
            cluster=cluster,
            pools=[self.pool],
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
        return asyncio.run(self.keeper.look_after(sight, refusals or Refusals()))

    def hold(self, *, is_readable: bool = True) -> None:
        """A pass while the spec is not taken."""
        metadata = {"name": "demo", "namespace": "shop", "uid": "c-1"}
        sight = HeldSight(
            log_cluster={"metadata": metadata},
            secrets=[
                each
                for (kind, _), each in self.objects.items()
                if kind == "Secret" and "labels" in each["metadata"]
            ],
            pods=self.pods,
            cluster=cluster_view(**self.spec) if is_readable else None,
        )
        asyncio.run(self.keeper.renew(sight, Refusals()))

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

    async def delete(self, kind: Any, live: dict[str, Any]) -> None:
        if not self.may_delete:
            raise ApiError(403, "Forbidden", "certificates is forbidden")
        del self.objects[kind.kind, live["metadata"]["name"]]

    async def patch(self, kind: Any, _namespace: str, name: str, patch: dict[str, Any]) -> None:
        if kind.kind == "Secret":
            present = self.secret(name)["metadata"]["annotations"]
            after = present | patch["metadata"]["annotations"]
            kept = {key: value for key, value in after.items() if value is not None}
            self.secret(name)["metadata"]["annotations"] = kept
            return
        (pod,) = (pod for pod in self.pods if pod["metadata"]["name"] == name)
        pod["metadata"]["annotations"] = patch["metadata"]["annotations"]

    async def ask(
        self, pods: list[dict[str, Any]], listeners: tuple[str, ...]
    ) -> list[TrustAnswer]:
        trusted = fingerprints(self.mounted["ca.crt"])

        def told(broker_id: int) -> TrustAnswer | None:
            keys = {"OPERATOR": OPERATOR}
            shown = {
                name: fingerprints(self.mounted[keys.get(name, f"broker-{broker_id}.pem")])[0]
                for name in listeners
            }
            return read_answer(
                {name: {"certificate": each, "trusted": trusted} for name, each in shown.items()},
                listeners,
            )

        asked = [told(number) for number, _ in enumerate(pods) if number not in self.down]
        return [each for each in asked if each is not None]
