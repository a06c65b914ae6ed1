"""The objects of a job: Service, ConfigMap, claim and the driver's pod. Pure.

The StreamJob owns all of them, so that nothing remains after its deletion; a claim that is to be
retained has no owner.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from fairlead_kube.kinds import (
    CONFIG_MAP,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    STREAM_JOB,
    ResourceKind,
)
from fairlead_model.resources.job_document import build_job_document
from fairlead_model.resources.stream_job import StreamJobSpec
from fairlead_operator.specs.client_access import CONFIG_KEY, MOUNT_FOLDER
from fairlead_operator.specs.names import driver_account_name
from fairlead_operator.stream_jobs.names import (
    BLOCK_PORT,
    CHECKPOINT_FOLDER,
    DOCUMENT_KEY,
    DRIVER_CONTAINER,
    DRIVER_ROLE,
    EXECUTOR_CONTAINER,
    EXECUTOR_TEMPLATE_KEY,
    HASH_ANNOTATION,
    JOB_FOLDER,
    PROGRAM_FOLDER,
    PROGRESS_PORT,
    ROLE_LABEL,
    RPC_PORT,
    RUN_ANNOTATION,
    UI_PORT,
    claim_name,
    driver_name,
    driver_selector,
    job_labels,
)
from fairlead_operator.stream_jobs.spark_conf import build_spark_conf

Manifest = dict[str, Any]
USER_ID: Final = 10001
GRACE_S: Final = 60
"""Time for a driver to finish its current batch."""
_PROGRAM_VOLUME: Final = "program"
_CHECKPOINT_VOLUME: Final = "checkpoint"
_USER_VOLUME: Final = "user"
_SCRATCH: Final = "/tmp"  # noqa: S108  # Spark's scratch folder in a container of its own


@dataclass(frozen=True, slots=True)
class JobView:
    """A job's parsed spec; `image` is that of its pods."""

    name: str
    namespace: str
    uid: str
    spec: StreamJobSpec
    cluster_namespace: str
    cluster: str
    image: str
    bootstrap: str
    """Addresses of the brokers."""

    @property
    def account(self) -> str:
        """Return the name of the ServiceAccount with which the driver creates executors."""
        return self.spec.service_account_name or driver_account_name(self.cluster)

    @property
    def owner(self) -> Manifest:
        """Return the owner reference of its objects."""
        return {
            "apiVersion": STREAM_JOB.api_version,
            "kind": STREAM_JOB.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def job_hash(job: JobView) -> str:
    """Return a fingerprint of everything that determines a driver; a change restarts the driver.

    The operator's default image is not part of it: an upgrade of the operator does not disturb a
    job, which uses the new image when it next starts.
    """
    asked = replace(job, image=job.spec.image or "")
    made = [
        build_config_map(asked, run=0)["data"],
        build_driver_pod(asked, run=0, fingerprint="")["spec"],
    ]
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]


def build_service(job: JobView) -> Manifest:
    """Return the headless Service by which executors find the driver, even before it is ready."""
    ports = {
        "rpc": RPC_PORT,
        "blocks": BLOCK_PORT,
        "ui": UI_PORT,
        "progress": PROGRESS_PORT,
    }
    manifest = build_object(job, SERVICE, driver_name(job.name))
    manifest["spec"] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": driver_selector(job.name),
        "ports": [{"name": name, "port": port} for name, port in ports.items()],
    }
    return manifest


def build_claim(job: JobView) -> Manifest | None:
    """Return the claim for the checkpoint, if the job requests a new one."""
    claim = job.spec.checkpoint.claim
    if claim is None or claim.size is None:
        return None
    manifest = build_object(job, PERSISTENT_VOLUME_CLAIM, claim_name(job.name))
    if claim.retain:
        del manifest["metadata"]["ownerReferences"]
    manifest["spec"] = {
        "accessModes": ["ReadWriteMany" if claim.shared else "ReadWriteOnce"],
        "resources": {"requests": {"storage": claim.size}},
    }
    if claim.storage_class_name is not None:
        manifest["spec"]["storageClassName"] = claim.storage_class_name
    return manifest


def build_config_map(job: JobView, *, run: int) -> Manifest:
    """Return the ConfigMap with the driver's document and the template of executors."""
    spec = job.spec
    file = spec.application.file
    if spec.application.config_map is not None:
        file = f"{PROGRAM_FOLDER}/{spec.application.config_map.key}"
    document = build_job_document(
        job.name,
        spec,
        namespace=job.namespace,
        run=run,
        bootstrap=job.bootstrap,
        client_config=None if spec.credentials_secret is None else f"{MOUNT_FOLDER}/{CONFIG_KEY}",
        file=file,
        checkpoint=CHECKPOINT_FOLDER if spec.checkpoint.claim is not None else spec.checkpoint.uri,
        conf=build_spark_conf(job.name, job.namespace, spec, job.image),
        progress_port=PROGRESS_PORT,
    )
    manifest = build_object(job, CONFIG_MAP, driver_name(job.name))
    manifest["data"] = {
        DOCUMENT_KEY: json.dumps(document, indent=1, sort_keys=True),
        EXECUTOR_TEMPLATE_KEY: yaml.safe_dump(_executor_template(job), sort_keys=False),
    }
    return manifest


