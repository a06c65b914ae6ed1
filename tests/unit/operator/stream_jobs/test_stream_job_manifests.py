import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from fairlead_model.resources.stream_job import StreamJobSpec
from fairlead_model.resources.topic_manifest import ManifestError
from fairlead_operator.stream_jobs.manifests import (
    JobView,
    build_claim,
    build_config_map,
    build_driver_pod,
    build_service,
    job_hash,
)
from fairlead_operator.stream_jobs.network_policy import build_network_policy
from fairlead_operator.stream_jobs.spark_conf import own_setting_problems

SQL = {
    "application": {"sql": "SELECT * FROM flights"},
    "sources": [{"topics": ["flights"], "schema": "carrier STRING"}],
    "sink": {"topic": "late"},
    "checkpoint": {"claim": {"size": "1Gi"}},
}
PROGRAM = {"application": {"file": "/job.py"}, "checkpoint": {"uri": "s3a://bucket/job"}}


def read(spec: dict[str, Any]) -> StreamJobSpec:
    return StreamJobSpec.from_manifest(
        {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "StreamJob",
            "metadata": {"name": "job"},
            "spec": spec,
        }
    )


def view(spec: dict[str, Any], image: str = "spark:1") -> JobView:
    bootstrap = "demo-bootstrap.flights.svc:9092"
    return JobView("job", "flights", "uid-1", read(spec), "flights", "demo", image, bootstrap)


def document(job: JobView) -> dict[str, Any]:
    return dict(json.loads(build_config_map(job, run=4)["data"]["job.json"]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sink": None}, "sql needs a sink"),
        ({"sources": []}, "sql needs sources"),
        ({"sources": [{"topics": []}]}, "name at least one topic"),
        ({"application": {"sql": "SELECT 1", "file": "/x.py"}}, "one of file, configMap and sql"),
        ({"checkpoint": {}}, "one of claim, uri and ephemeral"),
        ({"checkpoint": {"claim": {"name": "a", "size": "1Gi"}}}, "set name for an existing claim"),
        ({"trigger": {"processingTime": "often"}}, "write a time"),
        (
            {"trigger": {"processingTime": "5 seconds", "availableNow": True}},
            "set processingTime or availableNow",
        ),
        ({"driver": {"memory": "1Gi"}}, "Spark's memory sizes"),
        ({"schedule": "0 3 * * *", "restartPolicy": {"type": "Always"}}, "ends between its runs"),
        ({"executors": {"dynamicAllocation": {"minimum": 3, "maximum": 2}}}, "minimum must not"),
        ({"executor": {}}, "unknown field"),
        (
            {"user": "app", "authentication": {"type": "tls", "secretName": "app"}},
            "set user or authentication",
        ),
        ({"authentication": {"type": "oauth", "secretName": "app"}}, "authentication.type"),
        ({"authentication": {"type": "tls"}}, "authentication.secretName"),
    ],
)
def test_impossible_jobs_are_refused_in_words(change: dict[str, Any], problem: str) -> None:
    spec = {name: value for name, value in {**SQL, **change}.items() if value is not None}
    with pytest.raises(ManifestError, match=problem):
        read(spec)


def test_settings_of_the_operator_are_refused_by_name() -> None:
    spec = read({**PROGRAM, "sparkConf": {"spark.executor.instances": "9", "spark.sql.x": "1"}})
    assert len(own_setting_problems(spec)) == 1
    assert "spark.executor.instances" in own_setting_problems(spec)[0]


@pytest.mark.parametrize(
    "name",
    [
        "spark.kubernetes.executor.volumes.hostPath.host.mount.path",
        "spark.kubernetes.driver.volumes.hostPath.host.mount.path",
        "spark.kubernetes.executor.secrets.demo-session",
        "spark.kubernetes.executor.secretKeyRef.KEY",
        "spark.kubernetes.authenticate.executor.serviceAccountName",
        "spark.kubernetes.executor.label.fairlead.io/stream-job",
        "spark.kubernetes.executor.podNamePrefix",
    ],
)
def test_a_job_gives_its_pods_no_volumes_secrets_or_accounts(name: str) -> None:
    (problem,) = own_setting_problems(read({**PROGRAM, "sparkConf": {name: "x"}}))
    assert problem.startswith(f"spec.sparkConf[{name}]: ")


def test_a_job_may_say_how_executors_are_allocated() -> None:
    conf = {"spark.kubernetes.allocation.batch.size": "9", "spark.kubernetes.local.dirs.tmpfs": "t"}
    assert own_setting_problems(read({**PROGRAM, "sparkConf": conf})) == []


def test_drivers_and_executors_encrypt_what_they_say_where_a_job_asks_for_it() -> None:
    conf = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    assert own_setting_problems(read({**PROGRAM, "sparkConf": conf})) == []
    assert document(view({**SQL, "sparkConf": conf}))["conf"].items() >= conf.items()


def test_only_the_jobs_own_pods_and_the_operator_reach_it() -> None:
    policy = build_network_policy(view(SQL), "platform")
    spec = policy["spec"]
    own = {"podSelector": {"matchLabels": {"fairlead.io/stream-job": "job"}}}
    assert spec["podSelector"] == own["podSelector"]
    assert spec["policyTypes"] == ["Ingress"]
    inside, asking = spec["ingress"]
    assert inside == {"from": [own]}
    assert [port["port"] for port in asking["ports"]] == [8090]
    (operator,) = asking["from"]
    assert operator["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "platform"
    }
    assert policy["metadata"]["ownerReferences"][0]["uid"] == "uid-1"


