"""`/load`: what each replica here takes up and how busy it is, for whoever plans where they go.

It is made when it is asked for, in slices, as the metrics are. Metrics tell of the first thousand
partitions; here are all of them, some thirty bytes each.
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
    """Return the page; `capacity` is size and room of the disk, None if that is not known.

    A replica is its partition's number and its bytes; where this broker leads, bytes a second from
    producers and to consumers follow, null if they are not known yet.
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
            if partition is not None:  # It may have gone since the walk began.
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
