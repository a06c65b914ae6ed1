"""Take records from librdkafka, batch by batch, until a limit is reached."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.places import Place
from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Consumer, Message

    from fairlead_cli.client.assignment import Assignment

# librdkafka blocks the interpreter while it waits; this limits how late Ctrl-C takes effect.
POLL_S = 0.1
BATCH_MAX = 1000
# No record can arrive before the member has joined; a coordinator that fails is replaced sooner.
JOIN_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: after a number of records, after a time without records, at the end."""

    count: int | None
    timeout_ms: int | None
    until_end: bool


class Reader:
    """Yields the records that have arrived, also none, so that the caller can check the time."""

    def __init__(
        self, consumer: Consumer, what: str, assignment: Assignment, *, group: str = ""
    ) -> None:
        self.consumer = consumer
        self.what = what
        self.assignment = assignment
        self.group = group
        self.began_at = time.monotonic()

    def read(
        self, limits: Limits, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Message]]:
        """Yield batches of records until the first limit, or until `is_stopped` returns True."""
        remaining = limits.count
        last_seen = self.began_at
        timeout_s = None if limits.timeout_ms is None else limits.timeout_ms / 1000
        poll_s = POLL_S if timeout_s is None else min(POLL_S, timeout_s)
        while (remaining is None or remaining > 0) and not is_stopped():
            size = BATCH_MAX if remaining is None else min(BATCH_MAX, remaining)
            batch = self.take_batch(size, poll_s)
            yield batch
            if remaining is not None:
                remaining -= len(batch)
            now = time.monotonic()
            if batch:
                last_seen = now
                continue
            if self.is_joining(now):
                continue
            if limits.until_end and self.assignment.is_at_end(now):
                return
            silent_since = max(last_seen, self.assignment.changed_at)
            if timeout_s is not None and now - silent_since >= timeout_s:
                return

    def is_joining(self, now: float) -> bool:
        """Tell whether the member has not joined its group yet; CliError if that takes too long."""
        if self.assignment.places is not None:
            return False
        if now - self.began_at < JOIN_PATIENCE_S:
            return True
        raise CliError(
            f"cannot read {self.what}: not let into the group within {JOIN_PATIENCE_S:.0f} s",
            hint="See whether its coordinator answers:  "
            f"fairlead group describe {shlex.quote(self.group)}{cluster_arguments()}",
        )

    def take_batch(self, size: int, poll_s: float) -> list[Message]:
        """Return the records that have arrived; wait only for the first one.

        A rebalance may happen in here: records of a partition that is no longer assigned to this
        member belong to its new owner.
        """
        first = self.consumer.poll(poll_s)
        if first is None:
            return []
        messages = [first]
        if size > 1:
            messages += self.consumer.consume(size - 1, 0)
        records = [message for message in messages if not self.is_event(message)]
        owned = self.assignment.places or ()
        return [each for each in records if (each.topic(), each.partition()) in owned]

    def is_event(self, message: Message) -> bool:
        """Handle a message that is no record: note a partition's end, raise an error."""
        from confluent_kafka import KafkaError

        from fairlead_cli.client.connection import HINTS, build_error
        from fairlead_cli.output import note

        error = message.error()
        if error is None:
            self.assignment.ended.discard(Place(message.topic(), message.partition()))
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            self.assignment.ended.add(Place(message.topic(), message.partition()))
            return True
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            note("Nobody took the output for so long that the group gave up on us; joining again.")
            return True
        if error.retriable() or error.code() in transient_codes():
            return True
        if not self.group and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # librdkafka looks for a coordinator anyway; a consumer without a group needs none.
            return True
        failure = build_error(f"cannot read {self.what}", error, name=self.group)
        if error.code() == KafkaError._FATAL and "fenced" in failure.message:
            # librdkafka hides the broker's code behind its own for fatal errors.
            failure.hint = HINTS["FENCED_INSTANCE_ID"]
        raise failure


def transient_codes() -> tuple[int, ...]:
    """Return the codes of lost connections, which librdkafka reports and reconnects itself."""
    from confluent_kafka import KafkaError

    return (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
