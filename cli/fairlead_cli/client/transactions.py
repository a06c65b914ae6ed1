"""Transactions as their coordinators and the partitions' leaders report them (KIP-664).

librdkafka's Python client has none of these requests.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.answering import Address
from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, fetch_metadata
from fairlead_cli.client.coordinators import RETRY_PAUSE_S
from fairlead_cli.client.places import Place, format_places
from fairlead_cli.client.survey import ask_every_broker, newest_version
from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import explain_error, name_error
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fairlead_wire.messages.describe_transactions import DescribeTransactionsRequest
from fairlead_wire.messages.find_coordinator import FindCoordinatorRequest
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.list_transactions import ListTransactionsRequest
from fairlead_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from confluent_kafka.admin import AdminClient

# Version 1 can filter by duration (KIP-994), version 2 by a pattern of ids (KIP-1152).
LIST_VERSION_MAX = 2
DURATION_SINCE = 1
PATTERN_SINCE = 2
FIND_COORDINATOR_VERSION = 3
TRANSACTION_KEY_TYPE = 1
INIT_PRODUCER_ID_VERSION = 4
# InitProducerId needs a time-out; the fencing request begins no transaction.
FENCING_TIMEOUT_MS = 60_000
WRITE_TXN_MARKERS_VERSION = 1
NO_COORDINATOR_EPOCH = -1
NO_OFFSET = -1
_PASSING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class TransactionFilter(NamedTuple):
    """Which transactions to list; all if nothing is set."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int | None = None
    pattern: str | None = None


class TransactionListing(NamedTuple):
    """One transactional id in a coordinator's list."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator knows it; times are in ms, `start_ms` since 1970.

    `start_ms` is the start of the last transaction. `places` have no marker yet.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    places: tuple[Place, ...]


class OpenTransaction(NamedTuple):
    """A transaction that is open at the leader of a partition, where readers wait for its end.

    `last_ms` is the time of the producer's last batch, in ms since 1970.
    """

    place: Place
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int


def list_transactions(
    admin: AdminClient, wanted: TransactionFilter
) -> tuple[list[TransactionListing], list[str]]:
    """Return the transactions of all brokers, by id, and the brokers that did not list theirs."""

    def ask(at: Address) -> list[Any]:
        return _read_listing(at, wanted)

    answers, untold = ask_every_broker(admin, ask)
    listings = [
        TransactionListing(each.transactional_id, broker, each.producer_id, each.transaction_state)
        for broker, states in answers.items()
        for each in states
    ]
    return sorted(listings), untold


def _read_listing(at: Address, wanted: TransactionFilter) -> list[Any]:
    version = newest_version(at, ListTransactionsRequest.API_KEY, LIST_VERSION_MAX)
    if version is None:
        raise CliError("it knows no transactions")
    if wanted.longer_than_ms is not None and version < DURATION_SINCE:
        raise CliError("it cannot filter by duration; leave --longer-than out")
    if wanted.pattern is not None and version < PATTERN_SINCE:
        raise CliError("it cannot filter by a pattern; leave --id-pattern out")
    request = ListTransactionsRequest(
        state_filters=list(wanted.states),
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=-1 if wanted.longer_than_ms is None else wanted.longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )
    reply = _ask_again(
        lambda: call_broker(at.host, at.port, request, version),
        lambda reply: reply.error_code,
    )
    if reply.error_code:
        raise CliError(f"it cannot list its transactions: {explain_error(reply.error_code)}")
    states: list[Any] = reply.transaction_states
    return states


def describe_transaction(admin: AdminClient, transactional_id: str) -> TransactionDescription:
    """Return the coordinator's description of an id; CliError if the id is unknown."""
    coordinator, reply = _ask_coordinator(
        admin,
        transactional_id,
        DescribeTransactionsRequest([transactional_id]),
        0,
        lambda reply: reply.transaction_states[0].error_code,
    )
    (found,) = reply.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CliError(
            f"there is no transactional id '{transactional_id}'",
            hint=f"See what there is:  fairlead txn list{cluster_arguments()}",
        )
    if found.error_code:
        raise CliError(f"cannot describe '{transactional_id}': {explain_error(found.error_code)}")
    return TransactionDescription(
        transactional_id,
        coordinator,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        tuple(
            Place(topic.topic, index)
            for topic in found.topics
            for index in sorted(topic.partitions)
        ),
    )


