"""Transactions that are open in a partition and that no coordinator will end (KIP-664)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.connection import fetch_metadata, require_topic
from fairlead_cli.client.places import Place, build_no_partition_error
from fairlead_cli.client.transactions import (
    OpenTransaction,
    TransactionFilter,
    describe_transaction,
    find_open_transactions,
    list_transactions,
)
from fairlead_cli.errors import CliError
from fairlead_cli.group.selection import parse_selections

if TYPE_CHECKING:
    from collections.abc import Collection

    from confluent_kafka.admin import AdminClient


def select_places(admin: AdminClient, topics: tuple[str, ...]) -> list[Place]:
    """Return the named partitions, or all of the cluster. CliError if one does not exist."""
    if not topics:
        found = fetch_metadata(admin).topics
        return [Place(name, index) for name, topic in found.items() for index in topic.partitions]
    places = []
    for selection in parse_selections(topics):
        known = require_topic(admin, selection.topic).partitions
        wanted = known if selection.partitions is None else selection.partitions
        for index in wanted:
            if index not in known:
                raise build_no_partition_error(selection.topic, str(index), list(known))
            places.append(Place(selection.topic, index))
    return places


def find_hanging(
    admin: AdminClient, places: Collection[Place], *, now_ms: int, longer_than_ms: int
) -> tuple[list[OpenTransaction], list[str]]:
    """Return the transactions that nobody will end, and the brokers without an answer, in words.

    A transaction whose coordinator did not answer is not reported as hanging.
    """
    opened, untold = find_open_transactions(admin, places)
    old = [each for each in opened if now_ms - each.last_ms > longer_than_ms]
    if not old:
        return [], untold
    ids = tuple(sorted({each.producer_id for each in old}))
    listings, unlisted = list_transactions(admin, TransactionFilter(producer_ids=ids))
    if unlisted:
        return [], untold + unlisted
    owned: set[tuple[int, Place]] = set()
    for listing in listings:
        try:
            description = describe_transaction(admin, listing.transactional_id)
        except CliError as error:
            untold.append(error.message)
            owned.update(
                (each.producer_id, each.place)
                for each in old
                if each.producer_id == listing.producer_id
            )
        else:
            owned.update((description.producer_id, place) for place in description.places)
    return [each for each in old if (each.producer_id, each.place) not in owned], untold


def abort_command(hanging: OpenTransaction) -> str:
    """Return the command line that ends a transaction."""
    place = shlex.quote(f"{hanging.place.topic}:{hanging.place.partition}")
    return (
        f"fairlead txn abort --topic {place} --start-offset {hanging.start_offset}"
        f"{cluster_arguments()}"
    )
