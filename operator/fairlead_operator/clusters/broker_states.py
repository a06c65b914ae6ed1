"""Combines pods and the controller's view, broker by broker. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlead_operator.clusters.rolling import BrokerState
from fairlead_operator.specs.stateful_set import CONTAINER, count_replicas
from fairlead_operator.specs.views import PoolView

REVISION_LABEL = "controller-revision-hash"
FAILURE_LENGTH_MAX: Final = 300


def build_broker_states(
    pool: PoolView,
    stateful_set: Mapping[str, Any] | None,
    pods: Mapping[str, Mapping[str, Any]],
    controller_brokers: Mapping[int, Mapping[str, Any]] | None,
    *,
    draining_s: Mapping[int, float],
    recovering: Mapping[int, bool | None],
    refused: Mapping[int, str],
) -> list[BrokerState]:
    """Return the brokers of a pool; `pods` are by name, the controller's brokers by id.

    `recovering` has the answers of brokers without a ready pod, `refused` the reasons for which the
    controller refused brokers. If the controller cannot be reached (None), ready pods count as
    live, and no broker is restarted.
    """
    if stateful_set is None:
        return []
    revision = (stateful_set.get("status") or {}).get("updateRevision", "")
    states = []
    for ordinal in range(count_replicas(stateful_set)):
        broker_id, name = pool.spec.id_base + ordinal, pool.pod_name(ordinal)
        pod = pods.get(name)
        known = (controller_brokers or {}).get(broker_id, {})
        is_ready = pod is not None and is_pod_ready(pod)
        states.append(
            BrokerState(
                broker_id=broker_id,
                pod=name,
                pod_uid=None if pod is None else pod["metadata"]["uid"],
                is_outdated=pod is not None and bool(revision) and pod_revision(pod) != revision,
                is_terminating=pod is not None and "deletionTimestamp" in pod["metadata"],
                is_ready=is_ready,
                failure=""
                if pod is None or is_ready
                else refused.get(broker_id) or pod_failure(pod),
                is_live=is_ready if controller_brokers is None else known.get("state") == "live",
                is_recovering=False if is_ready else recovering.get(broker_id),
                leaders=int(known.get("leaders", 0)),
                is_fenced=bool(known.get("fencedBy")),
                is_leaving=bool(known.get("leavesPool")),
                draining_s=draining_s.get(broker_id),
            )
        )
    return states


def registered_pods(controller: Mapping[str, Any] | None) -> dict[int, str]:
    """Return the pod from which each broker registered, by the host name that it advertises."""
    brokers = () if controller is None else controller["brokers"]
    return {int(each["id"]): str(each.get("host") or "").partition(".")[0] for each in brokers}


def is_settled(stateful_set: Mapping[str, Any] | None) -> bool:
    """Tell whether Kubernetes' own controller has seen the StatefulSet's present spec."""
    if stateful_set is None:
        return True
    observed = (stateful_set.get("status") or {}).get("observedGeneration", 0)
    return bool(observed == stateful_set["metadata"].get("generation"))


def is_pod_ready(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod is Ready and not terminating."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return "deletionTimestamp" not in pod["metadata"] and any(
        entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions
    )


def pod_failure(pod: Mapping[str, Any]) -> str:
    """Return why a broker's pod does not start: the broker's last message, or Kubernetes'.

    Empty if nothing has failed: the pod starts or runs.
    """
    status = pod.get("status") or {}
    for entry in status.get("containerStatuses") or ():
        if entry["name"] != CONTAINER:
            continue
        ends = ((entry.get(name) or {}).get("terminated") or {} for name in ("state", "lastState"))
        end = next((each for each in ends if each), {})
        waiting = (entry.get("state") or {}).get("waiting") or {}
        if end.get("exitCode") and end.get("message") and not entry.get("ready"):
            return _first_line(end["message"])
        if waiting.get("message"):
            return _first_line(f"{waiting.get('reason', 'waiting')}: {waiting['message']}")
    for condition in status.get("conditions") or ():
        if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
            return _first_line(f"{condition.get('reason')}: {condition.get('message', '')}")
    return ""


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= FAILURE_LENGTH_MAX else line[: FAILURE_LENGTH_MAX - 1] + "…"


def pod_revision(pod: Mapping[str, Any]) -> str:
    """Return the revision of the template from which a pod was made."""
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def is_container_running(pod: Mapping[str, Any]) -> bool:
    """Tell whether the broker's container runs; it never does in a pod without an image."""
    statuses: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(
        entry["name"] == CONTAINER and "running" in (entry.get("state") or {}) for entry in statuses
    )
