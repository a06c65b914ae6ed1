"""The brokers' settings for TLS, logins and authorization. Pure.

A cluster that declares none of them has no such setting. Any other cluster has one more listener,
for the operator: there the operator itself and drills show certificates of the cluster's authority,
and nobody else is admitted. So Fairlead's own requests work, however client listeners are secured.
`peer_security` is about connections between brokers.
"""

from typing import Final

from fairlead_operator.resources import Listener, LogClusterSpec
from fairlead_operator.specs.names import (
    OPERATOR_LISTENER,
    OPERATOR_PORT,
    REST_PORT,
    TLS_FOLDER,
    TRUST_KEY,
)
from fairlead_operator.specs.peer_security import PEER_LISTENERS, PEER_PROPERTIES
from fairlead_operator.specs.views import ClusterView
from fairlead_tls.protocol_map import PROTOCOL_MAP

OPERATOR_USER: Final = "fairlead-operator"
DRILLS_USER: Final = "fairlead-drills"
_MECHANISMS: Final = {"scram-sha-512": "SCRAM-SHA-512", "oauth": "OAUTHBEARER"}
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
REST_LISTENER: Final = "rest"
_HTTP_METHODS: Final = {"scram-sha-512": "BASIC", "oauth": "BEARER"}
"""How clients of the HTTP API log in; the certificates of `tls` are checked before that."""
_USER_OF_COMMON_NAME: Final = "RULE:^CN=([^,+]+)$/$1/,DEFAULT"
_OF_TLS: Final = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
"""The operator decides on the names in certificates, and accepts other issuers' changes."""


def own_user(uid: str, user: str) -> str:
    """Return the principal's name of one of Fairlead's own users.

    Because of the colon, no User resource can have the name; because of the LogCluster's uid,
    nobody else has it by chance.
    """
    return f"{user}:{uid}"


def keystore_key(listener: str) -> str:
    """Return the key of the brokers' Secret that has a listener's certificate and key."""
    return f"{listener}.pem"


def rest_listener(spec: LogClusterSpec) -> Listener | None:
    """Return the HTTP API's port as a listener in the brokers' sense; None if it is off."""
    rest = spec.rest
    if not rest.enabled:
        return None
    return Listener(
        name=REST_LISTENER,
        type="Internal",
        port=REST_PORT,
        tls=rest.tls,
        authentication=rest.authentication,
    )


def tls_listeners(cluster: ClusterView) -> tuple[Listener, ...]:
    """Return the client listeners that use TLS, including that of the HTTP API."""
    rest = rest_listener(cluster.spec)
    listeners = (*cluster.spec.listeners, *(() if rest is None else (rest,)))
    return tuple(each for each in listeners if each.is_tls)


def rest_properties(spec: LogClusterSpec) -> dict[str, str]:
    """Return the protocol of the HTTP API's port, and how its clients authenticate."""
    listener = rest_listener(spec)
    if listener is None:
        return {}
    scheme = "https://" if listener.is_tls else ""
    properties = {"fairlead.rest.listener": f"{scheme}0.0.0.0:{REST_PORT}"}
    authentication = listener.authentication
    method = "" if authentication is None else _HTTP_METHODS.get(authentication.type, "")
    if method:
        properties["fairlead.rest.authentication"] = method
    return properties | _prefixed(listener.name, _listener_properties(listener, is_sasl=False))


def protocol_of(listener: Listener) -> str:
    """Return Kafka's name of a listener's protocol."""
    is_login = listener.authentication is not None and listener.authentication.type != "tls"
    transport = "SSL" if listener.is_tls else "PLAINTEXT"
    return f"SASL_{transport}" if is_login else transport


