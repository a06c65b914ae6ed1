"""Which partition a record goes to: as Java's default partitioner chooses (KIP-480, KIP-794). Pure.

For a record with a key, murmur2 of the key chooses the partition, so a key has the same partition
for all clients. Records without a key that come together go to one partition, which is chosen anew
each time, so that batches are large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_model.ids import NO_LEADER
from fairlead_wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from fairlead_broker.rest.records.embedding import EmbeddedRecord
    from fairlead_model.partition import PartitionRegistration


class Partitioner:
    """Chooses partitions for records that came together. `partitions` are those of the topic."""

    def __init__(self, partitions: Sequence[PartitionRegistration], chance: Random) -> None:
        self._partitions = partitions
        self._chance = chance
        self._sticky: int | None = None

    def choose(self, record: EmbeddedRecord) -> int | None:
        """Return the index of a partition; None if the record names one that does not exist."""
        count = len(self._partitions)
        if record.partition is not None:
            return record.partition if record.partition < count else None
        if record.key is not None:
            return partition_for_key(record.key, count)
        if self._sticky is None:
            led = [i for i, each in enumerate(self._partitions) if each.leader != NO_LEADER]
            self._sticky = self._chance.choice(led or range(count))
        return self._sticky
