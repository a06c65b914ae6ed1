"""Random faults: of brokers, of members, and what operators do at a bad moment."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.virtual_loop import Process

    from .brokers import BrokerHost
    from .members import Member
    from .world import World

PAUSE_S: Final = 0.5
MEMBERS_MAX: Final = 6


def _let_go_on(process: Process) -> None:
    if process.is_paused:
        process.resume()


class Faults:
    """Each method without arguments is a fault of that name."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.counts: Counter[str] = Counter()
        self._until_s = 0.0
        self.all: dict[str, Callable[[], None]] = {
            "kill_leader": self.kill_leader,
            "kill_broker": self.kill_broker,
            "lose_power": self.lose_power,
            "pause_leader": self.pause_leader,
            "cut_off_leader": self.cut_off_leader,
            "move_leader": self.move_leader,
            "kill_member": self.kill_member,
            "pause_member": self.pause_member,
            "start_member": self.start_member,
            "stop_member": self.stop_member,
            "restart_instance": self.restart_instance,
            "double_instance": self.double_instance,
            "remove_instance": self.remove_instance,
            "kill_producer": self.kill_producer,
            "commit_outside": self.commit_outside,
            "commit_late": self.commit_late,
            "delete_offsets": self.world.delete_offsets,
            "leave_and_delete": self.leave_and_delete,
        }

    def begin(self, until_s: float) -> None:
        self._until_s = until_s
        self._next()

    def _next(self) -> None:
        self.world.later(self.world.rng.uniform(0.1, 2 * PAUSE_S), self._one)

    def _one(self) -> None:
        world = self.world
        if world.loop.time() >= self._until_s:
            return
        names = list(world.options.only or self.all)
        name = world.rng.choice(names)
        self.counts[name] += 1
        self.all[name]()
        self._next()

    def heal(self) -> None:
        for host in self.world.brokers.values():
            host.is_cut_off = False
            host.process.resume() if host.process.is_paused else None
            if not host.is_running:
                self._restart(host)
        for member in self.world.members:
            if member.process.is_paused:
                member.process.resume()
        if not any(each.is_running and not each.is_leaving for each in self.world.members):
            self.world.add_member()

    def kill(self, host: BrokerHost) -> None:
        world = self.world
        world.note("%s is killed", host.name)
        host.stop()
        world.later(world.rng.uniform(0.03, 0.3), lambda: world.replication.on_down(host))
        world.later(world.rng.uniform(0.3, 2.0), lambda: self._restart(host))

    def _restart(self, host: BrokerHost) -> None:
        if not host.is_running:
            self.world.note("%s starts again", host.name)
            host.start()
            self.world.replication.on_up(host)

    def kill_leader(self) -> None:
        host = self.world.replication.leader
        if host is not None and host.is_running:
            self.kill(host)

    def kill_broker(self) -> None:
        host = self.world.rng.choice(list(self.world.brokers.values()))
        if host.is_running:
            self.kill(host)

    def lose_power(self) -> None:
        """Cut a machine's power if another in-sync replica still has everything."""
        world, replication = self.world, self.world.replication
        host = world.rng.choice(list(world.brokers.values()))
        others = replication.in_sync - {host.broker_id}
        if not host.is_running or not others:
            return
        replication.lost_data(host)
        self.kill(host)
        host.copy.lose_tail(world.rng)
        world.note("%s has lost power", host.name)
        if replication.leader_id == host.broker_id:
            replication.elect()

    def pause_leader(self) -> None:
        host, world = self.world.replication.leader, self.world
        if host is None or not host.is_running or host.process.is_paused:
            return
        world.note("%s is stopped", host.name)
        process = host.process
        process.pause()
        world.later(world.rng.uniform(0.1, 0.4), lambda: world.replication.on_down(host))
        world.later(world.rng.uniform(0.1, 2.0), partial(_let_go_on, process))

    def cut_off_leader(self) -> None:
        host, world = self.world.replication.leader, self.world
        if host is None or host.is_cut_off:
            return
        world.note("%s is cut off", host.name)
        host.is_cut_off = True
        world.later(world.rng.uniform(0.1, 0.4), lambda: world.replication.on_down(host))
        world.later(world.rng.uniform(0.3, 2.0), lambda: self._join_again(host))

    def _join_again(self, host: BrokerHost) -> None:
        host.is_cut_off = False

    def move_leader(self) -> None:
        """Elect a leader on request; the old one may even be elected again."""
        self.world.replication.elect(self.world.rng.choice((1, 2, 3)))

    def _any_member(self, *, is_static: bool = False) -> Member | None:
        live = [
            each
            for each in self.world.members
            if each.is_running and (each.instance is not None or not is_static)
        ]
        return self.world.rng.choice(live) if live else None

    def kill_member(self) -> None:
        member = self._any_member()
        if member is not None:
            self.world.note("%s is killed", member.name)
            member.kill()
            self.world.close_connections(member)

    def pause_member(self) -> None:
        member = self._any_member()
        if member is not None and not member.process.is_paused:
            self.world.note("%s is stopped", member.name)
            process = member.process
            process.pause()
            pause_s = self.world.rng.choice((0.5, 2.0, 4.0))
            self.world.later(pause_s, partial(_let_go_on, process))

    def start_member(self) -> None:
        if sum(each.is_running for each in self.world.members) < MEMBERS_MAX:
            self.world.add_member()

    def stop_member(self) -> None:
        member = self._any_member()
        if member is not None and member.instance is None:
            self.world.note("%s leaves", member.name)
            member.is_leaving = True

    def restart_instance(self) -> None:
        member = self._any_member(is_static=True)
        if member is not None:
            self.world.note("%s restarts", member.name)
            member.kill()
            self.world.close_connections(member)
            self.world.add_member(member.instance)

    def double_instance(self) -> None:
        """Start another process of the same instance, while the first is still there."""
        member = self._any_member(is_static=True)
        if member is not None and sum(e.is_running for e in self.world.members) < MEMBERS_MAX:
            self.world.add_member(member.instance)

    def remove_instance(self) -> None:
        member = self._any_member(is_static=True)
        if member is not None and member.instance is not None:
            self.world.note("%s is removed by name", member.instance)
            self.world.remove_instance(member.instance)

    def leave_and_delete(self) -> None:
        """Let all members go, some without LeaveGroup, and then delete the group."""
        world = self.world
        for member in [each for each in world.members if each.is_running]:
            if member.instance is None and world.rng.random() < 0.5:
                member.is_leaving = True
            else:
                member.kill()
                world.close_connections(member)
        for delay_s in (0.5, 2.0, 2.2):
            world.later(delay_s, world.delete_group)
        world.later(2.5, world.add_member)

    def kill_producer(self) -> None:
        live = [each for each in self.world.producers if each.process.is_alive]
        if live:
            producer = self.world.rng.choice(live)
            self.world.note("%s is killed", producer.name)
            producer.kill()
            self.world.add_producer()

    def commit_outside(self) -> None:
        self.world.commit_from_outside("", -1)

    def commit_late(self) -> None:
        """Commit for a member in a generation that may be over."""
        member = self.world.rng.choice(self.world.members)
        if member.member_id:
            generation_id = member.generation_id - self.world.rng.choice((0, 0, 1))
            if generation_id >= 0:
                self.world.commit_from_outside(member.member_id, generation_id)
