"""Producers that commit offsets in transactions, and the coordinator of these transactions.

The transaction coordinator is a model that never fails: it writes its decision to the group's
partition repeatedly, until that is confirmed. Only the group coordinator's part is real. Each
transaction has its own epoch (KIP-890).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from simulator.virtual_loop import Process

from fairlead_broker.group.group_offsets import encode_commit
from fairlead_broker.group.transactional_writes import StagingProducer
from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_1, EndMarker
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import NO_SEQUENCE

from .checker import GROUP, CommitNote
from .members import PARTITIONS, Answer, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.log.producers.verification import VerificationGuard

    from .brokers import BrokerHost
    from .world import World

TIMEOUT_S: Final = 1.0
"""How long a transaction of a dead producer stays open."""
AGAIN_S: Final = 0.2
FIRST_PRODUCER_ID: Final = 1_000


class Transactions:
    """The open transactions, and how the others have ended."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.open: dict[int, int] = {}
        """By producer: the epoch of its transaction, which may get more offsets."""
        self.decisions: dict[tuple[int, int], bool] = {}
        """By producer and epoch: whether the transaction is committed."""
        self.ended = 0
        self._epochs: dict[int, int] = {}
        self._unwritten: dict[tuple[int, int], asyncio.Event] = {}

    @property
    def are_all_over(self) -> bool:
        return not self.open and not self._unwritten

    async def marker_written(self, producer_id: int, epoch: int) -> None:
        """Wait until the marker is in the group's partition."""
        unwritten = self._unwritten.get((producer_id, epoch))
        if unwritten is not None:
            await unwritten.wait()

    def begin(self, producer_id: int) -> int:
        epoch = self._epochs.get(producer_id, -1) + 1
        self._epochs[producer_id] = self.open[producer_id] = epoch
        return epoch

    def end(self, producer_id: int, epoch: int, *, is_commit: bool) -> None:
        """Decide, unless a producer or the time-out has decided already."""
        if self.open.get(producer_id) != epoch:
            return
        del self.open[producer_id]
        self.decisions[producer_id, epoch] = is_commit
        self._unwritten[producer_id, epoch] = asyncio.Event()
        marker = EndMarker(producer_id, epoch, 1, is_commit, TRANSACTION_VERSION_1)
        self.world.note("%s", marker)
        self._write(marker)

    def _write(self, marker: EndMarker) -> None:
        world, transaction = self.world, (marker.producer_id, marker.producer_epoch)
        if transaction not in self._unwritten:
            return

        def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
            def on_answer(code: ErrorCode) -> None:
                world.checker.on_marker_answered(host, code, marker)
                respond(code)

            waiter = Waiter(on_answer)
            host.coordinator.end_transaction(0, marker, waiter.finish)

        def on_response(code: ErrorCode) -> None:
            if code is ErrorCode.NONE and transaction in self._unwritten:
                self._unwritten.pop(transaction).set()
                self.ended += 1

        world.send(world.guess_coordinator(), act, on_response)
        world.later(AGAIN_S * world.rng.uniform(0.5, 2), lambda: self._write(marker))


class TransactionalProducer:
    """A process that commits offsets of the group, in one transaction after the other."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.producer_id = FIRST_PRODUCER_ID + world.next_number()
        self.name = f"producer {self.producer_id}"
        self.epoch = -1
        self.process = Process(world.loop, self.name)
        self.process.spawn(self._run())

    def kill(self) -> None:
        """Kill the producer; its open transaction ends by its time-out."""
        self.process.end()
        producer_id, epoch, transactions = self.producer_id, self.epoch, self.world.transactions
        self.world.later(TIMEOUT_S, lambda: transactions.end(producer_id, epoch, is_commit=False))

    async def _run(self) -> None:
        rng, transactions = self.world.rng, self.world.transactions
        while not self.world.is_healing:
            await asyncio.sleep(rng.uniform(0.02, 0.6))
            self.epoch = transactions.begin(self.producer_id)
            for _ in range(rng.choice((1, 1, 2, 4))):
                self._stage()
                await asyncio.sleep(rng.choice((0.0, 0.02, 0.3)))
            is_commit = rng.random() < 0.6
            transactions.end(self.producer_id, self.epoch, is_commit=is_commit)
            await transactions.marker_written(self.producer_id, self.epoch)

    def _stage(self) -> None:
        """Commit an offset with the identity of a present or earlier member, or with none."""
        world, rng = self.world, self.world.rng
        member_id, generation_id, instance = "", -1, None
        members = [each for each in world.members if each.member_id]
        if members and rng.random() < 0.7:
            member = rng.choice(members)
            member_id, instance = member.member_id, member.instance
            generation_id = max(0, member.generation_id - rng.choice((0, 0, 0, 1)))
        note = CommitNote(world.next_number(), member_id, generation_id)
        act = stage_action(
            world,
            note,
            instance,
            StagingProducer(self.producer_id, self.epoch, None),
            (rng.randrange(PARTITIONS), rng.randrange(100)),
        )
        world.send(world.guess_coordinator(), act, _ignore)


def stage_action(
    world: World,
    note: CommitNote,
    instance: str | None,
    producer: StagingProducer,
    committed: tuple[int, int],
) -> Callable[[BrokerHost, Callable[[Any], None]], None]:
    """Return an action like the handler of TxnOffsetCommit; `committed`: partition and offset."""
    sent_s = world.loop.time()
    index, offset = committed

    def act(host: BrokerHost, respond: Callable[[Any], None]) -> None:
        coordinator, process = host.coordinator, host.process
        try:
            shard = coordinator.runtime.shard_of(GROUP)
            guard = shard.partition.begin_verification(
                producer.producer_id,
                producer.producer_epoch,
                NO_SEQUENCE,
                supports_epoch_bump=True,
            )
        except KafkaError as error:
            respond(error.code)
            return

        def on_answer(code: ErrorCode) -> None:
            answer = Answer(code, sent_s, note.member_id, note.generation_id)
            world.checker.on_staged_answered(host, answer, note)
            respond(code)

        def append(guard: VerificationGuard | None) -> None:
            try:
                group = coordinator.check_commit_in_transaction(
                    GROUP, note.member_id, note.generation_id, instance
                )
                if group.shard is not shard:
                    raise KafkaError(ErrorCode.NOT_COORDINATOR)
            except KafkaError as error:
                respond(error.code)
                return
            value = encode_commit(offset, -1, note.metadata.encode(), world.wall_clock_ms())
            coordinator.commit_in_transaction(
                group, producer._replace(guard=guard), Waiter(on_answer), [("t", index, value)]
            )

        def verify() -> None:
            if world.transactions.open.get(producer.producer_id) == producer.producer_epoch:
                world.later(world.delay_s(), lambda: process.call_soon(append, guard))
            else:
                respond(ErrorCode.INVALID_TXN_STATE)

        if guard is None:
            append(None)
        else:
            world.later(world.delay_s(), verify)

    return act


def _ignore(result: Any) -> None:
    """Ignore a result: a producer whose offsets are refused also ends its transaction."""
