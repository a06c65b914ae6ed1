"""How `produce` sends: its options, their contradictions, librdkafka's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.client.connection import RECORD_BYTES_MAX
from fairlead_cli.options import FiniteRange, require_name

if TYPE_CHECKING:
    from collections.abc import Callable

DELIVERY_TIMEOUT_MS = 60_000
# Records must not wait too long: librdkafka drops them after the delivery time-out.
LINGER_MS_MAX = 30_000
BATCH_BYTES_DEFAULT = 1_000_000
# librdkafka's own limit.
RETRIES_MAX = 2_147_483_647
# Input may be slow; clusters accept no longer time-out by default (transaction.max.timeout.ms).
TRANSACTION_TIMEOUT_MS = 900_000
# With --batch-size, only bytes decide when a batch is full.
BATCH_RECORDS_MAX = 1_000_000


def sending_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that are collected into SendingOptions."""
    options = (
        click.option(
            "--partition", type=click.IntRange(min=0), help="Send all records to this partition."
        ),
        click.option(
            "--partitioner",
            metavar="NAME",
            help="murmur2: by key as Java clients do, and records without a key in batches to "
            "any partition; round-robin and sticky (batch by batch) ignore keys; or your "
            "own PACKAGE:FUNCTION.  [default: murmur2]",
        ),
        click.option(
            "--acks",
            type=click.Choice(["0", "1", "all"]),
            default="all",
            show_default=True,
            help="Which replicas have to have a record before it counts as written.",
        ),
        click.option(
            "--idempotent/--no-idempotent",
            "idempotent",
            default=None,
            help=(
                "Whether retries never duplicate or reorder records.  [default: with --acks all]"
            ),
        ),
        click.option(
            "--compression",
            type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            default="none",
            show_default=True,
            help="Codec with which batches are compressed.",
        ),
        click.option(
            "--batch-size",
            type=click.IntRange(1, RECORD_BYTES_MAX),
            metavar="BYTES",
            help=f"Send a batch when it has so many bytes.  [default: {BATCH_BYTES_DEFAULT}]",
        ),
        click.option(
            "--linger-ms",
            type=click.IntRange(0, LINGER_MS_MAX),
            default=5,
            show_default=True,
            help="Send a batch after this time even if it is not full.",
        ),
        click.option(
            "--retries",
            type=click.IntRange(0, RETRIES_MAX),
            metavar="N",
            help="Number of retries of a batch. 0: each record is written at most once, and a "
            "record without an answer may be lost.  [default: until it is written, for a "
            "minute]",
        ),
        click.option(
            "--rate",
            type=FiniteRange(min=0, min_open=True),
            metavar="N",
            help="Send at most N records a second.  [default: as fast as possible]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def transaction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of SendingOptions that send the input in one or several transactions."""
    options = (
        click.option(
            "--transactional-id",
            metavar="ID",
            callback=require_name,
            help="Write in a transaction: readers with read_committed see all of it or nothing. "
            "Another producer with this id is fenced.",
        ),
        click.option(
            "--commit-every",
            type=click.IntRange(min=1),
            metavar="N",
            help=(
                "Commit after N records and begin the next transaction.  [default: once, at "
                "the end]"
            ),
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class SendingOptions:
    """Options of sending; None means that an option is absent."""

    partition: int | None
    partitioner: str | None
    acks: str
    idempotent: bool | None
    compression: str
    batch_size: int | None
    linger_ms: int
    rate: float | None
    retries: int | None = None
    transactional_id: str | None = None
    commit_every: int | None = None

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        if self.partition is not None and self.partitioner is not None:
            raise click.UsageError("--partition and --partitioner: only one can choose")
        if self.idempotent and self.acks != "all":
            raise click.UsageError(
                f"--idempotent needs --acks all: with --acks {self.acks} a broker may lose what "
                "it has acknowledged, and nobody could tell what to send again"
            )
        if self.idempotent and self.retries is not None:
            raise click.UsageError("--idempotent sends again until it is written: no --retries")
        if self.commit_every is not None and self.transactional_id is None:
            raise click.UsageError("--commit-every needs --transactional-id")
        if self.transactional_id is not None and (
            self.acks != "all" or self.idempotent is False or self.retries is not None
        ):
            raise click.UsageError(
                "--transactional-id needs --acks all, retries and idempotence: without them a "
                "transaction could lose or double records"
            )

    @property
    def batch_bytes(self) -> int:
        return self.batch_size or BATCH_BYTES_DEFAULT

    @property
    def settings(self) -> dict[str, Any]:
        """Return librdkafka's settings."""
        is_idempotent = self.idempotent
        if is_idempotent is None:
            is_idempotent = self.acks == "all" and self.retries is None
        settings = {
            "acks": self.acks,
            "enable.idempotence": is_idempotent,
            "compression.type": self.compression,
            "linger.ms": self.linger_ms,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "delivery.report.only.error": True,
        }
        if self.retries is not None:
            settings["retries"] = self.retries
        if self.transactional_id is not None:
            settings |= {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        if self.batch_size is not None:
            settings |= {"batch.size": self.batch_size, "batch.num.messages": BATCH_RECORDS_MAX}
        return settings