def fence(admin: AdminClient, transactional_id: str) -> None:
    """Abort an id's open transaction and fence its producer, as a new instance would do."""
    _, reply = _ask_coordinator(
        admin,
        transactional_id,
        InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS
        ),
        INIT_PRODUCER_ID_VERSION,
        lambda reply: reply.error_code,
    )
    if reply.error_code:
        raise CliError(f"cannot abort '{transactional_id}': {explain_error(reply.error_code)}")


def find_open_transactions(
    admin: AdminClient, places: Collection[Place]
) -> tuple[list[OpenTransaction], list[str]]:
    """Return the transactions open at the leaders of partitions, and which could not be asked."""
    leaders = _leaders_of(admin, places)
    led = {place for each in leaders.values() for place in each}
    leaderless = [place for place in places if place not in led]

    def ask(at: Address) -> list[OpenTransaction]:
        return _read_open_transactions(at, leaders.get(at, ()))

    answers, untold = ask_every_broker(admin, ask)
    if leaderless:
        untold = [*untold, f"there is no leader of {format_places(leaderless)}"]
    return sorted(each for found in answers.values() for each in found), untold


def _leaders_of(admin: AdminClient, places: Collection[Place]) -> dict[Address, list[Place]]:
    metadata = fetch_metadata(admin)
    leaders: dict[Address, list[Place]] = {}
    for place in places:
        topic = metadata.topics.get(place.topic)
        partition = None if topic is None else topic.partitions.get(place.partition)
        broker = None if partition is None else metadata.brokers.get(partition.leader)
        if broker is not None:
            leaders.setdefault(Address(broker.host, broker.port), []).append(place)
    return leaders


def _read_open_transactions(at: Address, places: Iterable[Place]) -> list[OpenTransaction]:
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place.partition)
    if not by_topic:
        return []
    request = DescribeProducersRequest(
        [TopicRequest(name=topic, partition_indexes=ids) for topic, ids in by_topic.items()]
    )
    reply = call_broker(at.host, at.port, request, 0)
    found = []
    for topic in reply.topics:
        for partition in topic.partitions:
            place = Place(topic.name, partition.partition_index)
            if partition.error_code:
                raise CliError(f"{place}: {explain_error(partition.error_code)}")
            found += [
                OpenTransaction(
                    place,
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                    each.last_timestamp,
                )
                for each in partition.active_producers
                if each.current_txn_start_offset != NO_OFFSET
            ]
    return found


def abort_hanging(admin: AdminClient, hanging: OpenTransaction) -> None:
    """Let a partition's leader end a transaction that no coordinator will end."""
    place = hanging.place
    (at,) = _leaders_of(admin, [place]) or (None,)
    if at is None:
        raise CliError(f"{place} has no leader at the moment")
    marker = WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])],
        coordinator_epoch=max(0, hanging.coordinator_epoch),
    )
    request = WriteTxnMarkersRequest([marker])
    reply = call_broker(at.host, at.port, request, WRITE_TXN_MARKERS_VERSION)
    code = reply.markers[0].topics[0].partitions[0].error_code
    if code:
        raise CliError(f"cannot abort the transaction on {place}: {explain_error(code)}")


def _ask_coordinator(
    admin: AdminClient,
    transactional_id: str,
    request: Any,
    version: int,
    find_code: Callable[[Any], int],
) -> tuple[int, Any]:
    """Return an id's coordinator and its reply; repeat the request while the coordinator moves."""
    asked: list[int] = []

    def ask() -> Any:
        broker, host, port = _find_coordinator(admin, transactional_id)
        asked[:] = [broker]
        return call_broker(host, port, request, version)

    reply = _ask_again(ask, find_code)
    return asked[0], reply


def _find_coordinator(admin: AdminClient, transactional_id: str) -> tuple[int, str, int]:
    request = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION_KEY_TYPE)
    brokers = sorted(fetch_metadata(admin).brokers.items())
    failure: CliError | None = None
    for _, broker in brokers:
        ask = partial(call_broker, broker.host, broker.port, request, FIND_COORDINATOR_VERSION)
        try:
            reply = _ask_again(ask, lambda reply: reply.error_code)
        except CliError as error:
            failure = error
            continue
        if reply.error_code:
            text = reply.error_message or name_error(reply.error_code)
            raise CliError(f"'{transactional_id}' has no coordinator: {text}")
        return reply.node_id, reply.host, reply.port
    raise failure or CliError("the cluster has no broker")


def _ask_again(ask: Callable[[], Any], find_code: Callable[[Any], int]) -> Any:
    """Return a reply; repeat the request while the reply says that a retry may succeed."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        reply = ask()
        if find_code(reply) not in _PASSING or time.monotonic() >= deadline:
            return reply
        time.sleep(RETRY_PAUSE_S)
