"""A transaction that is decided and must now be ended in each of its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairlead_broker.log.producers.end_marker import EndMarker

TopicPartition = tuple[str, int]


class EndingTransaction(NamedTuple):
    """What a durable PrepareCommit or PrepareAbort asks for; sent again whole after a load.

    `shard_index` is the partition of `__transaction_state`; the marker's coordinator epoch is that
    partition's leader epoch.
    """

    transactional_id: str
    shard_index: int
    marker: EndMarker
    partitions: frozenset[TopicPartition]


class EndingProgress(Protocol):
    """Who decided it, and waits: the transaction coordinator."""

    def partitions_ended(
        self, ending: EndingTransaction, partitions: Collection[TopicPartition]
    ) -> None:
        """Hear that these have their marker, or are of topics that are gone.

        May be called for an ending that the coordinator gave up meanwhile, and more than once.
        """

    def ending_fenced(self, ending: EndingTransaction) -> None:
        """Hear that a newer coordinator owns the transaction; it is given up here."""


class MarkerWriting(Protocol):
    """Who has the markers written, here and on other brokers, again and again until they are."""

    def begin(self, ending: EndingTransaction) -> None:
        """Have a marker written to each partition."""

    def forget_shard(self, shard_index: int) -> None:
        """Stop sending what was decided for a partition that this broker no longer leads."""