def test_the_document_says_all_a_driver_needs() -> None:
    told = document(view(SQL))
    assert told["run"] == 4
    assert told["bootstrap"] == "demo-bootstrap.flights.svc:9092"
    assert told["application"] == {"sql": "SELECT * FROM flights", "arguments": []}
    assert told["sources"][0] == {
        "topics": ["flights"],
        "view": "flights",
        "schema": "carrier STRING",
        "options": {},
    }
    assert told["checkpoint"] == "/var/lib/fairlead/checkpoint"
    assert told["isCheckpointShared"] is False
    assert told["groupId"] == "job"
    conf = told["conf"]
    assert conf["spark.driver.host"] == "job-driver.flights.svc"
    assert conf["spark.kubernetes.driver.pod.name"] == "job-driver"
    assert conf["spark.executor.instances"] == "2"
    assert "spark.kubernetes.executor.podNamePrefix" not in conf


def test_a_shared_volume_is_mounted_by_executors_and_another_is_not() -> None:
    def executor_volumes(shared: bool) -> list[str]:
        job = view({**SQL, "checkpoint": {"claim": {"size": "1Gi", "shared": shared}}})
        template = yaml.safe_load(build_config_map(job, run=1)["data"]["executor.yaml"])
        assert len(template["spec"]["containers"][0]["volumeMounts"]) == 1 + shared
        return [volume["name"] for volume in template["spec"]["volumes"]]

    assert executor_volumes(False) == ["scratch"]
    assert executor_volumes(True) == ["scratch", "checkpoint"]


def test_all_objects_belong_to_the_job_except_a_retained_claim() -> None:
    job = view(SQL)
    claim = build_claim(job)
    assert claim is not None
    for manifest in (
        build_service(job),
        build_config_map(job, run=1),
        build_driver_pod(job, run=1, fingerprint="x"),
        claim,
    ):
        assert manifest["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    retained = build_claim(view({**SQL, "checkpoint": {"claim": {"size": "1Gi", "retain": True}}}))
    assert retained is not None and "ownerReferences" not in retained["metadata"]
    assert build_claim(view(PROGRAM)) is None


def test_the_driver_asks_for_heap_and_overhead_and_may_do_little() -> None:
    spec = build_driver_pod(view(SQL), run=1, fingerprint="x")["spec"]
    container = spec["containers"][0]
    assert container["resources"]["limits"] == {"memory": "1536Mi"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["restartPolicy"] == "Never"
    assert spec["serviceAccountName"] == "demo-spark"


def test_the_fingerprint_changes_with_the_job_and_not_with_the_run_or_the_default_image() -> None:
    job = view(PROGRAM)
    assert job_hash(job) == job_hash(replace(job, image="spark:2"))
    assert job_hash(job) != job_hash(view({**PROGRAM, "image": "own:1"}, image="own:1"))
    assert job_hash(job) != job_hash(view({**PROGRAM, "sparkConf": {"spark.sql.x": "1"}}))
    assert job_hash(job) == job_hash(view({**PROGRAM, "suspend": True}))
    assert job_hash(job) == job_hash(view({**PROGRAM, "restartPolicy": {"type": "Never"}}))


def test_programs_of_config_maps_are_mounted() -> None:
    spec = {**PROGRAM, "application": {"configMap": {"name": "code"}, "arguments": ["--fast"]}}
    told = document(view(spec))
    assert told["application"] == {
        "file": "/etc/fairlead/program/job.py",
        "arguments": ["--fast"],
    }
    pod = build_driver_pod(view(spec), run=1, fingerprint="x")
    assert {"name": "program", "configMap": {"name": "code"}} in pod["spec"]["volumes"]


def test_executors_that_come_and_go() -> None:
    dynamic = {"executors": {"instances": 9, "dynamicAllocation": {"minimum": 1, "maximum": 4}}}
    conf = document(view({**PROGRAM, **dynamic}))["conf"]
    assert conf["spark.dynamicAllocation.initialExecutors"] == "4"
    assert conf["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"
    assert "spark.executor.instances" not in conf


@pytest.mark.parametrize(
    "login", [{"user": "app"}, {"authentication": {"type": "tls", "secretName": "app"}}]
)
def test_the_secret_of_the_login_is_mounted_where_driver_and_executors_look_for_it(
    login: dict[str, Any],
) -> None:
    job = view({**SQL, **login})
    told = document(job)
    assert told["clientConfig"] == "/etc/fairlead/user/librdkafka.config"
    executor = yaml.safe_load(build_config_map(job, run=1)["data"]["executor.yaml"])["spec"]
    for pod in (build_driver_pod(job, run=1, fingerprint="")["spec"], executor):
        (volume,) = (each for each in pod["volumes"] if "secret" in each)
        assert volume["secret"] == {"secretName": "app"}
        mounts = pod["containers"][0]["volumeMounts"]
        (mount,) = (each for each in mounts if each["name"] == volume["name"])
        assert (mount["mountPath"], mount["readOnly"]) == ("/etc/fairlead/user", True)
    assert job_hash(job) != job_hash(view(SQL))


def test_a_job_without_a_user_mounts_no_secret() -> None:
    job = view(SQL)
    # Nor does the document say anything of it: an upgraded operator would restart all drivers.
    assert "clientConfig" not in document(job)
    made = json.dumps([build_driver_pod(job, run=1, fingerprint=""), build_config_map(job, run=1)])
    assert "secretName" not in made
