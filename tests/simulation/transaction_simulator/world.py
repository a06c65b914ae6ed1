"""The world of one seed: messages arrive in any order, late, twice or never."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_2
from fairlead_broker.transaction.records import encode_value
from fairlead_broker.transaction.transaction_types import (
    ProducerIdAndEpoch,
    TransactionAnswer,
    TransactionMetadata,
    TransactionState,
)
from fairlead_wire.errors import ErrorCode, KafkaError

from .checker import Checker
from .clients import NO_PAIR, Client
from .coordinator import Coordinator
from .partitions import Data, Partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.transaction.ending import EndingTransaction
    from fairlead_broker.transaction.transactional_id import TransactionalId

STEPS: Final = 600
HEALING_STEPS: Final = 4_000
HISTORY_LENGTH: Final = 60
GIVEN_UP = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
}


class SimulationFailed(AssertionError):  # noqa: N818
    """A promise was broken; the text is the history before it."""


@dataclass(frozen=True, slots=True)
class Options:
    """The clients and faults of a run."""

    clients_at_once: int = 2
    timeout_ms: int = 3_000
    without: tuple[str, ...] = ()
    """Names of the faults that do not happen."""


LONELY: Final = Options(1, 1_000_000_000, ("move", "long pause", "late InitProducerId"))
"""No client fences another one, so none may be told that it is fenced."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run; equal digests mean equal histories."""

    digest: int
    faults: frozenset[str]
    ended: int
    comparisons: int


