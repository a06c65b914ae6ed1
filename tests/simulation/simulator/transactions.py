"""What a seed draws for its transactions: topics, producers, and faults for them only.

Some seeds have a topic with transactions, and the topic of transactional ids. Nothing of either is
imitated: the logs are real ones on simulated disks, and coordinators, marker writers and verifiers
are the brokers' own. So their messages are lost, late and repeated as all others are, and a
coordinator is deposed as any leader is.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from simulator.churn import topic_body
from simulator.network import Trap
from simulator.transactional_clients import CommittedReader, TransactionalProducer

from fairlead_model.configs.log_config import LogConfig
from fairlead_model.ids import TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.broker_host import BrokerHost
    from simulator.faults import Faults
    from simulator.network import End
    from simulator.world import World

    from fairlead_model.session.calls import CreatableTopic

LEDGER: Final = "ledger"
"""The topic that is written in transactions."""
LEDGER_PARTITIONS: Final = 2
TRANSACTIONAL_SEEDS: Final = (3, 1)
"""One of this number of seeds has transactions, beginning with this one."""
FIRST_SEED_WITH_OUTLASTED_REIGNS: Final = 1_795_790_000
"""Half of the seeds from here on have markers that outlast the reigns of leaders."""
OUTLASTED_S: Final = 12.0
"""The longest delay of a marker."""


class Transactions:
    """Drawn with a separate generator, so that other seeds stay the same without it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"transactions {seed}")
        self.config = LogConfig(
            segment_bytes=rng.choice((400, 1000, 3000)),
            index_interval_bytes=150,
            segment_index_bytes=400,
            retention_ms=-1,
            file_delete_delay_ms=rng.choice((0, 2000)),
            message_timestamp_after_max_ms=1 << 62,
        )
        self.state_config = replace(self.config, cleanup_policy=frozenset({"compact"}))
        """Nothing of it may be removed; seeds with transactions run no cleaner."""
        self.timeout_ms = rng.choice((1500, 4000))
        self.pause_s = rng.choice((0.1, 0.3))
        self.sweep_chance = rng.choice((0.3, 1.0))
        self.tries = rng.choice((1, 2, 6))
        """Attempts for one batch; then its transaction is given up."""
        self.fault_pause_s = rng.choice((0.8, 1.6))
        self.versions = rng.choice(((0, 2), (0, 0, 2), (0, 2, 2)))
        self.producers: list[TransactionalProducer] = []
        self.readers: list[CommittedReader] = []

    def topics(self, world: World) -> list[CreatableTopic]:
        """Return the topics that are created before the run."""
        ids = list(world.brokers)
        common = {"min.insync.replicas": "2"}
        placed = [self.rng.sample(ids, 3) for _ in range(LEDGER_PARTITIONS + 1)]
        state = {**common, "cleanup.policy": "compact"}
        return [
            topic_body(LEDGER, placed[1:], {**common, "cleanup.policy": "delete"}),
            topic_body(TRANSACTION_STATE, placed[:1], state),
        ]

    def start_clients(self, world: World) -> None:
        ledger = [(world.topics[LEDGER], index) for index in range(LEDGER_PARTITIONS)]
        state = (world.topics[TRANSACTION_STATE], 0)
        world.checker.transactions.follow(LEDGER, ledger, state)
        for number, version in enumerate(self.versions):
            self.producers.append(
                TransactionalProducer(world, self, f"clients-x{number}", state, ledger, version)
            )
        for number, key in enumerate(ledger):
            self.readers.append(CommittedReader(world, f"clients-xc{number}", key))
        for producer in self.producers:
            producer.start()
        for reader in self.readers:
            reader.process.call_soon(reader.start)

    def log_config(self, overrides: Any) -> LogConfig:
        """Return the settings of one of these topics."""
        return self.state_config if overrides["cleanup.policy"] == "compact" else self.config

    def unsettled(self) -> str | None:
        """Return who has not finished; None if all have."""
        for producer in self.producers:
            if not producer.is_done:
                return f"{producer.name} has not finished"
        for reader in self.readers:
            problem = reader.unsettled()
            if problem is not None:
                return problem
        return None


def transactions_of(seed: int, has_transactions: bool | None) -> Transactions | None:
    """Return what a seed draws; None if it has no transactions."""
    if has_transactions is None:
        every, first = TRANSACTIONAL_SEEDS
        has_transactions = seed % every == first
    return Transactions(seed) if has_transactions else None


