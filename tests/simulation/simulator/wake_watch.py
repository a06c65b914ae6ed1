"""The observer of leaders that were suspended and resumed: they lose nothing that they acknowledge.

With acks=1 a record is lost if its leader dies, and a leader that no message reaches may go on for
a while. But a process that was merely suspended, long enough to be replaced, asks before it
acknowledges anything (`WakeGuard`). The rule applies if nothing else has failed meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from simulator.broker_host import BrokerHost
    from simulator.world import World

    from fairlead_broker.replication.partition import Partition

HARMLESS: Final = ("pause", "kill", "power", "disk lost", "stop")
"""Faults of single brokers: the controller can still tell a broker that it was replaced."""
AFTERMATH_S: Final = 3.0
"""How long the effects of another fault may last."""


class WakeWatch:
    """Remembers which broker was paused when, and how long other faults may excuse a loss."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._disturbed_until_s = 0.0
        self._stopped_s: dict[str, float] = {}
        self._woke_s: dict[str, float] = {}

    def on_fault(self, name: str, seconds: float) -> None:
        if name not in HARMLESS:
            until_s = self._world.loop.time() + seconds + AFTERMATH_S
            self._disturbed_until_s = max(self._disturbed_until_s, until_s)

    def on_stopped(self, host: BrokerHost) -> None:
        self._stopped_s[host.name] = self._world.loop.time()

    def on_woken(self, host: BrokerHost) -> None:
        self._woke_s[host.name] = self._world.loop.time()

    def on_acknowledged_alone(self, host: BrokerHost, partition: Partition) -> None:
        """Note that a leader acknowledges a record with acks=1."""
        truth = self._world.checker.truths[(partition.topic_id, partition.index)]
        record, stopped_s = truth.record, self._stopped_s.get(host.name)
        if record is None or stopped_s is None or self._disturbed_until_s > stopped_s:
            return
        is_replaced = record.leader_epoch > partition.leader_epoch
        if is_replaced and truth.moved_s < self._woke_s.get(host.name, 0):
            self._world.checker.fail(
                "%s was stopped, woke, and acknowledged for %s in epoch %d alone, it is %d now",
                host.name,
                partition,
                partition.leader_epoch,
                record.leader_epoch,
            )
