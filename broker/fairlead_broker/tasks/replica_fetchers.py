"""All fetchers of a broker, one for each broker that leads something which is followed here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead_broker.tasks.replica_fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.broker import Broker
    from fairlead_broker.replication.partition import Partition


class ReplicaFetchers:
    """`_followed` says which fetcher has a partition."""

    def __init__(self, broker: Broker, secret: bytes, *, on_truncated: Callable[[], None]) -> None:
        self._broker = broker
        self._secret = secret
        self._on_truncated = on_truncated
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._followed: dict[Partition, ReplicaFetcher] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._looked_ms = 0

    def start(self) -> None:
        """Follow whatever this broker follows now, and from now on what becomes of it."""
        self._broker.on_role = self.on_role
        self._broker.on_leaders_asked = self.look
        for partition in list(self._broker.partitions.values()):
            self.on_role(partition)

    async def stop(self) -> None:
        """Follow nothing any more."""
        self._broker.on_role = None
        self._broker.on_leaders_asked = None
        fetchers, self._fetchers = self._fetchers, {}
        self._followed.clear()
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers.values()), *self._stopping)

    def look(self) -> None:
        """Notice which leaders have hung up; once a millisecond is often enough."""
        now_ms = self._broker.clock.monotonic_ms()
        if now_ms != self._looked_ms:
            self._looked_ms = now_ms
            for fetcher in self._fetchers.values():
                fetcher.look()

    def on_role(self, partition: Partition) -> None:
        """`partition` leads, follows or is gone now."""
        fetcher = self._followed.get(partition)
        leader_id = partition.leader_id
        follows = partition.follower is not None and leader_id != self._broker.node_id
        if fetcher is not None and not (follows and fetcher.leader_id == leader_id):
            del self._followed[partition]
            fetcher.leave(partition)
            if not len(fetcher):
                self._retire(fetcher)
        if not follows:
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(
                self._broker, leader_id, self._secret, on_truncated=self._on_truncated
            )
        self._followed[partition] = fetcher
        fetcher.follow(partition)

    def _retire(self, fetcher: ReplicaFetcher) -> None:
        """Nothing is led there any more: that broker may be dead."""
        del self._fetchers[fetcher.leader_id]
        task = asyncio.get_running_loop().create_task(fetcher.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
