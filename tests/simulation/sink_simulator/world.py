"""Drivers and tasks that are killed, stopped, frozen and duplicated at any step, and a checkpoint.

Each driver or task is a generator that pauses wherever another one may act; a seed chooses which
one continues, and the faults. The checkpoint is like Spark's: plans of batches and notes of
finished ones, each file created once. After the faults a last driver finishes all batches; then
each row is counted.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from fairlead_spark.errors import (
    FencedError,
    LostTransactionError,
    SinkError,
    TakenOverError,
)
from fairlead_spark.exactly_once import batch_decision
from fairlead_spark.exactly_once.batch_decision import (
    AbortLeftovers,
    BatchWriter,
    Decision,
    EndTransactions,
    FindLost,
    NoteGivenUp,
    ReadDecision,
    Steps,
    TakeOver,
    WriteDecision,
)
from sink_simulator.brokers import Brokers, Row

if TYPE_CHECKING:
    from collections.abc import Generator

    from fairlead_spark.prepared_transaction import PreparedTransaction

BATCHES = 4
PARTITIONS = 2
ROWS = 2
ATTEMPTS_MAX = 4
FAULTY_STEPS = 500
DRIVERS_MAX = 3
STEPS_MAX = 20_000
QUERY = "q"
FIRST_ATTEMPTS = (0, 2)
"""Numbers of the first attempts of a batch's first write, and of its second: their ids differ."""


class SimulationFailed(AssertionError):  # noqa: N818  # The same name as in the other simulations.
    """A promise was broken; the text says which, with which seed, and what had happened."""


class Place(Enum):
    """A point where a task may stand still."""

    COMPUTES = "it has looked for the first time, and its rows are long in coming"
    ASKS = "it has looked again, and brokers do not have its request for an id yet"


@dataclass(frozen=True)
class Options:
    """What may happen.

    `kill_at` is the step at which the driver is killed, `kill_again_at` that of the next driver;
    without faults nothing else happens. A task looks into the log of decisions: with `reads_first`
    before it takes its id, with `looks_again` once more right before that, and with
    `looks_when_open` when its transaction is open. At `sleeps` tasks may stand still until a later
    batch is decided.
    """

    has_faults: bool = True
    has_time_outs: bool = False
    reads_first: bool = True
    looks_again: bool = True
    looks_when_open: bool = True
    sleeps: tuple[Place, ...] = (Place.COMPUTES, Place.ASKS)
    kill_at: int | None = None
    kill_again_at: int | None = None


@dataclass
class Outcome:
    """The result of a seed."""

    faults: Counter[str]
    digest: int
    steps: int
    lost: LostTransactionError | None = None


@dataclass
class Checkpoint:
    """Files that are created once: a second driver fails to create them."""

    plans: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class DriverEnds(Exception):  # noqa: N818
    """Raised when a driver ends: it has found another one, or its batch has failed."""


