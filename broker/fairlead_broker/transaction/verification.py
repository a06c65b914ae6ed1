"""How a leader asks the coordinator of a partition's transaction about it (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from fairlead_broker.transaction.ending import TopicPartition
    from fairlead_wire.errors import ErrorCode

Verdicts: TypeAlias = "Mapping[TopicPartition, ErrorCode]"
"""By partition: the coordinator's answer, or why it could not be asked."""
OnVerdicts: TypeAlias = "Callable[[Verdicts], None]"


class TransactionVerification(Protocol):
    """Asks the coordinator of a transactional id, here or on another broker."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        supports_epoch_bump: bool,
        answer: OnVerdicts,
    ) -> None:
        """Have `answer` called once, in this call or later, with a verdict on each partition.

        A client that supports the epoch bump of version 2 has its partitions added to the
        transaction; for others the coordinator is only asked whether they are in it. Verdicts are
        the coordinator's own codes; NETWORK_EXCEPTION if the answer did not arrive,
        COORDINATOR_NOT_AVAILABLE if there is no coordinator. What each means to a client is for the
        handler to say.
        """