def security_properties(cluster: ClusterView) -> dict[str, str]:
    """Return the security settings; none if the LogCluster declares no security."""
    spec = cluster.spec
    if not spec.has_certificates:
        return {}
    protocols = [f"{each.name.upper()}:{protocol_of(each)}" for each in spec.client_listeners]
    properties: dict[str, str] = {}
    if spec.is_secured:
        protocols.append(f"{OPERATOR_LISTENER}:SSL")
        properties |= _access_properties(cluster)
    if spec.inter_broker.tls:
        protocols += [f"{name}:SSL" for name in PEER_LISTENERS]
        for name in PEER_LISTENERS:
            properties |= _prefixed(name.lower(), PEER_PROPERTIES)
    return properties | {PROTOCOL_MAP: ",".join(protocols)}


def _access_properties(cluster: ClusterView) -> dict[str, str]:
    """Return the settings of secured listeners and of authorization."""
    spec = cluster.spec
    users = [own_user(cluster.uid, OPERATOR_USER)]
    if spec.authorization is not None:
        users += spec.authorization.super_users
    properties = {
        "authorizer.class.name": _AUTHORIZER,
        "super.users": ";".join(f"User:{name}" for name in users),
    }
    for listener in spec.client_listeners:
        properties |= _prefixed(listener.name, _listener_properties(listener))
    own = f"RULE:^CN=((?:{OPERATOR_USER}|{DRILLS_USER}):{cluster.uid})$/$1/"
    return properties | _prefixed(
        OPERATOR_LISTENER.lower(), _tls_properties(OPERATOR_LISTENER.lower(), users=own)
    )


def plaintext_problem(cluster: ClusterView) -> str:
    """Return which listeners accept plaintext, or that the HTTP API does; empty if none."""
    open_ways = [
        f"the listener {each.name} (port {each.port})"
        for each in cluster.spec.client_listeners
        if each.is_plaintext
    ]
    if cluster.spec.rest.enabled and not cluster.spec.rest.is_tls:
        open_ways.append("spec.rest")
    if not open_ways:
        return ""
    return (
        f"this installation refuses what is not encrypted: {', '.join(open_ways)}; add tls to "
        "spec.listeners and spec.rest, and declare a listener of type Internal, because the "
        "default one is not encrypted"
    )


def own_client_port(spec: LogClusterSpec) -> int:
    """Return the port at which the operator and drills are clients."""
    return OPERATOR_PORT if spec.is_secured else spec.inside_listeners[0].port


def _listener_properties(listener: Listener, *, is_sasl: bool = True) -> dict[str, str]:
    """Return the settings of a listener; without `is_sasl`, its logins are set elsewhere."""
    authentication = listener.authentication
    properties: dict[str, str] = {}
    if listener.is_tls:
        is_asked = authentication is not None and authentication.type == "tls"
        users = _USER_OF_COMMON_NAME if is_asked else ""
        properties |= _tls_properties(listener.name, users=users)
    if authentication is None:
        return properties
    if is_sasl and authentication.type in _MECHANISMS:
        properties["sasl.enabled.mechanisms"] = _MECHANISMS[authentication.type]
    match authentication.type:
        case "oauth":
            properties |= {
                "sasl.oauthbearer.jwks.endpoint.url": authentication.jwks_endpoint_uri or "",
                "sasl.oauthbearer.expected.issuer": authentication.valid_issuer_uri or "",
                "sasl.oauthbearer.expected.audience": authentication.audience or "",
                "sasl.oauthbearer.sub.claim.name": authentication.user_name_claim or "sub",
            }
        case "scram-sha-512" | "tls":
            pass  # the mechanism, or the certificates, are set above
    return properties


def _tls_properties(listener: str, *, users: str) -> dict[str, str]:
    """Return the settings of TLS; `users` maps certificates to names; empty requires none."""
    properties = {**_OF_TLS, "ssl.keystore.location": f"{TLS_FOLDER}/{keystore_key(listener)}"}
    if users:
        properties |= {
            "ssl.client.auth": "required",
            "ssl.truststore.location": f"{TLS_FOLDER}/{TRUST_KEY}",
            "ssl.principal.mapping.rules": users,
        }
    return properties


def _prefixed(listener: str, properties: dict[str, str]) -> dict[str, str]:
    return {f"listener.name.{listener}.{name}": text for name, text in properties.items()}
