"""The groups of a cluster: each broker lists those that it coordinates.

Asked in Kafka's protocol and side by side, because librdkafka holds the answers of all brokers back
until one that hangs has used up the whole time-out.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from fairlead_cli.client.answering import Address, find_answering
from fairlead_cli.client.connection import fetch_metadata
from fairlead_cli.client.wire_call import call_broker, name_error
from fairlead_cli.errors import CliError
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.list_groups import ListGroupsRequest

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# How long a sign of life may take where none answers, and how much longer than the first one.
PATIENCE_S = 5.0
GRACE_S = 1.0
ASKED_AT_ONCE = 32
# States are named since version 4 (KIP-518), kinds since version 5 (KIP-848).
LIST_VERSION_MAX = 5
UNKNOWN_STATE = "Unknown"
# Groups of other protocols, Kafka Connect's for one, are not of consumers. Who never joined a group
# and only commits offsets gives none.
CONSUMER_PROTOCOLS = ("consumer", "")


class GroupListing(NamedTuple):
    """One line of the coordinators' lists. `is_simple`: offsets only, nobody ever joined."""

    group: str
    state: str
    kind: str
    is_simple: bool


def list_groups(admin: AdminClient) -> tuple[list[GroupListing], list[str]]:
    """Every group of every broker, by name, and which brokers did not tell theirs, in words."""
    brokers = fetch_metadata(admin).brokers.values()
    ids = {Address(broker.host, broker.port): broker.id for broker in brokers}
    found = find_answering(ids, patience_s=PATIENCE_S, grace_s=GRACE_S)
    untold = [f"broker {ids[at]} at {at} does not answer" for at in found.reasons]
    groups: set[GroupListing] = set()
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        for at, answer in zip(
            found.answering, pool.map(try_listing_of, found.answering), strict=True
        ):
            if isinstance(answer, CliError):
                untold.append(f"broker {ids[at]}: {answer.message}")
            else:
                groups.update(answer)
    return sorted(groups), sorted(untold)


def try_listing_of(at: Address) -> list[GroupListing] | CliError:
    """The groups of one broker, or why it did not tell them."""
    try:
        return read_listing_of(at)
    except CliError as error:
        return error


def read_listing_of(at: Address) -> list[GroupListing]:
    """In the newest version that the broker has. CliError when it does not answer, or refuses."""
    host = at.host.strip("[]")
    offered = call_broker(host, at.port, ApiVersionsRequest(), 0)
    newest = {api.api_key: api.max_version for api in offered.api_keys}
    version = min(LIST_VERSION_MAX, newest.get(ListGroupsRequest.API_KEY, 0))
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
