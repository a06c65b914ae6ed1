"""What the charts render, file by file. `FAIRLEAD_REWRITE=1` writes the golden files anew."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FOLDERS = {
    "operator": ROOT / "charts" / "fairlead",
    "cluster": ROOT / "charts" / "fairlead-cluster",
}
CASES = sorted((HERE / "values").glob("*.yaml"))


def objects(text: str) -> list[dict]:
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def without_definitions(text: str) -> str:
    """Rendered manifests less the definitions, which have a golden file already: crds/."""
    parts = text.split("\n---\n")
    return "\n---\n".join(part for part in parts if "kind: CustomResourceDefinition" not in part)


@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
def test_renders_what_was_reviewed(values: Path, render) -> None:
    rendered = without_definitions(render(values.stem.partition("-")[0], "-f", values))
    golden = HERE / "golden" / values.name
    if os.environ.get("FAIRLEAD_REWRITE"):
        golden.write_text(rendered)
    assert rendered == golden.read_text(), "FAIRLEAD_REWRITE=1 writes it anew; review the diff"


def test_definitions_are_rendered_whole_and_kept(render) -> None:
    rendered = {
        each["metadata"]["name"]: each
        for each in objects(render("operator"))
        if each["kind"] == "CustomResourceDefinition"
    }
    sources = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]
    assert set(rendered) == {source["metadata"]["name"] for source in sources}
    for source in sources:
        definition = rendered[source["metadata"]["name"]]
        assert definition["spec"] == source["spec"]
        assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


@pytest.mark.parametrize("chart", ["operator", "cluster"])
def test_lint_finds_nothing(chart: str, helm) -> None:
    done = helm("lint", "--strict", FOLDERS[chart])
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_object_is_labelled_and_says_its_namespace(render) -> None:
    everything = HERE / "values" / "operator-everything.yaml"
    for each in objects(render("operator", "-f", everything)):
        labels = each["metadata"]["labels"]
        assert labels["team"] == "logs", each["metadata"]["name"]
        assert labels["app.kubernetes.io/part-of"] == "fairlead"


def test_the_operator_pod_needs_no_privilege(render) -> None:
    (workload,) = [each for each in objects(render("operator")) if each["kind"] == "StatefulSet"]
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_a_namespaced_operator_asks_for_nothing_cluster_wide(render) -> None:
    values = HERE / "values" / "operator-namespaced.yaml"
    kinds = {each["kind"] for each in objects(render("operator", "-f", values))}
    assert kinds == {"Role", "RoleBinding", "Service", "StatefulSet"}


def test_large_numbers_stay_whole(render) -> None:
    text = render("cluster", "-f", HERE / "values" / "cluster-outside.yaml")
    assert '"retention.ms": 604800000\n' in text
    assert '"log.retention.bytes": 10737418240\n' in text
    assert '"cleanup.policy": null\n' in text


@pytest.mark.parametrize(
    ("chart", "setting", "complaint"),
    [
        ("operator", "replicas=two", "at '/replicas': got string, want integer"),
        ("operator", "replica=2", "additional properties 'replica' not allowed"),
        ("operator", "image.digest=sha256:xyz", "at '/image/digest'"),
        ("operator", "watchNamespace=Upper", "at '/watchNamespace'"),
        ("cluster", "topics.x.partitions=0", "at '/topics/x/partitions': minimum: got 0, want 1"),
        ("cluster", "cluster.listners=", "additional properties 'listners' not allowed"),
        ("cluster", "pools.brokers.storage.size=10 G", "at '/pools/brokers/storage/size'"),
        ("cluster", "pools.more.replicas=1", "at '/pools/more': missing property 'storage'"),
        ("cluster", "cluster.reclaimPolicy=Keep", "'Retain', 'Delete'"),
        ("cluster", "nameOverride=Upper", "at '/nameOverride'"),
    ],
)
def test_a_wrong_value_is_named(chart: str, setting: str, complaint: str, helm) -> None:
    done = helm("template", "x", FOLDERS[chart], "--set", setting)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_a_release_name_that_no_cluster_can_have_is_refused(helm) -> None:
    done = helm("template", "1st.logs", FOLDERS["cluster"], "--kube-version", "1.34.0")
    assert '"1st.logs" cannot be the name of a cluster' in done.stderr


@pytest.mark.kubernetes  # helm renders notes only with a cluster at hand
def test_notes_tell_the_next_commands(helm) -> None:
    definitions = str(HERE.parents[2] / "crds")
    apply = ("kubectl", "apply", "--server-side", "--force-conflicts", "-f", definitions)
    subprocess.run(apply, check=True, capture_output=True)
    arguments = ("install", "--dry-run=client", "events", "-n", "logs")
    outside = HERE / "values" / "cluster-outside.yaml"
    done = helm(*arguments, FOLDERS["cluster"], "-f", outside)
    assert "logs-bootstrap.logs.svc:9092" in done.stdout
    assert "any node's address, port 31090" in done.stdout
    assert "fairlead produce audit-log" in done.stdout
