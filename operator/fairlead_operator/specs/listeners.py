"""The addresses that brokers advertise to clients outside Kubernetes. Pure.

Addresses that are the same for all brokers of a pool, except for the id, are in the shared
server.properties, with placeholders that the container fills in. Addresses that only Kubernetes
knows (a node port that it chose, or a load balancer's address) are looked up per broker and written
to a separate file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_operator.resources import Listener
from fairlead_operator.specs.views import ClusterView, Manifest, PoolView

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_ESCAPES: Final = {
    "brokerId": "${BROKER_ID}",
    "ordinal": "${ORDINAL}",
    "pod": "${POD_NAME}",
    "hostIP": "${HOST_IP}",
}


@dataclass(frozen=True, slots=True)
class OutsideAddress:
    """Where clients reach a broker; both parts may have placeholders of the container."""

    host: str
    port: str


def node_port(listener: Listener, broker_id: int | None) -> int | None:
    """Return the node port that the spec requests, if it does.

    `broker_id` None is the bootstrap Service.
    """
    if listener.node_port_base is None:
        return None
    return listener.node_port_base + (0 if broker_id is None else 1 + broker_id)


def needs_lookup(listener: Listener) -> bool:
    """Tell whether only a broker's live Service shows its address."""
    if listener.type == "LoadBalancer":
        return listener.advertised_host_template is None
    if listener.node_port_base is not None:
        return False
    template = listener.advertised_port_template
    return template is None or "{nodePort}" in template


def shared_address(listener: Listener, cluster: ClusterView, pool: PoolView) -> OutsideAddress:
    """Return the address of every broker of the pool, with placeholders of the container."""
    base = listener.node_port_base
    port = "" if base is None else f"${{BROKER_ID+{base + 1}}}"
    host_template = listener.advertised_host_template or "{hostIP}"
    if listener.type == "LoadBalancer":
        port_template = listener.advertised_port_template or str(listener.port)
    else:
        port_template = listener.advertised_port_template or "{nodePort}"
    names = _names(cluster, pool) | {"nodePort": port}
    return OutsideAddress(_fill(host_template, names), _fill(port_template, names))


def looked_up_address(
    listener: Listener,
    cluster: ClusterView,
    pool: PoolView,
    service: Mapping[str, Any] | None,
    *,
    known_host: str = "",
) -> OutsideAddress | None:
    """Return the address of the broker behind a live Service; None while it has no address.

    `known_host` is the one that the broker's load balancer had last: it may be without one for a
    while, and a broker that restarts then must not send clients elsewhere.
    """
    if service is None:
        return None
    ports = (service.get("spec") or {}).get("ports") or []
    # Somebody may have added another port.
    own: Manifest = next((each for each in ports if each.get("port") == listener.port), {})
    names = _names(cluster, pool) | {"nodePort": str(own.get("nodePort") or "")}
    if listener.type == "NodePort":
        if not names["nodePort"]:
            return None
        host_template = listener.advertised_host_template or "{hostIP}"
        port_template = listener.advertised_port_template or "{nodePort}"
    else:
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        address = next((entry.get("hostname") or entry.get("ip") for entry in ingress), None)
        address = address or known_host
        if not address:
            return None
        host_template = str(address)
        port_template = listener.advertised_port_template or str(listener.port)
    return OutsideAddress(_fill(host_template, names), _fill(port_template, names))


def _names(cluster: ClusterView, pool: PoolView) -> dict[str, str]:
    return _ESCAPES | {
        "cluster": cluster.name,
        "namespace": cluster.namespace,
        "pool": pool.name,
    }


def _fill(template: str, names: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: names[match.group(1)], template)
