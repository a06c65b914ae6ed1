"""The world of one seed: a cluster, its clients, its faults, and the end when all must be well."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from simulator.broker_host import BrokerHost
from simulator.checker import Checker
from simulator.churn import Churn
from simulator.claim import may_lose
from simulator.compaction import DiskThread, compaction_of
from simulator.control_plane import ControllerHost, replaced_edges
from simulator.ensemble import Ensemble
from simulator.faults import Faults
from simulator.final_check import check_history, unsettled
from simulator.meddling import FIRST_SEED_WITH_MEDDLERS
from simulator.moving import BROKERS, FIRST_SEED_WITH_MOVES
from simulator.network import Network
from simulator.opening import PLAIN, SAFE, set_up
from simulator.outages import FIRST_SEED_WITH_OUTAGES
from simulator.store import StoreService
from simulator.transactions import transactions_of
from simulator.virtual_loop import VirtualLoop
from simulator.wake_watch import WakeWatch

from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from simulator.checker import PartitionKey, Record
    from simulator.clients import Consumer, Producer

HISTORY_LENGTH = 60
HEAL_S = 30.0


class SimulationFailed(AssertionError):  # noqa: N818
    """A rule was broken; the text is the history before that."""


@dataclass(frozen=True, slots=True)
class Options:
    """The length of a run, and its faults. The seed decides what is None."""

    brokers: int | None = None
    fault_s: float = 14.0
    fault_pause_s: float = 1.1
    has_faults: bool = True
    is_violent: bool | None = None
    """Whether more brokers lose data at once than the claim allows."""
    settle_s: float = HEAL_S
    is_compacting: bool | None = None
    """Whether there is a compacted topic; by default some seeds have one."""
    has_transactions: bool | None = None
    """Whether there is a topic with transactions; by default some seeds have one."""
    has_meddlers: bool | None = None
    """Whether people label tables, remove folders and allow unclean elections."""
    has_several_disks: bool | None = None
    """Whether brokers have two log directories each, of which one may be replaced."""
    has_moves: bool | None = None
    """Whether partitions are moved and brokers drained."""
    has_outages: bool | None = None
    """Whether brokers are killed while no election is possible."""
    reads_followers: bool = False
    """Whether each broker has a rack, and consumers read from the follower in theirs (KIP-392)."""
    has_zookeeper: bool = False
    """Whether the store is ZooKeeper's, over a simulated ensemble."""
    only: tuple[str, ...] = ()
    """Names of the possible faults; empty for all."""
    script: Callable[[World], Awaitable[None]] | None = None
    """A story to play instead of random faults."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run; equal digests mean equal histories."""

    seed: int
    digest: int
    steps: int
    virtual_s: float
    committed: int
    acknowledged: int
    elections: int
    settled_after_s: float
    faults: dict[str, int]


