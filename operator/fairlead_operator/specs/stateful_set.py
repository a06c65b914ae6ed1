"""The StatefulSet of a pool. Pure.

Pods return without the operator's help (Parallel), and change only when the operator deletes them
one by one (OnDelete). The StatefulSet never deletes volumes. If there are several, a variable of
the pod names all log directories: mounts and list are in the same template.

The StatefulSet of a hibernating cluster runs no pods; an annotation holds its number of brokers.
These keep their ids, Services and volumes, so `count_replicas` counts them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fairlead_kube.kinds import STATEFUL_SET
from fairlead_operator.resources.storage import LOG_DIRECTORIES_VARIABLE
from fairlead_operator.specs.claim_template import ClaimTemplate, build_claim_template
from fairlead_operator.specs.names import (
    AWAKE_REPLICAS_ANNOTATION,
    CONFIG_FOLDER,
    CONFIG_HASH_ANNOTATION,
    HTTP_PORT,
    INTERNAL_PORT,
    OPERATOR_PORT,
    PROPERTIES_KEY,
    REST_PORT,
    RESTART_ANNOTATION,
    SECRET_FOLDER,
    TLS_FOLDER,
    broker_selector,
    config_map_name,
    data_folder,
    data_volume,
    headless_service_name,
    log_directory,
    pool_labels,
    pool_selector,
    secret_name,
    tls_secret_name,
)
from fairlead_operator.specs.pod_patch import (
    BROKER_CONTAINER,
    CONFIG_VOLUME,
    SESSION_VOLUME,
    merge_pod_spec,
)
from fairlead_operator.specs.views import ClusterView, Manifest, PoolView, build_child

USER_ID: Final = 10001
TERMINATION_GRACE_S: Final = 90
ENDPOINTS_MOVE_S: Final = 2
"""How long a pod that is being deleted still serves before it is told to stop. Meanwhile its
leaders move, and nodes remove it from the Services; kube-proxy updates about once a second."""
STARTUP_S_MAX: Final = 6 * 3600
"""Recovery after a crash may have to read terabytes."""
DEFAULT_RESOURCES: Final[dict[str, Any]] = {
    "requests": {"cpu": "250m", "memory": "512Mi"},
    "limits": {"memory": "2Gi"},
}
CONTAINER: Final = BROKER_CONTAINER
ID_BASE_VARIABLE: Final = "FAIRLEAD_ID_BASE"


def build_stateful_set(
    cluster: ClusterView,
    pool: PoolView,
    *,
    image: str,
    replicas: int,
    config_hash: str,
    claims: Sequence[ClaimTemplate],
    is_asleep: bool = False,
) -> Manifest:
    """Return the StatefulSet of `replicas` brokers, none of which runs if it `is_asleep`.

    `claims` are templates of its claims, which cannot change later.
    """
    labels = pool_labels(cluster.name, pool.name)
    asleep = {AWAKE_REPLICAS_ANNOTATION: str(replicas)} if is_asleep else {}
    manifest = build_child(STATEFUL_SET, pool, pool.stateful_set, labels, annotations=asleep)
    manifest["spec"] = {
        "replicas": 0 if is_asleep else replicas,
        "serviceName": headless_service_name(cluster.name),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": pool_selector(cluster.name, pool.name)},
        "template": {
            "metadata": {
                "labels": {**pool.spec.template.labels, **labels},
                "annotations": _annotations(cluster, pool, config_hash),
            },
            "spec": _pod_spec(cluster, pool, image, [claim.volume for claim in claims]),
        },
        "volumeClaimTemplates": [
            build_claim_template(claim, pool_selector(cluster.name, pool.name)) for claim in claims
        ],
    }
    return manifest


def sleeps(manifest: Mapping[str, Any]) -> bool:
    """Tell whether the brokers of a live StatefulSet hibernate."""
    return AWAKE_REPLICAS_ANNOTATION in (manifest["metadata"].get("annotations") or {})


def count_replicas(manifest: Mapping[str, Any]) -> int:
    """Count the brokers of a live StatefulSet, even while they hibernate."""
    awake = (manifest["metadata"].get("annotations") or {}).get(AWAKE_REPLICAS_ANNOTATION, "")
    if awake.isascii() and awake.isdecimal():
        return int(awake)
    return int(manifest["spec"].get("replicas", 1))


def running_ids(stateful_sets: Iterable[Mapping[str, Any]]) -> dict[str, range]:
    """Return the ids of running or hibernating brokers, by the name of their StatefulSet."""
    return {each["metadata"]["name"]: broker_ids_of(each) for each in stateful_sets}


def broker_ids_of(manifest: Mapping[str, Any]) -> range:
    """Return the ids of a live StatefulSet's brokers; none if it is not one of ours."""
    for container in manifest["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or ():
            if variable["name"] == ID_BASE_VARIABLE:
                first = int(variable["value"])
                return range(first, first + count_replicas(manifest))
    return range(0)


def _annotations(cluster: ClusterView, pool: PoolView, config_hash: str) -> dict[str, str]:
    restart = "/".join(value for value in (cluster.restart, pool.restart) if value)
    asked = {RESTART_ANNOTATION: restart} if restart else {}
    return {**pool.spec.template.annotations, CONFIG_HASH_ANNOTATION: config_hash, **asked}


def _pod_spec(cluster: ClusterView, pool: PoolView, image: str, volumes: Sequence[int]) -> Manifest:
    template = pool.spec.template
    spread = [dict(entry) for entry in template.topology_spread_constraints]
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TERMINATION_GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": spread or _spread(cluster),
        "containers": [_container(cluster, pool, image, volumes)],
        "volumes": [
            {
                "name": CONFIG_VOLUME,
                "configMap": {"name": config_map_name(cluster.name, pool.name)},
            },
            {
                "name": SESSION_VOLUME,
                "secret": {"secretName": secret_name(cluster.name), "defaultMode": 0o440},
            },
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }
    if cluster.spec.has_certificates:
        source = {"secretName": tls_secret_name(cluster.name, pool.name), "defaultMode": 0o440}
        spec["volumes"].append({"name": "tls", "secret": source})
    optional: Manifest = {
        "nodeSelector": dict(template.node_selector),
        "tolerations": [dict(entry) for entry in template.tolerations],
        "affinity": dict(template.affinity or {}),
        "priorityClassName": template.priority_class_name,
        "imagePullSecrets": [{"name": name} for name in cluster.spec.image_pull_secrets],
    }
    spec |= {name: value for name, value in optional.items() if value}
    return merge_pod_spec(spec, template.pod_spec or {})


def _spread(cluster: ClusterView) -> list[Manifest]:
    """Spread the cluster's brokers over hosts first, then over zones, as far as possible."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": broker_selector(cluster.name)},
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]


def _container(
    cluster: ClusterView, pool: PoolView, image: str, volumes: Sequence[int]
) -> Manifest:
    first, *others = cluster.spec.inside_listeners
    ports = [
        ("kafka", first.port),
        ("internal", INTERNAL_PORT),
        ("http", HTTP_PORT),
        *((f"in-{listener.port}", listener.port) for listener in others),
        *((f"out-{listener.port}", listener.port) for listener in cluster.spec.outside_listeners),
    ]
    if cluster.spec.is_secured:
        ports.append(("operator", OPERATOR_PORT))
    if cluster.spec.rest.enabled:
        ports.append(("rest", REST_PORT))
    container: Manifest = {
        "name": CONTAINER,
        "image": image,
        "command": [
            "python",
            "-m",
            "fairlead_pod.broker",
            "--config",
            f"{CONFIG_FOLDER}/{PROPERTIES_KEY}",
        ],
        "env": _environment(pool, volumes),
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports],
        "resources": _resources(pool),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **_probes(),
        # A command, because clusters before 1.30 drop a `sleep` field.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(ENDPOINTS_MOVE_S)]}}},
        "volumeMounts": [
            *({"name": data_volume(each), "mountPath": data_folder(each)} for each in volumes),
            {"name": CONFIG_VOLUME, "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": SESSION_VOLUME, "mountPath": SECRET_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 (a volume of its own)
        ],
    }
    if cluster.spec.has_certificates:
        mount = {"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True}
        container["volumeMounts"].append(mount)
    if cluster.spec.image_pull_policy is not None:
        container["imagePullPolicy"] = cluster.spec.image_pull_policy
    return container


def _environment(pool: PoolView, volumes: Sequence[int]) -> list[Manifest]:
    own: list[Manifest] = [{"name": ID_BASE_VARIABLE, "value": str(pool.spec.id_base)}]
    for name, path in (
        ("POD_NAME", "metadata.name"),
        ("POD_UID", "metadata.uid"),
        ("POD_IP", "status.podIP"),
        ("HOST_IP", "status.hostIP"),
        ("NODE_NAME", "spec.nodeName"),
    ):
        field = {"apiVersion": "v1", "fieldPath": path}
        own.append({"name": name, "valueFrom": {"fieldRef": field}})
    for variable in pool.spec.template.env:
        if variable.value_from is not None:
            own.append({"name": variable.name, "valueFrom": dict(variable.value_from)})
        else:
            own.append({"name": variable.name, "value": variable.value or ""})
    if len(volumes) > 1:
        value = ",".join(map(log_directory, volumes))
        own.append({"name": LOG_DIRECTORIES_VARIABLE, "value": value})
    return own


def _resources(pool: PoolView) -> Manifest:
    if pool.spec.resources is None:
        return DEFAULT_RESOURCES
    wanted = {
        "requests": dict(pool.spec.resources.requests),
        "limits": dict(pool.spec.resources.limits),
    }
    return {name: amounts for name, amounts in wanted.items() if amounts}


def _probes() -> Manifest:
    """Return the probes of a broker.

    Recovery may take hours; a broker is restarted only if it answers nothing for two minutes.
    """

    def probe(path: str, **limits: int) -> Manifest:
        return {"httpGet": {"path": path, "port": HTTP_PORT, "scheme": "HTTP"}, **limits}

    return {
        "startupProbe": probe(
            "/healthz", periodSeconds=1, timeoutSeconds=2, failureThreshold=STARTUP_S_MAX
        ),
        "readinessProbe": probe("/readyz", periodSeconds=2, timeoutSeconds=3, failureThreshold=2),
        "livenessProbe": probe("/livez", periodSeconds=10, timeoutSeconds=10, failureThreshold=12),
    }
