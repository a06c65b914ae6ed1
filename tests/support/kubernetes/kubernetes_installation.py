"""A Fairlead installation for end-to-end tests, installed with Helm as by a user, and a summary."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from kubernetes_commands import CommandError, Kubectl, run, wait_for_account, wait_until

ROOT = Path(__file__).resolve().parents[3]
OPERATOR_NAMESPACE = "fairlead-system"
NAMESPACE = "fairlead-e2e"
CLUSTER = "demo"
POOL = "brokers"
BOOTSTRAP = f"{CLUSTER}-bootstrap:9092"
NODE_PORT_BASE = 31090
IMAGE = os.environ.get("FAIRLEAD_E2E_IMAGE", "")
SPARK_IMAGE = os.environ.get("FAIRLEAD_E2E_SPARK_IMAGE", "")
# Shared machines are slow at times: limits apply unchanged only if this is 1.
PATIENCE = float(os.environ.get("FAIRLEAD_E2E_PATIENCE", "2.5"))

# Pods that the restricted Pod Security Standard forbids cannot start there.
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


def client_pod() -> dict[str, Any]:
    """A pod that does nothing, to run clients in."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "client", "namespace": NAMESPACE},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "client",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "infinity"],
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def user_pod(name: str, namespace: str, user: str) -> dict[str, Any]:
    """A pod for clients that mounts the Secret of a User: examples/kubernetes/client.yaml."""
    pod = yaml.safe_load((ROOT / "examples" / "kubernetes" / "client.yaml").read_text())
    pod["metadata"] = {"name": name, "namespace": namespace}
    pod["spec"]["containers"][0]["image"] = IMAGE
    pod["spec"]["volumes"][0]["secret"]["secretName"] = user
    return dict(pod)


KINDS = (
    *("failoverdrills", "rebalances", "streamjobs", "consumergroups", "topics", "users"),
    *("brokerpools", "logclusters", "clusterstates", "partitiontables"),
)
RELEASES = ((CLUSTER, NAMESPACE), ("fairlead", OPERATOR_NAMESPACE))


@dataclass(frozen=True)
class Holder:
    """The holder of the Lease: a pod's name and a random text; empty if there is none."""

    identity: str

    @property
    def pod(self) -> str:
        return re.sub(r"^(.*-[0-9]+).*$", r"\1", self.identity)


def _delete_all(kubectl: Kubectl, kind: str) -> None:
    """Delete objects and their finalizers, because there is no operator that would remove them."""
    resource = f"{kind}.fairlead.io"
    with suppress(CommandError):
        for name in kubectl("get", resource, "-o", "name").split():
            with suppress(CommandError):
                patch = '{"metadata":{"finalizers":null}}'
                kubectl("patch", name, "--type=merge", "-p", patch)
        kubectl("delete", resource, "--all", "--timeout=120s")


def _is_made(namespace: str) -> bool:
    """Make a namespace, unless it is there; one that is still going takes nothing new."""
    phase = ("-o", "jsonpath={.status.phase}")
    found = run("kubectl", "get", "namespace", namespace, "--ignore-not-found", *phase)
    if not found:
        run("kubectl", "create", "namespace", namespace)
        return True
    return found == "Active"


