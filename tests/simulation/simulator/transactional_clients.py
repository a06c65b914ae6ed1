"""Producers that write in transactions, and read_committed consumers, like Kafka's clients.

A producer of version 1 adds partitions itself and keeps its epoch from transaction to transaction.
A request without an answer may arrive much later, and cannot be told from those of the next
transaction (KIP-890 says so). So, like Kafka's own clients, it first asks for a new epoch then. In
version 2 each transaction has its own epoch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from simulator import rpc
from simulator.clients import BATCH_SIZES, METADATA_TIMEOUT_S, Consumer
from simulator.transactional_records import (
    ABORT,
    COMMIT,
    decode_transactional,
    encode_transactional,
)
from simulator.virtual_loop import Process

from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulator.checker import PartitionKey
    from simulator.transaction_watch import Transaction
    from simulator.transactional_records import LoggedBatch
    from simulator.transactions import Transactions
    from simulator.world import World

READ_COMMITTED: Final = 1
TRANSACTIONS_MAX: Final = 8
"""Transactions of one process; then another one takes over."""
RETRY_S: Final = (0.02, 0.3)
BUSY_PAUSE_S: Final = 0.02

RETRIED: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class TransactionalProducer:
    """One transactional id and its processes, one after the other."""

    def __init__(
        self,
        world: World,
        plan: Transactions,
        name: str,
        state_key: PartitionKey,
        keys: Sequence[PartitionKey],
        version: int,
    ) -> None:
        self.world = world
        self.plan = plan
        self.name = name
        self.state_key = state_key
        self.keys = keys
        self.version = version
        self.is_finishing = False
        self.is_done = False
        self._running = _ProducerProcess(self)

    def start(self) -> None:
        """Begin with the first process."""
        self._running.start()

    def replace(self, *, is_killed: bool) -> Callable[[], None]:
        """Let another process take over; call the result to resume the old one if it is paused."""
        old = self._running
        if is_killed:
            old.end()
        else:
            old.process.pause()
        self._follow(old)
        return old.process.resume

    def ended(self, process: _ProducerProcess) -> None:
        """Note a process's own end. The last one has only ended what was open before."""
        if process is not self._running:
            return
        if self.is_finishing and process.began_finishing:
            self.is_done = True
        else:
            self._follow(process)

    def _follow(self, old: _ProducerProcess) -> None:
        if old is self._running:
            self._running = _ProducerProcess(self)
            self.world.later(self.plan.pause_s * self.plan.rng.random(), self._running.start)


