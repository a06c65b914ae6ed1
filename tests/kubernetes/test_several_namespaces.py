"""One operator for two namespaces, one of which takes its roles back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from fake_admin import FakeAdmin, FakeAdminServer
from live_candidates import CLUSTER, CandidateCluster, wait_for
from operator_bench import cluster_manifest, let_go, pool_manifest

from fairlead_bench.peers.own_ports import take_ports
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import BROKER_POOL, LOG_CLUSTER, NAMESPACE, SERVICE, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kubernetes

CHART = Path(__file__).resolve().parents[2] / "charts" / "fairlead"
ROLE_BINDING = ResourceKind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")


def output_of(*command: str, given: str | None = None) -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Place:
    """Two namespaces of teams, and the operator's own with its account."""

    def __init__(self, kube: Any, run: Any, home: str, directory: Path) -> None:
        self.kube, self.run, self.home, self.directory = kube, run, home, directory
        self.teams = (f"{home}-orders", f"{home}-billing")
        for name in self.teams:
            run(kube.create(NAMESPACE, None, {"metadata": {"name": name}}))
        rendered = output_of(
            *("helm", "template", "fairlead", str(CHART), "--namespace", home),
            *("--kube-version", "1.34", "--set", f"watchNamespaces={{{','.join(self.teams)}}}"),
            *("--set", "rbac.nodes=false,rbac.aggregatedRoles=false,crds.install=false"),
            *("--show-only", "templates/rbac.yaml"),
            *("--show-only", "templates/service-account.yaml"),
        )
        output_of("kubectl", "apply", "-f", "-", given=rendered)
        manifests = [each for each in yaml.safe_load_all(rendered) if each]
        self.binding = next(
            each
            for each in manifests
            if each["kind"] == "RoleBinding" and each["metadata"].get("namespace") == self.teams[1]
        )
        view = ("kubectl", "config", "view", "--raw", "--minify", "-o", "json")
        config = json.loads(output_of(*view))
        token = output_of("kubectl", "create", "token", "fairlead-operator", "-n", home).strip()
        for user in config["users"]:
            user["user"] = {"token": token}
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))

    def take_back(self) -> None:
        """Take the roles of the second team back."""
        name = self.binding["metadata"]["name"]
        self.run(self.kube.delete(ROLE_BINDING, self.teams[1], name))

    def give(self) -> None:
        self.run(self.kube.create(ROLE_BINDING, self.teams[1], self.binding))

    def has_service(self, team: str) -> bool:
        try:
            self.run(self.kube.get(SERVICE, team, "demo-bootstrap"))
        except ApiError as error:
            assert error.is_not_found, error
            return False
        return True


@pytest.fixture
def place(
    only_operator: None, kube: Any, run: Any, namespace: str, tmp_path: Path
) -> Iterator[Place]:
    if shutil.which("helm") is None and not os.environ.get("CI"):
        pytest.skip("helm is not installed")
    place = Place(kube, run, namespace, tmp_path)
    yield place
    for name in place.teams:
        run(let_go(kube, name))
        run(kube.delete(NAMESPACE, None, name))


def test_the_controller_reigns_where_it_may_and_where_it_may_later(
    place: Place, kube: Any, run: Any, tmp_path: Path
) -> None:
    place.take_back()
    with ExitStack() as stack:
        clusters = [stack.enter_context(CandidateCluster(tmp_path, team)) for team in place.teams]
        for cluster in clusters:
            run(cluster.declare(kube))
        first = clusters[0]
        first.home = place.home
        first.environment = {"KUBECONFIG": str(place.kubeconfig)}
        first.watched = ",".join(place.teams)
        candidate = first.start_candidate(0)

        def reigns() -> set[str]:
            return set(candidate.ask("GET", "/v1/state")[1]["clusters"])

        wait_for(lambda: reigns() == {f"{place.teams[0]}/{CLUSTER}"})
        assert candidate.get("/healthz")[0] == 200
        epoch = wait_for(lambda: candidate.epoch)
        place.give()
        wait_for(lambda: len(reigns()) == 2)
        assert candidate.epoch == epoch
        assert candidate.process.poll() is None


def test_the_operator_goes_on_in_one_namespace_without_the_other(
    place: Place, kube: Any, run: Any, tmp_path: Path
) -> None:
    for team in place.teams:
        run(kube.create(LOG_CLUSTER, team, cluster_manifest()))
        run(kube.create(BROKER_POOL, team, pool_manifest(1)))
    admin = FakeAdmin(clusters=[f"{team}/demo" for team in place.teams])
    socket, log = tmp_path / "controller.sock", tmp_path / "operator.log"
    (port,) = take_ports(1)
    environment = os.environ | {
        "KUBECONFIG": str(place.kubeconfig),
        "POD_NAME": "fairlead-operator-0",
        "POD_NAMESPACE": place.home,
        "FAIRLEAD_WATCH_NAMESPACE": ",".join(place.teams),
        "FAIRLEAD_BROKER_IMAGE": "localhost/fairlead-not-there:test",
        "FAIRLEAD_CONTROLLER_SOCKET": str(socket),
        "FAIRLEAD_OPERATOR_HTTP_PORT": str(port),
    }
    with FakeAdminServer(admin, socket), log.open("w") as out:

        def start() -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "fairlead_operator"]
            return subprocess.Popen(command, env=environment, stdout=out, stderr=out)

        process = start()
        try:
            for team in place.teams:
                wait_for(partial(place.has_service, team))
            place.take_back()
            # kopf's watch is refused: it ends, and its supervisor starts it again.
            wait_for(lambda: process.poll() is not None)
            process = start()
            for team in place.teams:
                run(kube.delete(SERVICE, team, "demo-bootstrap"))
            wait_for(lambda: place.has_service(place.teams[0]))
            assert f"namespace {place.teams[1]} is not served" in log.read_text()
            assert process.poll() is None
            assert not place.has_service(place.teams[1])
            place.give()
            wait_for(lambda: process.poll() is not None)
            process = start()
            wait_for(lambda: place.has_service(place.teams[1]))
        finally:
            admin.is_active = False
            process.wait(60)
