"""A member of a consumer group that commits what was written, never what was only fetched.

At least once: an offset is committed after the record before it has left this process. Whoever
reads on after a crash sees some records again and misses none.
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

# A commit is a write to three brokers: one a second costs nothing, and a crash repeats a second.
COMMIT_INTERVAL_S = 1.0
FINAL_COMMIT_S = 15.0
RETRY_PAUSE_S = 0.2
COMMITTED_TIMEOUT_S = 5.0
# More partitions than this are shown as ranges, without where they begin.
SHOWN_SINGLY_MAX = 12


class NextOffset(NamedTuple):
    """What to commit: the offset after the last written record, and that record's leader epoch."""

    offset: int
    leader_epoch: int | None


class Membership:
    """Follows the rebalances of one group; `start` joins, `finish` commits what is left."""

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
        """Join. The first assignment comes with one of the next polls."""
        consumer.subscribe(
            list(topics), on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost
        )

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Add partitions, as librdkafka asks in a poll: a cooperative assignor only adds."""
        self.assignment.add(places_of(partitions))
        if partitions:
            self.say(f"assigned {self.describe_begins(consumer, partitions)}")
        elif not self.assignment.places:
            self.say("assigned nothing so far: the other members have all partitions")

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit for the last time: another member reads on from there."""
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
        """Another member may have them already, so that nothing may be committed."""
        places = places_of(partitions)
        self.forget(places)
        self.say(f"lost {format_places(places)}: the group has gone on without this member")

    def forget(self, places: Iterable[Place]) -> None:
        """They are not ours any more."""
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
        """Return what a commit would change."""
        if not self.is_committing:
            return {}
        confirmed = self.confirmed
        return {at: to for at, to in self.written.items() if confirmed.get(at) != to.offset}

    def maybe_commit(self, consumer: Consumer) -> bool:
        """Send a commit if one is due, without waiting for its answer; whether it did."""
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
        """Take the answer to a commit that was not waited for."""
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
        """Commit what is left, for a while also against errors that pass; the last one of them."""
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
        """`orders-0 from 15, orders-1 from beginning`; a question to the coordinator."""
        from confluent_kafka import KafkaException

        places = places_of(partitions)
        if len(places) > SHOWN_SINGLY_MAX:
            return format_places(places)
        try:
            committed = consumer.committed(partitions, timeout=COMMITTED_TIMEOUT_S)
        except KafkaException:
            # Only to be shown: librdkafka asks again by itself, and says if that fails.
            return format_places(places)
        begins = {Place(at.topic, at.partition): at.offset for at in committed}
        return ", ".join(
            f"{at} from {begins[at] if begins.get(at, -1) >= 0 else self.start_name}"
            for at in sorted(places)
        )

    def complain(self, error: KafkaError) -> None:
        """Say it once, not every second."""
        from fairlead_cli.client.connection import explain

        text = explain(error)
        if text != self.complaint:
            self.complaint = text
            self.say(f"offsets not committed, some records may be read again: {text}")

    def say(self, text: str) -> None:
        """On stderr, beside the records on stdout."""
        note(f"group {self.group}: {text}")


def commit(
    consumer: Consumer, due: dict[Place, NextOffset], confirmed: dict[Place, int]
) -> KafkaError | None:
    """Commit and wait; notes in `confirmed` what was taken, answers the first error."""
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
    """Tell whether to try again: a coordinator moves, a rebalance ends."""
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
    """As librdkafka takes them."""
    from confluent_kafka import TopicPartition

    partitions = []
    for place, (offset, epoch) in offsets.items():
        known = {} if epoch is None else {"leader_epoch": epoch}
        partitions.append(TopicPartition(place.topic, place.partition, offset, **known))
    return partitions


def places_of(partitions: Iterable[TopicPartition]) -> list[Place]:
    """As we name them."""
    return [Place(at.topic, at.partition) for at in partitions]
