"""Three brokers, each with the real coordinator, and the controller that elects the leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from simulator.virtual_loop import Process

from fairlead_broker.group.coordinator import GroupCoordinator

from .offsets_log import MIN_IN_SYNC, LogCopy, OffsetsPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.replication.partition import Partition

    from .world import World

FETCH_S: Final = 0.03
COMMIT_TIMEOUT_MS: Final = 600
INITIAL_DELAY_MS: Final = 200


class BrokerHost:
    """A machine: its disk stays, processes start and end on it."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.copy = LogCopy()
        self.is_cut_off = False
        """Cut off from the other brokers and the controller; clients still reach it."""
        self.start()

    def start(self) -> None:
        self.process = Process(self.world.loop, f"broker-{self.broker_id}")
        self.partition = OffsetsPartition(self.copy, self.world.rng)
        self.coordinator: GroupCoordinator = GroupCoordinator(self._environment())

    @property
    def is_running(self) -> bool:
        return self.process.is_alive

    @property
    def name(self) -> str:
        return f"broker {self.broker_id}"

    def _environment(self) -> Any:
        """Return what the coordinator needs of its broker."""
        loop, world = self.world.loop, self.world
        topic = SimpleNamespace(partitions=[object()])
        clock = SimpleNamespace(monotonic_ms=loop.now_ms, now_ms=world.wall_clock_ms)
        return SimpleNamespace(
            clock=clock,
            awake_clock=clock,
            settings=SimpleNamespace(
                group_initial_rebalance_delay_ms=INITIAL_DELAY_MS,
                group_max_size=100,
                offsets_commit_timeout_ms=COMMIT_TIMEOUT_MS,
                offsets_load_buffer_size=1_000_000,
            ),
            image=SimpleNamespace(topic=lambda _: topic, names={"t": bytes(16)}),
            metrics=SimpleNamespace(task_failures=0),
        )

    def do(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action in the process, as soon as the process runs; never if it is gone then."""
        self.process.call_soon(action, *arguments)

    def lead(self, leader_epoch: int, in_sync: frozenset[int]) -> None:
        if leader_epoch <= self.partition.leader_epoch:
            return
        self.partition.lead(leader_epoch, in_sync)
        self._tell_role()

    def follow(self, leader_epoch: int) -> None:
        if leader_epoch <= self.partition.leader_epoch:
            return
        self.partition.follow(leader_epoch)
        self._tell_role()

    def _tell_role(self) -> None:
        # In all other cases the coordinator must find out by itself (R20).
        if self.world.rng.random() < 0.5:
            self.coordinator.runtime.advanced([cast("Partition", self.partition)])
        self.coordinator.runtime.on_role(cast("Partition", self.partition))

    def stop(self) -> None:
        self.process.end()


class Replication:
    """The leader, the in-sync replicas, and what is committed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.leader_id: int | None = None
        self.leader_epoch = 0
        self.in_sync: set[int] = set(world.brokers)
        self.acknowledged: dict[int, int] = {}
        """By follower: the end of its log, from its last fetch at the present leader."""

    @property
    def leader(self) -> BrokerHost | None:
        return None if self.leader_id is None else self.world.brokers[self.leader_id]

    def is_true_leader(self, host: BrokerHost) -> bool:
        partition = host.partition
        return (
            host.broker_id == self.leader_id
            and host.is_running
            and partition.is_leader
            and partition.leader_epoch == self.leader_epoch
        )

    def begin(self) -> None:
        self.elect()
        for host in self.world.brokers.values():
            self._fetch_later(host)

    def elect(self, broker_id: int | None = None) -> None:
        """Elect another in-sync replica; each broker learns of it after its own delay."""
        brokers = self.world.brokers
        live = [each for each in sorted(self.in_sync) if brokers[each].is_running]
        if not live:
            self.leader_id = None
            return
        self.leader_id = broker_id if broker_id in live else self.world.rng.choice(live)
        assert self.leader_id is not None
        self.leader_epoch += 1
        self.acknowledged = {}
        leader = brokers[self.leader_id]
        self.world.checker.on_elected(leader)
        self.world.note("%s leads in epoch %d", leader.name, self.leader_epoch)
        for host in brokers.values():
            self._tell(host)

    def _tell(self, host: BrokerHost) -> None:
        rng, epoch = self.world.rng, self.leader_epoch
        is_leader = host.broker_id == self.leader_id
        delay_s = rng.uniform(0.001, 0.03) if is_leader else rng.choice((0.002, 0.05, 0.4))

        def tell() -> None:
            if host.is_cut_off:
                self.world.later(0.1, tell)
            elif host.is_running and epoch == self.leader_epoch:
                if is_leader:
                    host.do(host.lead, epoch, frozenset(self.in_sync))
                else:
                    host.do(host.follow, epoch)

        self.world.later(delay_s, tell)

    def on_down(self, host: BrokerHost) -> None:
        """Handle missing heartbeats, as the controller does."""
        if host.is_running and not host.is_cut_off and not host.process.is_paused:
            return
        if len(self.in_sync) > 1:
            self._change_in_sync(self.in_sync - {host.broker_id})
        if self.leader_id == host.broker_id:
            self.elect()

    def on_up(self, host: BrokerHost) -> None:
        if self.leader_id is None:
            self.elect()
        else:
            self._tell(host)

    def lost_data(self, host: BrokerHost) -> None:
        """Handle an unclean start: the replica is neither in sync nor electable (R14)."""
        self._change_in_sync(self.in_sync - {host.broker_id})

    def _change_in_sync(self, in_sync: set[int]) -> None:
        self.in_sync = set(in_sync)
        leader = self.leader
        if leader is not None and self.is_true_leader(leader):
            leader.partition.in_sync = frozenset(in_sync)
            self._advance(leader)

    def _fetch_later(self, host: BrokerHost) -> None:
        delay_s = FETCH_S * self.world.rng.uniform(0.2, 2.0)
        self.world.later(delay_s, lambda: self._fetch(host))

    def _fetch(self, host: BrokerHost) -> None:
        self._fetch_later(host)
        leader = self.leader
        if leader is None or leader is host or not self.is_true_leader(leader):
            return
        if any(
            each.is_cut_off or not each.is_running or each.process.is_paused
            for each in (host, leader)
        ):
            return
        if host.partition.is_leader or host.partition.leader_epoch != self.leader_epoch:
            return
        copy = host.copy
        copy.follow(leader.copy)
        self.acknowledged[host.broker_id] = copy.end
        host.partition.high_watermark = min(
            max(leader.partition.high_watermark, host.partition.high_watermark), copy.end
        )
        if host.coordinator.runtime.shards:
            host.do(host.coordinator.runtime.advanced, [host.partition])
        if host.broker_id not in self.in_sync and copy.end >= leader.partition.epoch_start:
            self._change_in_sync(self.in_sync | {host.broker_id})
        self._advance(leader)

    def _advance(self, leader: BrokerHost) -> None:
        partition = leader.partition
        if len(self.in_sync) < MIN_IN_SYNC:
            return
        others = [self.acknowledged.get(each, 0) for each in self.in_sync if each != self.leader_id]
        end = min([leader.copy.end, *others])
        if end <= partition.high_watermark:
            return
        partition.high_watermark = end
        self.world.checker.on_committed(leader)
        leader.do(leader.coordinator.runtime.advanced, [partition])
