"""Settings of brokers in manifests: what Kafka's names take, and what is the operator's own."""

from typing import Final

from fairlead_model.configs import ConfigError, broker_config_key, validate_broker_config

_OWN: Final = "the operator sets it; leave it out"
MANAGED_SETTINGS: Final = {
    "advertised.listeners": "spec.listeners of the LogCluster says it",
    "broker.rack": "spec.rack of the BrokerPool says it",
    "default.replication.factor": "spec.defaults.replicationFactor of the LogCluster says it",
    "fairlead.cluster.secret.file": _OWN,
    "fairlead.controller.sessions": _OWN,
    "fairlead.drills.enable": "spec.drills.enabled of the LogCluster says it",
    "fairlead.host.name": _OWN,
    "fairlead.http.listener": _OWN,
    "listeners": "spec.listeners of the LogCluster says it",
    "log.dirs": _OWN,
    "node.id": "spec.idBase of the BrokerPool says it",
    "num.partitions": "spec.defaults.partitions of the LogCluster says it",
}
"""Settings that a manifest cannot give, and where their value comes from."""


def broker_setting_problem(name: str, text: str | None) -> str | None:
    """Say what is wrong with a setting of a LogCluster or BrokerPool; null needs a known name."""
    if name in MANAGED_SETTINGS:
        return f"{name} cannot be set here: {MANAGED_SETTINGS[name]}"
    try:
        if text is None:
            broker_config_key(name)
        else:
            validate_broker_config(name, text)
    except ConfigError as error:
        return error.message
    return None