class Driver:
    """One run of the query in one application."""

    def __init__(self, world: World, since_ms: int, run: str) -> None:
        self.world = world
        self.since_ms = since_ms
        self.run = run
        self.is_stopped = False
        self.writer: BatchWriter | None = None
        self.prepared: dict[int, PreparedTransaction | None] = {}
        self.failed_tasks = 0
        self.pauses = self._live()

    def _live(self) -> Generator[None, None, None]:
        checkpoint = self.world.checkpoint
        batch = max(checkpoint.done, default=-1) + 1
        is_planned = batch in checkpoint.plans
        while batch < BATCHES:
            yield
            if not is_planned:
                if batch in checkpoint.plans:
                    raise DriverEnds
                checkpoint.plans[batch] = self.world.rng.getrandbits(30)
            yield
            for number in FIRST_ATTEMPTS:
                if self.is_stopped:
                    # A stopped driver may still commit its last batch, and begins no other.
                    raise DriverEnds
                try:
                    yield from self._write(batch, number)
                    break
                except SinkError:
                    # A function of `foreachBatch` may catch the error of a write, and write again.
                    if number == FIRST_ATTEMPTS[-1] or self.world.rng.random() < 0.5:
                        raise DriverEnds from None
            yield
            if self.is_stopped or batch in checkpoint.done:
                raise DriverEnds
            checkpoint.done.add(batch)
            batch, is_planned = batch + 1, False

    def _write(self, batch: int, number: int) -> Generator[None, None, None]:
        execution = self.world.count()
        write = f"write{execution}"
        writer = BatchWriter(QUERY, batch, self.run, self.since_ms, execution, write)
        try:
            yield from self._run_tasks(writer, number)
            own = [each for each in self.prepared.values() if each is not None]
            steps = batch_decision.commit_batch(writer, own, is_decided=len(own) < PARTITIONS)
            yield from self._carry_out(steps)
        except LostTransactionError as error:
            self.world.lose(error)
            raise
        except (SinkError, FencedError) as error:
            self.world.note(f"{self.run} batch {batch}: {type(error).__name__}")
            own = [each for each in self.prepared.values() if each is not None]
            with contextlib.suppress(FencedError, SinkError):
                yield from self._carry_out(batch_decision.abort_batch(writer, own))
            if isinstance(error, FencedError):
                self.world.check_fenced(self, error)
                raise DriverEnds from None
            raise

    def _run_tasks(self, writer: BatchWriter, number: int) -> Generator[None, None, None]:
        self.writer, self.prepared, self.failed_tasks = writer, {}, 0
        attempts = dict.fromkeys(range(PARTITIONS), 0)
        for partition in attempts:
            self.world.start(Task(self, writer, partition, number))
        while len(self.prepared) < PARTITIONS:
            yield
            if self.failed_tasks >= ATTEMPTS_MAX:
                raise SinkError("tasks fail")
            for partition in attempts:
                is_lost = not self.world.is_running(self, writer, partition)
                is_slow = self.world.is_faulty and self.world.rng.random() < 0.01
                if partition not in self.prepared and (is_lost or is_slow):
                    attempts[partition] += 1
                    again = Task(self, writer, partition, self.world.count(), is_first=False)
                    self.world.start(again)

    def _carry_out(self, steps: Steps) -> Generator[None, None, None]:
        answer: Any = None
        failure: TakenOverError | None = None
        owner: PreparedTransaction | None = None
        brokers = self.world.brokers
        while True:
            yield
            try:
                step = steps.send(answer) if failure is None else steps.throw(failure)
            except StopIteration:
                return
            answer, failure = None, None
            self.world.note(f"{self.run} {type(step).__name__}")
            yield
            self.world.maybe_break_off()
            match step:
                case ReadDecision():
                    answer = brokers.read(may_be_old=self.world.is_faulty)
                case TakeOver():
                    owner = brokers.begin(BatchWriter(QUERY, 0, "", 0).transactional_id)
                case FindLost():
                    answer = [each for each in step.transactions if not brokers.is_open(each)]
                case WriteDecision():
                    try:
                        assert owner is not None
                        yield from self._decide(step, owner)
                    except TakenOverError as error:
                        failure = error
                case EndTransactions():
                    answer = []
                    for each in step.transactions:
                        yield
                        if not brokers.end(each, is_commit=step.is_commit):
                            answer.append(each)
                        self.world.maybe_break_off()
                case NoteGivenUp():
                    assert self.writer is not None
                    brokers.given_up.add(self.writer.key)
                case AbortLeftovers():
                    writer = BatchWriter(QUERY, 0, self.run, self.since_ms)
                    replaced = step.replaced
                    if self.writer is not None:
                        self.world.swept.add(self.writer)
                    found = brokers.abort_open(
                        lambda name: writer.may_abort(name, replaced)  # noqa: B023
                    )
                    for name in found:
                        yield
                        brokers.begin(name)

    def _decide(
        self, step: WriteDecision, owner: PreparedTransaction
    ) -> Generator[None, None, None]:
        """Do as `DecisionLog.write`: write a record, read the one before it, and commit."""
        brokers = self.world.brokers
        brokers.write(owner, step.decision)
        yield
        is_last = brokers.read(may_be_old=False) == step.behind
        yield
        if not brokers.end(owner, is_commit=is_last) or not is_last:
            raise TakenOverError(owner.transactional_id)
        if not step.decision.is_ended:
            transactions = step.decision.transactions
            self.world.decided.update(dict.fromkeys(transactions, step.decision.batch))
            self.world.wake_up_sleepers(step.decision)


