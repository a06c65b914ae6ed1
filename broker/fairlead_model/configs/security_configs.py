"""The broker configs of TLS, SASL and access rules; which of them a listener may have of its own.

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
        if kind != "User" or not colon or name in ("", "*"):
            return f"{user!r} is not written as User:NAME"
    return None


def _secret(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name, _PASSWORD, None, doc, is_sensitive=True)


_TLS: Final = (
    ConfigKey(
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether clients show a certificate. On a SASL_SSL listener it holds only with the "
        "listener's prefix.",
        choices=("none", "requested", "required"),
    ),
    ConfigKey(
        "ssl.enabled.protocols",
        _LIST,
        "TLSv1.2,TLSv1.3",
        "Versions of TLS that are spoken.",
        choices=("TLSv1.2", "TLSv1.3"),
    ),
    ConfigKey(
        "ssl.protocol",
        _STRING,
        "TLSv1.3",
        "The newest version of TLS that is spoken.",
        choices=("TLSv1.2", "TLSv1.3"),
    ),
    ConfigKey(
        "ssl.cipher.suites",
        _LIST,
        None,
        "Cipher suites by their IANA names; those that OpenSSL takes for secure where absent. The "
        "suites of TLS 1.3 are all on or, where only older ones are named, all off.",
    ),
    ConfigKey(
        "ssl.keystore.type", _STRING, "PEM", "Form of ssl.keystore.location.", check=_store_problem
    ),
    ConfigKey(
        "ssl.keystore.location",
        _STRING,
        None,
        "PEM file with the private key and the certificate chain, the broker's own first.",
    ),
    _secret("ssl.keystore.key", "The private key itself, in PEM, instead of a file."),
    _secret("ssl.keystore.certificate.chain", "The certificate chain itself, in PEM."),
    _secret("ssl.key.password", "Password of an encrypted private key."),
    ConfigKey(
        "ssl.truststore.type",
        _STRING,
        "PEM",
        "Form of ssl.truststore.location.",
        check=_store_problem,
    ),
    ConfigKey(
        "ssl.truststore.location",
        _STRING,
        None,
        "PEM file with the certificates of the authorities that clients' certificates come from.",
    ),
    _secret("ssl.truststore.certificates", "These certificates themselves, in PEM."),
    ConfigKey(
        "ssl.principal.mapping.rules",
        _STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes a user: DEFAULT, or "
        "RULE:pattern/replacement/ with an L or U for the case, separated by commas; the first "
        "that fits.",
    ),
    ConfigKey(
        "ssl.allow.dn.changes",
        _BOOLEAN,
        "false",
        "Take a new certificate whose distinguished name is another one.",
    ),
    ConfigKey(
        "ssl.allow.san.changes",
        _BOOLEAN,
        "false",
        "Take a new certificate whose alternative names are others.",
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
        "How long a login holds before the client has to repeat it (KIP-368); 0: for ever.",
        minimum=0,
        maximum=LONG_MAX,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        _STRING,
        None,
        "Where the keys are that tokens are signed with, as https:// or file://.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        _LONG,
        "3600000",
        "How often these keys are read again.",
        minimum=1_000,
        maximum=86_400_000,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        _LONG,
        "100",
        "How soon a reading that failed is repeated at first; twice as late each time.",
        minimum=1,
        maximum=3_600_000,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        _LONG,
        "10000",
        "How late a reading that failed is repeated at most.",
        minimum=1,
        maximum=3_600_000,
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        _INT,
        "30",
        "By how much the clock of who issues tokens may differ from this one.",
        minimum=0,
        maximum=3_600,
    ),
    ConfigKey("sasl.oauthbearer.expected.issuer", _STRING, None, "The issuer (iss) of all tokens."),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        _LIST,
        None,
        "Audiences (aud), of which each token has to name one.",
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
        "With StandardAuthorizer's name, requests of clients are allowed by access rules only. "
        "They always are where a listener asks clients who they are. AclAuthorizer, which older "
        "clusters name, means the same.",
        choices=_AUTHORIZERS,
    ),
    ConfigKey(
        "super.users",
        _STRING,
        "",
        "Who may do everything, whatever rules say: User:a;User:CN=b,O=c.",
        check=_super_users_problem,
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found",
        _BOOLEAN,
        "false",
        "Allow everybody everything on a resource to which no access rule of anybody applies.",
    ),
)

SECURITY_CONFIGS: Final = (
    *_ACCESS,
    ConfigKey(
        "listener.security.protocol.map",
        _LIST,
        None,
        "The protocol of each listener, as NAME:PROTOCOL, of PLAINTEXT, SSL, SASL_PLAINTEXT and "
        "SASL_SSL. Where absent, listeners named like a protocol speak that one. INTERNAL:SSL and "
        "CONTROLLER:SSL are TLS between brokers, and with the controller.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        _STRING,
        "INTERNAL",
        "The listener of brokers.",
        choices=("INTERNAL",),
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "Clients check the names in certificates; a broker's part is to have the right ones.",
        choices=("https",),
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        _INT,
        "100",
        "How long the answer to a failed login waits, and the end of its connection.",
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
    """Return the config of one listener, or of one mechanism of it; None if it is none such.

    ConfigError for what Kafka has and is refused here.
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
