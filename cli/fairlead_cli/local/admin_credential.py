"""Create the credential of a new secure cluster's super user, before any client can log in.

The request uses the brokers' internal listener, with a broker's certificate and the cluster's
secret: a user who can read these files owns the cluster anyway.
"""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_broker.peer_check import MECHANISM, PeerProof, PeerProofError
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import exchange, name_error
from fairlead_model.security.scram import (
    DEFAULT_ITERATIONS,
    SALT_SEED_BYTES,
    ScramMechanism,
    build_salt,
)
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from fairlead_wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_cli.local.client_files import ClientAccess
    from fairlead_cli.local.layout import Layout

_SCRAM: Final = ScramMechanism.SCRAM_SHA_512
_TIMEOUT_S: Final = 10.0
_DEADLINE_S: Final = 30.0
_PAUSE_S: Final = 0.1


class _Door(NamedTuple):
    """What a connection to the brokers' internal listener needs."""

    secret: bytes
    context: ssl.SSLContext


def build_peer_context(layout: Layout) -> ssl.SSLContext:
    """Return the TLS context of a peer of the brokers: broker 0's, whose files are here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Any broker of this authority is right: its answer proves that it knows the secret.
    context.check_hostname = False
    context.load_verify_locations(layout.ca_certificate)
    context.load_cert_chain(layout.broker_certificate(0))
    return context


def ensure_admin(
    addresses: Sequence[tuple[str, int]],
    secret: bytes,
    access: ClientAccess,
    *,
    context: ssl.SSLContext,
    is_new: bool,
) -> None:
    """Ensure that all brokers know the super user; `is_new` means that the password is new.

    CliError if they do not know it in time.
    """
    door = _Door(secret, context)
    deadline = time.monotonic() + _DEADLINE_S
    reason = ""
    wanted = is_new
    while time.monotonic() < deadline:
        try:
            known = [_is_known(door, address, access.user) for address in addresses]
            if all(known) and not wanted:
                return
            if wanted or not any(known):
                wanted = not _set(door, addresses[0], access)
        except (OSError, EOFError, RemoteProtocolError, PeerProofError) as error:
            reason = str(error)
        time.sleep(_PAUSE_S)
    raise CliError(
        f"the brokers did not take the credential of {access.user}: {reason or 'no reason given'}",
        hint="See the controller's log: logs/controller.log of the data directory.",
    )


def _is_known(door: _Door, address: tuple[str, int], user: str) -> bool:
    request = DescribeUserScramCredentialsRequest(users=[UserName(user)])
    reply = _call(door, address, request)
    return not reply.error_code and all(not each.error_code for each in reply.results)


def _set(door: _Door, address: tuple[str, int], access: ClientAccess) -> bool:
    salt = build_salt(os.urandom(SALT_SEED_BYTES))
    salted = hashlib.pbkdf2_hmac(
        _SCRAM.hash_name, access.password.encode(), salt, DEFAULT_ITERATIONS
    )
    upsertion = ScramCredentialUpsertion(
        name=access.user,
        mechanism=_SCRAM,
        iterations=DEFAULT_ITERATIONS,
        salt=salt,
        salted_password=salted,
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    reply = _call(door, address, request)
    for result in reply.results:
        if result.error_code:
            name = name_error(result.error_code)
            raise RemoteProtocolError(f"{name}: {result.error_message or ''}")
    return True


def _call(door: _Door, address: tuple[str, int], request: Any) -> Any:
    """Send a request to a broker's internal listener, with the secret."""
    with (
        socket.create_connection(address, timeout=_TIMEOUT_S) as plain,
        door.context.wrap_socket(plain) as connection,
    ):
        proof = PeerProof(door.secret)
        exchange(connection, SaslHandshakeRequest(MECHANISM), 1)
        first = exchange(connection, SaslAuthenticateRequest(proof.nonce), 2)
        answer = proof.answer(bytes(first.auth_bytes))
        exchange(connection, SaslAuthenticateRequest(answer), 2)
        return exchange(connection, request, 0)
