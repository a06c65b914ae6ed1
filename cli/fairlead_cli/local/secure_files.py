"""The files of `fairlead up --secure`: an authority, brokers' certificates, clients' files.

DIR/tls/ca.crt             the authority that clients trust
DIR/tls/ca.key             its key: whoever has it can act as any broker
DIR/tls/broker-<i>.pem     certificate and key of broker i, for clients and for its peers
DIR/tls/controller.pem     certificate and key of the controller
DIR/clients/admin.*        how clients log in as the super user

The cluster of a folder with an authority is secure, and stays so.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from fairlead_cli.local.client_files import (
    ClientAccess,
    ensure_directory,
    read_client_file,
    write_client_files,
)
from fairlead_cli.local.layout import HOST
from fairlead_cli.whole_file import OWNER_ONLY, write_whole
from fairlead_tls.peer_names import PeerName

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.local.layout import Layout
    from fairlead_operator.certificates.authority import KeyPair

ADMIN: Final = "admin"
CLUSTER: Final = "local"
"""The cluster's name in the certificates of its brokers and its controller."""
_PASSWORD_BYTES: Final = 24


def choose_secure(layout: Layout, *, asked: bool) -> bool:
    """Return whether the cluster of a folder is secure: requested now, or at any time before."""
    return asked or layout.ca_certificate.exists()


def prepare_secure_files(
    layout: Layout, brokers: int, bootstrap: str, *, host: str = HOST
) -> ClientAccess:
    """Create files that are missing or expire soon; return how the super user connects.

    Without files of clients the password is a new one, and `keep_access` writes them. If they were
    there before the brokers know the password, a start that ends in between would leave files that
    log nobody in.
    """
    layout.tls_directory.mkdir(mode=0o700, exist_ok=True)
    now = datetime.now(UTC)
    hosts = list(dict.fromkeys((HOST, "localhost", host)))
    authority = _ensure_authority(layout, now)
    for broker_id in range(brokers):
        name = PeerName(CLUSTER, broker_id)
        _ensure_certificate(layout.broker_certificate(broker_id), name, authority, now, hosts)
    _ensure_certificate(layout.controller_certificate, PeerName(CLUSTER), authority, now, hosts)
    ensure_directory(layout.clients_directory)
    known = find_password(layout)
    access = ClientAccess(
        bootstrap=bootstrap,
        user=ADMIN,
        password=known or secrets.token_urlsafe(_PASSWORD_BYTES),
        ca=layout.ca_certificate,
    )
    if known:
        keep_access(layout, access)
    return access


def keep_access(layout: Layout, access: ClientAccess) -> None:
    """Write how the super user connects. CliError or OSError."""
    write_client_files(layout.clients_directory, access)


def admin_file(layout: Layout) -> Path:
    """Return the file with which Fairlead's commands log in."""
    return layout.clients_directory / f"{ADMIN}.librdkafka"


def find_password(layout: Layout) -> str | None:
    """Return the super user's password, which only its files have; None if they are lost."""
    try:
        return read_client_file(admin_file(layout)).get("sasl.password") or None
    except FileNotFoundError:
        return None


def _ensure_authority(layout: Layout, now: datetime) -> KeyPair:
    from fairlead_operator.certificates.authority import KeyPair, make_authority

    if layout.ca_certificate.exists():
        return KeyPair(layout.ca_certificate.read_bytes(), layout.ca_key.read_bytes())
    made = make_authority("Fairlead local CA", now)
    # Write the key first: if the certificate exists, the authority is complete.
    write_whole(layout.ca_key, made.key.decode(), mode=OWNER_ONLY)
    write_whole(layout.ca_certificate, made.certificate.decode())
    return made


def _ensure_certificate(
    path: Path, name: PeerName, authority: KeyPair, now: datetime, hosts: list[str]
) -> None:
    from fairlead_operator.certificates.authority import alternative_names, is_due, issue

    try:
        known = path.read_bytes()
        is_right = not is_due(known, now, authority=authority.certificate, uri=str(name))
        if is_right and alternative_names(known).issuperset(hosts):
            return
    except FileNotFoundError:
        pass  # This is the first start.
    made = issue(authority, f"fairlead-{path.stem}", now, hosts=hosts, uris=[str(name)])
    write_whole(path, (made.certificate + made.key).decode(), mode=OWNER_ONLY)