class World:
    """The world of one seed. Its attributes are for its parts; tests use `run_seed`."""

    def __init__(self, seed: int, options: Options) -> None:
        self.seed = seed
        self.options = options
        self.rng = random.Random(seed)
        self.compaction = compaction_of(seed, options.is_compacting)
        self.transactions = transactions_of(seed, options.has_transactions)
        self.loop = VirtualLoop()
        self.network = Network(self.loop, self.rng)
        service = Ensemble if options.has_zookeeper else StoreService
        self.store = service(self.loop, self.network, self.rng)
        self.checker = Checker(self)
        self.store.after_write = self.checker.on_written
        if isinstance(self.store, Ensemble):
            self.store.fail = self.checker.fail
        self.loop.after_step = self.checker.after_step
        self.loop.threads = DiskThread(self)
        self.brokers: dict[int, BrokerHost] = {}
        self.controllers = {
            name: ControllerHost(self, name) for name in ("controller-0", "controller-1")
        }
        self.wakes = WakeWatch(self)
        self.churn = Churn(self)
        self.topics: dict[str, bytes] = {}
        """Ids of the topics that each run creates at first."""
        self.partition_of: dict[int, PartitionKey] = {}
        """The partition of each value."""
        self.is_healing = False
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        has_meddlers = seed >= FIRST_SEED_WITH_MEDDLERS and seed % 2 == 0
        self.has_meddlers = has_meddlers if options.has_meddlers is None else options.has_meddlers
        several = seed >= FIRST_SEED_WITH_MEDDLERS and seed % 5 == 0
        asked = options.has_several_disks
        self.has_several_disks = several if asked is None else asked
        has_moves = seed >= FIRST_SEED_WITH_MOVES and seed % 3 == 0
        self.has_moves = has_moves if options.has_moves is None else options.has_moves
        has_outages = seed >= FIRST_SEED_WITH_OUTAGES and seed % 2 == 1
        self.resumptions = 0
        """How often a start resumed what a killed process led."""
        self.has_outages = has_outages if options.has_outages is None else options.has_outages
        self.faults = Faults(self)
        self.history: deque[tuple[float, str]] = deque(maxlen=HISTORY_LENGTH)
        self.digest = 0
        rng = self.rng
        self.produce_rate = rng.choice((1.0, 4.0, 12.0))
        self.consume_pause_s = rng.choice((0.2, 0.5))
        self.retention_chance = rng.choice((0.0, 0.05, 0.3))
        self.request_timeout_s = rng.choice((0.3, 1.0, 2.0))
        is_violent = options.is_violent
        self.is_violent = rng.random() < 0.1 if is_violent is None else is_violent
        count = options.brokers or rng.choice((3, 3, 3, 4))
        if self.has_moves:
            count = max(count, BROKERS)
        for broker_id in range(1, count + 1):
            self.brokers[broker_id] = BrokerHost(self, broker_id)
        self._values = 0
        self._is_supervising = True

    def note(self, sentence: str, *arguments: object) -> None:
        """Note an event, for the history of a failure and the digest."""
        text = sentence % arguments if arguments else sentence
        self.history.append((self.loop.time(), text))
        self.digest = crc32(f"{self.loop.time():.6f} {text}".encode(), self.digest)

    def trace(self, sentence: str, *arguments: object) -> None:
        """Note an event that is too frequent for the history, for the digest only."""
        text = sentence % arguments
        self.digest = crc32(f"{self.loop.time():.6f} {text}".encode(), self.digest)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Schedule an action in the world."""
        self.loop.call_later(seconds, action, context=self.network.context)

    def wall_clock_ms(self) -> int:
        return 1_700_000_000_000 + self.loop.now_ms()

    def next_value(self, key: PartitionKey) -> int:
        """Return a value that was not sent yet."""
        self._values += 1
        self.partition_of[self._values] = key
        return self._values

    def told_history(self) -> str:
        return "\n".join(f"{at_s - 1000:9.4f}  {text}" for at_s, text in self.history)

    def key(self, index: int = 0, topic: str = SAFE) -> PartitionKey:
        return (self.topics[topic], index)

    def record(self, index: int = 0, topic: str = SAFE) -> Record:
        """Return a partition's registration in the store."""
        record = self.checker.truths[self.key(index, topic)].record
        assert record is not None
        return record

    def leader(self, index: int = 0, topic: str = SAFE) -> BrokerHost:
        return self.brokers[self.record(index, topic).leader]

    def followers(self, index: int = 0, topic: str = SAFE) -> list[BrokerHost]:
        record = self.record(index, topic)
        return [self.brokers[one] for one in record.replicas if one != record.leader]

    def committed(self, index: int = 0, topic: str = SAFE) -> int:
        """Return how many records have been committed."""
        return len(self.checker.truths[self.key(index, topic)].committed)

    async def until(self, holds: Callable[[], object], limit_s: float = 20.0) -> None:
        """Wait for a condition to become true."""
        await self.wait_until_well(
            lambda: None if holds() else "not yet", limit_s, "what is waited for"
        )

    async def until_at_once(self, holds: Callable[[], object]) -> None:
        """Wait for a condition, and continue within a fraction of a millisecond."""
        while True:
            if holds():
                return
            await asyncio.sleep(0.0002)

    async def progress(self, index: int = 0, topic: str = SAFE, *, count: int = 5) -> None:
        """Wait until `count` more records have been committed."""
        goal = self.committed(index, topic) + count
        await self.until(lambda: self.committed(index, topic) >= goal)

    def has_registered(self, host: BrokerHost) -> bool:
        """Tell whether the store has the registration of the host's last start."""
        line = self.store.tables["cluster"].lines[f"broker/{host.broker_id}"]
        return bool(json.loads(line)["start_id"] == host.disk.start_id)

    def is_in_service(self, host: BrokerHost) -> bool:
        line = self.store.tables["cluster"].lines[f"broker/{host.broker_id}"]
        return host.is_running and not json.loads(line)["fenced"]

    def isolate(self, host: BrokerHost, *, from_: list[str]) -> None:
        """Cut a host off from some others, both ways."""
        for other in from_:
            self.network.cut(host.name, other)
            self.network.cut(other, host.name)

    def may_lose(self, broker: BrokerHost) -> bool:
        """Tell whether acknowledged data of this broker may be lost now, within the claim."""
        return may_lose(self, broker)

    def elect_preferred(self) -> None:
        self.tell_controller("elect_leaders", {"partitions": None, "election_type": 0})

    def change_min_insync(self, value: str) -> None:
        alteration = {"name": "min.insync.replicas", "operation": 0, "value": value}
        resource = {"resource_type": 2, "name": PLAIN, "alterations": [alteration]}
        body = {"resources": [resource], "validate_only": False, "incremental": True}
        self.tell_controller("alter_configs", body)

    def tell_controller(self, method: str, body: dict[str, Any]) -> None:
        """Send a call through a broker's session, as an admin client would."""
        running = [host.running for host in self.brokers.values() if host.is_running]
        ready = [process for process in running if process is not None and process.is_confirmed]
        if ready:
            process = self.rng.choice(ready)
            process.process.spawn(_call_quietly(process, method, body))

    def run(self) -> Outcome:
        loop = self.loop
        with replaced_edges(self), _quiet(loop):
            try:
                settled_after_s = loop.run_until_complete(
                    loop.create_task(self._story(), context=self.network.context)
                )
                failure = loop.unheard_failure()
                if failure is not None:
                    raise AssertionError(f"a task failed: {failure!r}") from failure
            except Exception as error:
                raise SimulationFailed(self._report(error)) from error
            finally:
                self.network.is_over = True
                loop.bury()
        truths = self.checker.truths.values()
        return Outcome(
            seed=self.seed,
            digest=self.digest,
            steps=loop.steps,
            virtual_s=loop.time() - 1000,
            committed=sum(len(truth.committed) for truth in truths),
            acknowledged=len(self.checker.acknowledged),
            elections=sum(len(truth.leaders) for truth in truths),
            settled_after_s=settled_after_s,
            faults=dict(self.faults.counts),
        )

    def _report(self, error: Exception) -> str:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        return (
            f"seed {self.seed}: {type(error).__name__}: {error}\n{self.told_history()}\n"
            f"replay with: make simulate SEED={self.seed}"
        )

    async def _story(self) -> float:
        await set_up(self)
        options = self.options
        if options.script is not None:
            await options.script(self)
            return await self._heal()
        if options.has_faults:
            self.faults.begin(self.loop.time() + options.fault_s, options.fault_pause_s)
        await asyncio.sleep(options.fault_s)
        return await self._heal()

    async def _heal(self) -> float:
        """End all faults; return the seconds until everything is well."""
        self.note("everything heals")
        healed_s = self.loop.time()
        self.faults.heal()
        self.network.heal_all()
        for broker in self.brokers.values():
            if not broker.is_running:
                broker.start()
        self.is_healing = True
        for producer in self.producers:
            producer.is_finishing = True
        for each in () if self.transactions is None else self.transactions.producers:
            each.is_finishing = True
        await self.wait_until_well(
            lambda: unsettled(self), self.options.settle_s, "it does not settle"
        )
        settled_s = self.loop.time() - healed_s
        check_history(self.checker)
        return settled_s

    async def wait_until_well(
        self, problem: Callable[[], str | None], limit_s: float, what: str
    ) -> None:
        """Wait until there is no problem; AssertionError with `what` and the last problem."""
        deadline_s = self.loop.time() + limit_s
        while (found := problem()) is not None:
            if self.loop.time() >= deadline_s:
                raise AssertionError(f"{what} within {limit_s} s: {found}")
            await asyncio.sleep(0.1)

    def supervise(self) -> None:
        """Let another candidate take over if the Lease is free, because its holder has ended.

        A deposed controller that still runs does not hold it, and prevents no other candidate.
        """
        if not any(each.may_reign for each in self.controllers.values()):
            idle = [each for each in self.controllers.values() if not each.is_running]
            self.rng.choice(idle).start()
        self.later(0.3 + self.rng.random(), self.supervise)


