"""The status of a Topic: what the controller shows, and what became of the spec. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from fairlead_model.resources.hibernation import HIBERNATED
from fairlead_operator.conditions import (
    PAUSED,
    find_condition,
    set_condition,
    set_paused,
    shortened,
    without_condition,
)
from fairlead_operator.topics.namespace_rules import Refusal
from fairlead_operator.topics.plan import ClusterPresence
from fairlead_operator.topics.topic_resource import TopicResource

READY: Final = "Ready"
_COUNTING: Final = frozenset({"Offline", "UnderReplicated"})
"""Reasons whose messages count partitions, and change with each that recovers."""
DATA_LOSS_POSSIBLE: Final = "DataLossPossible"
DELETING: Final = "Deleting"
REASSIGNING: Final = "Reassigning"
_COUNTS: Final = ("partitions", "replicationFactor", "underReplicated", "offline", "reassigning")
LEADERS_LENGTH_MAX: Final = 1024
ASLEEP_MESSAGE: Final = (
    "the LogCluster sleeps: records are kept, and what needs brokers is done once it is awake"
)
PAUSED_MESSAGE: Final = (
    "paused is true, here or in the LogCluster: changes of the spec wait until it is false"
)

Verdict = tuple[bool, str, str]
"""Whether it is ready, the reason and the message."""
CLUSTER_HIDDEN: Final = "ClusterHidden"
TOPIC_GONE: Final[Verdict] = (
    False,
    "TopicGone",
    "the topic made over Kafka is gone, or a Topic declares it now: set spec.deletionProtection to "
    "false to let this resource go, which only shows it",
)


def judge(
    resource: TopicResource,
    *,
    cluster: ClusterPresence,
    owner: str | None,
    result: Mapping[str, Any] | None,
    entry: Mapping[str, Any] | None,
    refusal: Refusal | None = None,
    is_paused: bool = False,
    is_asleep: bool = False,
    knows_topics: bool = False,
) -> Verdict | None:
    """Return the content of `Ready`; None while there is nothing to report yet.

    `result` is the controller's answer to this generation of the spec, `entry` what it shows of the
    topic, once it `knows_topics`.
    """
    if not resource.cluster and resource.is_foreign:
        message = "spec.clusterName: name the LogCluster of namespace {}"
        return False, "ClusterNotFound", message.format(resource.cluster_namespace)
    if not resource.cluster:
        message = (
            f"spec.clusterName: name one of the LogClusters in namespace {resource.namespace}; it "
            "may be left out only where there is exactly one"
        )
        return False, "ClusterNotFound", message
    if cluster is not ClusterPresence.PRESENT:
        what = "is being deleted" if cluster is ClusterPresence.DELETING else "does not exist"
        place = f"LogCluster {resource.cluster_namespace}/{resource.cluster}"
        return False, "ClusterNotFound", f"spec.clusterName: {place} {what}"
    if refusal is not None:
        return False, *refusal
    if not resource.is_mirror:
        if owner is not None and owner != resource.reference:
            message = (
                f"spec.topicName: Topic {owner} is older and declares {resource.topic_name!r} too; "
                "delete one of the two"
            )
            return False, "Conflict", message
        if is_paused and not is_asleep:
            return (False, PAUSED, PAUSED_MESSAGE) if entry is None else _judge_entry(entry)
        if result is None and not is_asleep:
            return None
        if result is not None and result["state"] != "ok":
            reason = HIBERNATED if is_asleep else str(result["reason"])
            return False, reason, str(result["message"])
    if is_asleep:
        return False, HIBERNATED, ASLEEP_MESSAGE
    stays = resource.is_mirror and resource.is_protected
    gone = TOPIC_GONE if stays and knows_topics else None
    return gone if entry is None else _judge_entry(entry)


def _judge_entry(entry: Mapping[str, Any]) -> Verdict:
    partitions, offline = entry["partitions"], entry["offline"]
    if offline:
        text = f"{offline} of {partitions} partitions have no leader"
        return False, "Offline", _with_problem(text, entry)
    under = entry["underReplicated"]
    if under:
        text = f"{under} of {partitions} partitions are under-replicated"
        return False, "UnderReplicated", _with_problem(text, entry)
    return True, "Ready", "every partition has its leader and all its replicas in sync"


def _with_problem(text: str, entry: Mapping[str, Any]) -> str:
    problems = sorted(entry.get("problems") or (), key=lambda each: len(each["isr"]))
    if not problems:
        return text
    worst = problems[0]
    return (
        f"{text}; partition {worst['partition']}: leader {worst['leader']}, replicas "
        f"{worst['replicas']}, in sync {worst['isr']}"
    )


def build_topic_status(
    resource: TopicResource,
    before: Mapping[str, Any],
    verdict: Verdict,
    entry: Mapping[str, Any] | None,
    now: datetime,
    *,
    is_paused: bool = False,
) -> dict[str, Any]:
    """Return the status; equal to the one before if nothing has changed.

    `entry` is None if the resource has no topic (a conflict, no cluster).
    """
    is_ready, reason, message = verdict
    generation = resource.generation
    conditions = set_condition(
        before.get("conditions") or [],
        READY,
        is_ready,
        reason,
        message,
        generation=generation,
        now=now,
    )
    lost = entry.get("lossPossible", 0) if entry is not None else 0
    moving = entry["reassigning"] if entry is not None else 0
    claims = {
        REASSIGNING: (bool(moving), "ReplicasMoving", _moving_message(entry)),
        DATA_LOSS_POSSIBLE: (bool(lost), "UncleanElection", _loss_message(lost)),
        DELETING: (resource.is_deleting, "DeletionProtected", protection_message(resource)),
    }
    for type, (holds, why, text) in claims.items():
        if holds:
            is_done = type != DELETING
            conditions = set_condition(
                conditions, type, is_done, why, text, generation=generation, now=now
            )
        else:
            conditions = without_condition(conditions, type)
    conditions = set_paused(
        conditions, PAUSED_MESSAGE if is_paused else "", generation=generation, now=now
    )
    status: dict[str, Any] = {
        "conditions": conditions,
        "observedGeneration": generation,
        "topicName": resource.topic_name,
    }
    if entry is not None:
        status |= {name: entry[name] for name in _COUNTS}
        status |= {"topicId": entry["topicId"]}
        status |= {"leaders": str(entry.get("leaders", ""))[:LEADERS_LENGTH_MAX]}
    return status


def hidden_message(resource: TopicResource) -> str:
    """Return the message for a Topic whose cluster may not be read."""
    place = resource.cluster_namespace
    return (
        f"spec.clusterNamespace: the operator may not read LogClusters of namespace {place}: the "
        "namespace or its RoleBinding for the operator may be gone. Changes of this Topic wait"
    )


def build_hidden_status(
    resource: TopicResource, before: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Return the status while the cluster may not be read: the last counts stay."""
    conditions = set_condition(
        before.get("conditions") or [],
        READY,
        None,
        CLUSTER_HIDDEN,
        hidden_message(resource),
        generation=resource.generation,
        now=now,
    )
    return {**before, "conditions": conditions, "observedGeneration": resource.generation}


