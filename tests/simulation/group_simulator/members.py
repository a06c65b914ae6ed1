"""Simulated members of a group: they join, assign, read and commit, not always in time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from simulator.virtual_loop import Process

from fairlead_broker.group.group_offsets import encode_commit
from fairlead_broker.group.group_types import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    Result,
    SyncRequest,
    SyncResult,
)
from fairlead_broker.limits import MIB
from fairlead_wire.errors import ErrorCode, KafkaError

from .checker import GROUP, CommitNote, partitions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.group.records.classic_records import OffsetValue

    from .brokers import BrokerHost
    from .world import World

SESSION_MS: Final = 1_500
REBALANCE_MS: Final = 2_000
HEARTBEAT_S: Final = 0.3
REQUEST_TIMEOUT_S: Final = 3.0
PARTITIONS: Final = 4
METADATA_MAX: Final = MIB

LOOK_AGAIN: Final = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
JOIN_AGAIN: Final = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}


class FencedError(Exception):
    """Another process has this instance now."""


class Holding(NamedTuple):
    """What a member believes to own."""

    life: int
    """How often the group was deleted before: then generations count from 1 again."""
    generation_id: int
    partitions: tuple[int, ...]


@dataclass(slots=True)
class Answer:
    """A broker's answer, and its request."""

    result: Any
    sent_s: float
    member_id: str
    generation_id: int
    is_new: bool = False
    """The request was a join without an id."""


class Waiter:
    """A parked request: the coordinator answers it, or its connection closes before."""

    def __init__(self, on_answer: Callable[[Any], None]) -> None:
        self._on_answer = on_answer
        self.answers = 0

    def answer(self, result: Result) -> None:
        self.answers += 1
        if self.answers > 1:
            raise AssertionError("G10: a request was answered twice")
        self._on_answer(result)

    def finish(self, code: ErrorCode) -> None:
        self.answers += 1
        if self.answers > 1:
            raise AssertionError("G10: a commit was answered twice")
        self._on_answer(code)


