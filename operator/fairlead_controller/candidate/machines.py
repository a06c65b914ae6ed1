"""What Pods and Nodes say about brokers: who is about to go, and where it runs. Pure.

A registration names its pod by uid and its node by name, so nothing is guessed from names of pods:
a pod that takes the place of another is another one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from fairlead_model.broker import BrokerRegistration
from fairlead_model.ids import BrokerId

ZONE_LABEL: Final = "topology.kubernetes.io/zone"

Manifest = Mapping[str, Any]


def plan_drains(
    brokers: Iterable[BrokerRegistration],
    *,
    leaving_pods: Mapping[str, str],
    cordoned_nodes: Iterable[str],
) -> dict[BrokerId, str]:
    """Give the brokers whose leaders have to move, and why.

    `leaving_pods` are uid → name of those that are being deleted.
    """
    nodes = set(cordoned_nodes)
    drains: dict[BrokerId, str] = {}
    for broker in brokers:
        if broker.pod_uid and broker.pod_uid in leaving_pods:
            drains[broker.broker_id] = f"pod {leaving_pods[broker.pod_uid]} is being deleted"
        elif broker.host_name in nodes:
            drains[broker.broker_id] = f"node {broker.host_name} is unschedulable"
    return drains


def is_leaving(pod: Manifest) -> bool:
    """Tell whether a pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_cordoned(node: Manifest) -> bool:
    """Tell whether a node takes no new pods: it is being drained, or about to be."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def located(asking: BrokerRegistration, node: Manifest | None) -> BrokerRegistration:
    """Give a registration with the zone of its node as rack, unless the broker names one."""
    if asking.rack or node is None:
        return asking
    zone = (node["metadata"].get("labels") or {}).get(ZONE_LABEL)
    return replace(asking, rack=zone) if zone else asking
