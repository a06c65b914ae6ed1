"""Leaders and ISRs, read repeatedly from every broker with Kafka requests.

There is a task for each broker, so that a silent one delays no answer of others; brokers that the
others name are asked, too. The newest leader epoch is used, from any broker. Only the controller
knows which brokers are alive (`controller_watch`), if the drill can reach it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlead_cli.drill.wire_connection import WireConnection, WireErrors
from fairlead_wire.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from fairlead_cli.drill.controller_watch import ControllerWatch

METADATA_VERSION = 9
REQUEST_TIMEOUT_S = 0.25
POLL_FAST_S = 0.01
POLL_SLOW_S = 0.1
NO_LEADER = -1


@dataclass(slots=True)
class PartitionView:
    """The newest answer about a partition. `seen_at` is when its leader epoch was first seen."""

    leader: int = NO_LEADER
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    seen_at: float = 0.0


@dataclass
class ClusterWatch:
    """A running view of one topic. Without a `controller`, no broker is known to be dead."""

    topic: str
    addresses: list[tuple[str, int]]
    """The first brokers to ask."""
    controller: ControllerWatch | None = None
    partitions: dict[int, PartitionView] = field(default_factory=dict)
    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    is_fast: bool = False
    _tasks: dict[tuple[str, int], asyncio.Task[None]] = field(default_factory=dict)

    async def start(self) -> None:
        """Begin to ask."""
        for address in self.addresses:
            self._ensure_asked(address)
        if self.controller is not None:
            self.controller.start()

    async def stop(self) -> None:
        """End all tasks."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.controller is not None:
            await self.controller.stop()

    @property
    def fenced_at(self) -> dict[int, float]:
        """Since when the controller has reported each dead broker."""
        return {} if self.controller is None else self.controller.fenced_at

    @property
    def is_everybody_alive(self) -> bool:
        """Whether the controller, if there is one, answers and reports no problem."""
        return self.controller is None or self.controller.is_content

    def leader_address(self, partition: int) -> tuple[str, int] | None:
        """Return the address for records of a partition, as far as it is known."""
        view = self.partitions.get(partition)
        return None if view is None else self.brokers.get(view.leader)

    def led_by(self, broker_ids: set[int]) -> set[int]:
        """Return the partitions that one of these brokers leads."""
        return {number for number, view in self.partitions.items() if view.leader in broker_ids}

    @property
    def is_whole(self) -> bool:
        """Whether every partition has a leader and every replica is in sync."""
        return bool(self.partitions) and all(
            view.leader != NO_LEADER and set(view.isr) == set(view.replicas)
            for view in self.partitions.values()
        )

    @property
    def is_balanced(self) -> bool:
        """Whether the preferred replica leads every partition."""
        return all(
            view.replicas and view.leader == view.replicas[0] for view in self.partitions.values()
        )

    def _ensure_asked(self, address: tuple[str, int]) -> None:
        if address not in self._tasks:
            self._tasks[address] = asyncio.create_task(self._follow(*address))

    async def _follow(self, host: str, port: int) -> None:
        while True:
            connection: WireConnection | None = None
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    connection = await WireConnection.open(host, port)
                while True:
                    await self._ask(connection)
                    await asyncio.sleep(self.interval_s)
            except WireErrors:
                await asyncio.sleep(self.interval_s)
            finally:
                if connection is not None:
                    connection.close()

    async def _ask(self, connection: WireConnection) -> None:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)])
            self._take(await connection.call(request, METADATA_VERSION))

    @property
    def interval_s(self) -> float:
        """The time between two requests."""
        return POLL_FAST_S if self.is_fast else POLL_SLOW_S

    def _take(self, reply: Any) -> None:
        now = time.monotonic()
        self.brokers.update({b.node_id: (b.host, b.port) for b in reply.brokers})
        for address in self.brokers.values():
            self._ensure_asked(address)
        for topic in reply.topics:
            if topic.error_code:
                continue
            for heard in topic.partitions:
                view = self.partitions.setdefault(heard.partition_index, PartitionView())
                if heard.leader_epoch < view.leader_epoch:
                    continue
                if heard.leader_epoch > view.leader_epoch:
                    view.seen_at = now
                view.leader, view.leader_epoch = heard.leader_id, heard.leader_epoch
                view.replicas = tuple(heard.replica_nodes)
                view.isr = tuple(heard.isr_nodes)
