"""The ConfigMap with a pool's server.properties. Pure.

The container fills in `${…}` when it starts. A broker may also have a file `broker-ID.properties`,
whose lines override: addresses that only Kubernetes knows. These are not part of the hash on the
pods (`live_settings`), so a new broker's address restarts no broker; a changed address takes effect
when its broker next restarts. The same holds for settings that depend on the number of brokers,
which are at the end of the file: scaling restarts no broker either.

`log.dirs` names the first volume here. In a pod with several volumes, a variable overrides it with
those that the pod has mounted (`stateful_set`), so no broker looks for a volume that its pod does
not have yet.
"""

from collections.abc import Mapping
from typing import Any, Final

from fairlead_kube.kinds import CONFIG_MAP
from fairlead_model.host_address import join_address
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.listener_security import rest_properties, security_properties
from fairlead_operator.specs.listeners import OutsideAddress, needs_lookup, shared_address
from fairlead_operator.specs.live_settings import LIVE, SIZED, PoolSettings, render_properties
from fairlead_operator.specs.names import (
    CONFIG_HASH_ANNOTATION,
    HTTP_PORT,
    INTERNAL_LISTENER,
    INTERNAL_PORT,
    OPERATOR_LISTENER,
    OPERATOR_PORT,
    PROPERTIES_KEY,
    REST_PORT,
    SECRET_FOLDER,
    SECRET_KEY,
    bootstrap_service_name,
    config_map_name,
    headless_service_name,
    log_directory,
    pool_labels,
)
from fairlead_operator.specs.views import ClusterView, Manifest, PoolView, build_child

Addresses = Mapping[str, OutsideAddress]
"""Listener to the address of one broker."""
ADVERTISED: Final = "advertised.listeners"
INTERNAL_TOPIC_FACTORS: Final = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


def build_properties(
    cluster: ClusterView, pool: PoolView, settings: OperatorSettings
) -> dict[str, str]:
    """Return the settings of a pool's brokers; those that the user may not set come last."""
    merged = dict(cluster.spec.config)
    merged |= {name: value for name, value in pool.spec.config.items() if value is not None}
    properties = {name: value for name, value in merged.items() if value is not None}
    properties |= {
        "num.partitions": str(cluster.spec.defaults.partitions),
        "default.replication.factor": str(cluster.spec.defaults.replication_factor),
        "node.id": "${BROKER_ID}",
        "log.dirs": log_directory(0),
        "listeners": ",".join(_bound_listeners(cluster)),
        ADVERTISED: _advertised(cluster, pool, {}),
        "fairlead.host.name": "${NODE_NAME}",
        "fairlead.http.listener": f"0.0.0.0:{HTTP_PORT}",
        "fairlead.controller.sessions": ",".join(
            settings.session_urls(
                cluster.namespace, cluster.name, is_tls=cluster.spec.inter_broker.tls
            )
        ),
        "fairlead.cluster.secret.file": f"{SECRET_FOLDER}/{SECRET_KEY}",
        "fairlead.drills.enable": "true" if cluster.spec.drills.enabled else "false",
    }
    if pool.spec.rack is not None:
        properties["broker.rack"] = pool.spec.rack
    return properties | _rest_properties(cluster) | security_properties(cluster)


def build_config_map(
    cluster: ClusterView,
    pool: PoolView,
    settings: PoolSettings,
    *,
    addresses: Mapping[int, Addresses],
    brokers: int,
) -> Manifest:
    """Return the ConfigMap of a pool; `addresses` has, by broker id, what was looked up.

    `brokers` is how many the cluster should have, over all its pools.
    """
    labels = pool_labels(cluster.name, pool.name)
    name = config_map_name(cluster.name, pool.name)
    told = {CONFIG_HASH_ANNOTATION: settings.config_hash}
    manifest = build_child(CONFIG_MAP, pool, name, labels, annotations=told)
    text = render_properties(settings.restarting)
    if settings.live:
        text += LIVE + render_properties(settings.live)
    sized = sized_properties(cluster, brokers)
    added = {name: value for name, value in sized.items() if name not in settings.restarting}
    if added:
        text += SIZED + render_properties(added)
    data = {PROPERTIES_KEY: text}
    for broker_id, known in sorted(addresses.items()):
        if known:
            lines = {ADVERTISED: _advertised(cluster, pool, known)}
            data[_own_file(broker_id)] = render_properties(lines)
    return manifest | {"data": data}


