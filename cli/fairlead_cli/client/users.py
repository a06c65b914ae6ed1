"""SCRAM users of a cluster, through Kafka's admin APIs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, build_error, fetch_metadata
from fairlead_cli.client.wire_call import asking_order, call_any, call_broker
from fairlead_cli.errors import CliError, NoAnswerError
from fairlead_cli.wire_exchange import name_error
from fairlead_model.security.scram import DEFAULT_ITERATIONS, SALT_SEED_BYTES, build_salt
from fairlead_wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_PAUSE_S: Final = 0.05
# KIP-554.
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NOT_FOUND: Final = "RESOURCE_NOT_FOUND"


class ScramUser(NamedTuple):
    """A user, with the iterations of each SCRAM mechanism."""

    name: str
    iterations: dict[str, int]


def fetch_users(admin: AdminClient) -> list[ScramUser]:
    """Return all users, sorted by name; CliError.

    Without librdkafka's Python client, which crashes if the request is refused (2.16.1).
    """
    request = DescribeUserScramCredentialsRequest(users=None)
    reply = call_any(asking_order(fetch_metadata(admin)), request, 0)
    if reply.error_code:
        code = name_error(reply.error_code)
        raise CliError(f"cannot list the users: {reply.error_message or code} ({code})")
    return sorted(
        ScramUser(
            result.user,
            {
                _MECHANISMS.get(info.mechanism, str(info.mechanism)): info.iterations
                for info in result.credential_infos
            },
        )
        for result in reply.results
        if not result.error_code
    )


def set_password(admin: AdminClient, name: str, password: str) -> None:
    """Set a user's password for SCRAM-SHA-512; CliError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, DEFAULT_ITERATIONS)
    salt = build_salt(os.urandom(SALT_SEED_BYTES))
    upsertion = UserScramCredentialUpsertion(name, info, password.encode(), salt)
    try:
        asked = admin.alter_user_scram_credentials([upsertion], request_timeout=REQUEST_TIMEOUT_S)
        asked[name].result()
    except KafkaException as exception:
        raise build_error(f"cannot make user '{name}'", exception.args[0]) from exception


def wait_until_known(admin: AdminClient, name: str) -> None:
    """Wait until each broker knows a user and all changes before it; CliError if one does not.

    A broker that leaves the cluster meanwhile learns of them when it returns, before it serves.
    """
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    for broker_id in sorted(fetch_metadata(admin).brokers):
        while not _knows(admin, broker_id, name):
            if time.monotonic() > deadline:
                raise CliError(
                    f"broker {broker_id} does not know user '{name}' yet",
                    hint=f"It will, once it hears the controller:  fairlead status"
                    f"{cluster_arguments()}",
                )
            time.sleep(_PAUSE_S)


def _knows(admin: AdminClient, broker_id: int, name: str) -> bool:
    """Tell whether a broker knows a user, or is not in the cluster any more."""
    broker = fetch_metadata(admin).brokers.get(broker_id)
    if broker is None:
        return True
    asked = DescribeUserScramCredentialsRequest([UserName(name)])
    try:
        (result,) = call_broker(broker.host, broker.port, asked, 0).results
    except NoAnswerError:
        return broker_id not in fetch_metadata(admin).brokers
    return not result.error_code


def remove_passwords(admin: AdminClient, user: ScramUser) -> None:
    """Remove a user's credentials of all mechanisms; CliError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

    # One request for each, because a request may name a user only once.
    for mechanism in user.iterations:
        deletion = UserScramCredentialDeletion(
            user.name, ScramMechanism[mechanism.replace("-", "_")]
        )
        try:
            asked = admin.alter_user_scram_credentials(
                [deletion], request_timeout=REQUEST_TIMEOUT_S
            )
            asked[user.name].result()
        except KafkaException as exception:
            error = exception.args[0]
            if error.name() != _NOT_FOUND:
                raise build_error(f"cannot remove user '{user.name}'", error) from exception
