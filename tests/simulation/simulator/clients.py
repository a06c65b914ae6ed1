"""Producers and consumers that behave like Kafka's clients: they retry, advance, never go back.

A client uses the newest leader epoch that it knows; it ignores an older answer.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from simulator import rpc
from simulator.log_shelf import rack_of
from simulator.records import NO_PRODUCER, decode_entries, encode_batch
from simulator.virtual_loop import Process

from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from simulator.checker import PartitionKey
    from simulator.world import World

METADATA_TIMEOUT_S = 0.5
RETRY_S = (0.02, 0.15)
RETRY_MAX_S = 0.5
ALL_IN_SYNC = -1
NO_BROKER = -1
BATCH_SIZES = (1, 1, 2, 4)


class Client:
    """Finds the leader of one partition and keeps a connection to it."""

    def __init__(self, world: World, name: str, key: PartitionKey) -> None:
        self.world = world
        self.name = name
        self.key = key
        self.process = Process(world.loop, name)
        self.leader = -1
        self.leader_epoch = -1
        self._links: dict[int, rpc.Client] = {}
        self._is_asking = False
        self._failures = 0

    def link(self, broker_id: int) -> rpc.Client:
        if broker_id not in self._links:
            host = self.world.brokers[broker_id].name
            self._links[broker_id] = rpc.Client(self.world.network, self.process, host)
        return self._links[broker_id]

    def pause_s(self) -> float:
        low, high = RETRY_S
        grown = min(2 ** min(self._failures, 5), RETRY_MAX_S / high)
        self._failures += 1
        waited_s: float = (low + (high - low) * self.world.rng.random()) * grown
        return waited_s

    def succeeded(self) -> None:
        self._failures = 0

    def find_leader(self) -> None:
        """Ask any broker for the leader; `on_leader` is called when there is one."""
        if self._is_asking:
            return
        self._is_asking = True
        broker_id = self.world.rng.choice(list(self.world.brokers))
        self.link(broker_id).call("metadata", {}, self._on_metadata, timeout_s=METADATA_TIMEOUT_S)

    def _on_metadata(self, reply: dict[str, Any] | None) -> None:
        self._is_asking = False
        leader, epoch = (-1, -1) if reply is None else reply["leaders"].get(self.key, (-1, -1))
        if leader < 0 or epoch < self.leader_epoch:
            self.process.call_later(self.pause_s(), self.find_leader)
            return
        self.leader, self.leader_epoch = leader, epoch
        self.on_leader()

    def on_leader(self) -> None:
        raise AssertionError("every client does something with a leader")


class Item(NamedTuple):
    """A batch."""

    sequence: int
    values: tuple[int, ...]


class Producer(Client):
    """Sends numbered values. Idempotent: until each is acknowledged, at most `window` at once.

    Not idempotent: gives up after some tries, so a value may be there twice, or not at all.
    """

    def __init__(
        self,
        world: World,
        name: str,
        key: PartitionKey,
        *,
        acks: int,
        producer_id: int = NO_PRODUCER,
        window: int = 1,
        rate: float | None = None,
    ) -> None:
        super().__init__(world, name, key)
        self.acks = acks
        self.producer_id = producer_id
        self.rate = world.produce_rate if rate is None else rate
        self.window = window if producer_id >= 0 else 1
        self.sent: list[int] = []
        """Values in the order of their first sending."""
        self.acknowledged: dict[int, int] = {}
        self.is_finishing = False
        self._queue: deque[Item] = deque()
        """Batches without an acknowledgement, sent or not, in order."""
        self._in_flight: dict[int, Item] = {}
        self._must_retry = False
        self._tries = 0
        self._next_sequence = 0
        self._sizes: deque[int] = deque(maxlen=8)
        """Sizes of the last batches."""
        self._has_lost_its_place = False

    @property
    def is_idempotent(self) -> bool:
        return self.producer_id >= 0

    @property
    def is_done(self) -> bool:
        is_gone = self.key[0] in self.world.checker.topics.gone
        return is_gone or (self.is_finishing and not self._queue and not self._in_flight)

    def start(self) -> None:
        self._produce()

    def _produce(self) -> None:
        if self.is_finishing:
            return
        # A leader accepts anything first from a producer that it does not know, as in Kafka: so
        # nothing follows the first batch before it is acknowledged.
        window = self.window if self.acknowledged else 1
        if self._batches_ahead < window:
            count = self.world.rng.choice(BATCH_SIZES)
            values = tuple(self.world.next_value(self.key) for _ in range(count))
            self._queue.append(Item(self._next_sequence, values))
            self._sizes.append(count)
            self._next_sequence += count
            self.sent.extend(values)
            self._send()
        self.process.call_later(self.world.rng.expovariate(self.rate), self._produce)

    @property
    def _batches_ahead(self) -> int:
        """Return the number of batches from the oldest unacknowledged one: a leader remembers only
        a few, so a client is never more than `window` ahead of it."""
        waiting = [*self._queue, *self._in_flight.values()]
        sequence = min((item.sequence for item in waiting), default=self._next_sequence)
        count, at = 0, self._next_sequence
        for size in reversed(self._sizes):
            if at <= sequence:
                break
            at -= size
            count += 1
        return count

    def _send(self) -> None:
        if self.leader < 0:
            self.find_leader()
            return
        while self._queue and not self._must_retry and len(self._in_flight) < self.window:
            item = self._queue.popleft()
            self._in_flight[item.sequence] = item
            body = {
                "key": self.key,
                "acks": self.acks,
                "batch": self._encode(item),
                "values": item.values,
                "timeout_s": self.world.request_timeout_s,
            }
            self.link(self.leader).call(
                "produce",
                body,
                partial(self._on_reply, item),
                timeout_s=self.world.request_timeout_s * (1 + self.world.rng.random()),
            )

    def _encode(self, item: Item) -> bytes:
        epoch = 0 if self.is_idempotent else -1
        return bytes(encode_batch(item.values, self.producer_id, epoch, item.sequence))

    def _on_reply(self, item: Item, reply: dict[str, Any] | None) -> None:
        known = self._in_flight.pop(item.sequence, None)
        if known is None:
            return
        error = ErrorCode.REQUEST_TIMED_OUT if reply is None else reply["error"]
        if error is ErrorCode.NONE and reply is not None:
            self.succeeded()
            self._tries = 0
            for place, value in enumerate(item.values):
                self.acknowledged[value] = reply["offset"] + place
        else:
            self._on_failure(item, error)
        if self._must_retry and not self._in_flight:
            self._must_retry = False
            if self._has_lost_its_place:
                self._begin_anew()
            self.leader = -1
            self.process.call_later(self.pause_s(), self._send)
        elif not self._must_retry:
            self._send()

    def _on_failure(self, item: Item, error: ErrorCode) -> None:
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_first(item):
            self.world.checker.on_sequence_gap(self, item)
            self._has_lost_its_place = True
        self._must_retry = True
        self._tries += 1
        gives_up = not self.is_idempotent and (self._tries > 5 or self.is_finishing)
        if gives_up:
            self._tries = 0
            return
        self._queue.append(item)
        self._queue = deque(sorted(self._queue))

    def _begin_anew(self) -> None:
        """Start with a new producer id, as clients do, after a loss of earlier records."""
        self._has_lost_its_place = False
        self.producer_id += 1000
        batches, sequence = [item.values for item in self._queue], 0
        self._queue.clear()
        self._sizes.clear()
        for values in batches:
            self._queue.append(Item(sequence, values))
            self._sizes.append(len(values))
            sequence += len(values)
        self._next_sequence = sequence

    def _is_first(self, item: Item) -> bool:
        """Tell whether every earlier batch is acknowledged."""
        return all(
            other.sequence > item.sequence for other in [*self._queue, *self._in_flight.values()]
        )

    def on_leader(self) -> None:
        self._send()


class Consumer(Client):
    """Reads one partition from its beginning and now and then asks where it ends."""

    isolation_level = 0

    def __init__(self, world: World, name: str, key: PartitionKey) -> None:
        super().__init__(world, name, key)
        self.offset = 0
        self.rack = ""
        """The consumer's rack, if it reads from followers, too."""
        self.elsewhere = NO_BROKER
        """The follower from which a leader has told it to read."""
        self._reads_at = NO_BROKER
        self._asked = 0
        self._is_lost = False
        """Its offset is out of range."""
        self.latest = -1
        """Highest end that a leader has reported as certain."""

    def start(self) -> None:
        if self.world.options.reads_followers:
            self.rack = rack_of(self.world.rng.choice(list(self.world.brokers)))
        self.find_leader()

    def on_leader(self) -> None:
        body = {
            "key": self.key,
            "leader_epoch": self.leader_epoch,
            "isolation_level": self.isolation_level,
            "is_earliest": self._is_lost,
            "offset": self.offset,
            "rack": self.rack,
        }
        if self._is_lost:
            self.link(self.leader).call("list_offsets", body, self._on_earliest, timeout_s=0.5)
            return
        if self.world.rng.random() < 0.3:
            self.link(self.leader).call("list_offsets", body, self._on_latest, timeout_s=0.5)
            return
        self._asked = self.offset
        if self.elsewhere != NO_BROKER and self.world.rng.random() < 0.05:
            self.elsewhere = NO_BROKER  # As after metadata.max.age.ms.
        self._reads_at = self.leader if self.elsewhere == NO_BROKER else self.elsewhere
        self.link(self._reads_at).call("consume", body, self._on_records, timeout_s=0.5)

    def _on_earliest(self, reply: dict[str, Any] | None) -> None:
        """Continue with what is left, after the next records were deleted."""
        if reply is not None and reply["error"] is ErrorCode.NONE:
            self._is_lost = False
            self.offset = reply["earliest"]
        self._go_on(reply)

    def _on_latest(self, reply: dict[str, Any] | None) -> None:
        if reply is not None and reply["error"] is ErrorCode.NONE:
            self._on_end(reply["latest"])
        self._go_on(reply)

    def _on_records(self, reply: dict[str, Any] | None) -> None:
        if reply is not None and reply["error"] is ErrorCode.NONE:
            self._take(reply)
            if reply["preferred"] != NO_BROKER:
                self.elsewhere = reply["preferred"]
                self.world.checker.sent_elsewhere += 1
            elif self.elsewhere != NO_BROKER:
                self.world.checker.read_elsewhere += bool(reply["records"])
        elif self.elsewhere != NO_BROKER:
            self.elsewhere = NO_BROKER  # The leader is asked again, whatever a follower answers.
        elif reply is not None and reply["error"] is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.world.checker.on_out_of_range(self)
            self._is_lost = True
        self._go_on(reply)

    def _take(self, reply: dict[str, Any]) -> None:
        if reply["is_valid"]:
            self._on_end(reply["high_watermark"])
        for offset, entry in decode_entries(reply["records"]):
            if offset < self.offset == self._asked:
                continue  # The batch begins before the requested offset.
            if offset != self.offset:
                self.world.checker.fail("%s got %d at %d", self.name, offset, self.offset)
            self.world.checker.on_seen(self.key, offset, entry)
            self.offset = offset + 1

    def _on_end(self, latest: int) -> None:
        if latest < self.latest:
            self.world.checker.on_high_watermark_back(self, latest)
        self.latest = latest

    def _pause_s(self, reply: dict[str, Any]) -> float:
        return self.world.consume_pause_s

    def _go_on(self, reply: dict[str, Any] | None) -> None:
        if reply is not None and reply["error"] is ErrorCode.NONE:
            self.succeeded()
            self.process.call_later(self._pause_s(reply), self.on_leader)
        else:
            self.process.call_later(self.pause_s(), self.find_leader)
