"""The world of one seed: three coordinators, members that come and go, faults, and the end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import pytest
from group_protocols import classic_of
from simulator.virtual_loop import VirtualLoop

from fairlead_broker.coordinator import loading
from fairlead_broker.group.group_types import GroupState, LeavingMember
from fairlead_broker.group.removal import delete_group, delete_offsets

from .brokers import BrokerHost, Replication
from .checker import GROUP, Checker, CommitNote
from .faults import Faults
from .members import PARTITIONS, Member, commit_action, leave
from .transactions import TransactionalProducer, Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .members import Waiter

HISTORY_LENGTH: Final = 60
HEAL_S: Final = 20.0
COMPARE_S: Final = 0.1
COMMITS_IN_THE_END: Final = 3


class SimulationFailed(AssertionError):  # noqa: N818
    """A rule was broken; the text is the history before that."""


@dataclass(frozen=True, slots=True)
class Options:
    """The length of a run, and its faults."""

    fault_s: float = 6.0
    has_faults: bool = True
    only: tuple[str, ...] = ()
    """Names of the possible faults; empty for all."""
    crash_at_step: int | None = None
    """Kill the leader after this number of steps of the whole world."""
    members: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run; equal digests mean equal histories."""

    seed: int
    digest: int
    steps: int
    virtual_s: float
    steps_to_commits: int
    """Number of steps until some commits of members were acknowledged."""
    acknowledged: int
    committed: int
    generations: int
    elections: int
    comparisons: int
    transactions: int
    """Number of transactions that have ended, with a marker."""
    faults: dict[str, int]


