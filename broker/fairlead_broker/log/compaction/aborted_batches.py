"""Which batches of a log belong to aborted transactions: compaction ignores and removes them.

If their keys were noted, compaction would remove older committed values. No reader needs them.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from fairlead_broker.log.index.transaction_index import AbortedTransaction
from fairlead_wire.record_batch import BatchHeader


class AbortedBatches:
    """The entries of the transaction indexes by producer: two numbers a transaction."""

    __slots__ = ("_by_producer",)

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Take entries in the order of their markers; those of one producer do not overlap."""
        self._by_producer: dict[int, tuple[array[int], array[int]]] = {}
        for each in aborted:
            starts, ends = self._by_producer.setdefault(each.producer_id, (array("q"), array("q")))
            starts.append(each.first_offset)
            ends.append(each.last_offset)

    def has(self, header: BatchHeader) -> bool:
        """Tell whether a data batch was aborted."""
        ranges = self._by_producer.get(header.producer_id)
        if ranges is None or not header.is_transactional:
            return False
        starts, ends = ranges
        at = bisect_right(starts, header.base_offset) - 1
        return at >= 0 and header.base_offset < ends[at]
