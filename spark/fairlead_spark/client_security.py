"""How connections are encrypted and who logs in: settings of a file, under librdkafka's names.

A User's Secret has such a file (`librdkafka.config`), and `fairlead up --secure` writes them. It is
read for each connection, on the machine that connects. So a new password or certificate is used at
once, and no secret is among the options that Spark shows. With OAuth, `token_endpoint.py` fetches
the token with which the client logs in.
"""

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from fairlead_spark.errors import OptionError
from fairlead_spark.token_endpoint import TokenEndpoint
from fairlead_spark.verifying_context import build_verifying_context
from fairlead_wire.sasl_login import MECHANISMS, OAUTHBEARER

BOOTSTRAP: Final = "bootstrap.servers"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM: Final = ("sasl.mechanism", "sasl.mechanisms")
_METHOD: Final = "sasl.oauthbearer.method"
_OIDC: Final = "oidc"
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  # A name.
_CLIENT_ID: Final = "sasl.oauthbearer.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.secret"  # noqa: S105  # A name.
_SCOPE: Final = "sasl.oauthbearer.scope"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_TOKEN_CA: Final = "https.ca.location"  # noqa: S105  # A name.
_EXTENSION: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7E \t\r\n]*)")
"""RFC 7628, 3.1; `auth` is the token's own."""
_SERVED: Final = (
    BOOTSTRAP,
    "security.protocol",
    *_MECHANISM,
    "sasl.username",
    "sasl.password",
    _METHOD,
    _TOKEN_URL,
    _CLIENT_ID,
    _CLIENT_SECRET,
    _SCOPE,
    _EXTENSIONS,
    _TOKEN_CA,
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)


@dataclass(frozen=True)
class Login:
    """The credentials of a login: a password, or tokens with `extensions`."""

    mechanism: str
    user: str
    password: str = field(default="", repr=False)
    tokens: TokenEndpoint | None = None
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ClientSecurity:
    """Steps on a connection before the first request: none by default."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None


def read_client_file(path: str) -> dict[str, str]:
    """Return the settings of a file, NAME=VALUE a line; OptionError if there are others in it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"clientConfig: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"clientConfig: {path} is no text") from error
    settings = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith("#"):
            settings[name.strip()] = value.strip()
    for name in settings:
        if name not in _SERVED:
            raise OptionError(
                f"clientConfig: {path} has {name}: only librdkafka's settings of addresses, "
                "encryption and login are taken from a file, all others are options"
            )
    return settings


def read_security(path: str | None) -> ClientSecurity:
    """Return a file's settings of encryption and login; OptionError for unsupported ones."""
    if path is None:
        return ClientSecurity()
    settings = read_client_file(path)
    protocol = settings.get("security.protocol", PROTOCOLS[0]).upper()
    if protocol not in PROTOCOLS:
        raise OptionError(
            f"clientConfig: {path}: security.protocol is {protocol}; it can be "
            f"{', '.join(PROTOCOLS)}"
        )
    return ClientSecurity(
        _build_tls(path, settings) if protocol.endswith("SSL") else None,
        _read_login(path, settings) if protocol.startswith("SASL") else None,
    )


def _build_tls(path: str, settings: dict[str, str]) -> ssl.SSLContext:
    certificate = settings.get("ssl.certificate.location")
    try:
        context = build_verifying_context(settings.get("ssl.ca.location"))
        if certificate is not None:
            key, password = settings.get("ssl.key.location"), settings.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password or "")
    except (OSError, ValueError) as error:
        raise OptionError(f"clientConfig: {path}: a certificate cannot be read: {error}") from error
    if settings.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        context.check_hostname = False
    return context


def _read_login(path: str, settings: dict[str, str]) -> Login:
    mechanism = next((settings[name] for name in _MECHANISM if name in settings), "")
    if mechanism == OAUTHBEARER:
        return _read_token_login(path, settings)
    if mechanism not in MECHANISMS:
        raise OptionError(
            f"clientConfig: {path}: sasl.mechanism is '{mechanism}'; it can be "
            f"{', '.join((*MECHANISMS, OAUTHBEARER))}"
        )
    for name in ("sasl.username", "sasl.password"):
        if not settings.get(name):
            raise OptionError(f"clientConfig: {path}: {name} is missing")
    return Login(mechanism, settings["sasl.username"], settings["sasl.password"])


def _read_token_login(path: str, settings: dict[str, str]) -> Login:
    method = settings.get(_METHOD, "")
    if method.lower() != _OIDC:
        raise OptionError(
            f"clientConfig: {path}: {_METHOD} is '{method}'; with OAUTHBEARER it has to be "
            f"{_OIDC}: there is no callback that could give tokens"
        )
    for name in (_TOKEN_URL, _CLIENT_ID, _CLIENT_SECRET):
        if not settings.get(name):
            raise OptionError(f"clientConfig: {path}: {name} is missing")
    url = settings[_TOKEN_URL]
    if not _is_https(url):
        raise OptionError(
            f"clientConfig: {path}: {_TOKEN_URL}: it has to begin with https://HOST, because the "
            "client's secret goes there, and may have no name and password before the host"
        )
    tokens = TokenEndpoint(
        url,
        settings[_CLIENT_ID],
        settings[_CLIENT_SECRET],
        settings.get(_SCOPE, ""),
        settings.get(_TOKEN_CA),
    )
    try:
        build_verifying_context(tokens.ca_file)
    except OSError as error:
        raise OptionError(
            f"clientConfig: {path}: {_TOKEN_CA}: {tokens.ca_file} cannot be read: {error}"
        ) from error
    extensions = _read_extensions(path, settings.get(_EXTENSIONS, ""))
    return Login(OAUTHBEARER, tokens.client_id, tokens=tokens, extensions=extensions)


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # An invalid port raises, too. Text before an @ could be a password, and would be shown.
        return (
            parts.scheme == "https"
            and bool(parts.hostname and parts.port != 0)
            and (parts.username is None)
        )
    except ValueError:
        return False


def _read_extensions(path: str, text: str) -> tuple[tuple[str, str], ...]:
    """Read `name=value,name=value`."""
    extensions = []
    for pair in filter(None, (each.strip() for each in text.split(","))):
        match = _EXTENSION.fullmatch(pair)
        if match is None or match[1] == "auth":
            raise OptionError(
                f"clientConfig: {path}: {_EXTENSIONS}: '{pair}' is not NAME=VALUE, with a name of "
                "letters"
            )
        extensions.append((match[1], match[2]))
    return tuple(extensions)