async def _call_quietly(process: Any, method: str, body: dict[str, Any]) -> None:
    try:
        await process.session.call(method, body, timeout_ms=2000)
    except KafkaError:
        return


class _Findings(logging.Handler):
    """A finding is also what the broker logs with a traceback and survives.

    Failing disks, about which an operator is told, are not.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, KafkaError):
            self._loop.failure = error


@contextmanager
def _quiet(loop: VirtualLoop) -> Iterator[None]:
    logger = logging.getLogger("fairlead_broker")
    findings, propagates = _Findings(loop), logger.propagate
    logger.addHandler(findings)
    logger.propagate = False
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        logger.propagate = propagates
        logger.removeHandler(findings)


def run_seed(seed: int, options: Options | None = None) -> Outcome:
    """Run one seed to its end; SimulationFailed with the history if a rule was broken."""
    return World(seed, options or Options()).run()


def tell(
    script: Callable[[World], Awaitable[None]],
    *,
    seed: int = 1,
    is_compacting: bool = False,
    has_transactions: bool = False,
    has_zookeeper: bool = False,
) -> Outcome:
    """Play a story on three brokers; all rules are checked as in any run."""
    options = Options(
        brokers=3,
        is_violent=False,
        is_compacting=is_compacting,
        has_transactions=has_transactions,
        has_zookeeper=has_zookeeper,
        script=script,
    )
    return World(seed, options).run()
