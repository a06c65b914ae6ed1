"""What the charts render, file by file. `FAIRLEAD_REWRITE=1` writes the golden files anew."""

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead_cli.kubectl.metadata import metadata

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FOLDERS = {
    "operator": ROOT / "charts" / "fairlead",
    "cluster": ROOT / "charts" / "fairlead-cluster",
}
CASES = sorted((HERE / "values").glob("*.yaml"))


def objects(text: str) -> list[dict[str, Any]]:
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def pools(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in manifests if each["kind"] == "BrokerPool"]


def without_definitions(text: str) -> str:
    """Rendered manifests less the definitions, which have a golden file already: crds/."""
    parts = text.split("\n---\n")
    return "\n---\n".join(part for part in parts if "kind: CustomResourceDefinition" not in part)


@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
def test_renders_what_was_reviewed(values: Path, render: Callable[..., str]) -> None:
    rendered = without_definitions(render(values.stem.partition("-")[0], "-f", values))
    golden = HERE / "golden" / values.name
    if os.environ.get("FAIRLEAD_REWRITE"):
        golden.write_text(rendered)
    assert rendered == golden.read_text(), "FAIRLEAD_REWRITE=1 writes it anew; review the diff"


def test_definitions_are_rendered_whole_and_kept(render: Callable[..., str]) -> None:
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
def test_lint_finds_nothing(
    chart: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = helm("lint", "--strict", FOLDERS[chart])
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_object_is_labelled_and_says_its_namespace(render: Callable[..., str]) -> None:
    everything = HERE / "values" / "operator-everything.yaml"
    for each in objects(render("operator", "-f", everything)):
        labels = each["metadata"]["labels"]
        assert labels["team"] == "logs", each["metadata"]["name"]
        assert labels["app.kubernetes.io/part-of"] == "fairlead"


def test_names_that_yaml_takes_for_something_else_stay_names(
    render: Callable[..., str], tmp_path: Path
) -> None:
    """A namespace may be called 123, and a topic `no`: no number and no boolean is a name."""
    cluster, operator = tmp_path / "cluster.yaml", tmp_path / "operator.yaml"
    pool = {"replicas": 1, "idBase": 1_000_000, "storage": {"size": "1Gi"}}
    users: dict[str, Any] = {"0x1f": {}, "off": {}}
    names = {"topics": {"no": {}, "123": {"partitions": 3}}, "pools": {"on": pool}, "users": users}
    cluster.write_text(yaml.safe_dump(names))
    watched = {"watchNamespaces": ["123", "no"], "nameOverride": "on"}
    monitored = {"podMonitor": {"enabled": True}, "priorityClass": {"create": False, "name": "off"}}
    operator.write_text(yaml.safe_dump(watched | monitored))
    rendered = objects(render("cluster", "-n", "456", "-f", cluster))
    rendered += objects(render("operator", "-n", "456", "-f", operator))
    for each in rendered:
        metadata, subjects = each["metadata"], each.get("subjects", [])
        texts = [metadata["name"], metadata.get("namespace", ""), *metadata["labels"].values()]
        texts += [text for subject in subjects for text in subject.values()]
        assert all(isinstance(text, str) for text in texts), each
    assert {"no", "123", "on", "0x1f", "off"} <= {each["metadata"]["name"] for each in rendered}
    specs: dict[tuple[str, str], Any] = {
        (each["kind"], each["metadata"]["name"]): each.get("spec") for each in rendered
    }
    peers = specs["NetworkPolicy", "on"]["ingress"][0]["from"][0]["namespaceSelector"]
    assert peers["matchExpressions"][0]["values"] == ["123", "no"]
    monitor = specs["PodMonitor", "fairlead-brokers"]
    assert monitor["namespaceSelector"]["matchNames"] == ["123", "no"]
    pod = specs["StatefulSet", "on"]["template"]["spec"]
    assert (specs["StatefulSet", "on"]["serviceName"], pod["priorityClassName"]) == ("on", "off")
    for container in pod["containers"]:
        assert all(isinstance(each.get("value", ""), str) for each in container["env"])
    rules = [rule for each in rendered for rule in each.get("rules", ())]
    named = [name for rule in rules for name in rule.get("resourceNames", ())]
    assert all(isinstance(name, str) for name in named)
    bases = {each["metadata"]["name"]: each["spec"]["idBase"] for each in pools(rendered)}
    assert repr(bases["on"]) == "1000000", "1e+06 is no integer"


def test_the_operator_pod_needs_no_privilege(render: Callable[..., str]) -> None:
    (workload,) = [each for each in objects(render("operator")) if each["kind"] == "StatefulSet"]
    pod = workload["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }


def test_memory_of_one_process_of_the_operator_is_not_the_others(
    render: Callable[..., str],
) -> None:
    (workload,) = [each for each in objects(render("operator")) if each["kind"] == "StatefulSet"]
    pod = workload["spec"]["template"]["spec"]
    controller, operator = pod["containers"]
    assert (controller["name"], operator["name"]) == ("controller", "operator")
    for container, port in ((controller, "http"), (operator, "http-operator")):
        assert container["command"][-1] == f"fairlead_pod.{container['name']}"
        assert "memory" in container["resources"]["limits"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] == port
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounts["/run/fairlead"] == "run", "the socket and the lock are shared"
    assert "shareProcessNamespace" not in pod


def test_resources_of_a_pod_with_one_container_are_refused_with_their_place(
    helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = helm("template", "x", FOLDERS["operator"], "--set", "resources.limits.memory=2Gi")
    assert done.returncode != 0
    assert "at '/resources': additional properties 'limits' not allowed" in done.stderr


def test_a_namespaced_operator_asks_for_nothing_cluster_wide(render: Callable[..., str]) -> None:
    values = HERE / "values" / "operator-namespaced.yaml"
    kinds = {each["kind"] for each in objects(render("operator", "-f", values))}
    assert kinds == {"Role", "RoleBinding", "Service", "StatefulSet"}


def test_large_numbers_stay_whole(render: Callable[..., str]) -> None:
    text = render("cluster", "-f", HERE / "values" / "cluster-outside.yaml")
    assert '"retention.ms": 604800000\n' in text
    assert '"log.retention.bytes": 10737418240\n' in text
    assert '"cleanup.policy": null\n' in text


def log_cluster(rendered: str) -> dict[str, Any]:
    (found,) = [each["spec"] for each in objects(rendered) if each["kind"] == "LogCluster"]
    return dict(found)


def test_a_new_cluster_is_in_clear_only_where_a_value_says_so(
    render: Callable[..., str], helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    secure = log_cluster(render("cluster"))
    assert [each["authentication"]["type"] for each in secure["listeners"]] == ["scram-sha-512"]
    assert all(each["tls"]["enabled"] for each in secure["listeners"])
    assert (secure["interBroker"], secure["authorization"]) == ({"tls": True}, {"type": "simple"})
    clear = log_cluster(render("cluster", "--set", "cluster.secure=false"))
    assert not clear.keys() & {"listeners", "interBroker", "authorization"}
    apart = log_cluster(render("cluster", "--set", "cluster.interBroker.tls=false"))
    assert "interBroker" not in apart and apart["listeners"] == secure["listeners"]


def test_a_listener_of_a_secure_cluster_says_whether_it_encrypts(
    helm: Callable[..., subprocess.CompletedProcess[str]], render: Callable[..., str]
) -> None:
    listener = '{"name":"outside","type":"NodePort","port":9095%s}'
    flags = ("--kube-version", "1.34.0", "--set-json")
    plain = f"cluster.listeners=[{listener % ''}]"
    done = helm("template", "x", FOLDERS["cluster"], *flags, plain)
    assert done.returncode != 0
    assert "listener outside of cluster.listeners does not say whether it encrypts" in done.stderr
    meant = "cluster.listeners=[" + listener % ',"tls":{"enabled":false}' + "]"
    assert len(log_cluster(render("cluster", *flags[2:], meant))["listeners"]) == 2
    in_clear = log_cluster(render("cluster", "--set", "cluster.secure=false", flags[2], plain))
    assert [each["name"] for each in in_clear["listeners"]] == ["outside"]


def spec_fields(plural: str) -> dict[str, Any]:
    definition = yaml.safe_load((ROOT / "crds" / f"{plural}.fairlead.io.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    return dict(schema["properties"]["spec"]["properties"])


def test_listeners_and_pools_take_every_field_that_their_resources_have() -> None:
    schema = json.loads((FOLDERS["cluster"] / "values.schema.json").read_text())["definitions"]
    listener = spec_fields("logclusters")["listeners"]["items"]["properties"]
    assert schema["listener"]["properties"].keys() == listener.keys()
    # A pool is called by its key; what somebody pauses with kubectl stays paused.
    pool = spec_fields("brokerpools")
    assert pool.keys() - schema["pool"]["properties"].keys() == {"clusterName", "paused"}
    storage = pool["storage"]["properties"]
    assert schema["pool"]["properties"]["storage"]["properties"].keys() == storage.keys()


def test_every_field_of_a_cluster_is_a_value_of_its_name() -> None:
    fields = set(spec_fields("logclusters"))
    values = yaml.safe_load((FOLDERS["cluster"] / "values.yaml").read_text())["cluster"]
    # The chart makes the account of drivers itself, and has the older name of `paused`.
    assert fields - values.keys() == {"spark", "paused"}
    assert values.keys() - fields == {"secure"}


def test_what_no_value_says_stays_as_it_was_set(render: Callable[..., str]) -> None:
    def spec(*settings: str) -> dict[str, Any]:
        each = [word for setting in settings for word in ("--set-json", setting)]
        found = [m for m in objects(render("cluster", *each)) if m["kind"] == "LogCluster"]
        return dict(found[0]["spec"])

    fields = {"hibernated", "fencedBrokers", "maintenanceWindows", "version", "rest"}
    assert not fields & spec().keys()
    window = {"days": ["Sat"], "start": "02:00", "durationMinutes": 180}
    said = spec(
        "cluster.hibernated=false",
        "cluster.fencedBrokers=[]",
        f"cluster.maintenanceWindows={json.dumps([window])}",
        'cluster.version="0.2.0"',
        'cluster.rest={"enabled": true, "tls": {"enabled": true}}',
    )
    assert said["hibernated"] is False
    assert said["fencedBrokers"] == []
    assert said["maintenanceWindows"] == [window]
    assert said["version"] == "0.2.0"
    assert said["rest"] == {"enabled": True, "tls": {"enabled": True}}


def test_a_backup_reads_the_metadata_and_may_do_nothing_else(
    render: Callable[..., str], tmp_path: Path
) -> None:
    rendered = render("cluster", "-f", HERE / "values" / "cluster-outside.yaml")
    own = {
        each["kind"]: each
        for each in objects(rendered)
        if each["metadata"]["name"] == "logs-metadata-backup"
    }
    assert own["Role"]["rules"] == [
        {
            "apiGroups": ["fairlead.io"],
            "resources": ["clusterstates", "partitiontables"],
            "verbs": ["get", "list"],
        }
    ]
    pod = own["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    program, group, verb, place = container["command"]
    assert place == container["volumeMounts"][0]["mountPath"]
    assert program in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert group == "metadata"
    given = metadata.commands[verb].make_context(verb, [str(tmp_path), *container["args"]])
    assert (given.params["cluster"], given.params["keep"]) == ("logs", 96)
    assert "fairlead.io/cluster" not in pod["metadata"]["labels"], (
        "no Service takes it for a broker"
    )
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_a_backup_needs_an_image(helm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    flags = ("--kube-version", "1.34.0", "--set", "metadataBackup.enabled=true")
    done = helm("template", "x", FOLDERS["cluster"], *flags)
    assert done.returncode != 0
    assert "metadataBackup.image: name the image of Fairlead" in done.stderr


def test_a_backup_goes_to_the_volume_that_is_named(render: Callable[..., str]) -> None:
    settings = (
        "metadataBackup.enabled=true",
        "metadataBackup.image=fairlead:1",
        "metadataBackup.volume.nfs.server=nas",
        "metadataBackup.volume.nfs.path=/logs",
    )
    flags = [part for setting in settings for part in ("--set", setting)]
    rendered = {each["kind"]: each for each in objects(render("cluster", *flags))}
    assert "PersistentVolumeClaim" not in rendered
    pod = rendered["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    volume = {"name": "backup", "nfs": {"server": "nas", "path": "/logs"}}
    assert pod["volumes"] == [volume]


BACKUP = ("metadataBackup.enabled=true", "metadataBackup.image=fairlead:1")
TO_BUCKET = (*BACKUP, "metadataBackup.uri=s3://backups/events")


def given(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def test_a_backup_goes_to_an_object_store_as_the_command_reads_it(
    render: Callable[..., str],
) -> None:
    rendered = {each["kind"]: each for each in objects(render("cluster", *given(*TO_BUCKET)))}
    assert "PersistentVolumeClaim" not in rendered
    pod = rendered["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "volumes" not in pod
    assert "volumeMounts" not in container
    assert "env" not in container, "whoever the pod is to the store"
    words: list[str] = [*container["command"], *container["args"]]
    verb, arguments = words[2], words[3:]
    context = metadata.commands[verb].make_context(verb, arguments)
    assert context.params["directory"] == "s3://backups/events"


def test_a_backup_is_told_where_the_store_is_and_who_asks(render: Callable[..., str]) -> None:
    store = ("endpoint=http://minio:9000", "region=here", "credentialsSecret=keys")
    settings = [f"metadataBackup.{setting}" for setting in store]
    rendered = objects(render("cluster", *given(*TO_BUCKET, *settings)))
    (job,) = [each for each in rendered if each["kind"] == "CronJob"]
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    assert container["env"] == [
        {"name": "AWS_ENDPOINT_URL_S3", "value": "http://minio:9000"},
        {"name": "AWS_REGION", "value": "here"},
        *(
            {"name": key, "valueFrom": {"secretKeyRef": {"name": "keys", "key": key}}}
            for key in keys
        ),
    ]


def test_a_backup_goes_on_with_the_values_of_an_earlier_chart(render: Callable[..., str]) -> None:
    new = ("uri", "credentialsSecret", "endpoint", "region", "serviceAccount")
    without = [f"metadataBackup.{name}=null" for name in new]
    assert render("cluster", *given(*BACKUP, *without)) == render("cluster", *given(*BACKUP))


@pytest.mark.parametrize("keep", [True, False])
def test_the_account_of_a_backup_may_have_a_role(keep: bool, render: Callable[..., str]) -> None:
    role = (
        r"metadataBackup.serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::1:x"
    )
    text = render("cluster", *given(*TO_BUCKET, role, f"keep={str(keep).lower()}"))
    assert text.count("arn:aws:iam::1:x") == 1
    (account,) = [
        each
        for each in objects(text)
        if each["kind"] == "ServiceAccount" and each["metadata"]["name"].endswith("backup")
    ]
    # Whatever is kept, it ends with the backups.
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:x"}
    part = text[text.index("kind: ServiceAccount") :].partition("---")[0]
    assert part.count("annotations:") == 1, "YAML readers take the last of two, helm refuses them"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            (*TO_BUCKET, "metadataBackup.volume.emptyDir.medium=Memory"),
            "metadataBackup.uri and metadataBackup.volume: set one of them",
        ),
        ((*BACKUP, "metadataBackup.endpoint=http://minio"), "name it by metadataBackup.uri"),
        ((*BACKUP, "metadataBackup.credentialsSecret=keys"), "name it by metadataBackup.uri"),
        ((*BACKUP, "metadataBackup.region=here"), "name it by metadataBackup.uri"),
    ],
)
def test_a_backup_has_one_place(
    settings: tuple[str, ...], complaint: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    flags = ("--kube-version", "1.34.0", *given(*settings))
    done = helm("template", "x", FOLDERS["cluster"], *flags)
    assert done.returncode != 0
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("chart", "setting", "complaint"),
    [
        ("cluster", "metadataBackup.keep=0", "at '/metadataBackup/keep'"),
        ("cluster", "metadataBackup.uri=gs://backups", "at '/metadataBackup/uri'"),
        ("cluster", "metadataBackup.endpoint=minio:9000", "at '/metadataBackup/endpoint'"),
        ("operator", "replicas=two", "at '/replicas': got string, want integer"),
        ("operator", "replica=2", "additional properties 'replica' not allowed"),
        ("operator", "image.digest=sha256:xyz", "at '/image/digest'"),
        ("operator", "watchNamespace=Upper", "at '/watchNamespace'"),
        ("operator", "watchNamespaces={a,Upper}", "at '/watchNamespaces/1'"),
        ("operator", "watchNamespaces={a,a}", "at '/watchNamespaces'"),
        ("cluster", "topics.x.partitions=0", "at '/topics/x/partitions': minimum: got 0, want 1"),
        ("cluster", "cluster.listners=", "additional properties 'listners' not allowed"),
        ("cluster", "pools.brokers.storage.size=10 G", "at '/pools/brokers/storage/size'"),
        ("cluster", "pools.brokers.storage.volumes[0].size=1Gi", "missing property 'id'"),
        (
            "cluster",
            "pools.brokers.storage.volumes[0].id=zero",
            "at '/pools/brokers/storage/volumes/0/id'",
        ),
        ("cluster", "pools.more.replicas=1", "at '/pools/more': missing property 'storage'"),
        ("cluster", "cluster.reclaimPolicy=Keep", "'Retain', 'Delete'"),
        ("cluster", "nameOverride=Upper", "at '/nameOverride'"),
    ],
)
def test_a_wrong_value_is_named(
    chart: str, setting: str, complaint: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = helm("template", "x", FOLDERS[chart], "--set", setting)
    assert done.returncode != 0
    assert complaint in done.stderr


@pytest.mark.parametrize("chart", ["operator", "cluster"])
def test_a_common_label_goes_before_the_one_of_that_name(
    chart: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    label = r"commonLabels.app\.kubernetes\.io/part-of=platform"
    done = helm("template", "x", FOLDERS[chart], "--kube-version", "1.34.0", "--set", label)
    assert done.returncode == 0, done.stderr
    assert "part-of: platform" in done.stdout
    assert "part-of: fairlead" not in done.stdout, "kustomize takes no key that is there twice"


@pytest.mark.parametrize(
    ("chart", "label", "complaint"),
    [
        (
            "operator",
            "commonLabels.app\\.kubernetes\\.io/name",
            "commonLabels: the operator's pods",
        ),
        ("operator", "podLabels.app\\.kubernetes\\.io/instance", "podLabels: the operator's pods"),
        ("cluster", "commonLabels.fairlead\\.io/cluster", "commonLabels: fairlead.io/cluster says"),
    ],
)
def test_a_label_by_which_objects_are_found_is_refused(
    chart: str, label: str, complaint: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = helm("template", "x", FOLDERS[chart], "--kube-version", "1.34.0", "--set", f"{label}=a")
    assert done.returncode != 0
    assert complaint in done.stderr


def test_drills_of_the_controller_need_an_operator_that_sees_them(
    helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    values = ("--set", "drills.controller=true", "--set", "watchNamespace=events")
    render = ("template", "x", FOLDERS["operator"], "--kube-version", "1.34.0", *values)
    done = helm(*render, "-n", "logs")
    assert done.returncode != 0
    assert "watchNamespaces serves only events" in done.stderr
    done = helm(*render, "-n", "events")
    assert done.returncode == 0, done.stderr
    several = ("--set", "drills.controller=true", "--set", "watchNamespaces={events,logs}")
    done = helm(*render[:-4], *several, "-n", "logs")
    assert done.returncode == 0, done.stderr


def test_an_account_that_is_not_made_is_named(
    helm: Callable[..., subprocess.CompletedProcess[str]], render: Callable[..., str]
) -> None:
    """The pods of the operator would wait for ever for one that nobody makes."""
    values = ("--set", "serviceAccount.create=false")
    done = helm("template", "x", FOLDERS["operator"], "--kube-version", "1.34.0", *values)
    assert done.returncode != 0
    assert "say in serviceAccount.name which account" in done.stderr
    rendered = objects(render("operator", *values, "--set", "serviceAccount.name=mine"))
    assert "ServiceAccount" not in {each["kind"] for each in rendered}
    (workload,) = [each for each in rendered if each["kind"] == "StatefulSet"]
    assert workload["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_one_namespace_is_a_list_of_one(render: Callable[..., str]) -> None:
    old = render("operator", "--set", "watchNamespace=events")
    assert old == render("operator", "--set", "watchNamespaces={events}")


def test_a_list_and_one_more_namespace_are_refused(
    helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    values = ("--set", "watchNamespaces={a,b}", "--set", "watchNamespace=c")
    done = helm("template", "x", FOLDERS["operator"], "--kube-version", "1.34.0", *values)
    assert done.returncode != 0
    assert "watchNamespace and watchNamespaces: set one of them" in done.stderr


def test_a_release_name_that_no_cluster_can_have_is_refused(
    helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = helm("template", "1st.logs", FOLDERS["cluster"], "--kube-version", "1.34.0")
    assert '"1st.logs" cannot be the name of a cluster' in done.stderr


def empty_values(values: dict[str, Any], above: str = "") -> list[str]:
    """Return the paths of values whose default is nothing."""
    paths: list[str] = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            paths += empty_values(value, f"{above}{name}.")
        elif not value and value is not False and value != 0:
            paths.append(f"{above}{name}")
    return paths


@pytest.mark.parametrize("chart", FOLDERS)
def test_values_that_are_named_and_left_empty_are_their_defaults(
    chart: str, render: Callable[..., str]
) -> None:
    """As `topics:` in a file of values, all of whose lines below it are comments."""
    defaults = yaml.safe_load((FOLDERS[chart] / "values.yaml").read_text())
    paths = empty_values(defaults)
    assert len(paths) > 8
    # What only those templates read that are off has to be read, too.
    on = ("--set", "metadataBackup.enabled=true,metadataBackup.image=i") * (chart == "cluster")
    rendered = render(chart, *on)
    wrong = []
    for path in paths:
        if rendered_or_error(render, chart, *on, "--set-json", f"{path}=null") != rendered:
            wrong.append(path)
    assert wrong == []


@pytest.mark.parametrize("chart", FOLDERS)
def test_a_group_of_values_that_is_named_and_left_empty_is_named_where_it_is_needed(
    chart: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """As `podMonitor:` with comments alone below it: Helm takes it for a removal."""
    defaults = yaml.safe_load((FOLDERS[chart] / "values.yaml").read_text())
    wrong = {}
    for name in defaults:
        done = helm(
            *("template", "x", FOLDERS[chart], "--kube-version", "1.34.0"),
            *("--set-json", f"{name}=null"),
        )
        if done.returncode and f"missing property '{name}'" not in done.stderr:
            wrong[name] = done.stderr
    assert wrong == {}


def rendered_or_error(render: Callable[..., Any], *arguments: str) -> str:
    """What is rendered, or why nothing is."""
    try:
        return str(render(*arguments))
    except AssertionError as error:
        return str(error)


def notes(helm: Callable[..., Any], tmp_path: Path, *arguments: str) -> str:
    """What a release of the cluster's chart tells, without a Kubernetes cluster."""
    chart = tmp_path / "chart"
    shutil.copytree(FOLDERS["cluster"], chart, dirs_exist_ok=True)
    (chart / "notes.txt").write_text((chart / "templates" / "NOTES.txt").read_text())
    shown = '{{ dict "notes" (tpl (.Files.Get "notes.txt") .) | toJson }}'
    (chart / "templates" / "shown.yaml").write_text(shown)
    done = helm(
        *("template", "events", chart, "--kube-version", "1.34.0"),
        *("--show-only", "templates/shown.yaml", *arguments),
    )
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["notes"])


def test_notes_call_a_topic_by_its_name_in_kafka(
    helm: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    named = ("--set-json", 'topics={"orders-v1":{"topicName":"Orders.V1"}}')
    told = notes(helm, tmp_path, *named)
    assert "fairlead produce Orders.V1\n" in told
    assert "fairlead consume Orders.V1 --count 1" in told
    user, _ = objects(told.partition("apply -f - <<END\n")[2].partition("\nEND\n")[0])
    assert user["spec"]["acls"][0]["resource"]["name"] == "Orders.V1"
    in_clear = notes(helm, tmp_path, *named, "--set", "cluster.secure=false")
    assert "fairlead produce Orders.V1 --bootstrap" in in_clear


def test_notes_go_by_a_user_who_may_do_what_they_show(
    helm: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Those of the values may log in by certificates alone, or have no right to that topic."""
    users = {"admin": {"authentication": {"type": "tls"}}, "audit": {"acls": []}, "hello": {}}
    given = json.dumps(users)
    told = notes(helm, tmp_path, "--set-json", f"users={given}", "--set-json", 'topics={"a":{}}')
    user, pod = objects(told.partition("apply -f - <<END\n")[2].partition("\nEND\n")[0])
    name = user["metadata"]["name"]
    assert name not in users
    assert user["spec"] == {
        "clusterName": "events",
        "authentication": {"type": "scram-sha-512"},
        "acls": [{"resource": {"type": "topic", "name": "a"}, "operations": ["Read", "Write"]}],
    }
    assert pod["spec"]["volumes"][0]["secret"]["secretName"] == name
    assert f"delete pod/{name} users.fairlead.io/{name}" in told


@pytest.mark.kubernetes  # helm renders notes only with a cluster at hand
def test_notes_tell_the_next_commands(
    helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    definitions = str(HERE.parents[2] / "crds")
    apply = ("kubectl", "apply", "--server-side", "--force-conflicts", "-f", definitions)
    subprocess.run(apply, check=True, capture_output=True)
    arguments = ("install", "--dry-run=client", "events", "-n", "logs")
    outside = HERE / "values" / "cluster-outside.yaml"
    done = helm(*arguments, FOLDERS["cluster"], "-f", outside)
    assert "logs-bootstrap.logs.svc:9092" in done.stdout
    assert "any node's address, port 31090" in done.stdout
    assert "fairlead produce Audit_Log" in done.stdout
    assert "THIS CLUSTER IS IN CLEAR" in done.stdout
    done = helm(*arguments, FOLDERS["cluster"], "--set", "topics.orders.partitions=1")
    assert "events-bootstrap.logs.svc:9093" in done.stdout
    told = done.stdout.partition("apply -f - <<END\n")[2].partition("\nEND\n")[0]
    user, pod = objects(told)
    assert user["spec"]["acls"][0]["resource"] == {"type": "topic", "name": "orders"}
    assert pod["spec"]["volumes"][0]["secret"]["secretName"] == user["metadata"]["name"]


def test_what_is_cluster_wide_has_another_name_in_each_namespace(
    render: Callable[..., str],
) -> None:
    def cluster_wide(namespace: str) -> set[tuple[str, str]]:
        values: tuple[str, ...] = (
            "-n",
            namespace,
            "--set",
            "nameOverride=an-operator-with-a-long-name-of-its-own",
        )
        values += ("--set", "crds.install=false", "--set", "rbac.aggregatedRoles=false")
        return {
            (each["kind"], each["metadata"]["name"])
            for each in objects(render("operator", *values))
            if "namespace" not in each["metadata"]
        }

    one = cluster_wide(f"{'n' * 62}-1"[-63:])
    assert {kind for kind, _ in one} >= {"ClusterRole", "PriorityClass", "FlowSchema"}
    assert one.isdisjoint(cluster_wide(f"{'n' * 62}-2"[-63:]))
