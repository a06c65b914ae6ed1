"""A driver's pod as the operator reads it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_operator.drills.agent_pod import describe_pod_problem
from fairlead_operator.stream_jobs.names import (
    DRIVER_CONTAINER,
    EXECUTOR_ROLE,
    HASH_ANNOTATION,
    ROLE_LABEL,
    RUN_ANNOTATION,
)

KILLED: Final = 137
"""Exit code of a container that was killed, for its memory or with its node."""
TERMINATED: Final = 143


@dataclass(frozen=True, slots=True)
class DriverPod:
    """The relevant facts of a driver's pod."""

    run: int
    job_hash: str
    phase: str
    ip: str = ""
    name: str = ""
    is_terminating: bool = False
    ends_by: str = ""
    """When a pod that is terminating has to have ended, in the API's format of times."""
    exit_code: int | None = None
    exit_reason: str = ""
    exit_message: str = ""
    ended_at: str = ""
    """When its program ended, in the API's format of times."""
    pod_reason: str = ""
    problem: str = ""
    """Why it does not run yet, as a message."""

    @property
    def has_ended(self) -> bool:
        """Whether its program has ended, with success or not."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def is_success(self) -> bool:
        """Whether it ended with success."""
        return self.phase == "Succeeded"

    @property
    def is_infrastructure_failure(self) -> bool:
        """Whether the pod was lost or killed although the program itself did nothing wrong."""
        if self.is_success:
            return False
        is_killed = self.exit_code in {KILLED, TERMINATED}
        return self.exit_code is None or is_killed or bool(self.pod_reason)

    def describe_end(self) -> str:
        """Return how it ended, as a message."""
        if self.is_success:
            return "the program has ended"
        parts = [self.pod_reason, self.exit_reason if self.exit_reason != "Error" else ""]
        if self.exit_code is not None:
            parts.append(f"exit code {self.exit_code}")
        head = " ".join(part for part in parts if part) or "the pod failed"
        return f"{head}: {self.exit_message.strip()}" if self.exit_message.strip() else head


def read_driver(pod: Mapping[str, Any]) -> DriverPod:
    """Read a driver from its manifest."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    ended: Mapping[str, Any] = {}
    for container in status.get("containerStatuses") or ():
        if container.get("name") == DRIVER_CONTAINER:
            ended = (container.get("state") or {}).get("terminated") or {}
    run = str(annotations.get(RUN_ANNOTATION, "0"))
    return DriverPod(
        run=int(run) if run.isdecimal() else 0,
        job_hash=str(annotations.get(HASH_ANNOTATION, "")),
        phase=str(status.get("phase") or "Pending"),
        ip=str(status.get("podIP") or ""),
        name=str(metadata.get("name") or ""),
        is_terminating="deletionTimestamp" in metadata,
        ends_by=str(metadata.get("deletionTimestamp") or ""),
        exit_code=ended.get("exitCode"),
        exit_reason=str(ended.get("reason") or ""),
        exit_message=str(ended.get("message") or ""),
        ended_at=str(ended.get("finishedAt") or ""),
        pod_reason=str(status.get("reason") or ""),
        problem=describe_pod_problem(pod),
    )


def is_executor(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod is an executor rather than a driver."""
    return bool((pod["metadata"].get("labels") or {}).get(ROLE_LABEL) == EXECUTOR_ROLE)
