"""The state of a Fairlead cluster in its resources, and its problems. Pure, except `read_*`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlead_model.resources.hibernation import DOWN_REASONS, HIBERNATED

if TYPE_CHECKING:
    from fairlead_kube.client import KubeClient

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One LogCluster with the resources that belong to it."""

    cluster: Manifest
    pools: list[Manifest] = field(default_factory=list)
    topics: list[Manifest] = field(default_factory=list)
    pods: list[Manifest] = field(default_factory=list)
    drills: list[Manifest] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.cluster["metadata"]["name"])

    @property
    def status(self) -> Manifest:
        """The status from the operator; empty if there is none yet."""
        return self.cluster.get("status") or {}


@dataclass(frozen=True, slots=True)
class Complaint:
    """A problem, and what to do next."""

    what: str
    advice: str


async def read_snapshots(client: KubeClient, namespace: str, name: str | None) -> list[Snapshot]:
    """Return all clusters of a namespace, or the named one; ApiError if it does not exist."""
    from fairlead_kube.kinds import BROKER_POOL, FAILOVER_DRILL, LOG_CLUSTER, POD, TOPIC

    clusters = (
        [await client.get(LOG_CLUSTER, namespace, name)]
        if name
        else (await client.list(LOG_CLUSTER, namespace)).items
    )
    pools = (await client.list(BROKER_POOL, namespace)).items
    topics = (await client.list(TOPIC, namespace)).items
    drills = (await client.list(FAILOVER_DRILL, namespace)).items
    pods = (await client.list(POD, namespace, label_selector="fairlead.io/cluster")).items
    return [
        Snapshot(
            cluster,
            of_cluster(pools, cluster),
            of_cluster(topics, cluster),
            [
                pod
                for pod in pods
                if pod["metadata"]["labels"]["fairlead.io/cluster"] == cluster["metadata"]["name"]
            ],
            of_cluster(drills, cluster),
        )
        for cluster in clusters
    ]


def of_cluster(manifests: list[Manifest], cluster: Manifest) -> list[Manifest]:
    """Return the manifests in the cluster's namespace whose spec names the cluster."""
    name, namespace = cluster["metadata"]["name"], cluster["metadata"].get("namespace")
    return [
        each
        for each in manifests
        if (spec := each.get("spec") or {}).get("clusterName") == name
        and spec.get("clusterNamespace", namespace) == namespace
    ]


def find_complaints(snapshot: Snapshot) -> list[Complaint]:
    """Return all problems, worst first."""
    status, name = snapshot.status, snapshot.name
    if not status.get("conditions"):
        return [
            Complaint(
                "the operator has not looked at this cluster yet",
                "kubectl get pods -A -l app.kubernetes.io/component=operator",
            )
        ]
    if condition(snapshot.cluster, HIBERNATED).get("reason") in DOWN_REASONS:
        wake = '{"spec":{"hibernated":false}}'
        advice = f"to wake it: kubectl patch logcluster {name} --type merge -p '{wake}'"
        return [Complaint("the cluster sleeps, because spec.hibernated says so", advice)]
    complaints = []
    if status.get("offline"):
        complaints.append(
            Complaint(
                f"{status['offline']} partitions are offline",
                "bring back the brokers that are missing below; kubectl fairlead topic describe "
                "says which ones a topic waits for",
            )
        )
    for pod in snapshot.pods:
        problem = pod_problem(pod)
        if problem:
            pod_name = pod["metadata"]["name"]
            complaints.append(
                Complaint(f"pod {pod_name}: {problem}", f"kubectl describe pod {pod_name}")
            )
    wanted = sum(int(pool["spec"].get("replicas") or 0) for pool in snapshot.pools)
    if not snapshot.pools:
        complaints.append(Complaint("there is no BrokerPool", f"make one for cluster {name}"))
    elif len(snapshot.pods) < wanted:
        complaints.append(
            Complaint(
                f"{wanted - len(snapshot.pods)} of {wanted} broker pods do not exist",
                f"kubectl describe statefulsets -l fairlead.io/cluster={name}",
            )
        )
    if status.get("underReplicated"):
        complaints.append(
            Complaint(
                f"{status['underReplicated']} partitions are under-replicated",
                "they catch up by themselves once all brokers are back",
            )
        )
    complaints += [
        Complaint(
            f"{entry['type']} is {entry['status']}: {entry.get('reason', '')}",
            entry.get("message", ""),
        )
        for entry in status["conditions"]
        if (entry["type"], entry["status"])
        in {("Ready", "False"), ("StoreAvailable", "False"), ("Degraded", "True")}
    ]
    return complaints + find_resource_complaints(snapshot)


def find_resource_complaints(snapshot: Snapshot) -> list[Complaint]:
    """Return the problems that pools and Topics report."""
    complaints = []
    for pool in snapshot.pools:
        blocked = condition(pool, "Blocked")
        if blocked.get("status") == "True":
            complaints.append(
                Complaint(
                    f"pool {pool['metadata']['name']}: {blocked.get('reason', '')}",
                    blocked.get("message", ""),
                )
            )
    for topic in snapshot.topics:
        ready = condition(topic, "Ready")
        if ready.get("status") == "False":
            complaints.append(
                Complaint(
                    f"topic {topic['metadata']['name']}: {ready.get('reason', '')}",
                    ready.get("message", ""),
                )
            )
    return complaints


def condition(manifest: Manifest, kind: str) -> Manifest:
    """Return one condition of a status; empty if the status does not have it."""
    conditions = (manifest.get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry.get("type") == kind), {})


def pod_problem(pod: Manifest) -> str:
    """Return why a broker's pod is not ready; empty if it is."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return f"{waiting['reason']} {waiting.get('message', '')}".rstrip()
    ready = condition(pod, "Ready")
    if ready.get("status") == "True":
        return ""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"not scheduled: {scheduled.get('message', '')}"
    return "is not ready"
