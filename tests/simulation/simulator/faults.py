"""The faults of a seed: their kinds with their probabilities, and how each ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulator.ensemble import Ensemble
from simulator.meddling import Meddlers
from simulator.moving import Movers
from simulator.outages import Outages
from simulator.store import HOST as STORE
from simulator.transactions import TransactionFaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.broker_host import BrokerHost
    from simulator.world import World

CLIENTS: Final = "clients"


class Faults:
    """Begins faults until it is stopped; `heal` ends all that still last."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.counts: dict[str, int] = {}
        self._ends: list[Callable[[], None]] = []
        self._is_over = False
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill, 10),
            (self.lose_power, 8),
            (self.lose_disk, 4),
            (self.stop_cleanly, 4),
            (self.pause, 8),
            (self.cut_off, 6),
            (self.cut_link, 10),
            (self.slow_down, 4),
            (self.fail_disk, 4),
            (self.jump_clock, 3),
            (self.kill_controller, 7),
            (self.pause_controller, 5),
            (self.second_controller, 6),
            (self.store_away, 4),
            (self.store_slow, 4),
            (self.store_doubtful, 7),
            (self.elect_preferred, 4),
            (self.change_min_insync, 2),
            (self.create_topic, 5),
            (self.grow_topic, 5),
            (self.delete_topic, 3),
            (self.replace_topic, 3),
        ]
        # Each seed prefers some faults, so that rare combinations become common in some seeds.
        rng = world.rng
        self._movers = Movers(self)
        more: tuple[Meddlers | Movers | Outages, ...] = (
            Meddlers(self),
            self._movers,
            Outages(self),
        )
        self._kinds = [kind for kind, _ in kinds]
        for others in more:
            self._kinds += others.kinds
        self._weights = [weight * rng.choice((0, 1, 1, 4)) for _, weight in kinds]
        if not any(self._weights):
            self._weights = [weight for _, weight in kinds]
        for others in more:
            self._weights += others.weights()
        if isinstance(world.store, Ensemble):
            self._kinds.append(self.edit_znode)
            self._weights.append(6 * rng.choice((0, 1, 1, 4)))
        # Only on request: all seeds keep the course that they had without it.
        self._kinds.append(self.fill_disk)
        self._weights.append(0)
        plan = world.transactions
        self._of_transactions = None if plan is None else TransactionFaults(self, plan)
        if world.options.only:
            self._weights = [int(kind.__name__ in world.options.only) for kind in self._kinds]

    def begin(self, until_s: float, pause_s: float) -> None:
        """Begin faults from now on."""
        if self._of_transactions is not None:
            self._of_transactions.begin(until_s)
        if any(self._weights):
            self._begin(until_s, pause_s)

    def _begin(self, until_s: float, pause_s: float) -> None:
        if self._is_over or self.world.loop.time() >= until_s:
            return
        (fault,) = self.world.rng.choices(self._kinds, self._weights)
        fault()
        delay_s = self.world.rng.expovariate(1 / pause_s)
        self.world.later(delay_s, lambda: self._begin(until_s, pause_s))

    @property
    def is_over(self) -> bool:
        """Tell whether faults have ended and everything heals."""
        return self._is_over

    def heal(self) -> None:
        """End all faults that last."""
        self._is_over = True
        self.world.network.traps.clear()
        for end in list(self._ends):
            end()
        for broker in self.world.brokers.values():
            # A leader whose clock is an hour behind rightly refuses clients' timestamps.
            broker.clock_skew_ms = 0
        self._movers.end_fences()

    def last(self, name: str, seconds: float, end: Callable[[], None]) -> None:
        """Count a fault that has begun, and end it after this time, or when all heals."""
        self.counts[name] = self.counts.get(name, 0) + 1
        self.world.wakes.on_fault(name, seconds)

        def finish() -> None:
            if finish in self._ends:
                self._ends.remove(finish)
                end()

        self._ends.append(finish)
        self.world.later(seconds, finish)

    def _broker(self) -> BrokerHost:
        return self.world.rng.choice(list(self.world.brokers.values()))

    def _duration_s(self, low: float, high: float) -> float:
        return low + (high - low) * self.world.rng.random() ** 2

    def kill(self) -> None:
        broker = self._broker()
        if broker.is_running:
            broker.kill()
            self.last("kill", self._duration_s(0.05, 4), lambda: self._restart(broker))

    def lose_power(self) -> None:
        broker = self._broker()
        if self.world.may_lose(broker):
            broker.lose_power()
            self.last("power", self._duration_s(0.2, 6), lambda: self._restart(broker))

    def lose_disk(self) -> None:
        broker = self._broker()
        if self.world.may_lose(broker):
            broker.lose_disk()
            self.last("disk lost", self._duration_s(0.05, 3), lambda: self._restart(broker))

    def stop_cleanly(self) -> None:
        broker = self._broker()
        if broker.is_running and broker.running is not None:
            self.world.note("%s is told to stop", broker.name)
            broker.running.process.spawn(broker.running.stop())

            def restart() -> None:
                broker.kill()
                self._restart(broker)

            self.last("stop", self._duration_s(1, 4), restart)

    def pause(self) -> None:
        broker = self._broker()
        if broker.is_running:
            broker.pause()
            self.last("pause", self._duration_s(0.1, 8), broker.resume)

    def fail_disk(self) -> None:
        """Let writes fail until the process restarts; what was not fsynced is lost then."""
        broker = self._broker()
        if not broker.is_running or not self.world.may_lose(broker):
            return
        broker.fail_disk()

        def replace() -> None:
            broker.kill()
            self._restart(broker)

        self.last("disk fails", self._duration_s(1, 5), replace)

    def fill_disk(self) -> None:
        """Leave no room for records for a while; the process lives."""
        broker = self._broker()
        if broker.is_running and not broker.disk.is_full:
            broker.fill_disk()

            def empty() -> None:
                if broker.disk.is_full:
                    broker.empty_disk()

            self.last("disk full", self._duration_s(1, 6), empty)

    def jump_clock(self) -> None:
        broker = self._broker()
        broker.clock_skew_ms += self.world.rng.choice((-3_600_000, -5000, 700, 5000, 3_600_000))
        self.last("clock", 0, lambda: None)

    def _restart(self, broker: BrokerHost) -> None:
        if not broker.is_running:
            broker.start()

    def cut_off(self) -> None:
        """Cut one broker off from all, in one direction or both; sometimes not from clients."""
        broker = self._broker()
        others = [name for name in self._hosts() if name != broker.name]
        if self.world.rng.random() < 0.5:
            others = [name for name in others if not name.startswith(CLIENTS)]
        self._cut([(broker.name, other) for other in others])

    def cut_link(self) -> None:
        one, other = self.world.rng.sample(self._hosts(), 2)
        self._cut([(one, other)])

    def _cut(self, links: list[tuple[str, str]]) -> None:
        direction = self.world.rng.choice(("both", "both", "there", "back"))
        cuts = [link for link in links if direction in ("both", "there")]
        cuts += [(b, a) for a, b in links if direction in ("both", "back")]
        self.world.note("cut %s", ", ".join(f"{a} > {b}" for a, b in cuts))
        network = self.world.network
        for source, target in cuts:
            network.cut(source, target)

        def heal() -> None:
            self.world.note("healed %s", ", ".join(f"{a} > {b}" for a, b in cuts))
            for source, target in cuts:
                network.heal(source, target)

        self.last("cut", self._duration_s(0.2, 7), heal)

    def slow_down(self) -> None:
        name = self.world.rng.choice(self._hosts())
        self.world.network.slow_down(name)
        self.last("slow", self._duration_s(0.5, 6), lambda: self.world.network.speed_up(name))

    def _hosts(self) -> list[str]:
        world = self.world
        brokers = [broker.name for broker in world.brokers.values()]
        clients = [client.name for client in [*world.producers, *world.consumers]]
        if world.transactions is not None:
            clients += [each.name for each in world.transactions.producers]
            clients += [each.name for each in world.transactions.readers]
        return [*brokers, *world.controllers, *clients, STORE]

    def kill_controller(self) -> None:
        for controller in self.world.controllers.values():
            controller.kill()
        self.last("controller killed", 0, lambda: None)

    def pause_controller(self) -> None:
        running = [each for each in self.world.controllers.values() if each.is_running]
        if running:
            process = self.world.rng.choice(running).process
            assert process is not None
            self.world.note("%s is stopped", process.name)
            process.pause()
            self.last("controller paused", self._duration_s(0.2, 6), process.resume)
            if self.world.rng.random() < 0.7:
                # Its lease expires.
                self.world.later(self._duration_s(0.5, 3), self.second_controller)

    def second_controller(self) -> None:
        """Let another candidate take over while the first may still believe to be active."""
        idle = [each for each in self.world.controllers.values() if not each.is_running]
        if idle:
            self.world.rng.choice(idle).start()
            self.last("takeover", 0, lambda: None)

    def store_away(self) -> None:
        store = self.world.store
        self.world.note("the store is away")
        store.go_away()
        self.last("store away", self._duration_s(0.5, 6), store.come_back)

    def store_slow(self) -> None:
        store = self.world.store
        store.is_slow = True
        self.last("store slow", self._duration_s(0.5, 5), lambda: setattr(store, "is_slow", False))

    def store_doubtful(self) -> None:
        store, rng = self.world.store, self.world.rng
        store.unknown_chance = rng.choice((0.1, 0.3, 0.6))
        store.failure_chance = rng.choice((0, 0, 0.1))
        self.world.note("the store answers every %.1f write only", 1 - store.unknown_chance)

        def settle() -> None:
            store.unknown_chance = store.failure_chance = 0.0

        self.last("store doubtful", self._duration_s(0.5, 6), settle)

    def edit_znode(self) -> None:
        """Change or remove one of Kafka's znodes, as a person may do: it is restored."""
        store = self.world.store
        assert isinstance(store, Ensemble)
        if path := store.edit_by_hand():
            self.world.note("somebody edits %s", path)
            self.last("znode edited", 0, lambda: None)

    def elect_preferred(self) -> None:
        self.world.elect_preferred()
        self.last("election", 0, lambda: None)

    def change_min_insync(self) -> None:
        self.world.change_min_insync(self.world.rng.choice(("1", "2", "2", "3")))
        self.last("min insync", 0, lambda: None)

    def create_topic(self) -> None:
        self.world.churn.create()
        self.last("topic made", 0, lambda: None)

    def grow_topic(self) -> None:
        self.world.churn.grow()
        self.last("topic grown", 0, lambda: None)

    def delete_topic(self) -> None:
        self.world.churn.delete()
        self.last("topic deleted", 0, lambda: None)

    def replace_topic(self) -> None:
        self.world.churn.replace()
        self.last("topic replaced", 0, lambda: None)
