"""The broker configs of TLS, SASL and access rules, and which of them one listener may override.

`listener.name.<name>.` before a config sets it for one listener, and
`listener.name.<name>.<mechanism>.` for one mechanism of it, as in Kafka. Both names are in lower
case there.
"""

from dataclasses import replace
from typing import Final

from fairlead_model.configs.config_key import INT_MAX, LONG_MAX, ConfigError, ConfigKey, ConfigType

LISTENER_PREFIX: Final = "listener.name."
SASL_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
CONVERT: Final = (
    "only PEM is read; convert it with `openssl pkcs12 -in FILE.p12 -nodes -out FILE.pem`, a JKS "
    "before with `keytool -importkeystore -srckeystore FILE.jks -destkeystore FILE.p12 "
    "-deststoretype PKCS12`"
)

_BOOLEAN = ConfigType.BOOLEAN
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_LONG = ConfigType.LONG
_PASSWORD = ConfigType.PASSWORD
_STRING = ConfigType.STRING


def _store_problem(text: str) -> str | None:
    return None if text.upper() == "PEM" else CONVERT


def _super_users_problem(text: str) -> str | None:
    for user in filter(None, map(str.strip, text.split(";"))):
        kind, colon, name = user.partition(":")
        # As in Kafka, any type is taken; one that is no User is nobody here. `user` is a mistake.
        is_mistaken = kind != "User" and kind.lower() == "user"
        if not kind or is_mistaken or not colon or name in ("", "*"):
            return f"{user!r} is not written as User:NAME"
    return None


def _secret(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name, _PASSWORD, None, doc, is_sensitive=True)


_TLS: Final = (
    ConfigKey(
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether clients have to show a certificate. For a SASL_SSL listener it has to be set "
        "with the listener's prefix.",
        choices=("none", "requested", "required"),
    ),
    ConfigKey(
        "ssl.enabled.protocols",
        _LIST,
        "TLSv1.2,TLSv1.3",
        "Versions of TLS that the broker accepts.",
        choices=("TLSv1.2", "TLSv1.3"),
    ),
    ConfigKey(
        "ssl.protocol",
        _STRING,
        "TLSv1.3",
        "The newest version of TLS that the broker accepts.",
        choices=("TLSv1.2", "TLSv1.3"),
    ),
    ConfigKey(
        "ssl.cipher.suites",
        _LIST,
        None,
        "Cipher suites by their IANA names. If not set: those with forward secrecy and without "
        "SHA-1. The suites of TLS 1.3 are all on or, if only older suites are named, all off.",
    ),
    ConfigKey(
        "ssl.keystore.type",
        _STRING,
        "PEM",
        "Format of the file ssl.keystore.location.",
        check=_store_problem,
    ),
    ConfigKey(
        "ssl.keystore.location",
        _STRING,
        None,
        "PEM file with the private key and the certificate chain, the broker's own first.",
    ),
    _secret("ssl.keystore.key", "The private key itself, in PEM, instead of a file."),
    _secret(
        "ssl.keystore.certificate.chain", "The certificate chain itself, in PEM, instead of a file."
    ),
    _secret("ssl.key.password", "Password of an encrypted private key."),
    ConfigKey(
        "ssl.truststore.type",
        _STRING,
        "PEM",
        "Format of the file ssl.truststore.location.",
        check=_store_problem,
    ),
    ConfigKey(
        "ssl.truststore.location",
        _STRING,
        None,
        "PEM file with the certificates of the authorities that sign clients' certificates.",
    ),
    _secret(
        "ssl.truststore.certificates", "These certificates themselves, in PEM, instead of a file."
    ),
    ConfigKey(
        "ssl.principal.mapping.rules",
        _STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes a user: DEFAULT, or "
        "RULE:pattern/replacement/ with an L or U for the case, separated by commas. The first "
        "rule that matches is used.",
    ),
    ConfigKey(
        "ssl.allow.dn.changes",
        _BOOLEAN,
        "false",
        "Accept a new certificate with another distinguished name.",
    ),
    ConfigKey(
        "ssl.allow.san.changes",
        _BOOLEAN,
        "false",
        "Accept a new certificate with other alternative names.",
    ),
)

