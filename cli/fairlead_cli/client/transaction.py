"""Send records in transactions of one producer (KIP-98)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, kafka_errors
from fairlead_cli.output import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Producer

Record = TypeVar("Record")
# A killed producer of the same id may have left a transaction, which is aborted first.
INIT_TIMEOUT_S = 60.0
COMMIT_TIMEOUT_S = 120.0


class _Progress:
    """How many records the open transaction has, and how many are committed."""

    def __init__(self) -> None:
        self.open = 0
        self.committed = 0


@contextmanager
def in_transactions(
    producer: Producer, records: Iterator[Record], *, topic: str, commit_every: int | None
) -> Iterator[Iterator[Record]]:
    """Yield the records; those that the caller sends are in transactions that this function ends.

    The last transaction is committed when the block ends, and aborted if it raises.
    """
    with kafka_errors("cannot begin a transaction"):
        producer.init_transactions(INIT_TIMEOUT_S)
        producer.begin_transaction()
    progress = _Progress()
    try:
        yield _cut(producer, records, progress, commit_every)
        _commit(producer, progress)
    except BaseException:
        _abort(producer, progress, topic)
        raise


def _cut(
    producer: Producer,
    records: Iterator[Record],
    progress: _Progress,
    commit_every: int | None,
) -> Iterator[Record]:
    """Yield the records; a caller that asks for the next one has sent those before."""
    for record in records:
        if progress.open == commit_every:
            _commit(producer, progress)
            with kafka_errors("cannot begin a transaction"):
                producer.begin_transaction()
        progress.open += 1
        yield record


def _commit(producer: Producer, progress: _Progress) -> None:
    with kafka_errors("the transaction cannot be committed"):
        producer.commit_transaction(COMMIT_TIMEOUT_S)
    progress.committed += progress.open
    progress.open = 0


def _abort(producer: Producer, progress: _Progress, topic: str) -> None:
    """Abort the open transaction and report what is committed; the caller raises the cause."""
    from confluent_kafka import KafkaException

    try:
        producer.abort_transaction(REQUEST_TIMEOUT_S)
    except KafkaException:
        # The producer is fenced, or no broker answers: the coordinator aborts after the time-out.
        outcome = "will be aborted when its time is over"
    else:
        outcome = "is aborted"
    click.echo(
        f"Stopped early: {format_count(progress.committed, 'record')} of {topic} are committed; "
        f"the transaction of the last {progress.open:,} {outcome}.",
        err=True,
    )
