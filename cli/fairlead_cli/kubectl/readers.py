"""The readers of a cluster, as the API server knows them: no broker is asked.

A ConsumerGroup's status has the topics for which its group has committed offsets, a StreamJob's
spec has the topics that it reads, and a ScaledObject of KEDA has the topics by which it scales.
Only resources in the cluster's own namespace count. The partitions of a group are not known here:
it may have all partitions of a topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fairlead_controller.decisions.what_if import Forecast
    from fairlead_kube.client import KubeClient
    from fairlead_kube.kinds import ResourceKind
    from fairlead_model.cluster import ClusterImage

KAFKA_SCALERS = frozenset({"kafka", "apache-kafka"})
"""KEDA's two scalers by a group's lag; they have the same fields."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A resource for a consumer group."""

    kind: str
    name: str
    group: str
    topics: frozenset[str]


async def read_readers(
    client: KubeClient, namespace: str, cluster: str
) -> tuple[list[Reader], list[str]]:
    """Return the resources that read a cluster, and the kinds that this user may not list."""
    from fairlead_kube.kinds import CONSUMER_GROUP, SCALED_OBJECT, STREAM_JOB

    untold: list[str] = []
    groups = await list_allowed(client, CONSUMER_GROUP, namespace, untold)
    jobs = await list_allowed(client, STREAM_JOB, namespace, untold)
    scaled = await list_allowed(client, SCALED_OBJECT, namespace, untold)
    known = [
        *read_consumer_groups(groups, cluster),
        *read_stream_jobs(jobs, namespace, cluster),
    ]
    return [*known, *read_scaled_objects(scaled, namespace, cluster, known)], untold


async def list_allowed(
    client: KubeClient, kind: ResourceKind, namespace: str, untold: list[str]
) -> Sequence[Mapping[str, Any]]:
    """Return the resources of a kind; none if the kind is not installed."""
    from fairlead_kube.errors import ApiError

    try:
        return (await client.list(kind, namespace)).items
    except ApiError as error:
        if error.status == 403:
            untold.append(f"{kind.plural}.{kind.group}")
        elif not error.is_not_found:
            raise
        return ()


def read_consumer_groups(manifests: Iterable[Mapping[str, Any]], cluster: str) -> list[Reader]:
    """Return the groups of a cluster's ConsumerGroups."""
    return [
        Reader(
            "ConsumerGroup",
            each["metadata"]["name"],
            str(each["spec"].get("groupId") or each["metadata"]["name"]),
            frozenset(str(topic["name"]) for topic in _status(each).get("topics") or ()),
        )
        for each in manifests
        if each["spec"].get("clusterName", cluster) == cluster
    ]


def read_stream_jobs(
    manifests: Iterable[Mapping[str, Any]], namespace: str, cluster: str
) -> list[Reader]:
    """Return the groups of StreamJobs that read a cluster of their own namespace."""
    return [
        Reader(
            "StreamJob",
            each["metadata"]["name"],
            str(each["spec"].get("groupId") or each["metadata"]["name"]),
            frozenset(
                str(topic)
                for source in each["spec"].get("sources") or ()
                for topic in source.get("topics") or ()
            ),
        )
        for each in manifests
        if each["spec"].get("clusterName", cluster) == cluster
        and each["spec"].get("clusterNamespace", namespace) == namespace
    ]


def read_scaled_objects(
    manifests: Iterable[Mapping[str, Any]], namespace: str, cluster: str, known: Iterable[Reader]
) -> list[Reader]:
    """Return the groups by which ScaledObjects scale, if they belong to a cluster.

    A ScaledObject without an address belongs to the cluster if its group is `known`. A ScaledObject
    without a topic scales by all topics that its group reads.
    """
    topics: dict[str, frozenset[str]] = {}
    for reader in known:
        topics[reader.group] = topics.get(reader.group, frozenset()) | reader.topics
    found = []
    for each in manifests:
        for trigger in each["spec"].get("triggers") or ():
            fields = trigger.get("metadata") or {}
            group, addresses = str(fields.get("consumerGroup", "")), fields.get("bootstrapServers")
            if trigger.get("type") not in KAFKA_SCALERS or not group:
                continue
            is_ours = (
                group in topics if addresses is None else _is_at(addresses, namespace, cluster)
            )
            if not is_ours:
                continue
            named = fields.get("topic")
            read = frozenset({str(named)}) if named else topics.get(group, frozenset())
            found.append(Reader("ScaledObject", each["metadata"]["name"], group, read))
    return found


def build_rows(
    readers: Iterable[Reader], forecast: Forecast, image: ClusterImage
) -> list[dict[str, Any]]:
    """Return a row for each reader whose partitions or coordinator change leaders."""
    from fairlead_cli.whatif.group_row import OFFSETS_TOPIC, build_row

    offsets = image.topic(OFFSETS_TOPIC)
    partitions = 0 if offsets is None else len(offsets.partitions)
    affected = {(each.topic, each.index): each for each in forecast.partitions}
    rows = []
    for reader in readers:
        reads = {at for at in affected if at[0] in reader.topics}
        row = build_row(reader.group, reads, affected, partitions)
        if row is not None:
            rows.append({"kind": reader.kind, "name": reader.name, "group": reader.group} | row)
    return rows


def _status(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    status: Mapping[str, Any] = manifest.get("status") or {}
    return status


def _is_at(addresses: object, namespace: str, cluster: str) -> bool:
    """Tell whether one of these addresses is the cluster's bootstrap Service."""
    for address in str(addresses).split(","):
        host = address.strip().partition(":")[0]
        name, _, rest = host.partition(".")
        if name == f"{cluster}-bootstrap" and rest.partition(".")[0] in {"", namespace}:
            return True
    return False