def find_advertised_host(
    config_map: Mapping[str, Any] | None, broker_id: int, listener: str
) -> str:
    """Return the host that a broker's own file has for a listener; empty if only its pod knows."""
    text = str(((config_map or {}).get("data") or {}).get(_own_file(broker_id), ""))
    lines = (line.partition("=") for line in text.splitlines())
    told = next((value for name, _, value in lines if name == ADVERTISED), "")
    for entry in told.split(","):
        name, _, place = entry.partition("://")
        host = place.rpartition(":")[0].removeprefix("[").removesuffix("]")
        if name == listener.upper() and "${" not in host:
            return host
    return ""


def _own_file(broker_id: int) -> str:
    """Return the key of a broker's own file."""
    return f"broker-{broker_id}.properties"


def sized_properties(cluster: ClusterView, brokers: int) -> dict[str, str]:
    """Return settings that depend on the number of brokers, unless a user sets them.

    With a default of one replica, consumer groups and transactions would go offline with their
    broker.
    """
    factor = max(1, min(cluster.spec.defaults.replication_factor, brokers))
    return dict.fromkeys(INTERNAL_TOPIC_FACTORS, str(factor))


def _bound_listeners(cluster: ClusterView) -> list[str]:
    places = [
        *((each.name.upper(), each.port) for each in cluster.spec.inside_listeners),
        (INTERNAL_LISTENER, INTERNAL_PORT),
        *((each.name.upper(), each.port) for each in cluster.spec.outside_listeners),
    ]
    if cluster.spec.is_secured:
        places.append((OPERATOR_LISTENER, OPERATOR_PORT))
    return [f"{name}://0.0.0.0:{port}" for name, port in places]


def _rest_properties(cluster: ClusterView) -> dict[str, str]:
    """Return the settings of the HTTP API; none if the LogCluster has it off."""
    rest = cluster.spec.rest
    if not rest.enabled:
        return {}
    bootstrap = bootstrap_service_name(cluster.name)
    inside = f"{bootstrap}.{cluster.namespace}"
    hosts = (bootstrap, inside, f"{inside}.svc", f"{inside}.svc.cluster.local")
    return {
        **rest_properties(cluster.spec),
        "fairlead.rest.advertised.listener": f"{_pod_host(cluster)}:{REST_PORT}",
        "fairlead.rest.allowed.hosts": ",".join((*hosts, *rest.allowed_hosts)),
        "fairlead.rest.allowed.origins": ",".join(rest.allowed_origins),
    }


def _pod_host(cluster: ClusterView) -> str:
    """Return the name of a broker's pod inside Kubernetes."""
    return f"${{POD_NAME}}.{headless_service_name(cluster.name)}.{cluster.namespace}.svc"


def _advertised(cluster: ClusterView, pool: PoolView, looked_up: Addresses) -> str:
    """Return the advertised addresses; while one is unknown, it is the pod's."""
    pod = _pod_host(cluster)
    told = [
        *(f"{each.name.upper()}://{pod}:{each.port}" for each in cluster.spec.inside_listeners),
        f"{INTERNAL_LISTENER}://${{POD_IP}}:{INTERNAL_PORT}",
    ]
    for listener in cluster.spec.outside_listeners:
        if not needs_lookup(listener):
            address = shared_address(listener, cluster, pool)
        else:
            address = looked_up.get(listener.name, OutsideAddress(pod, str(listener.port)))
        told.append(f"{listener.name.upper()}://{join_address(address.host, address.port)}")
    if cluster.spec.is_secured:
        told.append(f"{OPERATOR_LISTENER}://{pod}:{OPERATOR_PORT}")
    return ",".join(told)
