"""The roles of a candidate are taken away for some seconds, and given back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from live_candidates import CLUSTER, CandidateCluster, create_topic, produce, wait_for

from fairlead_kube.kinds import CLUSTER_STATE, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kubernetes

CHART = Path(__file__).resolve().parents[2] / "charts" / "fairlead"
ACCOUNT = "fairlead-operator"
ROLE_BINDING = ResourceKind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")


def output_of(*command: str, given: str | None = None) -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def install_roles(namespace: str) -> dict[str, Any]:
    """Give the chart's service account its roles in a namespace; give the binding to its kinds."""
    values = "rbac.nodes=false,rbac.aggregatedRoles=false,crds.install=false"
    rendered = output_of(
        *("helm", "template", "fairlead", str(CHART), "--namespace", namespace),
        *("--kube-version", "1.34"),
        *("--set", f"watchNamespace={namespace},{values}"),
        *("--show-only", "templates/rbac.yaml", "--show-only", "templates/service-account.yaml"),
    )
    output_of("kubectl", "apply", "-n", namespace, "-f", "-", given=rendered)
    bindings = [
        manifest
        for manifest in yaml.safe_load_all(rendered)
        if manifest and manifest["kind"] == "RoleBinding"
    ]
    (binding,) = (each for each in bindings if not each["metadata"]["name"].endswith("-lease"))
    return dict(binding)


def write_kubeconfig(path: Path, namespace: str) -> None:
    """Write a configuration for the service account."""
    config = json.loads(output_of("kubectl", "config", "view", "--raw", "--minify", "-o", "json"))
    token = output_of("kubectl", "create", "token", ACCOUNT, "-n", namespace).strip()
    for user in config["users"]:
        user["user"] = {"token": token}
    path.write_text(json.dumps(config))


@pytest.fixture
def bound(
    tmp_path: Path, namespace: str, kube: Any, run: Any
) -> Iterator[tuple[CandidateCluster, dict[str, Any]]]:
    """A candidate with no more rights than the chart gives it, and the binding that gives them."""
    if shutil.which("helm") is None and not os.environ.get("CI"):
        pytest.skip("helm is not installed")
    with CandidateCluster(tmp_path, namespace) as cluster:
        run(cluster.declare(kube))
        binding = install_roles(namespace)
        write_kubeconfig(tmp_path / "kubeconfig", namespace)
        cluster.environment = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
        cluster.start_candidate(0)
        wait_for(lambda: cluster.active().epoch == 1)
        yield cluster, binding


def test_without_its_roles_a_controller_waits_and_leaders_serve(
    bound: tuple[CandidateCluster, dict[str, Any]], kube: Any, run: Any
) -> None:
    cluster, binding = bound
    cluster.start_broker(0).wait_ready()
    create_topic(cluster.bootstrap, "t", 3, 1)
    active = cluster.active()

    def is_available() -> bool:
        _, state = active.ask("GET", "/v1/state")
        return bool(state["clusters"][f"{cluster.namespace}/{CLUSTER}"]["storeAvailable"])

    assert is_available()
    name = binding["metadata"]["name"]
    run(kube.delete(ROLE_BINDING, cluster.namespace, name))
    wait_for(lambda: not is_available())
    before = run(kube.get(CLUSTER_STATE, cluster.namespace, CLUSTER))["metadata"]
    produce(cluster.bootstrap, "t", 3)
    status, page = active.get("/metrics")
    assert status == 200
    gauge = next(line for line in page.splitlines() if line.startswith("fairlead_store_available"))
    assert gauge.endswith(" 0.0"), gauge
    assert active.get("/healthz")[0] == 200, "a restart would not help"
    run(kube.create(ROLE_BINDING, cluster.namespace, binding))
    wait_for(is_available)
    create_topic(cluster.bootstrap, "later", 1, 1)
    produce(cluster.bootstrap, "later", 1)
    assert active.epoch == 1, "it never ended"
    assert active.process.poll() is None
    after = run(kube.get(CLUSTER_STATE, cluster.namespace, CLUSTER))["metadata"]
    assert before["uid"] == after["uid"]