class _ProducerProcess:
    """One process. It ends after some transactions, or when another one has fenced it."""

    def __init__(self, producer: TransactionalProducer) -> None:
        self.producer = producer
        self.world = producer.world
        self.rng = producer.plan.rng
        self.process = Process(producer.world.loop, producer.name)
        self.began_finishing = False
        self._links: dict[int, rpc.Client] = {}
        self._leaders: dict[PartitionKey, int] = {}
        self._leader_epochs: dict[PartitionKey, int] = {}
        """The newest known epochs: answers of an older leader do not count any more."""
        self._pair = (-1, -1)
        self._sequences: dict[PartitionKey, int] = {}
        self._needs_epoch = False
        """A request got no answer, or was given up: it may arrive in the next transaction."""

    def start(self) -> None:
        self.process.spawn(self._run())

    def end(self) -> None:
        """End the process and its connections."""
        self.world.network.end_process(self.process, dark=False)
        self.process.end()

    async def _run(self) -> None:
        self.began_finishing = self.producer.is_finishing
        if await self._init(is_first=True):
            for _ in range(TRANSACTIONS_MAX):
                if self.producer.is_finishing or not await self._transaction():
                    break
                await asyncio.sleep(self.producer.plan.pause_s * self.rng.random())
                if self._needs_epoch and not await self._init():
                    break
        world = self.world
        world.loop.call_soon(self._exit, context=world.network.context)

    def _exit(self) -> None:
        self.end()
        self.producer.ended(self)

    async def _transaction(self) -> bool:
        """Write one; tell whether the process may go on."""
        rng, watch = self.rng, self.world.checker.transactions
        transaction = watch.begin(f"{self.producer.name}/v{self.producer.version}")
        keys = rng.sample(self.producer.keys, rng.randint(1, len(self.producer.keys)))
        if self.producer.version == 0 and not await self._add_partitions(keys):
            return await self._end(transaction, is_commit=False)
        is_whole = True
        for key in [*keys, *rng.choices(keys, k=rng.randint(0, 3))]:
            if not await self._write(transaction, key):
                is_whole = False
                break
            await asyncio.sleep(self.producer.plan.pause_s * rng.random())
        if rng.random() < 0.05:
            return False  # The process dies, or its program has forgotten the transaction.
        return await self._end(transaction, is_commit=is_whole and rng.random() < 0.75)

    async def _init(self, *, is_first: bool = False) -> bool:
        body = {
            "timeout_ms": self.producer.plan.timeout_ms,
            "expected": (-1, -1) if is_first else self._pair,
        }
        reply = await self._until_answered("init_producer_id", body)
        if reply["error"] is not ErrorCode.NONE:
            return False
        self._take_pair(reply)
        self._needs_epoch = False
        return True

    async def _add_partitions(self, keys: Sequence[PartitionKey]) -> bool:
        reply = await self._until_answered("add_partitions", {"pair": self._pair, "keys": keys})
        return reply["error"] is ErrorCode.NONE

    async def _end(self, transaction: Transaction, *, is_commit: bool) -> bool:
        body = {"pair": self._pair, "is_commit": is_commit, "version": self.producer.version}
        reply = await self._until_answered("end_txn", body)
        if reply["error"] is not ErrorCode.NONE:
            return False
        self.world.checker.transactions.tell(transaction, COMMIT if is_commit else ABORT)
        if self.producer.version:
            self._take_pair(reply)
            self._needs_epoch = False
        return True

    def _take_pair(self, reply: rpc.Reply) -> None:
        if reply["pair"] != self._pair:
            self._sequences.clear()
        self._pair = reply["pair"]

    async def _until_answered(self, method: str, body: dict[str, Any]) -> rpc.Reply:
        """Ask the coordinator until its answer is final."""
        body = {**body, "transactional_id": self.producer.name}
        tries = 0
        while True:
            reply = await self._ask(self.producer.state_key, method, body)
            if reply is None:
                self._needs_epoch = True
            elif reply["error"] not in RETRIED:
                return reply
            await self._pause(tries)
            tries += 1

    async def _write(self, transaction: Transaction, key: PartitionKey) -> bool:
        """Write one batch; tell whether it is acknowledged."""
        world, rng = self.world, self.rng
        values = [world.next_value(key) for _ in range(rng.choice(BATCH_SIZES))]
        world.checker.transactions.sends(transaction, key, values)
        sequence = self._sequences.get(key, 0)
        producer_id, epoch = self._pair
        batch = encode_transactional(
            values,
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence=sequence,
            now_ms=world.wall_clock_ms(),
        )
        body = {
            "key": key,
            "acks": -1,
            "batch": batch,
            "values": tuple(values),
            "timeout_s": world.request_timeout_s,
            "transactional_id": self.producer.name,
            "version": self.producer.version,
        }
        for tries in range(self.producer.plan.tries):
            reply = await self._ask(key, "produce", body)
            error = ErrorCode.REQUEST_TIMED_OUT if reply is None else reply["error"]
            if error is ErrorCode.NONE:
                self._sequences[key] = sequence + len(values)
                return True
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                world.checker.transactions.on_sequence_gap(transaction, key, values)
            if error not in RETRIED:
                break
            await self._pause(tries)
        self._needs_epoch = True
        return False

    async def _pause(self, tries: int) -> None:
        low, high = RETRY_S
        await asyncio.sleep(min(low * 2**tries, high) * (0.5 + self.rng.random()))

    async def _ask(self, key: PartitionKey, method: str, body: dict[str, Any]) -> rpc.Reply | None:
        """Ask a partition's leader, as far as it is known; return None without an answer."""
        if key not in self._leaders:
            broker_id = self.rng.choice(list(self.world.brokers))
            reply = await self._call(broker_id, "metadata", {}, METADATA_TIMEOUT_S)
            leader, epoch = (-1, -1) if reply is None else reply["leaders"].get(key, (-1, -1))
            if leader < 0 or epoch < self._leader_epochs.get(key, -1):
                return {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER}
            self._leaders[key], self._leader_epochs[key] = leader, epoch
        timeout_s = self.world.request_timeout_s * (1 + self.rng.random())
        reply = await self._call(self._leaders[key], method, body, timeout_s)
        if reply is None or reply["error"] is not ErrorCode.NONE:
            del self._leaders[key]
        return reply

    async def _call(
        self, broker_id: int, method: str, body: dict[str, Any], timeout_s: float
    ) -> rpc.Reply | None:
        link = self._links.get(broker_id)
        if link is None:
            host = self.world.brokers[broker_id].name
            link = self._links[broker_id] = rpc.Client(self.world.network, self.process, host)
        answered: asyncio.Future[rpc.Reply | None] = asyncio.get_running_loop().create_future()
        link.call(method, body, answered.set_result, timeout_s=timeout_s)
        return await answered


class CommittedReader(Consumer):
    """A consumer with isolation.level=read_committed, which skips aborted records.

    It does what Kafka's `CompletedFetch` does: it skips producers of the reply's list from the
    first offset of their transaction on, until their abort marker.
    """

    isolation_level = READ_COMMITTED

    def unsettled(self) -> str | None:
        """Return what is left to read; None if nothing is."""
        watch = self.world.checker.transactions
        if watch.is_forgiven or self.offset >= watch.accounts[self.key].end:
            return None
        return f"{self.name} is at {self.offset} of {watch.accounts[self.key].end}"

    def _pause_s(self, reply: rpc.Reply) -> float:
        """Return a pause: it lags while a transaction is open, then has much to read at once."""
        return BUSY_PAUSE_S if reply.get("records") else super()._pause_s(reply)

    def _take(self, reply: rpc.Reply) -> None:
        if reply["is_valid"]:
            self._on_end(reply["last_stable_offset"])
        if self.offset != self._asked:
            return
        aborted = sorted(reply["aborted"], key=lambda each: each[1])
        left_out: set[int] = set()
        for batch in decode_transactional(reply["records"]):
            while aborted and aborted[0][1] < batch.next_offset:
                left_out.add(aborted.pop(0)[0])
            _, first = batch.entries[0]
            if first.end == ABORT:
                left_out.discard(first.producer_id)
            elif not first.end and first.producer_id not in left_out:
                self._see(batch)
            self._skip_to(batch.next_offset)

    def _see(self, batch: LoggedBatch) -> None:
        for offset, _ in batch.entries:
            if offset >= self.offset:
                self.world.checker.transactions.on_seen(self.key, offset)
                self.offset = offset + 1

    def _skip_to(self, offset: int) -> None:
        if offset > self.offset:
            self.world.checker.transactions.on_skipped(self.key, self.offset, offset)
            self.offset = offset

    def _on_end(self, latest: int) -> None:
        if latest < self.latest:
            self.world.checker.transactions.on_stable_back(self.key, self.latest, latest)
        self.latest = latest
