"""The groups of a cluster; each broker lists those that it coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_cli.client.survey import ask_every_broker, newest_version
from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import name_error
from fairlead_wire.messages.list_groups import ListGroupsRequest

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.answering import Address

# Version 4 has the states (KIP-518), version 5 the types (KIP-848).
LIST_VERSION_MAX = 5
UNKNOWN_STATE = "Unknown"
# Groups of other protocols, such as Kafka Connect's, are not consumer groups. A group without
# members that only has committed offsets has no protocol.
CONSUMER_PROTOCOLS = ("consumer", "")


class GroupListing(NamedTuple):
    """One group in a coordinator's list. `is_simple`: it has only offsets and never had members."""

    group: str
    state: str
    kind: str
    is_simple: bool


def list_groups(admin: AdminClient) -> tuple[list[GroupListing], list[str]]:
    """Return the groups of all brokers, by name, and the brokers that did not list theirs."""
    answers, untold = ask_every_broker(admin, read_listing_of)
    return sorted({group for groups in answers.values() for group in groups}), untold


def read_listing_of(at: Address) -> list[GroupListing]:
    """List a broker's groups. CliError if it does not answer, or refuses."""
    host = at.host
    version = newest_version(at, ListGroupsRequest.API_KEY, LIST_VERSION_MAX) or 0
    reply = call_broker(host, at.port, ListGroupsRequest(), version)
    if reply.error_code:
        raise CliError(f"it cannot list its groups: {name_error(reply.error_code)}")
    return [
        GroupListing(
            group.group_id,
            group.group_state or UNKNOWN_STATE,
            group.group_type.lower() or "classic",
            group.protocol_type == "",
        )
        for group in reply.groups
        if group.protocol_type in CONSUMER_PROTOCOLS
    ]
