"""How connections are encrypted and who logs in: settings of a file, under librdkafka's names.

A User's Secret holds such a file (`librdkafka.config`), and `fairlead up --secure` writes them. It
is read for each connection, on whichever machine makes it, so a password or certificate that
changes is taken up, and none stands among the options that Spark shows.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fairlead_spark.errors import OptionError
from fairlead_wire.sasl_login import MECHANISMS

BOOTSTRAP: Final = "bootstrap.servers"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM: Final = ("sasl.mechanism", "sasl.mechanisms")
_SERVED: Final = (
    BOOTSTRAP,
    "security.protocol",
    *_MECHANISM,
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)


@dataclass(frozen=True)
class Login:
    """Who logs in, and by what."""

    mechanism: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class ClientSecurity:
    """What is done on a connection before the first request: nothing by default."""

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
    """Return what a file says of encryption and login; OptionError if it can't be done."""
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
        context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
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
    if mechanism not in MECHANISMS:
        raise OptionError(
            f"clientConfig: {path}: sasl.mechanism is '{mechanism}'; it can be "
            f"{', '.join(MECHANISMS)}"
        )
    for name in ("sasl.username", "sasl.password"):
        if not settings.get(name):
            raise OptionError(f"clientConfig: {path}: {name} is missing")
    return Login(mechanism, settings["sasl.username"], settings["sasl.password"])