class Member:
    """One process of a consumer."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation_id = -1
        self.holds: Holding | None = None
        self.is_leaving = False
        self.is_over = False
        self.positions: dict[int, int] = {}
        self._broker_id = world.rng.choice(sorted(world.brokers))
        self._version = 0
        self.process = Process(world.loop, name)
        self.process.spawn(self._run())

    @property
    def is_running(self) -> bool:
        return self.process.is_alive and not self.is_over

    @property
    def is_settled(self) -> bool:
        return self.holds is not None and self.holds.generation_id == self.generation_id

    def kill(self) -> None:
        self.holds = None
        self.process.end()

    async def _run(self) -> None:
        try:
            while not self.is_leaving:
                if await self._join() and await self._sync():
                    await self._fetch_positions()
                    await self._read()
                self.holds = None
                await asyncio.sleep(self.world.rng.uniform(0.01, 0.1))
            await self._leave()
        except FencedError:
            self.world.note("%s is fenced", self.name)
        self.holds = None
        self.is_over = True

    async def _ask(self, act: Callable[[BrokerHost, Callable[[Any], None]], Any]) -> Any:
        """Send to the presumed coordinator; return None if no answer comes in time."""
        world = self.world
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def deliver(result: Any) -> None:
            if not answered.done():
                answered.set_result(result)

        def respond(result: Any) -> None:
            if world.network_is_fair(self.name):
                delay_s = world.delay_s()
                world.later(delay_s, lambda: self.process.call_soon(deliver, result))

        world.send(self._broker_id, act, respond)
        try:
            result = await asyncio.wait_for(answered, REQUEST_TIMEOUT_S)
        except TimeoutError:
            self._look_again()
            return None
        error = result if isinstance(result, ErrorCode) else getattr(result, "error", None)
        if error in LOOK_AGAIN:
            self._look_again()
            await asyncio.sleep(0.05)
        if error is ErrorCode.FENCED_INSTANCE_ID:
            raise FencedError
        return result

    def _look_again(self) -> None:
        self._broker_id = self.world.guess_coordinator()

    def _protocols(self) -> tuple[tuple[str, bytes], ...]:
        names = ["range", "sticky"] if self._version % 2 == 0 else ["sticky", "range"]
        return tuple((name, b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff") for name in names)

    async def _join(self) -> JoinResult | None:
        world, sent_s = self.world, self.world.loop.time()
        request = JoinRequest(
            self.member_id,
            self.instance,
            self.name,
            "/sim",
            "consumer",
            self._protocols(),
            SESSION_MS,
            REBALANCE_MS,
            "",
            self.instance is None,
            True,
        )

        def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
            # The broker creates an id for each request, even for a request that arrives twice.
            arrived = replace(request, new_member_id=world.next_member_id(self.name))

            def on_answer(result: JoinResult) -> None:
                answer = Answer(
                    result, sent_s, result.member_id, result.generation_id, not request.member_id
                )
                world.checker.on_joined(host, self, answer)
                respond(result)

            waiter = Waiter(on_answer)
            try:
                host.coordinator.join(GROUP, arrived, waiter)
            except KafkaError as error:
                respond(error.code)
                return
            world.watch_connection(self, host, waiter)

        result = await self._ask(act)
        if isinstance(result, JoinResult) and result.error is ErrorCode.NONE:
            self.member_id, self.generation_id = result.member_id, result.generation_id
            self._joined = result
            return result
        error = result.error if isinstance(result, JoinResult) else result
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
        elif error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            self.member_id = ""
        elif error not in LOOK_AGAIN | JOIN_AGAIN | {None}:
            raise AssertionError(f"{self.name} was refused: {error!r}")
        return None

    async def _sync(self) -> bool:
        world, sent_s, joined = self.world, self.world.loop.time(), self._joined
        assignments: tuple[tuple[str, bytes], ...] = ()
        if joined.leader == self.member_id and not joined.skip_assignment:
            assignments = self._assign(joined)
        member_id, generation_id = self.member_id, self.generation_id
        request = SyncRequest(
            member_id,
            generation_id,
            self.instance,
            joined.protocol_type,
            joined.protocol_name,
            assignments,
        )

        life = 0

        def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
            def on_answer(result: SyncResult) -> None:
                nonlocal life
                answer = Answer(result, sent_s, member_id, generation_id)
                world.checker.on_synced(host, self, answer)
                life = world.checker.ledger.deletions
                respond(result)

            waiter = Waiter(on_answer)
            try:
                host.coordinator.sync(GROUP, request, waiter)
            except KafkaError as error:
                respond(error.code)
                return
            world.watch_connection(self, host, waiter)

        result = await self._ask(act)
        if isinstance(result, SyncResult) and result.error is ErrorCode.NONE:
            self.holds = Holding(life, generation_id, tuple(partitions_of(result.assignment)))
            world.note("%s holds %s", self.name, self.holds)
            world.checker.check_ownership()
            return True
        error = result.error if isinstance(result, SyncResult) else result
        self._on_refusal(error)
        return False

    def _assign(self, joined: JoinResult) -> tuple[tuple[str, bytes], ...]:
        ids = [each.member_id for each in joined.members]
        start = self.world.rng.randrange(PARTITIONS)
        return tuple(
            (
                member_id,
                json.dumps(
                    {
                        "by": [self.member_id, joined.generation_id, self.world.next_number()],
                        "partitions": [
                            index
                            for index in range(PARTITIONS)
                            if (index + start) % len(ids) == number
                        ],
                    }
                ).encode(),
            )
            for number, member_id in enumerate(ids)
        )

    def _on_refusal(self, error: Any) -> None:
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif error not in LOOK_AGAIN | JOIN_AGAIN | {None}:
            raise AssertionError(f"{self.name} was refused: {error!r}")

    async def _fetch_positions(self) -> None:
        assert self.holds is not None
        partitions, world = self.holds.partitions, self.world

        def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
            try:
                group = host.coordinator.find(GROUP)
            except KafkaError as error:
                respond(error.code)
                return
            found: dict[int, OffsetValue | None] = {
                index: None if group is None else group.offsets.find("t", index)
                for index in range(PARTITIONS)
            }
            unstable = set()
            if group is not None:
                unstable = {
                    index for index in range(PARTITIONS) if group.offsets.is_unstable("t", index)
                }
            world.checker.on_fetched(host, found, unstable)
            # As read_committed consumers do with KIP-447.
            is_stable = unstable.isdisjoint(partitions)
            respond(found if is_stable else ErrorCode.UNSTABLE_OFFSET_COMMIT)

        for _ in range(5):
            found = await self._ask(act)
            if isinstance(found, dict):
                self.positions = {
                    index: value.offset if (value := found[index]) else 0 for index in partitions
                }
                return
            await asyncio.sleep(0.05)

    async def _read(self) -> None:
        """Read and commit until something is wrong, or the world ends it."""
        rng = self.world.rng
        while not self.is_leaving:
            await asyncio.sleep(HEARTBEAT_S * rng.uniform(0.5, 1.1))
            holds = self.holds
            if holds is None:
                return
            if holds.partitions and rng.random() < 0.6:
                error = await self._commit(rng.choice(holds.partitions), holds.generation_id)
            else:
                error = await self._heartbeat(holds.generation_id)
            if error in JOIN_AGAIN:
                self._on_refusal(error)
                return
            if error not in LOOK_AGAIN | {ErrorCode.NONE, None}:
                raise AssertionError(f"{self.name} was refused: {error!r}")
            if rng.random() < self.world.restlessness:
                self._version += 1
                return

    async def _heartbeat(self, generation_id: int) -> Any:
        world, sent_s, member_id = self.world, self.world.loop.time(), self.member_id

        def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
            try:
                group = host.coordinator.find(GROUP)
            except KafkaError as error:
                respond(error.code)
                return
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code = group.protocol.heartbeat(
                    member_id, generation_id, self.instance, now_ms=world.loop.now_ms()
                )
            world.checker.on_heartbeat(host, Answer(code, sent_s, member_id, generation_id))
            respond(code)

        return await self._ask(act)

    async def _commit(self, index: int, generation_id: int) -> Any:
        position = self.positions.get(index, 0) + 1
        note = CommitNote(self.world.next_number(), self.member_id, generation_id)
        act = commit_action(self.world, note, self.instance, index, position)
        error = await self._ask(act)
        if error is ErrorCode.NONE:
            self.positions[index] = position
        return error

    async def _leave(self) -> None:
        world, member_id, instance = self.world, self.member_id, self.instance
        if not member_id:
            return

        def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
            leave(world, host, LeavingMember(member_id, instance), respond)

        await self._ask(act)


def leave(
    world: World, host: BrokerHost, leaving: LeavingMember, respond: Callable[[Any], None]
) -> None:
    """Do what the handler of LeaveGroup does."""
    try:
        group = host.coordinator.find(GROUP)
    except KafkaError as error:
        respond(error.code)
        return
    if group is None:
        respond(ErrorCode.NONE)
        return
    _, effects = group.protocol.leave(
        [leaving], now_ms=world.loop.now_ms(), now_wall_ms=world.wall_clock_ms()
    )
    host.coordinator.carry_out(group, effects)
    respond(ErrorCode.NONE)


def commit_action(
    world: World, note: CommitNote, instance: str | None, index: int, offset: int
) -> Callable[[BrokerHost, Callable[[Any], None]], None]:
    """Return an action that does what the handler of OffsetCommit does."""
    sent_s = world.loop.time()

    def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
        try:
            group = host.coordinator.check_commit(
                GROUP, note.member_id, note.generation_id, instance
            )
        except KafkaError as error:
            respond(error.code)
            return

        def on_answer(code: ErrorCode) -> None:
            answer = Answer(code, sent_s, note.member_id, note.generation_id)
            world.checker.on_commit_answered(host, answer, note)
            respond(code)

        metadata = note.metadata.encode()
        value = encode_commit(offset, -1, metadata, world.wall_clock_ms())
        host.coordinator.commit(group, Waiter(on_answer), [("t", index, value)])

    return act
