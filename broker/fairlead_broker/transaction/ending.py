"""A decided transaction, which now has to be ended in each of its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairlead_broker.log.producers.end_marker import EndMarker

TopicPartition = tuple[str, int]


class EndingTransaction(NamedTuple):
    """The markers for a durable PrepareCommit or PrepareAbort; all are sent again after a load.

    `shard_index` is the partition of `__transaction_state`; the marker's coordinator epoch is that
    partition's leader epoch.
    """

    transactional_id: str
    shard_index: int
    marker: EndMarker
    partitions: frozenset[TopicPartition]


class EndingProgress(Protocol):
    """The transaction coordinator, which has decided and waits for the end."""

    def partitions_ended(
        self, ending: EndingTransaction, partitions: Collection[TopicPartition]
    ) -> None:
        """Note that these partitions have their marker, or that their topics are deleted.

        It may be called more than once, and for an ending that the coordinator has given up.
        """

    def ending_fenced(self, ending: EndingTransaction) -> None:
        """Give the ending up, because a newer coordinator has the transaction."""


class MarkerWriting(Protocol):
    """Has the markers written, here and on other brokers, and retries until they are."""

    def begin(self, ending: EndingTransaction) -> None:
        """Have a marker written to each partition."""

    def forget_shard(self, shard_index: int) -> None:
        """Stop sending what was decided for a partition that this broker no longer leads."""
