"""The transaction that a task writes in, as those see it who write."""

from collections.abc import Iterable
from typing import Protocol

from fairlead_spark.offsets import TopicPartition
from fairlead_spark.prepared_transaction import PreparedTransaction


class SinkTransaction(Protocol):
    """It begins with the first row. The writer does not know who ends it, and how."""

    transactional_id: str

    def begin(self) -> PreparedTransaction:
        """Return the producer to write as."""
        ...

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions before they are written to; PassingError where it is to be tried again."""
        ...
