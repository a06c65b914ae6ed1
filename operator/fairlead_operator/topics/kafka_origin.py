"""Topics made over Kafka's protocol, shown as Topic resources. Pure.

The resource follows the topic, never the other way round: it claims nothing, its spec is written
from the topic, and it is deleted with the topic. Its reclaim policy and deletion protection belong
to the user; the policy is Retain at first. If a Topic declares the same topicName, it takes the
topic over, and the resource that shows the topic is deleted.
"""

from collections.abc import Mapping
from typing import Any, Final

from fairlead_model.resources.resource_shape import ConfigMap
from fairlead_model.resources.topic_manifest import API_VERSION, TOPIC_KIND
from fairlead_operator.drills.agent_pod import TOPIC_PREFIX as DRILL_TOPIC_PREFIX
from fairlead_operator.topics.topic_resource import (
    CLUSTER_LABEL,
    FROM_KAFKA,
    ORIGIN_LABEL,
    ClusterKey,
    mirror_name,
)

SETTING_LENGTH_MAX: Final = ConfigMap().text_maximum
"""The longest value of a setting in the definition of Topics."""


def is_shown(entry: Mapping[str, Any] | None, *, is_claimed: bool) -> bool:
    """Tell whether a resource shows a topic: made over Kafka, and declared by no resource."""
    return (
        entry is not None
        and not is_claimed
        and entry["origin"] == FROM_KAFKA
        and not entry["resource"]
        and not entry["isInternal"]
        # A drill creates and deletes its own topic within a minute.
        and not entry["name"].startswith(DRILL_TOPIC_PREFIX)
    )


def build_mirror(cluster: ClusterKey, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resource that shows a topic."""
    namespace, name = cluster
    topic_name = entry["name"]
    return {
        "apiVersion": API_VERSION,
        "kind": TOPIC_KIND,
        "metadata": {
            "name": mirror_name(name, topic_name),
            "namespace": namespace,
            "labels": {
                ORIGIN_LABEL: FROM_KAFKA,
                CLUSTER_LABEL: name,
                "app.kubernetes.io/managed-by": "fairlead-operator",
            },
        },
        "spec": {
            "clusterName": name,
            "topicName": topic_name,
            "reclaimPolicy": "Retain",
            **_followed(entry),
        },
    }


def _followed(entry: Mapping[str, Any]) -> dict[str, Any]:
    configs: Mapping[str, str] = entry["configs"]
    return {
        "partitions": entry["partitions"],
        "replicationFactor": entry["replicationFactor"],
        # A throttle may name all replicas. The API server would refuse the whole resource.
        "config": {
            name: value for name, value in configs.items() if len(value) <= SETTING_LENGTH_MAX
        },
    }


def build_mirror_patch(manifest: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that makes the spec equal to its topic; empty if it is equal."""
    spec = manifest["spec"]
    followed = _followed(entry)
    patch: dict[str, Any] = {
        name: followed[name]
        for name in ("partitions", "replicationFactor")
        if spec.get(name) != followed[name]
    }
    config = spec.get("config") or {}
    if config != followed["config"]:
        gone = dict.fromkeys(config.keys() - followed["config"].keys())
        patch["config"] = followed["config"] | gone
    return {"spec": patch} if patch else {}