class World:
    """The world of one seed."""

    def __init__(self, seed: int, options: Options) -> None:
        self.seed = seed
        self.options = options
        self.rng = random.Random(seed)
        self.loop = VirtualLoop()
        self.loop.after_step = self._after_step
        self.context = Context()
        self.history: deque[tuple[float, str]] = deque(maxlen=HISTORY_LENGTH)
        self.digest = 0
        self.checker = Checker(self)
        self.is_healing = not options.has_faults
        self.is_over = False
        self._numbers = 0
        self.loss = self.rng.choice((0.0, 0.01, 0.05)) if options.has_faults else 0.0
        self.restlessness = self.rng.choice((0.0, 0.02, 0.1)) if options.has_faults else 0.0
        self.brokers: dict[int, BrokerHost] = {}
        self.members: list[Member] = []
        self.transactions = Transactions(self)
        self.producers: list[TransactionalProducer] = []
        self._connections: list[tuple[Member, BrokerHost, Waiter]] = []
        self.faults = Faults(self)

    def note(self, sentence: str, *arguments: object) -> None:
        text = sentence % arguments if arguments else sentence
        self.history.append((self.loop.time(), text))
        self.digest = crc32(f"{self.loop.time():.6f} {text}".encode(), self.digest)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        self.loop.call_later(seconds, self._act, action, context=self.context)

    def _act(self, action: Callable[[], object]) -> None:
        if not self.is_over:
            action()

    def wall_clock_ms(self) -> int:
        return 1_700_000_000_000 + self.loop.now_ms()

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def next_member_id(self, name: str) -> str:
        return f"{name}-{self.next_number()}"

    def delay_s(self) -> float:
        """Return a delay, mostly short; sometimes long enough for later messages to overtake."""
        rng = self.rng
        if not self.is_healing and rng.random() < 0.03:
            return rng.uniform(0.1, 2.5)
        return rng.uniform(0.001, 0.01)

    def network_is_fair(self, name: str) -> bool:
        if self.is_healing or self.rng.random() >= self.loss:
            return True
        self.note("%s loses an answer", name)
        return False

    def send(self, broker_id: int, act: Callable[..., Any], respond: Callable[..., None]) -> None:
        """Send a request, which may be lost, late, or delivered twice."""
        rng = self.rng
        if not self.is_healing and rng.random() < self.loss:
            return
        copies = 2 if not self.is_healing and rng.random() < self.loss / 2 else 1
        for number in range(copies):
            answer = respond if number == 0 else _ignore
            self.later(self.delay_s(), self._delivery(broker_id, act, answer))

    def _delivery(
        self, broker_id: int, act: Callable[..., Any], respond: Callable[..., None]
    ) -> Callable[[], None]:
        def deliver() -> None:
            host = self.brokers[broker_id]
            if host.is_running:
                host.do(act, host, respond)

        return deliver

    def guess_coordinator(self) -> int:
        """Return FindCoordinator's answer, which is mostly right."""
        leader = self.replication.leader_id
        if leader is None or self.rng.random() < 0.1:
            return self.rng.choice(sorted(self.brokers))
        return leader

    def watch_connection(self, member: Member, host: BrokerHost, waiter: Waiter) -> None:
        """Let the broker notice when a member is gone whose request waits there."""
        self._connections = [each for each in self._connections if not each[2].answers]
        if not waiter.answers:
            self._connections.append((member, host, waiter))

    def close_connections(self, member: Member) -> None:
        for each, host, waiter in self._connections:
            if each is member and host.is_running and not waiter.answers:
                host.do(self._forget, host, waiter)

    def _forget(self, host: BrokerHost, waiter: Waiter) -> None:
        group = host.coordinator.groups.get(GROUP)
        if group is not None and not waiter.answers:
            group.protocol.forget_waiter(waiter)
            host.coordinator.runtime.schedule(group)

    def add_member(self, instance: str | None = None) -> Member:
        number = self.next_number()
        member = Member(self, f"{instance or 'member'}-{number}", instance)
        self.members.append(member)
        self.note("%s starts", member.name)
        return member

    def add_producer(self) -> None:
        producer = TransactionalProducer(self)
        self.producers.append(producer)
        self.note("%s starts", producer.name)

    def commit_from_outside(self, member_id: str, generation_id: int) -> None:
        """Commit as somebody who is not, or no longer, a member of the group."""
        note = CommitNote(self.next_number(), member_id, generation_id)
        index, offset = self.rng.randrange(PARTITIONS), self.rng.randrange(100)
        act = commit_action(self, note, None, index, offset)
        self.send(self.guess_coordinator(), act, _ignore)

    def remove_instance(self, instance: str) -> None:
        """Remove a static member that is gone, as an administrator."""

        def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
            leave(self, host, LeavingMember("", instance), respond)

        self.send(self.guess_coordinator(), act, _ignore)

    def delete_group(self) -> None:
        """Delete the group if it is empty, as an administrator."""

        def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
            group = host.coordinator.groups.get(GROUP)
            if group is not None:
                delete_group(host.coordinator, group, respond)

        self.send(self.guess_coordinator(), act, _ignore)

    def delete_offsets(self) -> None:
        """Delete offsets, as an administrator, whether or not members commit them (KIP-496)."""
        partitions = [("t", index) for index in range(PARTITIONS) if self.rng.random() < 0.5]

        def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
            group = host.coordinator.groups.get(GROUP)
            if group is not None:
                delete_offsets(host.coordinator, group, partitions, respond)

        self.send(self.guess_coordinator(), act, _ignore)

    def _after_step(self) -> None:
        """Called after every callback: a broker may be killed between any two of them."""
        if self.loop.steps == self.options.crash_at_step:
            self.faults.kill_leader()

    def run(self) -> Outcome:
        with _edges():
            try:
                self.loop.run_until_complete(
                    self.loop.create_task(self._story(), context=self.context)
                )
                failure = self.loop.unheard_failure()
                if failure is not None:
                    raise AssertionError(f"a task failed: {failure!r}") from failure
            except Exception as error:
                raise SimulationFailed(self._report(error)) from error
            finally:
                self.is_over = True
                self.loop.bury()
        return Outcome(
            seed=self.seed,
            digest=self.digest,
            steps=self.loop.steps,
            virtual_s=self.loop.time() - 1000,
            steps_to_commits=self.checker.steps_to_commits,
            acknowledged=self.checker.acknowledged,
            committed=len(self.checker.ledger.entries),
            generations=self.checker.generations,
            elections=self.replication.leader_epoch,
            comparisons=self.checker.comparisons,
            transactions=self.transactions.ended,
            faults=dict(self.faults.counts),
        )

    def _report(self, error: Exception) -> str:
        told = "\n".join(f"{at_s - 1000:9.4f}  {text}" for at_s, text in self.history)
        return (
            f"group seed {self.seed}: {type(error).__name__}: {error}\n{told}\n"
            f"replay with: make simulate SEED={self.seed}"
        )

    async def _story(self) -> None:
        options, rng = self.options, self.rng
        for broker_id in (1, 2, 3):
            self.brokers[broker_id] = BrokerHost(self, broker_id)
        self.replication = Replication(self)
        self.replication.begin()
        self._compare()
        for number in range(options.members or rng.choice((1, 2, 3, 4))):
            self.add_member(f"i{number}" if rng.random() < 0.4 else None)
        for _ in range(rng.choice((0, 1, 2)) if options.has_faults else 0):
            self.add_producer()
        if options.has_faults:
            self.faults.begin(self.loop.time() + options.fault_s)
        await asyncio.sleep(options.fault_s)
        self.note("everything heals")
        self.is_healing = True
        self.faults.heal()
        await self._until_settled()

    def _compare(self) -> None:
        self.checker.compare()
        self.later(COMPARE_S, self._compare)

    async def _until_settled(self) -> None:
        """Wait until live members share all partitions and commit, and keep doing so."""
        await self._until(self._unsettled)
        goal = self.checker.acknowledged + COMMITS_IN_THE_END
        await self._until(lambda: self._commits_missing(goal))
        await self._until(self._unsettled)
        self.checker.compare()

    async def _until(self, problem: Callable[[], str | None]) -> None:
        deadline_s = self.loop.time() + HEAL_S
        while (found := problem()) is not None:
            if self.loop.time() >= deadline_s:
                raise AssertionError(f"G11: it does not settle within {HEAL_S} s: {found}")
            await asyncio.sleep(0.1)

    def _commits_missing(self, goal: int) -> str | None:
        if self.checker.acknowledged >= goal:
            return None
        return "nobody was left" if self._is_left_alone() else "too few commits"

    def _is_left_alone(self) -> bool:
        """Tell whether no member lives; then another one begins.

        The last one was fenced: by its own earlier request, which arrived late, or by another
        process of its instance, which died before the end.
        """
        if any(each.is_running for each in self.members):
            return False
        self.add_member()
        return True

    def _unsettled(self) -> str | None:
        """Return why not all live members share all partitions in one generation, or None."""
        leader = self.replication.leader
        if leader is None:
            return "no leader"
        if not self.transactions.are_all_over:
            return f"open are {self.transactions.open}"
        if self._is_left_alone():
            return "nobody was left"
        live = [each for each in self.members if each.is_running]
        group = leader.coordinator.groups.get(GROUP)
        if group is None:
            return "there is no group"
        classic = classic_of(group)
        if classic.state is not GroupState.STABLE:
            return f"the group is {classic.state}"
        if {each.member_id for each in live} != {each.member_id for each in classic.members}:
            return f"live are {[each.member_id for each in live]}"
        owned: list[int] = []
        for member in live:
            if member.holds is None or member.holds.generation_id != classic.generation_id:
                return f"{member.name} holds {member.holds}"
            owned += member.holds.partitions
        return None if sorted(owned) == list(range(PARTITIONS)) else f"owned are {owned}"


def _ignore(result: Any) -> None:
    """Ignore a result that nobody waits for."""


@contextmanager
def _edges() -> Iterator[None]:
    """Replace threads and files: parts of the log are read in place."""

    async def in_place(act: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0.005)
        return act(*arguments)

    logging.disable(logging.CRITICAL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", in_place)
        patch.setattr(loading, "_read_slice", lambda piece: piece)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def run_seed(seed: int, options: Options | None = None) -> Outcome:
    """Play one seed to its end. SimulationFailed if a promise is broken."""
    return World(seed, options or Options()).run()