def build_driver_pod(job: JobView, *, run: int, fingerprint: str) -> Manifest:
    """Return the driver's pod of one run."""
    spec = job.spec
    manifest = build_object(job, POD, driver_name(job.name))
    metadata = manifest["metadata"]
    metadata["labels"] = {
        **spec.template.labels,
        **metadata["labels"],
        ROLE_LABEL: DRIVER_ROLE,
    }
    metadata["annotations"] = {
        **spec.template.annotations,
        RUN_ANNOTATION: str(run),
        HASH_ANNOTATION: fingerprint,
    }
    volumes = [{"name": "job", "configMap": {"name": driver_name(job.name)}}, *_volumes(job)]
    manifest["spec"] = {
        **_pod_basics(job),
        "serviceAccountName": job.account,
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [_driver_container(job)],
        "volumes": volumes,
    }
    return manifest


def _driver_container(job: JobView) -> Manifest:
    spec = job.spec
    memory = f"{_mebibytes(spec.driver.memory) + _mebibytes(spec.driver.memory_overhead)}Mi"
    mounts = [{"name": "job", "mountPath": JOB_FOLDER, "readOnly": True}, *_mounts(job)]
    if spec.checkpoint.claim is not None:
        mounts.append({"name": _CHECKPOINT_VOLUME, "mountPath": CHECKPOINT_FOLDER})
    container: Manifest = {
        "name": DRIVER_CONTAINER,
        "image": job.image,
        "args": ["driver", f"{JOB_FOLDER}/{DOCUMENT_KEY}"],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *(dict(variable) for variable in spec.template.env),
        ],
        "ports": [
            {"name": "rpc", "containerPort": RPC_PORT},
            {"name": "blocks", "containerPort": BLOCK_PORT},
            {"name": "ui", "containerPort": UI_PORT},
            {"name": "progress", "containerPort": PROGRESS_PORT},
        ],
        "resources": {
            "requests": {"cpu": spec.driver.cpu_request, "memory": memory},
            "limits": {"memory": memory},
        },
        "securityContext": _container_security(),
        # The driver writes why it failed; if it could not, the end of its log shows it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    if spec.image_pull_policy is not None:
        container["imagePullPolicy"] = spec.image_pull_policy
    return container


def _executor_template(job: JobView) -> Manifest:
    """Return the parts of executor pods that Spark does not set itself."""
    spec = job.spec
    container: Manifest = {
        "name": EXECUTOR_CONTAINER,
        "securityContext": _container_security(),
        "volumeMounts": _mounts(job),
    }
    if spec.template.env:
        container["env"] = [dict(variable) for variable in spec.template.env]
    claim = spec.checkpoint.claim
    volumes = _volumes(job, with_checkpoint=claim is not None and claim.shared)
    if claim is not None and claim.shared:
        mount = {"name": _CHECKPOINT_VOLUME, "mountPath": CHECKPOINT_FOLDER}
        container["volumeMounts"] = [*container["volumeMounts"], mount]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {**spec.template.labels, **job_labels(job.name)},
            "annotations": dict(spec.template.annotations),
        },
        "spec": {
            **_pod_basics(job),
            "automountServiceAccountToken": False,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": job_labels(job.name)},
                }
            ],
            "containers": [container],
            "volumes": volumes,
        },
    }


def _pod_basics(job: JobView) -> Manifest:
    spec = job.spec
    basics: Manifest = {
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if spec.image_pull_secrets:
        basics["imagePullSecrets"] = [{"name": name} for name in spec.image_pull_secrets]
    if spec.template.node_selector:
        basics["nodeSelector"] = dict(spec.template.node_selector)
    if spec.template.tolerations:
        basics["tolerations"] = [dict(entry) for entry in spec.template.tolerations]
    return basics


def _container_security() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _volumes(job: JobView, *, with_checkpoint: bool = True) -> list[Manifest]:
    volumes: list[Manifest] = [{"name": "scratch", "emptyDir": {}}]
    program = job.spec.application.config_map
    if program is not None:
        volumes.append({"name": _PROGRAM_VOLUME, "configMap": {"name": program.name}})
    claim = job.spec.checkpoint.claim
    secret = job.spec.credentials_secret
    if secret is not None:
        volumes.append({"name": _USER_VOLUME, "secret": {"secretName": secret}})
    if claim is not None and with_checkpoint:
        name = claim.name or claim_name(job.name)
        volumes.append({"name": _CHECKPOINT_VOLUME, "persistentVolumeClaim": {"claimName": name}})
    return volumes


def _mounts(job: JobView) -> list[Manifest]:
    mounts: list[Manifest] = [{"name": "scratch", "mountPath": _SCRATCH}]
    if job.spec.application.config_map is not None:
        mounts.append({"name": _PROGRAM_VOLUME, "mountPath": PROGRAM_FOLDER, "readOnly": True})
    if job.spec.credentials_secret is not None:
        mounts.append({"name": _USER_VOLUME, "mountPath": MOUNT_FOLDER, "readOnly": True})
    return mounts


def build_object(job: JobView, kind: ResourceKind, name: str) -> Manifest:
    """Return the part that all objects of a job have in common."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": job_labels(job.name),
            "ownerReferences": [job.owner],
        },
    }


def _mebibytes(memory: str) -> int:
    """Parse a memory size of Spark."""
    found = re.fullmatch("([0-9]+)(m|g)", memory)
    if found is None:
        raise ValueError(f"not a memory size: {memory}")
    return int(found[1]) * (1024 if found[2] == "g" else 1)


def owns(job: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    """Tell whether an object belongs to this very job, not to an earlier job of the same name."""
    uid = job["metadata"]["uid"]
    return any(owner.get("uid") == uid for owner in manifest["metadata"].get("ownerReferences", ()))
