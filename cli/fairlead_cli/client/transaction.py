"""Sends records in transactions of one producer (KIP-98)."""

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
# A producer of this id that was killed may have left a transaction, which is aborted first.
INIT_TIMEOUT_S = 60.0
COMMIT_TIMEOUT_S = 120.0


class _Progress:
    """How many records the open transaction has, and how many were committed before it."""

    def __init__(self) -> None:
        self.open = 0
        self.committed = 0


@contextmanager
def in_transactions(
    producer: Producer, records: Iterator[Record], *, topic: str, commit_every: int | None
) -> Iterator[Iterator[Record]]:
    """Yield the records; what is sent of them belongs to a transaction, begun and ended here.

    The last one is committed when the block is left, and aborted when an exception leaves it.
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
    """Yield the records; whoever asks for the next one has handed over those before."""
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
    """Abort what is open and say what stands; the error that led here is the one that is raised."""
    from confluent_kafka import KafkaException

    try:
        producer.abort_transaction(REQUEST_TIMEOUT_S)
    except KafkaException:
        # It was fenced, or nobody answers: the coordinator aborts when the time is over.
        outcome = "will be aborted when its time is over"
    else:
        outcome = "is aborted"
    click.echo(
        f"Stopped early: {format_count(progress.committed, 'record')} of {topic} are committed; "
        f"the transaction of the last {progress.open:,} {outcome}.",
        err=True,
    )
