"""Services: names for pods, a place for clients to begin, and a way in for each broker. Pure."""

from fairlead_controller.kube.kinds import SERVICE
from fairlead_operator.resources import Listener
from fairlead_operator.specs.listeners import node_port
from fairlead_operator.specs.names import (
    CLIENT_PORT,
    HTTP_PORT,
    INTERNAL_PORT,
    bootstrap_service_name,
    broker_selector,
    cluster_labels,
    headless_service_name,
    listener_service_name,
    pool_labels,
)
from fairlead_operator.specs.views import ClusterView, Manifest, PoolView, build_child


def build_headless_service(cluster: ClusterView) -> Manifest:
    """Give the Service behind the pods' own names; a broker that only starts has one already."""
    manifest = build_child(
        SERVICE, cluster, headless_service_name(cluster.name), cluster_labels(cluster.name)
    )
    manifest["spec"] = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": broker_selector(cluster.name),
        "ports": [
            _port("kafka", CLIENT_PORT),
            _port("internal", INTERNAL_PORT),
            _port("http", HTTP_PORT),
        ],
    }
    return manifest


def build_bootstrap_service(cluster: ClusterView) -> Manifest:
    """Give the Service where clients inside Kubernetes begin: any broker that is ready."""
    manifest = build_child(
        SERVICE, cluster, bootstrap_service_name(cluster.name), cluster_labels(cluster.name)
    )
    manifest["spec"] = {
        "type": "ClusterIP",
        "selector": broker_selector(cluster.name),
        "ports": [_port("kafka", CLIENT_PORT)],
    }
    return manifest


def build_listener_bootstrap(cluster: ClusterView, listener: Listener) -> Manifest:
    """Give the Service where clients of an outside listener begin."""
    manifest = build_child(
        SERVICE,
        cluster,
        listener_service_name(cluster.name, listener.name, None),
        cluster_labels(cluster.name),
        annotations=listener.annotations,
    )
    manifest["spec"] = _outside_spec(listener, None) | {"selector": broker_selector(cluster.name)}
    return manifest


def build_broker_services(cluster: ClusterView, pool: PoolView, replicas: int) -> list[Manifest]:
    """Give the Services that lead from outside to each broker of a pool, whatever its state."""
    manifests = []
    for listener in cluster.spec.listeners:
        for ordinal in range(replicas):
            broker_id = pool.spec.id_base + ordinal
            manifest = build_child(
                SERVICE,
                pool,
                listener_service_name(cluster.name, listener.name, broker_id),
                pool_labels(cluster.name, pool.name),
                annotations=listener.annotations,
            )
            manifest["spec"] = _outside_spec(listener, broker_id) | {
                "publishNotReadyAddresses": True,
                "selector": {"statefulset.kubernetes.io/pod-name": pool.pod_name(ordinal)},
            }
            manifests.append(manifest)
    return manifests


def _outside_spec(listener: Listener, broker_id: int | None) -> Manifest:
    port = _port(listener.name, listener.port)
    chosen = node_port(listener, broker_id)
    if chosen is not None:
        port["nodePort"] = chosen
    return {"type": listener.type, "ports": [port]}


def _port(name: str, number: int) -> Manifest:
    return {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}
