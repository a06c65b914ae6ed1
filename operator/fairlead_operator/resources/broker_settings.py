"""Settings of brokers in manifests: values for Kafka's names, and what the operator sets itself."""

from typing import Final

from fairlead_model.configs.config_values import (
    ConfigError,
    broker_config_key,
    validate_broker_config,
)
from fairlead_model.configs.controller_configs import CONTROLLER_CONFIGS
from fairlead_model.configs.security_configs import LISTENER_PREFIX

_OWN: Final = "the operator sets it; leave it out"
MANAGED_SETTINGS: Final = {
    "advertised.listeners": "spec.listeners of the LogCluster says it",
    "broker.rack": "spec.rack of the BrokerPool says it",
    "cordoned.log.dirs": "it is set for one broker, while it runs",
    "default.replication.factor": "spec.defaults.replicationFactor of the LogCluster says it",
    "fairlead.cluster.secret.file": _OWN,
    "fairlead.controller.sessions": _OWN,
    "fairlead.drills.enable": "spec.drills.enabled of the LogCluster says it",
    "fairlead.host.name": _OWN,
    "fairlead.http.listener": _OWN,
    "fairlead.rest.advertised.listener": "spec.rest of the LogCluster says it",
    "fairlead.rest.allowed.hosts": "spec.rest of the LogCluster says it",
    "fairlead.rest.allowed.origins": "spec.rest of the LogCluster says it",
    "fairlead.rest.listener": "spec.rest of the LogCluster says it",
    "listeners": "spec.listeners of the LogCluster says it",
    "log.dirs": _OWN,
    "node.id": "spec.idBase of the BrokerPool says it",
    "num.partitions": "spec.defaults.partitions of the LogCluster says it",
}
"""Settings that a manifest cannot set, and where their value comes from."""
_LISTENERS_SAY: Final = "spec.listeners of the LogCluster says it"
MANAGED_SECURITY: Final = {
    "authorizer.class.name": "spec.authorization of the LogCluster says it",
    "fairlead.rest.authentication": "spec.rest of the LogCluster says it",
    "fairlead.rest.authentication.over.plaintext": "spec.rest.tls of the LogCluster encrypts",
    "listener.security.protocol.map": _LISTENERS_SAY,
    "sasl.enabled.mechanisms": _LISTENERS_SAY,
    "sasl.oauthbearer.expected.audience": _LISTENERS_SAY,
    "sasl.oauthbearer.expected.issuer": _LISTENERS_SAY,
    "sasl.oauthbearer.jwks.endpoint.url": _LISTENERS_SAY,
    "sasl.oauthbearer.sub.claim.name": _LISTENERS_SAY,
    "ssl.allow.dn.changes": _OWN,
    "ssl.allow.san.changes": _OWN,
    "ssl.client.auth": _LISTENERS_SAY,
    "ssl.key.password": _LISTENERS_SAY,
    "ssl.keystore.certificate.chain": _LISTENERS_SAY,
    "ssl.keystore.key": _LISTENERS_SAY,
    "ssl.keystore.location": _LISTENERS_SAY,
    "ssl.principal.mapping.rules": _OWN,
    "ssl.truststore.certificates": _LISTENERS_SAY,
    "ssl.truststore.location": _LISTENERS_SAY,
    "super.users": "spec.authorization of the LogCluster says it",
}
"""The same for settings that only secured clusters have, most of them per listener."""


def pool_setting_problem(name: str, text: str | None) -> str | None:
    """Return the problem of a setting of a BrokerPool; null needs a known name."""
    if name in CONTROLLER_CONFIGS:
        return (
            f"{name} cannot be set here: the controller reads it in spec.config of the LogCluster"
        )
    return broker_setting_problem(name, text)


def broker_setting_problem(name: str, text: str | None) -> str | None:
    """Return the problem of a setting of a LogCluster; null needs a known name."""
    managed = MANAGED_SETTINGS | MANAGED_SECURITY
    base = name
    if name.startswith(LISTENER_PREFIX):
        _, _, base = name.removeprefix(LISTENER_PREFIX).partition(".")
    if base in managed:
        return f"{name} cannot be set here: {managed[base]}"
    try:
        if text is None:
            broker_config_key(name)
        else:
            validate_broker_config(name, text)
    except ConfigError as error:
        return error.message
    written = (text or "").strip()
    if len(written.splitlines()) > 1 or written.endswith("\\"):
        # In the brokers' file it would begin another setting, or continue into the next one.
        return f"{name}: a value is one line, and does not end with a backslash"
    return None