class World:
    def __init__(self, seed: int, options: Options) -> None:
        self.options = options
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.has_faults = True
        self.faults: set[str] = set()
        self.history: deque[str] = deque(maxlen=HISTORY_LENGTH)
        self.digest = 0
        self.under_way: list[tuple[int, str, Callable[[], None]]] = []
        """Messages: how often each is still passed over, its name, and its effect."""
        self.partitions = [Partition() for _ in range(3)]
        self.checker = Checker(self.partitions)
        self.coordinator = Coordinator(self, self._first())
        self.clients: list[Client] = []
        self._numbers = 0

    def _first(self) -> bytes | None:
        """Return no record, or that of an id whose epochs are nearly used up."""
        epoch = self.random.choice([-1, 32_760, 32_764, 32_765, 32_766])
        if epoch < 0:
            return None
        return encode_value(
            TransactionMetadata(TransactionState.EMPTY, 500, epoch, 3_000, update_ms=self.now_ms)
        )

    def happens(self, fault: str, probability: float) -> bool:
        """Tell whether a fault happens now."""
        if fault in self.options.without or not self.has_faults:
            return False
        if self.random.random() >= probability:
            return False
        self.faults.add(fault)
        return True

    def note(self, text: str) -> None:
        self.history.append(f"{self.now_ms} {text}")
        self.digest = crc32(text.encode(), self.digest)

    def later(self, name: str, what: Callable[[], None], *, passed_over: int = 0) -> None:
        self.under_way.append((passed_over, name, what))

    def run(self) -> None:
        for step in range(STEPS):
            self._step()
            if step % 50 == 0:
                self.checker.check(is_over=False)
        self._heal()

    def _step(self) -> None:
        self.now_ms += self.random.choice((0, 1, 10, 100))
        self._start_clients()
        if self.happens("move", 0.01):
            self.note("the coordinator moves")
            self.coordinator.move()
        if self.happens("slow record", 0.02):
            self.coordinator.time_out()
        if self.happens("long pause", 0.003):
            self.now_ms += 61_000
        if self.random.random() < 0.05:
            self.coordinator.sweep()
        if self.random.random() < 0.4:
            self.coordinator.replicate()
        if self.under_way:
            passed_over, name, what = self.under_way.pop(self.random.randrange(len(self.under_way)))
            if passed_over:
                self.later(name, what, passed_over=passed_over - 1)
            else:
                self.note(name)
                what()

    def _start_clients(self) -> None:
        if self.options is LONELY:
            for client in self.clients:
                assert client.refusal is None, f"client {client.number} hears {client.refusal}"
        self.clients = [client for client in self.clients if not client.is_dead]
        wanted = self.options.clients_at_once if self.has_faults else 0
        if len(self.clients) < wanted and self.random.random() < 0.05:
            self.start_client()

    def start_client(self) -> Client:
        self._numbers += 1
        version = self.random.choice((0, TRANSACTION_VERSION_2))
        self.note(f"client {self._numbers} of version {version} starts")
        client = Client(self, self._numbers, version=version)
        self.clients.append(client)
        return client

    def _heal(self) -> None:
        """End all faults: everything that is under way is done, and a new client gets an epoch.

        An older client may still fence that one afterwards.
        """
        self.has_faults = False
        alive = self.options is LONELY and [each for each in self.clients if not each.is_dead]
        client = alive[0] if alive else self.start_client()
        for _ in range(HEALING_STEPS):
            self._step()
            if not self.clients and not self.under_way:
                break
        assert client.is_dead, f"client {client.number} is stuck: {client.request}"
        assert client.pair != NO_PAIR, f"client {client.number} is refused: {client.refusal}"
        self.now_ms += self.options.timeout_ms + 1
        for _ in range(HEALING_STEPS):
            self._step()
            # None: the id may have expired by now.
            logged = self.coordinator.logged
            if (
                not self.under_way
                and not self.coordinator.appended
                and (logged is None or logged.state in (0, 4, 5))
            ):
                break
        else:
            raise AssertionError(f"the id is stuck: {self.coordinator.logged}")
        self.checker.check(is_over=True)

    def send(self, client: Client) -> None:
        """Send a client's request, which may arrive late, never, or twice."""
        number, request, pair = client.asked, client.request, client.pair

        def answered(answer: TransactionAnswer) -> None:
            lost = self.happens("lost answer", 0.05)
            self.note(f"client {client.number}: {request[0]} answers {answer.error.name}")
            self.later("an answer", lambda: back(None if lost else answer))

        def back(answer: Any) -> None:
            if not client.is_dead and client.waits_for == number:
                client.waits_for = 0
                client.resume(answer)

        def arrive() -> None:
            try:
                self._serve(client, request, pair, answered)
            except KafkaError as error:
                answered(TransactionAnswer(error.code))

        if self.happens("lost request", 0.05):
            self.later("a lost request", lambda: back(None))
            return
        if request[0] == "write" and self.happens("slow write", 0.1):
            self.later("a write that takes too long", lambda: back(None))
            self.later(f"client {client.number}: {request} as {pair}", arrive, passed_over=20)
            return
        self.later(f"client {client.number}: {request} as {pair}", arrive)
        again = "late InitProducerId" if request[0] == "init" else "late duplicate"
        if client.version and self.happens(again, 0.1):
            self.later(f"client {client.number}: {request} as {pair}, again", arrive)

    def _serve(
        self,
        client: Client,
        request: tuple[Any, ...],
        pair: tuple[int, int],
        answered: Callable[[TransactionAnswer], None],
    ) -> None:
        kind, *details = request
        now_ms = self.now_ms
        if kind == "write":
            index, transaction = details
            self._write(client.version, pair, index, transaction, answered)
            return

        def act(machine: TransactionalId) -> Any:
            if kind == "init":
                expected = None if details[0] is None else ProducerIdAndEpoch(*details[0])
                return machine.init_producer_id(
                    answered, timeout_ms=self.options.timeout_ms, expected=expected, now_ms=now_ms
                )
            if kind == "add":
                return machine.add_partitions(
                    answered,
                    *pair,
                    frozenset(("t", index) for index in details[0]),
                    transaction_version=0,
                    now_ms=now_ms,
                )
            return machine.end(
                answered,
                *pair,
                is_commit=details[0],
                transaction_version=client.version,
                now_ms=now_ms,
            )

        self.coordinator.ask(act, is_init=kind == "init")

    def _write(
        self,
        version: int,
        pair: tuple[int, int],
        index: int,
        transaction: tuple[int, int],
        answered: Callable[[TransactionAnswer], None],
    ) -> None:
        """Produce: the leader asks the coordinator, and appends after its answer."""
        partition = self.partitions[index]
        data = Data(pair[0], transaction)
        if data in partition.entries:
            answered(TransactionAnswer())
            return
        if pair[1] < partition.producer(pair[0]).epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if partition.is_open_for(*pair):
            answered(TransactionAnswer(partition.append(data, pair[1], None)))
            return
        guard = partition.begin_verification(*pair)

        def verified(answer: TransactionAnswer) -> None:
            def append() -> None:
                code = answer.error
                if code is ErrorCode.NONE:
                    code = partition.append(data, pair[1], guard)
                answered(TransactionAnswer(code))

            self.later(f"{pair} is verified: {answer.error.name}", append)

        key = ("t", index)
        if version:
            now_ms = self.now_ms
            self.coordinator.ask(
                lambda machine: machine.add_partitions(
                    verified,
                    *pair,
                    frozenset({key}),
                    transaction_version=TRANSACTION_VERSION_2,
                    now_ms=now_ms,
                )
            )
        elif self.coordinator.machine is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        else:
            verified(TransactionAnswer(self.coordinator.machine.verify(*pair, [key])[key]))

    def send_marker(self, ending: EndingTransaction, partition: tuple[str, int]) -> None:
        """Send a marker, which may arrive twice; the coordinator hears of it even later."""

        def arrive() -> None:
            if ending.marker.coordinator_epoch == self.coordinator.epoch and self.happens(
                "marker is not taken", 0.2
            ):
                self.send_marker(ending, partition)
                return
            code = self.partitions[partition[1]].end(ending.marker)
            self.note(f"{partition[1]}: {code.name}")
            if code not in GIVEN_UP:
                news = f"{partition[1]} has its marker"

                def tell() -> None:
                    self.coordinator.partitions_ended(ending, partition)

                self.later(news, tell)
                if self.happens("late news", 0.2):
                    self.later(f"{news}, as was said", tell, passed_over=self.random.randint(1, 60))

        name = f"{tuple(ending.marker)} to {partition[1]}"
        self.later(name, arrive)
        # In version 1 a marker that comes after the next transaction has begun would end that one;
        # version 2 prevents this. So brokers repeat none while the first may still arrive.
        is_bumped = ending.marker.transaction_version >= TRANSACTION_VERSION_2
        if is_bumped and self.happens("marker twice", 0.1):
            self.later(f"{name} again", arrive)


def run_seed(seed: int, options: Options = Options()) -> Outcome:
    """Play one seed; SimulationFailed with its history if a promise is broken."""
    world = World(seed, options)
    try:
        world.run()
    except AssertionError as error:
        lines = "\n".join(world.history)
        raise SimulationFailed(
            f"transaction seed {seed}: {error}\n{lines}\nmake simulate SEED={seed}"
        ) from error
    return Outcome(
        world.digest,
        frozenset(world.faults),
        world.checker.ended_count,
        world.coordinator.comparisons,
    )
