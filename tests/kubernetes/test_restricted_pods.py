"""Every object that the operator makes is one that the API server takes, in a restricted namespace.

All are dry runs with strict validation: an unknown field, or a pod against the restricted Pod
Security Standard, is an error. The charts' objects are in test_charts.py.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from operator_views import SETTINGS, cluster_view, pool_view
from waiting import wait_until

from fairlead_kube.client import KubeClient
from fairlead_kube.kinds import NAMESPACE
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_model.resources.stream_job import StreamJobSpec
from fairlead_operator.clusters.plan import ClusterObserved, plan_cluster
from fairlead_operator.drills.agent_pod import build_agent_pod
from fairlead_operator.own_access import OwnAccess
from fairlead_operator.resources.failover_drill import FAILOVER_DRILL
from fairlead_operator.resources.stream_job import STREAM_JOB
from fairlead_operator.specs.session_secret import SECRET_BYTES, build_session_secret
from fairlead_operator.stream_jobs.manifests import (
    JobView,
    build_claim,
    build_config_map,
    build_driver_pod,
    build_service,
)

pytestmark = pytest.mark.kubernetes

Manifest = dict[str, Any]
LISTENERS = [
    {"name": "fixed", "type": "NodePort", "port": 9095, "nodePortBase": 31790},
    {
        "name": "public",
        "type": "LoadBalancer",
        "port": 9096,
        "loadBalancerClass": "example.com/internal",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "externalTrafficPolicy": "Local",
    },
]
POD_SPEC = {
    "serviceAccountName": "default",
    "securityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
    "volumes": [{"name": "extra", "emptyDir": {}}],
    "containers": [
        {"name": "broker", "volumeMounts": [{"name": "extra", "mountPath": "/extra"}]},
        {
            "name": "shipper",
            "image": "shipper:1",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        },
    ],
}


@pytest.fixture
def restricted(kube: KubeClient, run: Any, namespace: str) -> str:
    """A namespace that lets in no pod against the restricted standard."""
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    run(kube.patch(NAMESPACE, None, namespace, {"metadata": {"labels": label}}))
    # The server goes by labels that it has heard of, soon after they were written.
    containers = [{"name": "free", "image": "free:1"}]
    metadata = {"name": "free", "namespace": namespace}
    free: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    free["spec"] = {"containers": containers}
    wait_until(lambda: "violates PodSecurity" in dry_run(free).stderr)
    return namespace


def objects_of_a_cluster(namespace: str) -> Iterator[Manifest]:
    cluster = replace(
        cluster_view(listeners=LISTENERS, rest={"enabled": True}), namespace=namespace
    )
    storage = {"size": "1Gi", "annotations": {"example.com/key": "vault"}}
    pools = [
        replace(pool_view(), namespace=namespace),
        replace(
            pool_view("more", idBase=10, storage=storage, template={"podSpec": POD_SPEC}),
            namespace=namespace,
        ),
    ]
    observed = ClusterObserved(cluster=cluster, pools=pools, live={}, claim_sizes={}, brokers={})
    yield build_session_secret(cluster, bytes(SECRET_BYTES))
    yield from (child.manifest for child in plan_cluster(observed, SETTINGS).applies)


def objects_of_a_job(namespace: str) -> Iterator[Manifest]:
    (example,) = yaml.safe_load_all(STREAM_JOB.example)
    spec = replace(StreamJobSpec.from_manifest(example), user="app")
    job = JobView("job", namespace, "uid-1", spec, namespace, "demo", "spark:1", "demo:9092")
    config = build_config_map(job, run=1)
    yield from (build_service(job), config, build_driver_pod(job, run=1, fingerprint="f"))
    yield from (each for each in [build_claim(job)] if each)
    executor = next(yaml.safe_load(text) for text in config["data"].values() if "kind: Pod" in text)
    # Spark names its executors and gives them an image itself.
    executor["metadata"] = {"name": "job-exec-1", "namespace": namespace}
    for container in executor["spec"]["containers"]:
        container.setdefault("image", "spark:1")
    yield executor


def objects_of_a_drill(namespace: str) -> Iterator[Manifest]:
    (example,) = yaml.safe_load_all(FAILOVER_DRILL.example)
    example["metadata"] |= {"namespace": namespace, "uid": "uid-1"}
    spec = FailoverDrillSpec.from_manifest(example)
    access = OwnAccess("demo:9092")
    yield build_agent_pod(example, spec, {"spec": {}}, default_image="fairlead:1", access=access)


def pods_of(manifest: Manifest) -> Iterator[Manifest]:
    """A StatefulSet is taken whatever its pods are; the pods themselves are not."""
    yield manifest
    if manifest["kind"] != "StatefulSet":
        return
    template = manifest["spec"]["template"]
    claims = manifest["spec"]["volumeClaimTemplates"]
    volumes = [{"name": each["metadata"]["name"], "emptyDir": {}} for each in claims]
    spec = {**template["spec"], "volumes": [*template["spec"]["volumes"], *volumes]}
    metadata = {
        **template["metadata"],
        "name": f"{manifest['metadata']['name']}-0",
        "namespace": manifest["metadata"]["namespace"],
    }
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    "build",
    [objects_of_a_cluster, objects_of_a_job, objects_of_a_drill],
    ids=lambda each: each.__name__,
)
def test_every_object_is_taken_where_pods_are_restricted(build: Any, restricted: str) -> None:
    objects = [each for manifest in build(restricted) for each in pods_of(manifest)]
    for each in objects:
        # Owners are not there, and an owner that blocks its deletion needs rights of its own.
        each["metadata"].pop("ownerReferences", None)
        if each["kind"] == "Pod":
            each["spec"]["serviceAccountName"] = "default"  # its own is not there
    assert any(each["kind"] == "Pod" for each in objects)
    done = dry_run({"apiVersion": "v1", "kind": "List", "items": objects})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "would violate PodSecurity" not in done.stderr
    assert done.stdout.count("created (server dry run)") == len(objects)


def test_a_pod_that_is_not_restricted_would_be_seen(restricted: str) -> None:
    (pod,) = objects_of_a_drill(restricted)
    pod["metadata"].pop("ownerReferences")
    pod["spec"]["securityContext"].pop("seccompProfile")
    assert "violates PodSecurity" in dry_run(pod).stderr
    pod["spec"]["securityContex"] = {}
    assert 'unknown field "spec.securityContex"' in dry_run(pod).stderr


def dry_run(manifest: Manifest) -> subprocess.CompletedProcess[str]:
    command = ("kubectl", "create", "--dry-run=server", "--validate=strict", "-f", "-")
    text = json.dumps(manifest)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)
