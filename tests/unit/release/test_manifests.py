"""The kustomize base and OLM's bundle say what the operator's chart says, object by object."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from needed_tools import need

from fairlead_operator.settings import OperatorSettings
from fairlead_release.__main__ import image_values, write_manifests
from fairlead_release.chart_packages import Manifest, render_chart
from fairlead_release.commands import CommandError
from fairlead_release.olm_bundle import CARRIED_KINDS
from fairlead_release.project import OPERATOR_CHART, ROOT

# Kinds that go into the ClusterServiceVersion, and those that a bundle may not have.
DISSOLVED = {"StatefulSet", "ServiceAccount", "RoleBinding", "ClusterRoleBinding", "Role"}
LEFT_OUT = {"NetworkPolicy", "FlowSchema", "PriorityLevelConfiguration"}


def identity(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def bare(value: Any) -> Any:
    """The same without what says who manages it."""
    if isinstance(value, dict):
        return {
            key: bare(each)
            for key, each in value.items()
            if not key.startswith("helm.sh/") and key != "app.kubernetes.io/managed-by"
        }
    return [bare(each) for each in value] if isinstance(value, list) else value


def without_empty_metadata(manifest: Manifest) -> Manifest:
    metadata = {key: value for key, value in manifest["metadata"].items() if value != {}}
    return {**manifest, "metadata": metadata}


def load_all(
    paths: Iterable[Path],
) -> dict[tuple[str, str], Manifest]:
    return {
        identity(each): each
        for path in paths
        for each in yaml.load_all(path.read_text(), yaml.CSafeLoader)
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("helm")
    folder = tmp_path_factory.mktemp("manifests")
    write_manifests(folder)
    return folder


@pytest.fixture
def service_version(written: Path) -> Manifest:
    path = written / "olm" / "manifests" / "fairlead.clusterserviceversion.yaml"
    loaded: Manifest = yaml.safe_load(path.read_text())
    return loaded


def test_the_base_has_every_object_of_the_chart(written: Path, rendered: list[Manifest]) -> None:
    base = written / "kustomize"
    named = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
    files = {str(path.relative_to(base)) for path in base.rglob("*.yaml")}
    assert set(named) == files - {"kustomization.yaml"}
    objects = load_all(base / name for name in named)
    assert objects.pop(("Namespace", "fairlead"))
    expected = {identity(each): without_empty_metadata(bare(each)) for each in rendered}
    assert {key: bare(each) for key, each in objects.items()} == expected
    text = "".join((base / name).read_text() for name in named)
    assert "helm" not in text.lower().replace("helm.sh/docs", "")


def test_the_bundle_has_every_object_or_says_it_otherwise(
    written: Path, rendered: list[Manifest]
) -> None:
    objects = load_all((written / "olm" / "manifests").glob("*.yaml"))
    bound = {"fairlead-operator", "fairlead-operator-nodes"}
    for each in rendered:
        kind, name = identity(each)
        if kind in DISSOLVED | LEFT_OUT or (kind == "ClusterRole" and name in bound):
            assert (kind, name) not in objects
            continue
        assert kind in (*CARRIED_KINDS, "CustomResourceDefinition")
        own = objects[kind, name]
        rest = {key: value for key, value in each.items() if key != "metadata"}
        assert {key: value for key, value in own.items() if key != "metadata"} == rest
        assert "namespace" not in own["metadata"], "OLM gives it"


def test_the_bundle_gives_the_rights_of_the_chart(
    service_version: Manifest, rendered: list[Manifest]
) -> None:
    install = service_version["spec"]["install"]["spec"]
    rules: dict[tuple[str, str], Any] = {identity(each): each.get("rules") for each in rendered}
    (cluster_wide,) = install["clusterPermissions"]
    assert cluster_wide == {
        "serviceAccountName": "fairlead-operator",
        "rules": rules["ClusterRole", "fairlead-operator"]
        + rules["ClusterRole", "fairlead-operator-nodes"],
    }
    (own,) = install["permissions"]
    assert own["rules"] == rules["Role", "fairlead-operator-lease"]


def test_brokers_find_the_pods_of_the_bundle(
    service_version: Manifest, rendered: list[Manifest]
) -> None:
    (workload,) = [each for each in rendered if each["kind"] == "StatefulSet"]
    (service,) = [each for each in rendered if each["kind"] == "Service"]
    deployments = service_version["spec"]["install"]["spec"]["deployments"]
    hosts = set()
    for deployment in deployments:
        spec = deployment["spec"]
        pod = spec["template"]["spec"]
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert service["spec"]["selector"].items() <= labels.items()
        hosts.add(f"{pod['hostname']}.{pod['subdomain']}.anywhere.svc")
        own = {key: value for key, value in pod.items() if key not in ("hostname", "subdomain")}
        assert own == workload["spec"]["template"]["spec"]
    settings = OperatorSettings(pod_name="p", namespace="anywhere", replicas=2)
    urls = settings.session_urls("logs", "events")
    assert {url.removeprefix("ws://").partition(":")[0] for url in urls} == hosts
    selectors = {json.dumps(each["spec"]["selector"]) for each in deployments}
    assert len(selectors) == 2, "neither Deployment may take the other's pod"


def test_the_bundle_owns_every_definition_and_has_an_example(service_version: Manifest) -> None:
    owned = service_version["spec"]["customresourcedefinitions"]["owned"]
    definitions = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]
    assert {each["name"] for each in owned} == {each["metadata"]["name"] for each in definitions}
    examples = json.loads(service_version["metadata"]["annotations"]["alm-examples"])
    internal = {"PartitionTable", "ClusterState"}
    assert {each["kind"] for each in examples} | internal == {each["kind"] for each in owned}
    annotations = service_version["spec"]["installModes"]
    assert [each["type"] for each in annotations if each["supported"]] == ["AllNamespaces"]


def test_the_bundle_says_the_same_to_a_registry_and_in_its_image(written: Path) -> None:
    bundle = written / "olm"
    said = yaml.safe_load((bundle / "metadata" / "annotations.yaml").read_text())["annotations"]
    labels = (bundle / "bundle.Dockerfile").read_text().splitlines()
    assert [f"LABEL {key}={value}" for key, value in said.items()] == labels[1:-2]


def test_manifests_name_the_image_that_is_asked_for() -> None:
    need("helm")
    digest = "sha256:" + "a" * 64
    for image in (f"registry.example.com:5000/logs/fairlead@{digest}", "localhost/fairlead:7"):
        (workload,) = [
            each
            for each in render_chart(OPERATOR_CHART, *image_values(image))
            if each["kind"] == "StatefulSet"
        ]
        assert workload["spec"]["template"]["spec"]["containers"][0]["image"] == image
    assert image_values("") == ()
    for wrong in ("fairlead", "registry.example.com:5000/fairlead"):
        with pytest.raises(CommandError, match="neither a tag nor a digest"):
            image_values(wrong)
