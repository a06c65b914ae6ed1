"""Services: names for pods, the clients' bootstrap, and an outside port for each broker. Pure."""

from fairlead_kube.kinds import SERVICE
from fairlead_operator.resources import Listener, LogClusterSpec
from fairlead_operator.specs.listeners import node_port
from fairlead_operator.specs.names import (
    HTTP_PORT,
    INTERNAL_PORT,
    OPERATOR_PORT,
    REST_PORT,
    bootstrap_service_name,
    broker_selector,
    cluster_labels,
    headless_service_name,
    listener_service_name,
    pool_labels,
)
from fairlead_operator.specs.views import ClusterView, Manifest, PoolView, build_child


def build_headless_service(cluster: ClusterView) -> Manifest:
    """Return the headless Service for the pods' names, including brokers that are starting."""
    manifest = build_child(
        SERVICE, cluster, headless_service_name(cluster.name), cluster_labels(cluster.name)
    )
    manifest["spec"] = {
        **_families(cluster.spec),
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": broker_selector(cluster.name),
        "ports": [
            *_inside_ports(cluster),
            _port("internal", INTERNAL_PORT),
            _port("http", HTTP_PORT),
            *_rest_ports(cluster),
        ],
    }
    return manifest


def build_bootstrap_service(cluster: ClusterView) -> Manifest:
    """Return the bootstrap Service for clients inside Kubernetes: any broker that is ready."""
    manifest = build_child(
        SERVICE, cluster, bootstrap_service_name(cluster.name), cluster_labels(cluster.name)
    )
    manifest["spec"] = {
        **_families(cluster.spec),
        "type": "ClusterIP",
        "selector": broker_selector(cluster.name),
        "ports": [*_inside_ports(cluster), *_rest_ports(cluster)],
    }
    return manifest


def build_listener_bootstrap(cluster: ClusterView, listener: Listener) -> Manifest:
    """Return the bootstrap Service for clients of an outside listener."""
    manifest = build_child(
        SERVICE,
        cluster,
        listener_service_name(cluster.name, listener.name, None),
        cluster_labels(cluster.name),
        annotations=listener.annotations,
    )
    manifest["spec"] = {
        **_listener_families(cluster, listener),
        **_outside_spec(listener, None),
        "selector": broker_selector(cluster.name),
    }
    return manifest


def build_broker_services(cluster: ClusterView, pool: PoolView, replicas: int) -> list[Manifest]:
    """Return the Services from outside to each broker of a pool, ready or not."""
    manifests = []
    for listener in cluster.spec.outside_listeners:
        for ordinal in range(replicas):
            broker_id = pool.spec.id_base + ordinal
            manifest = build_child(
                SERVICE,
                pool,
                listener_service_name(cluster.name, listener.name, broker_id),
                pool_labels(cluster.name, pool.name),
                annotations=listener.annotations,
            )
            manifest["spec"] = {
                **_listener_families(cluster, listener),
                **_outside_spec(listener, broker_id),
                "publishNotReadyAddresses": True,
                "selector": {"statefulset.kubernetes.io/pod-name": pool.pod_name(ordinal)},
            }
            manifests.append(manifest)
    return manifests


def _families(said: LogClusterSpec | Listener) -> Manifest:
    """Return the IP families as far as they are declared; Kubernetes chooses the rest."""
    wanted: Manifest = {
        "ipFamilyPolicy": said.ip_family_policy,
        "ipFamilies": list(said.ip_families),
    }
    return {name: value for name, value in wanted.items() if value}


def _listener_families(cluster: ClusterView, listener: Listener) -> Manifest:
    """Return the IP families of a listener's Services: its own if declared, else the cluster's."""
    return _families(listener) or _families(cluster.spec)


def _outside_spec(listener: Listener, broker_id: int | None) -> Manifest:
    port = _port(listener.name, listener.port)
    chosen = node_port(listener, broker_id)
    if chosen is not None:
        port["nodePort"] = chosen
    wanted: Manifest = {
        "loadBalancerClass": listener.load_balancer_class,
        "loadBalancerSourceRanges": list(listener.load_balancer_source_ranges),
        "externalTrafficPolicy": listener.external_traffic_policy,
    }
    chosen_fields = {name: value for name, value in wanted.items() if value}
    return {"type": listener.type, "ports": [port], **chosen_fields}


def _inside_ports(cluster: ClusterView) -> list[Manifest]:
    """Return the ports of clients inside Kubernetes; the first is called kafka."""
    first, *others = cluster.spec.inside_listeners
    ports = [_port("kafka", first.port), *(_port(each.name, each.port) for each in others)]
    if cluster.spec.is_secured:
        ports.append(_port("operator", OPERATOR_PORT))
    return ports


def _rest_ports(cluster: ClusterView) -> list[Manifest]:
    return [_port("rest", REST_PORT)] if cluster.spec.rest.enabled else []


def _port(name: str, number: int) -> Manifest:
    return {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}