def _moving_message(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return ""
    moving = f"{entry['reassigning']} of {entry['partitions']} partitions are being reassigned"
    wanted = [each for each in entry["targetFactors"] if each != entry["replicationFactor"]]
    if not wanted:
        return moving
    return f"{moving}: {wanted[-1]} instead of {entry['replicationFactor']} each"


def _loss_message(partitions: int) -> str:
    return (
        f"{partitions} partitions got a leader that may not hold every acknowledged record; it is "
        "cleared when the leader has recovered"
    )


def protection_message(resource: TopicResource) -> str:
    """Return how a protected topic can be deleted."""
    return (
        "somebody has deleted the Topic, but it is protected: set spec.deletionProtection to false "
        f"to let the deletion proceed (reclaimPolicy {resource.reclaim_policy})"
    )


def build_status_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch from one status to another; empty if they are the same."""
    patch = {name: value for name, value in after.items() if before.get(name) != value}
    return patch | {name: None for name in before if name not in after}


def is_off_size(resource: TopicResource, entry: Mapping[str, Any]) -> bool:
    """Tell whether a topic is not even meant to have the resource's replication factor."""
    factor = resource.replication_factor
    return factor is not None and entry["targetFactors"] != [factor]


def turned_bad(before: Mapping[str, Any], verdict: Verdict) -> bool:
    """Tell whether a resource is not ready for another reason than before.

    A cluster that starts or hibernates is not such a reason. Where a message counts partitions,
    another count is none either: Events would come all the time until the last one has recovered.
    """
    is_ready, reason, message = verdict
    known = find_condition(before.get("conditions") or [], READY)
    if is_ready or reason in {"WaitingForBrokers", HIBERNATED}:
        return False
    if known is None or known.get("reason") != reason:
        return True
    return reason not in _COUNTING and known.get("message") != shortened(message)
