"""Clients of a compacted topic: they send and read keyed records and tombstones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from simulator.clients import Consumer, Producer
from simulator.keyed_records import KeyedEntry, decode_keyed, encode_keyed, keyed_record
from simulator.records import NO_PRODUCER

from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from simulator.checker import PartitionKey
    from simulator.clients import Item
    from simulator.world import World

    from fairlead_wire.records import Record

IDEMPOTENT: Final = 2000
"""The producer id of the idempotent producer."""


class KeyedProducer(Producer):
    """Sends one batch at a time: a restarted leader detects no older duplicates, as in Kafka."""

    _records: dict[int, Record]

    def start(self) -> None:
        self._records = {}
        super().start()

    def _encode(self, item: Item) -> bytes:
        plan = self.world.compaction
        assert plan is not None
        for value in item.values:
            if value not in self._records:
                self._records[value] = keyed_record(
                    value,
                    b"key-%d" % plan.rng.randrange(plan.keys),
                    self.world.wall_clock_ms(),
                    is_tombstone=plan.rng.random() < plan.tombstones,
                )
        epoch = 0 if self.is_idempotent else -1
        records = [self._records[value] for value in item.values]
        return encode_keyed(records, self.producer_id, epoch, item.sequence, plan.codec)


class KeyedConsumer(Consumer):
    """Reads where offsets may be missing; the observer checks what it misses."""

    def _on_records(self, reply: dict[str, Any] | None) -> None:
        if reply is not None and reply["error"] is ErrorCode.NONE and reply["records"]:
            if self.offset == self._asked:
                for batch in decode_keyed(reply["records"]):
                    for offset, entry in batch.entries:
                        if offset >= self.offset:
                            self._see(offset, entry)
                    self._skip_to(batch.next_offset)
            reply = {**reply, "records": b""}
        super()._on_records(reply)

    def _see(self, offset: int, entry: KeyedEntry) -> None:
        self._skip_to(offset)
        self.world.checker.on_seen(self.key, offset, entry)
        self.offset = offset + 1

    def _skip_to(self, offset: int) -> None:
        if offset > self.offset:
            self.world.checker.compaction.check_gap(self.key, self.offset, offset)
            self.offset = offset


def start_keyed_clients(world: World, key: PartitionKey, rate: float) -> None:
    """Start two producers, one of them idempotent, and a consumer; the world runs them."""
    for number, producer_id in enumerate((IDEMPOTENT, NO_PRODUCER)):
        name = f"clients-k{number}"
        world.producers.append(
            KeyedProducer(world, name, key, acks=-1, producer_id=producer_id, rate=rate)
        )
    world.consumers.append(KeyedConsumer(world, "clients-kc", key))
