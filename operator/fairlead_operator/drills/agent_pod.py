"""The pod that runs a drill's load, with the brokers' image. Pure.

It has no credentials of Kubernetes, and in a secured cluster only those of a user for drills.
"""

from collections.abc import Mapping
from typing import Any, Final

from fairlead_kube.kinds import FAILOVER_DRILL, SECRET
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.own_access import OwnAccess

AGENT_PORT: Final = 8080
AGENT_CONTAINER: Final = "drill"
CLIENT_FOLDER: Final = "/etc/fairlead-client"
CLIENT_FILE: Final = "client.librdkafka"
TOPIC_PREFIX: Final = "fairlead-drill-"
"""Topics with this prefix never become Topic resources."""
POD_NAME_MAX: Final = 253
TOKEN_VARIABLE: Final = "FAIRLEAD_DRILL_TOKEN"  # noqa: S105


def agent_pod_name(drill_name: str) -> str:
    """Return the name of a drill's pod."""
    return f"drill-{drill_name}"[:POD_NAME_MAX].rstrip("-.")


def drill_topic_name(drill: Mapping[str, Any]) -> str:
    """Return a drill's topic: the same name for every attempt, a new one each time it is due."""
    name = f"{TOPIC_PREFIX}{drill['metadata']['uid'][:13]}"
    number = (drill.get("status") or {}).get("round")
    return name if number is None else f"{name}-{number}"


def agent_token(drill: Mapping[str, Any]) -> str:
    """Return the token that the pod requires.

    Only users that may read the drill can compute it.
    """
    return str(drill["metadata"]["uid"])


def build_agent_pod(
    drill: Mapping[str, Any],
    spec: FailoverDrillSpec,
    log_cluster: Mapping[str, Any],
    *,
    default_image: str,
    access: OwnAccess,
) -> dict[str, Any]:
    """Return the manifest of a drill's pod; the pod is deleted with the drill."""
    metadata = drill["metadata"]
    cluster_spec = log_cluster.get("spec") or {}
    pod_spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "containers": [_build_container(drill, spec, cluster_spec, default_image, access)],
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # The pod deletes the topic before it ends.
        "terminationGracePeriodSeconds": 60,
    }
    if access.pair is not None:
        source = {"secretName": agent_pod_name(metadata["name"]), "defaultMode": 0o444}
        pod_spec["volumes"] = [{"name": "client", "secret": source}]
    if cluster_spec.get("imagePullSecrets"):
        pod_spec["imagePullSecrets"] = cluster_spec["imagePullSecrets"]
    # Without the cluster's own label, by which the controller recognises brokers' pods.
    labels = {
        "app.kubernetes.io/name": "fairlead",
        "app.kubernetes.io/instance": spec.cluster_name,
        "app.kubernetes.io/component": "drill",
        "app.kubernetes.io/managed-by": "fairlead-operator",
        "fairlead.io/drill": metadata["name"][:63].rstrip("-."),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": agent_pod_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [_owner(drill)],
        },
        "spec": pod_spec,
    }


def _build_container(
    drill: Mapping[str, Any],
    spec: FailoverDrillSpec,
    cluster_spec: Mapping[str, Any],
    default_image: str,
    access: OwnAccess,
) -> dict[str, Any]:
    workload = spec.workload
    options = {
        "bootstrap": access.bootstrap,
        "topic": drill_topic_name(drill),
        "partitions": workload.partitions,
        "replication-factor": workload.replication_factor,
        "rate": workload.records_per_second,
        "record-size": workload.record_size,
        "http-port": AGENT_PORT,
    }
    container: dict[str, Any] = {
        "name": AGENT_CONTAINER,
        "image": cluster_spec.get("image") or default_image,
        "command": [
            *("python", "-m", "fairlead_pod.drill_agent"),
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        "env": [{"name": TOKEN_VARIABLE, "value": agent_token(drill)}],
        "ports": [{"name": "http", "containerPort": AGENT_PORT}],
        "resources": {"requests": {"cpu": "100m", "memory": "96Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    if access.pair is not None:
        container["command"].append(f"--client-config={CLIENT_FOLDER}/{CLIENT_FILE}")
        container["volumeMounts"] = [
            {"name": "client", "mountPath": CLIENT_FOLDER, "readOnly": True}
        ]
    if cluster_spec.get("imagePullPolicy"):
        container["imagePullPolicy"] = cluster_spec["imagePullPolicy"]
    return container


def build_agent_secret(drill: Mapping[str, Any], access: OwnAccess) -> dict[str, Any] | None:
    """Return the Secret with which a drill's load logs in; None if it does not authenticate."""
    if access.pair is None:
        return None
    files = {"ca.crt": "ssl.ca", "tls.crt": "ssl.certificate", "tls.key": "ssl.key"}
    settings = {"security.protocol": "ssl"}
    settings |= {f"{name}.location": f"{CLIENT_FOLDER}/{key}" for key, name in files.items()}
    metadata = drill["metadata"]
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": {
            "name": agent_pod_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "ownerReferences": [_owner(drill)],
        },
        "type": "Opaque",
        "stringData": {
            CLIENT_FILE: "".join(f"{name}={text}\n" for name, text in settings.items()),
            "ca.crt": access.trusted.decode(),
            "tls.crt": access.pair.certificate.decode(),
            "tls.key": access.pair.key.decode(),
        },
    }


def _owner(drill: Mapping[str, Any]) -> dict[str, Any]:
    metadata = drill["metadata"]
    return {
        "apiVersion": FAILOVER_DRILL.api_version,
        "kind": FAILOVER_DRILL.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def describe_pod_problem(pod: Mapping[str, Any]) -> str:
    """Return why a pod does not run, in the words of its status; empty if it gives no reason."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        if ended:
            code = ended.get("exitCode")
            return f"exit code {code} {ended.get('message') or ended.get('reason') or ''}".strip()
        if waiting.get("reason") not in (None, "ContainerCreating"):
            return f"{waiting['reason']} {waiting.get('message') or ''}".strip()
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"not scheduled: {condition.get('message') or condition.get('reason')}"
    return str(status.get("message") or status.get("reason") or "")
