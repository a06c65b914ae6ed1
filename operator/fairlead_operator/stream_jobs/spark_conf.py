"""The settings of Spark that a driver needs in a pod, and those that users may not set. Pure.

The driver runs in client mode in a separate pod. Executors find it by its Service at fixed ports.
Its pod owns them, so they are deleted with it.
"""

from typing import Final

from fairlead_model.resources.stream_job import ExecutorResources, StreamJobSpec
from fairlead_operator.stream_jobs.names import (
    BLOCK_PORT,
    EXECUTOR_TEMPLATE_KEY,
    JOB_FOLDER,
    JOB_LABEL,
    RPC_PORT,
    UI_PORT,
    driver_name,
)

OWN_PREFIXES: Final = (
    "spark.master",
    "spark.submit.deployMode",
    "spark.app.name",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.cores",
    "spark.driver.host",
    "spark.driver.memory",
    "spark.driver.port",
    "spark.dynamicAllocation.",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.pod.name",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.kubernetes.namespace",
    "spark.ui.port",
)
KUBERNETES_PREFIX: Final = "spark.kubernetes."
FREE_KUBERNETES_PREFIXES: Final = (
    "spark.kubernetes.allocation.",
    "spark.kubernetes.executor.apiPollingInterval",
    "spark.kubernetes.executor.checkAllContainers",
    "spark.kubernetes.executor.deleteOnTermination",
    "spark.kubernetes.executor.eventProcessingInterval",
    "spark.kubernetes.executor.limit.cores",
    "spark.kubernetes.executor.missingPodDetectDelta",
    "spark.kubernetes.executor.rollInterval",
    "spark.kubernetes.executor.rollPolicy",
    "spark.kubernetes.local.dirs.tmpfs",
    "spark.kubernetes.memoryOverheadFactor",
)
"""What a job may set for its pods. Any other setting could give them volumes of the node, or
Secrets, accounts or labels of others. `spec.template` has the fields that jobs are meant to set."""
POD_IP_PLACEHOLDER: Final = "${POD_IP}"
"""The driver fills it in: nobody else knows its address before it runs."""


def own_setting_problems(spec: StreamJobSpec) -> list[str]:
    """Return the problems of settings that a job must not set itself."""
    problems = []
    for name in sorted(spec.spark_conf):
        if name.startswith(OWN_PREFIXES):
            todo = "the operator sets this itself: use spec.driver and spec.executors"
        elif name.startswith(KUBERNETES_PREFIX) and not name.startswith(FREE_KUBERNETES_PREFIXES):
            todo = "a job may not change its pods so: use spec.template"
        else:
            continue
        problems.append(f"spec.sparkConf[{name}]: {todo}, or leave it out")
    return problems


def build_spark_conf(name: str, namespace: str, spec: StreamJobSpec, image: str) -> dict[str, str]:
    """Return all settings: defaults, then the job's own, then those that users may not set."""
    defaults = {
        # Lost executors are noticed in seconds: their pods are listed on each poll.
        "spark.kubernetes.executor.apiPollingInterval": "5s",
        "spark.kubernetes.executor.missingPodDetectDelta": "5s",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.ui.showConsoleProgress": "false",
    }
    driver = driver_name(name)
    own = {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.app.name": name,
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.driver.pod.name": driver,
        f"spark.kubernetes.driver.label.{JOB_LABEL}": name,
        f"spark.kubernetes.executor.label.{JOB_LABEL}": name,
        "spark.kubernetes.executor.podTemplateFile": f"{JOB_FOLDER}/{EXECUTOR_TEMPLATE_KEY}",
        "spark.driver.bindAddress": POD_IP_PLACEHOLDER,
        "spark.driver.host": f"{driver}.{namespace}.svc",
        "spark.driver.port": str(RPC_PORT),
        "spark.driver.blockManager.port": str(BLOCK_PORT),
        "spark.ui.port": str(UI_PORT),
        "spark.driver.cores": str(spec.driver.cores),
        "spark.driver.memory": spec.driver.memory,
        "spark.executor.cores": str(spec.executors.cores),
        "spark.executor.memory": spec.executors.memory,
        "spark.executor.memoryOverhead": spec.executors.memory_overhead,
        "spark.kubernetes.executor.request.cores": spec.executors.cpu_request,
        **_executor_count(spec.executors),
    }
    if spec.image_pull_policy is not None:
        own["spark.kubernetes.container.image.pullPolicy"] = spec.image_pull_policy
    if spec.image_pull_secrets:
        secrets = ",".join(spec.image_pull_secrets)
        own["spark.kubernetes.container.image.pullSecrets"] = secrets
    return {**defaults, **spec.spark_conf, **own}


def _executor_count(executors: ExecutorResources) -> dict[str, str]:
    dynamic = executors.dynamic_allocation
    if dynamic is None:
        return {"spark.executor.instances": str(executors.instances)}
    first = min(max(executors.instances, dynamic.minimum), dynamic.maximum)
    return {
        "spark.dynamicAllocation.enabled": "true",
        # Kubernetes has no shuffle service: executors with shuffle files stay.
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": str(dynamic.minimum),
        "spark.dynamicAllocation.maxExecutors": str(dynamic.maximum),
        "spark.dynamicAllocation.initialExecutors": str(first),
        "spark.dynamicAllocation.executorIdleTimeout": f"{dynamic.idle_seconds}s",
    }