class Task:
    """One attempt to write a partition of a batch.

    In Spark every attempt has its own number, and one of `DRAWS` pairs of first attempts has the
    same id. Here the worst case is played: all first attempts have the same number. Only those of
    a second write of the same batch have another one: if the first could not be given up, nothing
    else tells their ids apart, and `DRAWS` says what that leaves.
    """

    def __init__(
        self,
        driver: Driver,
        writer: BatchWriter,
        partition: int,
        attempt: int,
        *,
        is_first: bool = True,
    ) -> None:
        self.driver = driver
        self.writer = writer
        self.partition = partition
        self._attempt = attempt
        self._is_first = is_first
        self.prepared: PreparedTransaction | None = None
        self._is_late = False
        self.pauses = self._live()

    def _live(self) -> Generator[None, None, None]:
        yield
        is_failure = False
        try:
            is_needed = yield from self._write()
        except (TakenOverError, FencedError, SinkError):
            is_needed, is_failure = False, True
        if not is_needed and self.prepared is not None:
            yield
            self.driver.world.brokers.end(self.prepared, is_commit=False)
        if self.prepared is not None and self._is_late:
            self.driver.world.check_left(self.prepared)
        yield
        if self.driver.writer != self.writer:
            return
        if is_failure:
            self.driver.failed_tasks += 1
        else:
            prepared = self.prepared if is_needed else None
            self.driver.prepared.setdefault(self.partition, prepared)

    def _write(self) -> Generator[None, None, bool]:
        """Do as `TaskTransaction`; tell whether the batch was still to be written."""
        world = self.driver.world
        plan = world.checkpoint.plans[self.writer.batch]
        if not world.options.reads_first:
            self._begin(world.brokers.read(may_be_old=False))
            yield
        if not (yield from self._look()):
            return False
        world.maybe_sleep(self, Place.COMPUTES)
        yield
        last = world.brokers.read(may_be_old=False)
        if world.options.looks_again:
            if not (yield from self._look()):
                return False
            world.maybe_sleep(self, Place.ASKS)
            yield
        if self.prepared is None:
            self._begin(last)
        yield
        assert self.prepared is not None
        world.brokers.open(self.prepared)
        self._is_late = self.writer in world.swept
        yield
        if world.options.looks_when_open and not (yield from self._look()):
            return False
        for index in range(ROWS):
            yield
            row = Row(self.writer.batch, plan, self.partition, index)
            world.brokers.write(self.prepared, row)
        return True

    def _look(self) -> Generator[None, None, bool]:
        brokers = self.driver.world.brokers
        decision, given_up = brokers.read(may_be_old=False), frozenset(brokers.given_up)
        yield
        return batch_decision.must_write(self.writer, decision, given_up)

    def _begin(self, last: Decision | None) -> None:
        attempt = batch_decision.name_attempt(last, self._attempt, is_first=self._is_first)
        name = self.writer.task_transactional_id(self.partition, attempt)
        self.prepared = self.driver.world.brokers.begin(name)