_SASL: Final = (
    ConfigKey(
        "sasl.enabled.mechanisms",
        _LIST,
        "",
        "Mechanisms by which clients may log in; PLAIN and OAUTHBEARER only over TLS.",
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        _INT,
        "65536",
        "The largest request before a client has logged in.",
        minimum=1024,
        maximum=524_288,
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        _LONG,
        "0",
        "Time after which a client has to log in again (KIP-368); 0: never.",
        minimum=0,
        maximum=LONG_MAX,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        _STRING,
        None,
        "Address of the keys that tokens are signed with, as https:// or file://.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        _LONG,
        "3600000",
        "How often the broker reads these keys again.",
        minimum=1_000,
        maximum=86_400_000,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        _LONG,
        "100",
        "First wait before the broker reads the keys again after a failure; it doubles with "
        "each failure.",
        minimum=1,
        maximum=3_600_000,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        _LONG,
        "10000",
        "Longest wait before the broker reads the keys again after a failure.",
        minimum=1,
        maximum=3_600_000,
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        _INT,
        "30",
        "By how much the clock of the issuer of tokens may differ from the broker's.",
        minimum=0,
        maximum=3_600,
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer",
        _STRING,
        None,
        "The issuer (iss) that each token has to name.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        _LIST,
        None,
        "Audiences (aud). Each token has to name one of them.",
    ),
    ConfigKey("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "The claim that names the user."),
)

_AUTHORIZERS: Final = (
    "",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)

_ACCESS = (
    ConfigKey(
        "authorizer.class.name",
        _STRING,
        "",
        "With the name of StandardAuthorizer, access rules (ACLs) decide on the requests of "
        "clients. They always do on brokers with a listener that authenticates clients. "
        "AclAuthorizer, the name in older clusters, means the same.",
        choices=_AUTHORIZERS,
    ),
    ConfigKey(
        "super.users",
        _STRING,
        "",
        "Users that may do everything, whatever the access rules are: User:a;User:CN=b,O=c.",
        check=_super_users_problem,
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found",
        _BOOLEAN,
        "false",
        "Allow every user everything on a resource that no access rule (ACL) names.",
    ),
)

SECURITY_CONFIGS: Final = (
    *_ACCESS,
    ConfigKey(
        "listener.security.protocol.map",
        _LIST,
        None,
        "The protocol of each listener, as NAME:PROTOCOL, of PLAINTEXT, SSL, SASL_PLAINTEXT "
        "and SASL_SSL. If not set, a listener whose name is a protocol uses that protocol. "
        "INTERNAL:SSL means TLS between brokers, CONTROLLER:SSL means TLS with the controller.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        _STRING,
        "INTERNAL",
        "Listener for connections between brokers.",
        choices=("INTERNAL",),
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "Clients check the names in certificates; the broker's certificate has to contain them.",
        choices=("https",),
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        _INT,
        "100",
        "How long the broker delays the answer to a failed login, and closing its connection.",
        minimum=0,
        maximum=INT_MAX,
    ),
    *_TLS,
    *_SASL,
)
_OF_LISTENERS: Final = {key.name: key for key in (*_TLS, *_SASL)}
_OF_MECHANISMS: Final = {"connections.max.reauth.ms"}

_NO_CLASSES: Final = "no classes can be loaded; leave it out"
_BROKERS_DO: Final = "brokers reach each other by the listener INTERNAL; leave it out"
_REFUSED: Final = {
    "ssl.keystore.password": "PEM files have no store password; ssl.key.password is the key's",
    "ssl.truststore.password": "PEM files have no store password; leave it out",
    "ssl.engine.factory.class": _NO_CLASSES,
    "ssl.provider": _NO_CLASSES,
    "ssl.keymanager.algorithm": _NO_CLASSES,
    "ssl.trustmanager.algorithm": _NO_CLASSES,
    "ssl.secure.random.implementation": _NO_CLASSES,
    "security.providers": _NO_CLASSES,
    "principal.builder.class": "ssl.principal.mapping.rules says how certificates become users",
    "sasl.server.callback.handler.class": _NO_CLASSES,
    "sasl.login.callback.handler.class": _NO_CLASSES,
    "sasl.login.class": _NO_CLASSES,
    "sasl.jaas.config": "users log in with their SCRAM credentials, by PLAIN, too; leave it out",
    "sasl.kerberos.service.name": "GSSAPI is not served",
    "sasl.kerberos.principal.to.local.rules": "GSSAPI is not served",
    "security.inter.broker.protocol": _BROKERS_DO,
    "sasl.mechanism.inter.broker.protocol": _BROKERS_DO,
    "client.quota.callback.class": _NO_CLASSES,
}


def find_security_key(name: str) -> ConfigKey | None:
    """Return a config of a listener, or of a mechanism of a listener; None if it is neither.

    ConfigError for configs that Kafka has and Fairlead refuses.
    """
    own = name
    if name.startswith(LISTENER_PREFIX):
        listener, _, own = name.removeprefix(LISTENER_PREFIX).partition(".")
        mechanism, _, rest = own.partition(".")
        if mechanism.upper() in SASL_MECHANISMS:
            if rest in _OF_MECHANISMS and mechanism == mechanism.lower():
                return replace(_OF_LISTENERS[rest], name=name, default=None)
            own = rest
        elif listener == listener.lower() and own in _OF_LISTENERS:
            return replace(_OF_LISTENERS[own], name=name, default=None)
        elif listener != listener.lower() and own in _OF_LISTENERS:
            raise ConfigError(name, f"{name}: write the listener's name in lower case")
    if own in _REFUSED:
        raise ConfigError(name, f"{name}: {_REFUSED[own]}")
    return None