@dataclass
class Installation:
    """Both Helm releases, and helpers for tests."""

    kubectl: Kubectl = field(default_factory=lambda: Kubectl(NAMESPACE))
    operator: Kubectl = field(default_factory=lambda: Kubectl(OPERATOR_NAMESPACE))

    @property
    def image_values(self) -> tuple[str, ...]:
        repository, _, tag = IMAGE.rpartition(":")
        values = {"image.repository": repository, "image.tag": tag, "spark.image": SPARK_IMAGE}
        return tuple(part for item in values.items() for part in ("--set", "=".join(item)))

    def install_operator(self, *extra: str) -> None:
        extra = (*os.environ.get("FAIRLEAD_E2E_OPERATOR_VALUES", "").split(), *extra)
        for namespace in (NAMESPACE, OPERATOR_NAMESPACE):
            wait_until(partial(_is_made, namespace), f"no namespace {namespace}", 240)
            run("kubectl", "label", "--overwrite", "namespace", namespace, RESTRICTED)
            wait_for_account(Kubectl(namespace))
        drills = ("--set", "drills.controller=true")
        values = (*self.image_values, *drills, *extra)
        self._helm("fairlead", OPERATOR_NAMESPACE, "charts/fairlead", *values)

    def install_cluster(self, *extra: str) -> None:
        values = ("-f", str(ROOT / "tests" / "e2e" / "cluster_values.yaml"))
        self._helm(CLUSTER, NAMESPACE, "charts/fairlead-cluster", *values, *extra)

    def install_chart_cluster(
        self, release: str, namespace: str, values: Mapping[str, Any]
    ) -> None:
        """Install a cluster with the chart's defaults, except for these values."""
        given = (f"{name}={json.dumps(value)}" for name, value in values.items())
        arguments = (part for value in given for part in ("--set-json", value))
        self._helm(release, namespace, "charts/fairlead-cluster", *arguments)

    def uninstall_operator(self) -> None:
        """Uninstall only the operator, if there is one: brokers go on."""
        with suppress(CommandError):
            run("helm", "uninstall", "fairlead", "-n", OPERATOR_NAMESPACE, "--wait")

    def install_cluster_beside_operator(self) -> None:
        """A small cluster in the operator's own namespace, for drills of the controller."""
        pool = {"replicas": 3, "storage.size": "1Gi", "resources.requests.cpu": "100m"}
        values = (f"pools.brokers.{name}={value}" for name, value in pool.items())
        arguments = (part for value in values for part in ("--set", value))
        self._helm(CLUSTER, OPERATOR_NAMESPACE, "charts/fairlead-cluster", *arguments)
        ready = ("wait", "--for=condition=Ready", f"logcluster/{CLUSTER}", "--timeout=180s")
        self.operator(*ready)

    def uninstall_cluster_beside_operator(self) -> None:
        """Uninstall it while there is an operator that releases it; the chart keeps the data."""
        run("helm", "uninstall", CLUSTER, "-n", OPERATOR_NAMESPACE, "--wait")
        for kind in ("failoverdrills", "topics", "logclusters", "brokerpools"):
            self.operator("delete", f"{kind}.fairlead.io", "--all", "--timeout=120s")

    def _helm(self, release: str, namespace: str, chart: str, *extra: str) -> None:
        command = ("helm", "upgrade", "--install", release, str(ROOT / chart), "-n", namespace)
        # Definitions may be there already, made by kubectl or by another release.
        run(*command, "--create-namespace", "--take-ownership", *extra)

    def uninstall(self) -> None:
        """Uninstall everything, with its data, for a clean start."""
        with suppress(CommandError):
            self.uninstall_cluster_beside_operator()
        for release, namespace in RELEASES:
            with suppress(CommandError):
                run("helm", "uninstall", release, "-n", namespace, "--wait")
        for kubectl in (self.kubectl, self.operator):
            for kind in KINDS:
                _delete_all(kubectl, kind)
        for namespace in (NAMESPACE, OPERATOR_NAMESPACE):
            with suppress(CommandError):
                run("kubectl", "delete", "namespace", namespace, "--timeout=120s")

    def ensure_installed(self) -> None:
        """Ensure that both releases and a healthy cluster exist, whatever exists now."""
        if not self.is_installed():
            self.uninstall()
            self.install_operator()
            self.install_cluster()
        self.wait_cluster_ready(180)
        self.kubectl("wait", "--for=condition=Ready", "topic.fairlead.io/orders")

    def is_installed(self) -> bool:
        with suppress(CommandError):
            for release, namespace in RELEASES:
                run("helm", "status", release, "-n", namespace)
            return True
        return False

    def apply_client(self) -> None:
        """A pod to run the command line in."""
        self.kubectl.apply(client_pod())

    def ensure_client(self) -> None:
        """The same, and it runs."""
        self.apply_client()
        self.kubectl("wait", "--for=condition=Ready", "pod/client")

    def renew_topic(self, name: str, *, partitions: int) -> None:
        """Create an empty topic of this name, in place of any existing one."""
        spec = {"clusterName": CLUSTER, "partitions": partitions, "reclaimPolicy": "Delete"}
        manifest = {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "Topic",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        old = self.kubectl("get", "topic.fairlead.io", name, "--ignore-not-found", "-o", "name")
        if old.strip():
            patch = '{"spec":{"reclaimPolicy":"Delete"}}'
            self.kubectl("patch", "topic.fairlead.io", name, "--type=merge", "-p", patch)
            self.kubectl("delete", "topic.fairlead.io", name, "--timeout=120s")
        self.kubectl.apply(manifest)
        self.kubectl("wait", "--for=condition=Ready", f"topic.fairlead.io/{name}")

    def lease(self) -> tuple[Holder, str]:
        """Return the holder of the Lease, and the time of its last renewal."""
        spec = self.operator.get("lease", "fairlead-operator")["spec"]
        return Holder(str(spec.get("holderIdentity") or "")), str(spec.get("renewTime") or "")

    def pods(self) -> list[dict[str, Any]]:
        return self.kubectl.items("pods", "-l", f"fairlead.io/cluster={CLUSTER}")

    def wait_cluster_ready(self, timeout_s: float = 120) -> float:
        return wait_until(self.is_cluster_ready, "the cluster is not Ready", timeout_s)

    def is_cluster_ready(self) -> bool:
        cluster = self.kubectl.get("logcluster", CLUSTER)
        status = cluster.get("status", {})
        return (
            self.kubectl.condition("logcluster", CLUSTER, "Ready").get("status") == "True"
            and status.get("observedGeneration") == cluster["metadata"]["generation"]
            and status.get("brokersReady") == status.get("brokers") == 3
            and not status.get("underReplicated")
            and not status.get("offline")
        )

    def fairlead(self, *arguments: str, stdin: str | None = None) -> str:
        """The command line in the client pod, against the bootstrap Service."""
        command = ("fairlead", *arguments, "--bootstrap", BOOTSTRAP)
        only_reads = arguments[0] == "consume" or arguments[1] in {"list", "describe"}
        return self.kubectl.exec("client", *command, stdin=stdin, only_reads=only_reads)


@dataclass
class Summary:
    """Rows of the table at the end."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, what: str, measured: str, promised: str = "") -> None:
        self.rows.append((what, measured, promised))

    def time(self, what: str, seconds: float, limit_s: float) -> None:
        """Note a duration and hold it to its limit."""
        self.add(what, f"{seconds:.2f} s", f"≤ {limit_s:g} s")
        assert seconds <= limit_s * PATIENCE, f"{what}: {seconds:.2f} s, promised {limit_s:g} s"