class World:
    """Brokers, the checkpoint, drivers and tasks, and the faults that hit them."""

    def __init__(self, seed: int, options: Options) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.options = options
        self.brokers = Brokers(self.rng)
        self.checkpoint = Checkpoint()
        self.faults: Counter[str] = Counter()
        self.decided: dict[PreparedTransaction, int] = {}
        self.lost: LostTransactionError | None = None
        self.is_faulty = options.has_faults
        self._counter = 0
        self._actors: list[Driver | Task] = []
        self._frozen: dict[Driver | Task, int] = {}
        self._history: list[str] = []
        self._steps = 0
        self._since_ms = 0
        self._newest: Driver | None = None
        self.swept: set[BatchWriter] = set()
        self._sleepers: dict[Task, int] = {}
        self._awake: list[Task] = []

    def run(self) -> Outcome:
        self._start_driver()
        while not self._is_done():
            self._steps += 1
            if self._steps > STEPS_MAX:
                raise self._failure("it does not end")
            if self._steps > FAULTY_STEPS:
                self.is_faulty = False
                self._sleepers.clear()
            if self._steps in (self.options.kill_at, self.options.kill_again_at):
                self._kill_driver()
            if self.is_faulty and self.rng.random() < 0.05:
                self._fail()
            if not any(isinstance(each, Driver) and not each.is_stopped for each in self._actors):
                self._start_driver()
            self._go_on()
            if self.lost is not None:
                break
        else:
            self._let_tasks_end()
        self._check()
        return Outcome(
            self.faults, zlib.crc32("\n".join(self._history).encode()), self._steps, self.lost
        )

    def start(self, task: Task) -> None:
        self._actors.append(task)

    def maybe_break_off(self) -> None:
        """Let a driver's request time out: Spark then calls `abort`."""
        if self.is_faulty and self.rng.random() < 0.01:
            self.faults["no answer"] += 1
            raise SinkError("no answer")

    def count(self) -> int:
        self._counter += 1
        return self._counter

    def is_running(self, driver: Driver, writer: BatchWriter, partition: int) -> bool:
        """Tell whether Spark sees a running attempt; it gives up one of a silent executor."""
        return any(
            isinstance(each, Task)
            and each not in self._sleepers
            and (each.driver, each.writer, each.partition) == (driver, writer, partition)
            for each in self._actors
        )

    def maybe_sleep(self, task: Task, place: Place) -> None:
        """Let a task stand still until a later batch of its run is decided, by chance."""
        if self.is_faulty and place in self.options.sleeps and self.rng.random() < 0.05:
            self.faults["a task sleeps"] += 1
            self._sleepers[task] = task.writer.batch + self.rng.randint(1, BATCHES - 1)
            self.note(f"a task of batch {task.writer.batch} sleeps: {place.value}")

    def wake_up_sleepers(self, decision: Decision) -> None:
        """Wake them at the worst moment: between a decision and its end."""
        for task, batch in list(self._sleepers.items()):
            if decision.batch >= batch and decision.run == task.driver.run:
                del self._sleepers[task]
                self._awake.append(task)
                self.note(f"a task of batch {task.writer.batch} wakes up in {decision.batch}")

    def check_left(self, transaction: PreparedTransaction) -> None:
        """Check a transaction that a task has opened after its driver aborted leftovers.

        Nobody else looks for it any more, so the task must have ended it itself.
        """
        if self.brokers.is_open(transaction):
            raise self._failure(f"{transaction.transactional_id} is left open")

    def note(self, what: str) -> None:
        self._history.append(f"{self._steps} {what}")

    def lose(self, error: LostTransactionError) -> None:
        """Note that part of a decided batch is lost; only a time-out after it may be the cause."""
        self.note(f"lost: {error}")
        batches = {self.decided[each] for each in self.brokers.timed_out & self.decided.keys()}
        if not any(f"batch {batch} of {QUERY} was decided" in str(error) for batch in batches):
            raise self._failure(f"no time-out behind a decision was the cause: {error}")
        self.lost = error

    def check_fenced(self, driver: Driver, error: FencedError) -> None:
        # The newest driver may have been frozen while an older one finished more batches.
        if driver is self._newest and "decided long ago" not in str(error):
            raise self._failure(f"the newest driver was fenced: {error}")

    def _is_done(self) -> bool:
        # Replaced drivers continue until they notice that.
        is_quiet = not any(isinstance(each, Driver) for each in self._actors)
        return len(self.checkpoint.done) == BATCHES and is_quiet

    def _start_driver(self, *, is_same_application: bool = False) -> None:
        if not is_same_application or not self._since_ms:
            self._since_ms += self.rng.randint(1, 1000)
        driver = Driver(self, self._since_ms, f"run{self.count()}")
        self._newest = driver
        self._actors.append(driver)
        self.note(f"{driver.run} starts, application {driver.since_ms}")

    def _go_on(self) -> None:
        able = [each for each in self._actors if each not in self._sleepers] or self._actors
        ready = [each for each in able if self._frozen.get(each, 0) <= self._steps] or able
        actor = self.rng.choice(ready)
        if self._awake and self.rng.random() < 0.8:
            actor = self._awake[-1]
        try:
            next(actor.pauses)
        except (StopIteration, DriverEnds):
            self._remove(actor)

    def _remove(self, actor: Driver | Task) -> None:
        self._actors.remove(actor)
        if isinstance(actor, Task):
            self._sleepers.pop(actor, None)
            if actor in self._awake:
                self._awake.remove(actor)

    def _let_tasks_end(self) -> None:
        """Let all tasks end, though no driver waits for them."""
        for actor in self._actors:
            for _ in actor.pauses:
                pass

    def _fail(self) -> None:
        drivers = [each for each in self._actors if isinstance(each, Driver)]
        tasks = [each for each in self._actors if isinstance(each, Task)]
        kinds = ["kill a driver", "stop a query", "freeze a driver", "kill a task", "freeze a task"]
        if self.options.has_time_outs:
            kinds.append("time out")
        kind = self.rng.choice(kinds)
        if kind == "kill a driver" and drivers:
            self._kill_driver()
        elif kind == "stop a query" and len(drivers) < DRIVERS_MAX:
            if self._newest is None or self._newest.is_stopped or self._newest not in drivers:
                return
            # The application continues, and so does its process that commits.
            self._newest.is_stopped = True
            self._start_driver(is_same_application=True)
        elif kind == "freeze a driver" and drivers:
            self._frozen[self.rng.choice(drivers)] = self._steps + self.rng.randint(5, 300)
            if len(drivers) < DRIVERS_MAX:
                self._start_driver()
        elif kind == "kill a task" and tasks:
            self._remove(self.rng.choice(tasks))
        elif kind == "freeze a task" and tasks:
            self._frozen[self.rng.choice(tasks)] = self._steps + self.rng.randint(5, 300)
        elif kind == "time out":
            found = self.brokers.time_out(lambda name: not name.endswith(".driver"))
            if found is None:
                return
            kind += " behind a decision" if found in self.decided else " before one"
        else:
            return
        self.faults[kind] += 1
        self.note(kind)

    def _kill_driver(self) -> None:
        drivers = [each for each in self._actors if isinstance(each, Driver)]
        # The executors of the killed driver may live on for a while.
        if drivers:
            self._actors.remove(self.rng.choice(drivers))

    def _check(self) -> None:
        for row, times in self.brokers.output.items():
            if times > 1:
                raise self._failure(f"{row} is there {times} times")
            if self.checkpoint.plans[row.batch] != row.plan:
                raise self._failure(f"{row} is of a plan that was given up")
        for batch in sorted(self.checkpoint.done):
            plan = self.checkpoint.plans[batch]
            for partition in range(PARTITIONS):
                for index in range(ROWS):
                    if Row(batch, plan, partition, index) not in self.brokers.output:
                        raise self._failure(f"row {partition}-{index} of batch {batch} is lost")

    def _failure(self, what: str) -> SimulationFailed:
        return SimulationFailed(f"sink seed {self.seed}: {what}\n" + "\n".join(self._history[-80:]))


def run_seed(seed: int, options: Options | None = None) -> Outcome:
    """Play one history; SimulationFailed if it breaks a promise."""
    return World(seed, options or Options()).run()
