"""Users of a cluster who log in by SCRAM, by Kafka's admin APIs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, build_error, fetch_metadata
from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_model.security.scram import DEFAULT_ITERATIONS, SALT_SEED_BYTES, build_salt
from fairlead_wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_PAUSE_S: Final = 0.05
_NOT_FOUND: Final = "RESOURCE_NOT_FOUND"


class ScramUser(NamedTuple):
    """A user and how the password is verified: iterations by mechanism."""

    name: str
    iterations: dict[str, int]


def fetch_users(admin: AdminClient) -> list[ScramUser]:
    """Return all users, sorted by name; CliError."""
    from confluent_kafka import KafkaException

    try:
        described = admin.describe_user_scram_credentials().result(REQUEST_TIMEOUT_S)
    except KafkaException as exception:
        raise build_error("cannot list the users", exception.args[0]) from exception
    return sorted(
        ScramUser(
            name,
            {
                info.mechanism.name.replace("_", "-"): info.iterations
                for info in user.scram_credential_infos
            },
        )
        for name, user in described.items()
    )


def set_password(admin: AdminClient, name: str, password: str) -> None:
    """Let a user log in with a password by SCRAM-SHA-512; CliError."""
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
        admin.alter_user_scram_credentials([upsertion])[name].result(REQUEST_TIMEOUT_S)
    except KafkaException as exception:
        raise build_error(f"cannot make user '{name}'", exception.args[0]) from exception


def wait_until_known(admin: AdminClient, name: str) -> None:
    """Wait until each broker knows a user, and all that was changed before; CliError if not."""
    asked = DescribeUserScramCredentialsRequest([UserName(name)])
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    for broker_id, broker in sorted(fetch_metadata(admin).brokers.items()):
        while True:
            (result,) = call_broker(broker.host, broker.port, asked, 0).results
            if not result.error_code:
                break
            if time.monotonic() > deadline:
                raise CliError(
                    f"broker {broker_id} does not know user '{name}' yet",
                    hint=f"It will, once it hears the controller:  fairlead status"
                    f"{cluster_arguments()}",
                )
            time.sleep(_PAUSE_S)


def remove_passwords(admin: AdminClient, user: ScramUser) -> None:
    """Let a user not log in any more, by no mechanism; CliError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

    # One by one: a request may name a user once.
    for mechanism in user.iterations:
        deletion = UserScramCredentialDeletion(
            user.name, ScramMechanism[mechanism.replace("-", "_")]
        )
        try:
            admin.alter_user_scram_credentials([deletion])[user.name].result(REQUEST_TIMEOUT_S)
        except KafkaException as exception:
            error = exception.args[0]
            if error.name() != _NOT_FOUND:
                raise build_error(f"cannot remove user '{user.name}'", error) from exception
