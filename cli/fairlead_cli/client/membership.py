"""A member of a consumer group that commits records after they were written, not when fetched.

At least once: an offset is committed after the record before it has left this process. After a
crash, the next reader sees some records again and misses none.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from fairlead_cli.client.places import Place, format_places
from fairlead_cli.output import note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

    from fairlead_cli.client.assignment import Assignment

# A commit is a write to three brokers: one a second is cheap, and a crash repeats one second.
COMMIT_INTERVAL_S = 1.0
FINAL_COMMIT_S = 15.0
RETRY_PAUSE_S = 0.2
COMMITTED_TIMEOUT_S = 5.0
# More partitions than this are shown as ranges, without their positions.
SHOWN_SINGLY_MAX = 12


class NextOffset(NamedTuple):
    """What to commit: the offset after the last written record, and that record's leader epoch."""

    offset: int
    leader_epoch: int | None


class Membership:
    """Follows the rebalances of one group; `start` joins, `finish` commits the rest and leaves."""

    def __init__(
        self, group: str, assignment: Assignment, *, start_name: str, is_committing: bool
    ) -> None:
        self.group = group
        self.assignment = assignment
        self.start_name = start_name
        self.is_committing = is_committing
        self.written: dict[Place, NextOffset] = {}
        self.confirmed: dict[Place, int] = {}
        self.committed_at = time.monotonic()
        self.is_leaving = False
        self.complaint: str | None = None

    def start(self, consumer: Consumer, topics: Sequence[str]) -> None:
        """Join the group. The first assignment comes during a later poll."""
        consumer.subscribe(
            list(topics), on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost
        )

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Add partitions during a poll of librdkafka: a cooperative assignor only adds."""
        self.assignment.add(places_of(partitions))
        if partitions:
            self.say(f"assigned {self.describe_begins(consumer, partitions)}")
        elif not self.assignment.places:
            self.say("assigned nothing so far: the other members have all partitions")

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit for the last time: another member continues from there."""
        places = places_of(partitions)
        due = {place: offset for place, offset in self.find_due().items() if place in places}
        if due:
            error = commit(consumer, due, self.confirmed)
            if error is not None:
                self.complain(error)
        self.forget(places)
        if partitions and not self.is_leaving:
            self.say(f"revoked {format_places(places)}")

    def on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit nothing: another member may have these partitions already."""
        places = places_of(partitions)
        self.forget(places)
        self.say(f"lost {format_places(places)}: the group has gone on without this member")

    def forget(self, places: Iterable[Place]) -> None:
        """Remove partitions that this member no longer has."""
        gone = list(places)
        self.assignment.remove(gone)
        for place in gone:
            self.written.pop(place, None)
            self.confirmed.pop(place, None)

    def mark_written(self, batch: Iterable[Message]) -> None:
        """Note that these records have left the process."""
        for message in batch:
            place = Place(message.topic(), message.partition())
            self.written[place] = NextOffset(message.offset() + 1, message.leader_epoch())

    def find_due(self) -> dict[Place, NextOffset]:
        """Return the offsets that a commit would change."""
        if not self.is_committing:
            return {}
        confirmed = self.confirmed
        return {at: to for at, to in self.written.items() if confirmed.get(at) != to.offset}

    def maybe_commit(self, consumer: Consumer) -> bool:
        """Send a commit if one is due, without waiting for its answer; tell whether it was sent."""
        now = time.monotonic()
        if now - self.committed_at < COMMIT_INTERVAL_S:
            return False
        due = self.find_due()
        if not due:
            return False
        self.committed_at = now
        consumer.commit(offsets=to_partitions(due), asynchronous=True)
        return True

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Handle the answer to a commit that was sent without waiting."""
        from confluent_kafka import KafkaError

        if error is not None:
            if error.code() != KafkaError._NO_OFFSET:
                self.complain(error)
            return
        for at in partitions:
            if at.error is not None:
                self.complain(at.error)
                continue
            place = Place(at.topic, at.partition)
            if place in self.written:
                self.confirmed[place] = at.offset
                self.complaint = None

    def finish(self, consumer: Consumer) -> KafkaError | None:
        """Commit the rest, with retries for a while; return the last error if that fails."""
        self.is_leaving = True
        deadline = time.monotonic() + FINAL_COMMIT_S
        while due := self.find_due():
            error = commit(consumer, due, self.confirmed)
            if error is None:
                return None
            if time.monotonic() >= deadline or not is_passing(error):
                return error
            time.sleep(RETRY_PAUSE_S)
        return None

    def describe_begins(self, consumer: Consumer, partitions: list[TopicPartition]) -> str:
        """Return `orders-0 from 15, orders-1 from beginning`, with a request to the coordinator."""
        from confluent_kafka import KafkaException

        places = places_of(partitions)
        if len(places) > SHOWN_SINGLY_MAX:
            return format_places(places)
        try:
            committed = consumer.committed(partitions, timeout=COMMITTED_TIMEOUT_S)
        except KafkaException:
            # This is only for display: librdkafka repeats the request, and reports a failure.
            return format_places(places)
        begins = {Place(at.topic, at.partition): at.offset for at in committed}
        return ", ".join(
            f"{at} from {begins[at] if begins.get(at, -1) >= 0 else self.start_name}"
            for at in sorted(places)
        )

    def complain(self, error: KafkaError) -> None:
        """Report an error once, not every second."""
        from fairlead_cli.client.connection import explain

        text = explain(error)
        if text != self.complaint:
            self.complaint = text
            self.say(f"offsets not committed, some records may be read again: {text}")

    def say(self, text: str) -> None:
        """Print to stderr, because stdout has the records."""
        note(f"group {self.group}: {text}")


def commit(
    consumer: Consumer, due: dict[Place, NextOffset], confirmed: dict[Place, int]
) -> KafkaError | None:
    """Commit and wait; add committed offsets to `confirmed`, return the first error."""
    from confluent_kafka import KafkaException

    try:
        answers = consumer.commit(offsets=to_partitions(due), asynchronous=False)
    except KafkaException as exception:
        failed: KafkaError = exception.args[0]
        return failed
    first: KafkaError | None = None
    for at in answers:
        place = Place(at.topic, at.partition)
        if at.error is None:
            confirmed[place] = due[place].offset
        else:
            first = first or at.error
    return first


def is_passing(error: KafkaError) -> bool:
    """Tell whether a retry may succeed, because a coordinator moves or a rebalance ends."""
    from confluent_kafka import KafkaError

    return bool(error.retriable()) or error.code() in (
        KafkaError._WAIT_COORD,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.REBALANCE_IN_PROGRESS,
    )


def to_partitions(offsets: dict[Place, NextOffset]) -> list[TopicPartition]:
    """Convert offsets for librdkafka."""
    from confluent_kafka import TopicPartition

    partitions = []
    for place, (offset, epoch) in offsets.items():
        known = {} if epoch is None else {"leader_epoch": epoch}
        partitions.append(TopicPartition(place.topic, place.partition, offset, **known))
    return partitions


def places_of(partitions: Iterable[TopicPartition]) -> list[Place]:
    """Convert partitions of librdkafka."""
    return [Place(at.topic, at.partition) for at in partitions]
