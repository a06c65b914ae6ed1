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
_BY_DEFAULTS: Final = "use spec.defaults of the LogCluster"
_BY_LISTENERS: Final = "use spec.listeners of the LogCluster"
_BY_REST: Final = "use spec.rest of the LogCluster"
_BY_AUTHORIZATION: Final = "use spec.authorization of the LogCluster"
MANAGED_SETTINGS: Final = {
    "advertised.listeners": _BY_LISTENERS,
    "broker.rack": "use spec.rack of the BrokerPool",
    "cordoned.log.dirs": "set it for one broker while it runs, by kafka-configs.sh",
    "default.replication.factor": _BY_DEFAULTS,
    "fairlead.cluster.secret.file": _OWN,
    "fairlead.controller.sessions": _OWN,
    "fairlead.drills.enable": "use spec.drills of the LogCluster",
    "fairlead.host.name": _OWN,
    "fairlead.http.listener": _OWN,
    "fairlead.rest.advertised.listener": _BY_REST,
    "fairlead.rest.allowed.hosts": _BY_REST,
    "fairlead.rest.allowed.origins": _BY_REST,
    "fairlead.rest.listener": _BY_REST,
    "listeners": _BY_LISTENERS,
    "log.dirs": _OWN,
    "node.id": "use spec.idBase of the BrokerPool",
    "num.partitions": _BY_DEFAULTS,
}
"""Settings that a manifest cannot set under `config`, and what to do instead."""
MANAGED_SECURITY: Final = {
    "authorizer.class.name": _BY_AUTHORIZATION,
    "fairlead.rest.authentication": _BY_REST,
    "fairlead.rest.authentication.over.plaintext": "use spec.rest.tls of the LogCluster",
    "listener.security.protocol.map": _BY_LISTENERS,
    "sasl.enabled.mechanisms": _BY_LISTENERS,
    "sasl.oauthbearer.expected.audience": _BY_LISTENERS,
    "sasl.oauthbearer.expected.issuer": _BY_LISTENERS,
    "sasl.oauthbearer.jwks.endpoint.url": _BY_LISTENERS,
    "sasl.oauthbearer.sub.claim.name": _BY_LISTENERS,
    "ssl.allow.dn.changes": _OWN,
    "ssl.allow.san.changes": _OWN,
    "ssl.client.auth": _BY_LISTENERS,
    "ssl.key.password": _BY_LISTENERS,
    "ssl.keystore.certificate.chain": _BY_LISTENERS,
    "ssl.keystore.key": _BY_LISTENERS,
    "ssl.keystore.location": _BY_LISTENERS,
    "ssl.principal.mapping.rules": _OWN,
    "ssl.truststore.certificates": _BY_LISTENERS,
    "ssl.truststore.location": _BY_LISTENERS,
    "super.users": _BY_AUTHORIZATION,
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
