"""The ConfigMap with a pool's server.properties, and the hash by which its change is seen. Pure.

`${…}` is filled in by the container when it starts. Per broker there may be a file
`broker-ID.properties` whose lines come on top: addresses that only Kubernetes knows. Those are not
part of the hash, so that a new broker's address restarts nobody; a changed one takes effect when
its broker next restarts. So it is with what follows from the number of brokers, which stands at
the end of the file: scaling restarts nobody either.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from fairlead_controller.kube.kinds import CONFIG_MAP
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.listeners import OutsideAddress, needs_lookup, shared_address
from fairlead_operator.specs.names import (
    CLIENT_LISTENER,
    CLIENT_PORT,
    DATA_FOLDER,
    HTTP_PORT,
    INTERNAL_LISTENER,
    INTERNAL_PORT,
    PROPERTIES_KEY,
    SECRET_FOLDER,
    SECRET_KEY,
    config_map_name,
    headless_service_name,
    pool_labels,
)
from fairlead_operator.specs.views import ClusterView, Manifest, PoolView, build_child

Addresses = Mapping[str, OutsideAddress]
"""Listener → address of one broker."""
OFFSETS_FACTOR: Final = "offsets.topic.replication.factor"
NOT_HASHED: Final = "# From the number of brokers; a change takes effect with the next restart.\n"


def build_properties(
    cluster: ClusterView, pool: PoolView, settings: OperatorSettings
) -> dict[str, str]:
    """Give the settings of a pool's brokers; what the user may not set comes last and wins."""
    merged = dict(cluster.spec.config)
    merged |= {name: value for name, value in pool.spec.config.items() if value is not None}
    properties = {name: value for name, value in merged.items() if value is not None}
    properties |= {
        "num.partitions": str(cluster.spec.defaults.partitions),
        "default.replication.factor": str(cluster.spec.defaults.replication_factor),
        "node.id": "${BROKER_ID}",
        "log.dirs": f"{DATA_FOLDER}/log",
        "listeners": ",".join(_bound_listeners(cluster)),
        "advertised.listeners": _advertised(cluster, pool, {}),
        "fairlead.host.name": "${NODE_NAME}",
        "fairlead.http.listener": f"0.0.0.0:{HTTP_PORT}",
        "fairlead.controller.sessions": ",".join(
            settings.session_urls(cluster.namespace, cluster.name)
        ),
        "fairlead.cluster.secret.file": f"{SECRET_FOLDER}/{SECRET_KEY}",
        "fairlead.drills.enable": "true" if cluster.spec.drills.enabled else "false",
    }
    if pool.spec.rack is not None:
        properties["broker.rack"] = pool.spec.rack
    return properties


def build_config_map(
    cluster: ClusterView,
    pool: PoolView,
    settings: OperatorSettings,
    *,
    addresses: Mapping[int, Addresses],
    brokers: int,
) -> Manifest:
    """Give the ConfigMap of a pool; `addresses` holds, by broker id, what was looked up.

    `brokers` is how many the cluster shall have, over all its pools.
    """
    labels = pool_labels(cluster.name, pool.name)
    manifest = build_child(CONFIG_MAP, pool, config_map_name(cluster.name, pool.name), labels)
    properties = build_properties(cluster, pool, settings)
    text = render_properties(properties)
    sized = sized_properties(cluster, brokers)
    added = {name: value for name, value in sized.items() if name not in properties}
    if added:
        text += NOT_HASHED + render_properties(added)
    data = {PROPERTIES_KEY: text}
    for broker_id, known in sorted(addresses.items()):
        if known:
            lines = {"advertised.listeners": _advertised(cluster, pool, known)}
            data[f"broker-{broker_id}.properties"] = render_properties(lines)
    return manifest | {"data": data}


def sized_properties(cluster: ClusterView, brokers: int) -> dict[str, str]:
    """Give the settings that follow from the number of brokers where a user gives none.

    Kafka's own default of one replica would take consumer groups offline with their broker.
    """
    factor = max(1, min(cluster.spec.defaults.replication_factor, brokers))
    return {OFFSETS_FACTOR: str(factor)}


def render_properties(properties: Mapping[str, str]) -> str:
    """Write settings as a file, in the order of their names."""
    return "".join(f"{name}={properties[name]}\n" for name in sorted(properties))


def config_hash(config_map: Manifest) -> str:
    """Give what changes when brokers have to restart to take up their settings."""
    text, _, _ = config_map["data"][PROPERTIES_KEY].partition(NOT_HASHED)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _bound_listeners(cluster: ClusterView) -> list[str]:
    return [
        f"{CLIENT_LISTENER}://0.0.0.0:{CLIENT_PORT}",
        f"{INTERNAL_LISTENER}://0.0.0.0:{INTERNAL_PORT}",
        *(
            f"{listener.name.upper()}://0.0.0.0:{listener.port}"
            for listener in cluster.spec.listeners
        ),
    ]


def _advertised(cluster: ClusterView, pool: PoolView, looked_up: Addresses) -> str:
    """Give the told addresses; one that is not known yet is the pod's, so that brokers start."""
    pod = f"${{POD_NAME}}.{headless_service_name(cluster.name)}.{cluster.namespace}.svc"
    told = [
        f"{CLIENT_LISTENER}://{pod}:{CLIENT_PORT}",
        f"{INTERNAL_LISTENER}://${{POD_IP}}:{INTERNAL_PORT}",
    ]
    for listener in cluster.spec.listeners:
        if not needs_lookup(listener):
            address = shared_address(listener, cluster, pool)
        else:
            address = looked_up.get(listener.name, OutsideAddress(pod, str(listener.port)))
        told.append(f"{listener.name.upper()}://{address.host}:{address.port}")
    return ",".join(told)
