"""How the clients of a command log in: settings from a file, besides the addresses.

`--client-config FILE` names a file with librdkafka's settings. For a secure local cluster, the
default is the super user's file in its data directory. A command uses one cluster, and all its
clients, of any library, use the settings that are stored here.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_cli.errors import CliError, InputError
from fairlead_cli.local.client_files import read_client_file
from fairlead_tls.verifying_context import build_verifying_context

if TYPE_CHECKING:
    import socket

    import click

BOOTSTRAP: Final = "bootstrap.servers"
_JAVA_ONLY: Final = ("sasl.jaas.config", "ssl.truststore.location", "ssl.keystore.location")
# librdkafka finds the system's CA certificates itself if the location is "probe".
_PROBE: Final = "probe"
# librdkafka's texts for false.
_NO: Final = ("false", "f", "0")
_NAMED_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")

_settings: dict[str, str] = {}
_files: list[Path] = []
"""The file with the settings, if there is one."""


def note_client_file(path: Path) -> None:
    """Use the settings of a file for all further clients; InputError."""
    try:
        settings = read_client_file(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text") from error
    for name in _JAVA_ONLY:
        if name in settings:
            raise InputError(
                f"{path} is for Java's clients: {name} is not librdkafka's",
                hint="Name the file with librdkafka's settings, such as admin.librdkafka.",
            )
    for name in _NAMED_FILES:
        named = settings.get(name, _PROBE)
        try:
            is_there = named == _PROBE or Path(named).exists()
        except OSError as error:
            raise InputError(f"{path}: cannot read {named}: {error.strerror}") from error
        if not is_there:
            raise InputError(f"{path}: there is no {named}, which {name} names")
    _settings.clear()
    _settings.update(settings)
    _files[:] = [path]


def note_local_cluster(data: Path) -> None:
    """Log in as the super user if the folder's cluster is secure and there are no other settings.

    CliError if the folder cannot be read.
    """
    from fairlead_cli.local.layout import Layout
    from fairlead_cli.local.secure_files import admin_file

    path = admin_file(Layout(data))
    if _settings:
        return
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError as error:
        raise CliError(
            f"cannot read {path}: {error.strerror}",
            hint="Only the user who started this secure cluster can log in as its super user. Name "
            "your own settings:  --client-config FILE",
        ) from error
    note_client_file(path)


def client_settings() -> dict[str, Any]:
    """Return librdkafka's settings, without the addresses."""
    return {name: value for name, value in _settings.items() if name != BOOTSTRAP}


def configured_bootstrap() -> str | None:
    """Return the addresses in the file."""
    return _settings.get(BOOTSTRAP)


def configured_file() -> Path | None:
    """Return the file with the settings, for processes that read it themselves."""
    return _files[0] if _settings else None


def is_tls() -> bool:
    """Tell whether connections are encrypted."""
    return "ssl" in _settings.get("security.protocol", "").lower()


class LoginSettings(NamedTuple):
    """How to log in."""

    mechanism: str
    user: str
    password: str


def login_settings() -> LoginSettings | None:
    """Return how to log in; None if clients do not authenticate."""
    if not _settings.get("security.protocol", "").lower().startswith("sasl"):
        return None
    mechanism = _settings.get("sasl.mechanism") or _settings.get("sasl.mechanisms") or ""
    return LoginSettings(
        mechanism, _settings.get("sasl.username", ""), _settings.get("sasl.password", "")
    )


def wrap(connection: socket.socket, host: str) -> socket.socket:
    """Encrypt a connection if the settings say so. OSError if it is not the right broker."""
    context = build_context()
    if context is None:
        return connection
    return context.wrap_socket(connection, server_hostname=host)


def build_context() -> ssl.SSLContext | None:
    """Return the TLS context; None if connections are not encrypted. InputError for bad files."""
    if not is_tls():
        return None
    authorities = _settings.get("ssl.ca.location", _PROBE)
    try:
        context = _trust(authorities)
    except OSError as error:
        raise InputError(
            f"{configured_file()}: ssl.ca.location: {authorities} holds no certificates that can "
            f"be read: {error.strerror}",
            hint="It is a file with the authority's certificate in PEM, or a folder of them.",
        ) from error
    certificate = _settings.get("ssl.certificate.location")
    if certificate is not None:
        _load_own_certificate(context, certificate)
    is_unverified = _settings.get("enable.ssl.certificate.verification", "").lower() in _NO
    if is_unverified or _settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if is_unverified:
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_own_certificate(context: ssl.SSLContext, certificate: str) -> None:
    """Load the client's own certificate. InputError; never ask for a pass phrase."""
    key = _settings.get("ssl.key.location")

    def ask_for_password() -> str:
        raise InputError(
            f"{configured_file()}: the private key in {key or certificate} is encrypted",
            hint="Name its pass phrase in the same file:  ssl.key.password=...",
        )

    try:
        context.load_cert_chain(
            certificate, key, _settings.get("ssl.key.password") or ask_for_password
        )
    except OSError as error:
        raise InputError(
            f"{configured_file()}: ssl.certificate.location and ssl.key.location: cannot use "
            f"{certificate} with {key or 'the key in it'}: {error.strerror}",
            hint="Both are files in PEM; ssl.key.password is the pass phrase of an encrypted key.",
        ) from error


def _trust(authorities: str) -> ssl.SSLContext:
    """Return a context that trusts the certificates of a file, of a folder, or the system's."""
    if authorities == _PROBE:
        return build_verifying_context()
    if Path(authorities).is_dir():
        return build_verifying_context(ca_folder=authorities)
    return build_verifying_context(ca_file=authorities)


def read_client_config(_ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
    """Read the file of `--client-config` (an option's callback)."""
    _settings.clear()
    _files.clear()
    if value is not None:
        note_client_file(Path(value))
