"""The transaction of a task, for the code that writes rows."""

from collections.abc import Iterable
from typing import Protocol

from fairlead_spark.offsets import TopicPartition
from fairlead_spark.prepared_transaction import PreparedTransaction


class SinkTransaction(Protocol):
    """It begins with the first row. The writer does not know who ends it, or how."""

    transactional_id: str

    def begin(self) -> PreparedTransaction:
        """Return the producer for the writes."""
        ...

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions before they are written to; PassingError if a retry may help."""
        ...