class TransactionFaults:
    """More faults, besides those of `Faults`: they mostly affect transactions only."""

    def __init__(self, faults: Faults, plan: Transactions) -> None:
        self._faults = faults
        self._world = faults.world
        self._plan = plan
        self._kinds: list[Callable[[], None]] = [
            self.replace_producer,
            self.hold_request,
            self.hold_verdict,
            self.depose_coordinator,
            self.strand_leader,
        ]
        # Each seed prefers one or two: with many faults of all kinds, little would go on.
        favourites = plan.rng.sample(range(len(self._kinds)), plan.rng.randint(1, 2))
        self._weights = [6 if number in favourites else 1 for number in range(len(self._kinds))]
        seed = self._world.seed
        outlasts = seed >= FIRST_SEED_WITH_OUTLASTED_REIGNS and seed % 2 == 0
        self._kinds.append(self.outlast_reign)
        self._weights.append(2 if outlasts else 0)
        only = self._world.options.only
        if only:
            self._weights = [int(kind.__name__ in only) for kind in self._kinds]

    def begin(self, until_s: float) -> None:
        """Begin faults from now on."""
        world, rng = self._world, self._plan.rng
        if self._faults.is_over or world.loop.time() >= until_s or not any(self._weights):
            return
        (fault,) = rng.choices(self._kinds, self._weights)
        fault()
        world.later(rng.expovariate(1 / self._plan.fault_pause_s), lambda: self.begin(until_s))

    def replace_producer(self) -> None:
        """Let another process take the transactional id over, while the old one is paused or gone;
        a paused one resumes later, and does not know it."""
        rng = self._plan.rng
        producer = rng.choice(self._plan.producers)
        self._world.note("%s is replaced", producer.name)
        go_on = producer.replace(is_killed=rng.random() < 0.5)
        self._faults.last("producer replaced", 0.1 + 3 * rng.random(), go_on)

    def hold_request(self) -> None:
        """Delay a producer's request: the producer has given up when it arrives, and its
        transaction may be over."""
        rng, plan = self._plan.rng, self._plan
        producer = rng.choice(plan.producers)
        method = rng.choice(("produce", "produce", "produce", "end_txn", "add_partitions"))
        given_up_s = 2 * plan.tries * self._world.request_timeout_s
        seconds = min(given_up_s, 5) + rng.random()

        def is_meant(end: End, message: Any) -> bool:
            return end.process.name == producer.name and message[1] == method

        self._trap(f"{method} held", is_meant, seconds)

    def hold_verdict(self) -> None:
        """Delay a coordinator's answer about a transaction, which is outdated when it arrives."""
        seconds = 0.3 + 3 * self._plan.rng.random()
        self._trap(
            "verdict held",
            lambda end, _: end.is_accepted and end.purpose.startswith("verification"),
            seconds,
        )

    def depose_coordinator(self) -> None:
        """Pause or kill a coordinator while its marker is under way: it arrives later than that of
        the next coordinator."""

        def depose(end: End) -> None:
            self._depose(self._world.brokers[int(end.process.name.rpartition("-")[2])])

        self._trap(
            "marker held",
            lambda end, _: not end.is_accepted and end.purpose.startswith("transactions"),
            2 + 2 * self._plan.rng.random(),
            depose,
        )

    def outlast_reign(self) -> None:
        """Depose a leader while a marker is under way: it arrives when the next leader has written
        it, and the first one leads again."""

        def hold(end: End) -> None:
            world = self._world
            first = int(end.peer_host.rpartition("-")[2])
            reigns = [
                (index, record.leader_epoch)
                for index in range(LEDGER_PARTITIONS)
                if (record := world.record(index, LEDGER)).leader == first
            ]
            world.note("a marker for %s outlasts its reign", end.peer_host)
            release = world.network.hold_ends([end])
            self._faults.last("reign outlasted", OUTLASTED_S, release)
            self._depose(world.brokers[first])
            self._release_in_next_reign(first, reigns, release, world.loop.time() + OUTLASTED_S)

        self._world.network.traps.append(
            Trap(
                lambda end, _: not end.is_accepted and end.purpose.startswith("transactions"), hold
            )
        )

    def _release_in_next_reign(
        self,
        first: int,
        reigns: list[tuple[int, int]],
        release: Callable[[], None],
        deadline_s: float,
    ) -> None:
        """Check repeatedly whether it leads again; help it to, once it is in sync."""
        world = self._world
        records = [(world.record(index, LEDGER), epoch) for index, epoch in reigns]
        if any(each.leader == first and each.leader_epoch > epoch for each, epoch in records):
            release()
            return
        if world.loop.time() > deadline_s or self._faults.is_over:
            return
        for each, _ in records:
            other = world.brokers.get(each.leader)
            if first in each.isr and other is not None and other.is_running:
                if each.replicas[0] == first:
                    world.elect_preferred()
                else:
                    self._depose(other)
        world.later(
            0.2 + 0.3 * self._plan.rng.random(),
            lambda: self._release_in_next_reign(first, reigns, release, deadline_s),
        )

    def _trap(
        self,
        name: str,
        is_meant: Callable[[End, Any], bool],
        seconds: float,
        and_then: Callable[[End], None] = lambda _: None,
    ) -> None:
        """Delay the next message of a kind, and its connection with it."""

        def hold(end: End) -> None:
            self._world.note("%s: %s > %s", name, end.process.name, end.peer_host)
            release = self._world.network.hold_ends([end])
            self._faults.last(name, seconds, release)
            and_then(end)

        self._world.network.traps.append(Trap(is_meant, hold))

    def strand_leader(self) -> None:
        """Let a leader append batches and markers that no follower gets, and then depose it."""
        leader = self._leader(LEDGER)
        if leader is not None:
            self._world.note("%s is stranded", leader.name)
            release = self._world.network.hold(
                lambda end: (
                    end.process.name == leader.name
                    and end.is_accepted
                    and end.purpose.startswith("replica")
                )
            )
            self._faults.last("leader stranded", 2 + 2 * self._plan.rng.random(), release)
            self._depose(leader)

    def _depose(self, broker: BrokerHost) -> None:
        """Pause or kill a broker soon, and for so long that it leads nothing any more."""
        rng = self._plan.rng
        is_killed = rng.random() < 0.5
        is_over = False

        def depose() -> None:
            if is_killed and not is_over:
                broker.kill()
            elif not is_over:
                broker.pause()

        def end() -> None:
            nonlocal is_over
            is_over = True
            if not is_killed:
                broker.resume()
            elif not broker.is_running:
                broker.start()

        self._world.later(0.1 + 1.3 * rng.random(), depose)
        self._faults.last("deposed", 2 + 3 * rng.random(), end)

    def _leader(self, topic: str) -> BrokerHost | None:
        """Return the leader of a partition of a topic, if it runs."""
        index = self._plan.rng.randrange(LEDGER_PARTITIONS if topic == LEDGER else 1)
        leader = self._world.record(index, topic).leader
        broker = self._world.brokers.get(leader)
        return broker if broker is not None and broker.is_running else None
