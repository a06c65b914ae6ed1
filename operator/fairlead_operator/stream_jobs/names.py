"""Names, labels, ports and folders of a job's objects. Pure."""

from typing import Final

JOB_LABEL: Final = "fairlead.io/stream-job"
ROLE_LABEL: Final = "spark-role"
"""Spark's own label of driver and executors."""
DRIVER_ROLE: Final = "driver"
EXECUTOR_ROLE: Final = "executor"
RUN_ANNOTATION: Final = "fairlead.io/run"
HASH_ANNOTATION: Final = "fairlead.io/job-hash"
DRIVER_CONTAINER: Final = "driver"
EXECUTOR_CONTAINER: Final = "spark-kubernetes-executor"
"""The container's name that Spark looks for in a template."""

RPC_PORT: Final = 7078
BLOCK_PORT: Final = 7079
UI_PORT: Final = 4040
PROGRESS_PORT: Final = 8090

JOB_FOLDER: Final = "/etc/fairlead/job"
DOCUMENT_KEY: Final = "job.json"
EXECUTOR_TEMPLATE_KEY: Final = "executor.yaml"
PROGRAM_FOLDER: Final = "/etc/fairlead/program"
CHECKPOINT_FOLDER: Final = "/var/lib/fairlead/checkpoint"


def driver_name(job: str) -> str:
    """Return the name of a job's driver: of its pod, its Service and its ConfigMap."""
    return f"{job}-driver"


def network_policy_name(job: str) -> str:
    """Return the name of the NetworkPolicy of a job's pods."""
    return f"{job}-spark"


def claim_name(job: str) -> str:
    """Return the name of the claim that is created for a job's checkpoint."""
    return f"{job}-checkpoint"


def job_labels(job: str) -> dict[str, str]:
    """Return the labels of all objects of a job."""
    return {
        "app.kubernetes.io/name": "fairlead",
        "app.kubernetes.io/component": "stream-job",
        "app.kubernetes.io/managed-by": "fairlead-operator",
        JOB_LABEL: job,
    }


def driver_selector(job: str) -> dict[str, str]:
    """Return the labels that only the driver's pod has."""
    return {JOB_LABEL: job, ROLE_LABEL: DRIVER_ROLE}
