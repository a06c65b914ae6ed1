"""One request to one broker, for the few APIs that librdkafka's Python client does not have."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, TypeVar

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.access import wrap
from fairlead_cli.client.connection import REQUEST_TIMEOUT_S
from fairlead_cli.client.login import log_in_as_configured
from fairlead_cli.client.target import parse_addresses
from fairlead_cli.errors import NoAnswerError, UnreachableError
from fairlead_cli.wire_exchange import exchange
from fairlead_model.host_address import join_address
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.sasl_login import LoginRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.admin import ClusterMetadata

    from fairlead_cli.client.answering import Address
    from fairlead_wire.message import Message

Answer = TypeVar("Answer")


def call_broker(
    host: str,
    port: int,
    message: Message,
    version: int,
    *,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> Any:
    """Return the reply to a request on a new connection.

    NoAnswerError if there is none, UnreachableError if the broker has not got the request.
    """
    is_sent = False
    try:
        with (
            socket.create_connection((host, port), timeout=timeout_s) as plain,
            wrap(plain, host) as connection,
        ):
            log_in_as_configured(connection)
            is_sent = True
            return exchange(connection, message, version)
    except (OSError, EOFError, RemoteProtocolError, LoginRefusedError) as error:
        raise (NoAnswerError if is_sent else UnreachableError)(
            f"broker {join_address(host, port)} did not answer {type(message).__name__}: {error}",
            hint="It may be too old for this request, or gone. Look:  "
            f"fairlead status{cluster_arguments()}",
        ) from error


def ask_any(addresses: str, question: Callable[[Address], Answer]) -> Answer:
    """Return the first answer of any broker: some may have died since they were found.

    For idempotent requests. NoAnswerError, of the last broker, if none answers.
    """
    return _ask_in_turn(addresses, question, NoAnswerError)


def asking_order(metadata: ClusterMetadata) -> str:
    """Return the addresses of all brokers, for `call_any`.

    The first is the broker that Metadata names as controller: it answers, and knows the latest
    changes.
    """
    first = metadata.controller_id
    brokers = sorted(metadata.brokers.values(), key=lambda broker: (broker.id != first, broker.id))
    return ",".join(join_address(each.host.strip("[]"), each.port) for each in brokers)


def call_any(addresses: str, message: Message, version: int) -> Any:
    """Return the reply of any broker to a request, as `ask_any`."""
    return ask_any(addresses, lambda at: call_broker(at.host, at.port, message, version))


def call_first(addresses: str, message: Message, version: int) -> Any:
    """Return the reply of the first broker that gets a request; no second one gets it.

    For requests whose answer is different when they come again.
    """
    return _ask_in_turn(
        addresses, lambda at: call_broker(at.host, at.port, message, version), UnreachableError
    )


def _ask_in_turn(
    addresses: str, question: Callable[[Address], Answer], passed_over: type[NoAnswerError]
) -> Answer:
    *others, last = parse_addresses(addresses)
    for at in others:
        try:
            return question(at)
        except passed_over:
            continue
    return question(last)
