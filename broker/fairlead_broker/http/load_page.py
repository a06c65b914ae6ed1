"""`/load`: size and traffic of each replica here, for planning where replicas go.

The page is made on request, in slices, like the metrics. Metrics have only the first thousand
partitions; this page has all of them, with some thirty bytes each.
"""

from __future__ import annotations

import asyncio
import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import METRIC_PARTITIONS_A_TURN
from fairlead_broker.replication_throttle import REASSIGNMENT_RATE

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.replication.partition import Partition

VERSION: Final = 1


async def build_load(broker: Broker, capacity: tuple[int, int] | None) -> str:
    """Return the page; `capacity` is size and free bytes of the disk, None if unknown.

    The row of a replica has the partition's index and its bytes. If this broker leads the
    partition, bytes a second from producers and to consumers follow, null if not known yet.
    """
    total, free = capacity or (None, None)
    head = {
        "version": VERSION,
        "brokerId": broker.settings.node_id,
        "totalBytes": total,
        "freeBytes": free,
        "copyBytesPerSecond": broker.running_number(REASSIGNMENT_RATE),
    }
    topics = []
    number = 0
    for name, keys in groupby(sorted(broker.partitions), key=lambda key: key[0]):
        rows = []
        for key in keys:
            number += 1
            if number % METRIC_PARTITIONS_A_TURN == 0:
                await asyncio.sleep(0)
            partition = broker.partitions.get(key)
            if partition is not None:  # It may have been removed since the walk began.
                rows.append(describe_replica(partition))
        topics.append(f"{json.dumps(name)}:{json.dumps(rows, separators=(',', ':'))}")
    return f'{json.dumps(head)[:-1]}, "topics": {{{",".join(topics)}}}}}'


def describe_replica(partition: Partition) -> list[Any]:
    """Return the row of one replica."""
    row: list[Any] = [partition.index, partition.log.size]
    if partition.is_leader:
        rates = partition.flow.rates
        row += [None, None] if rates is None else map(round, rates)
    return row
