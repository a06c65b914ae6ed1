"""A partition at whose end a consumer is, is not read: the reply is the same as if it had been."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from live_broker import FrameClient, LiveBroker, batch, topic_id_of
from transactional_producer import TransactionalProducer

from fairlead_broker.handlers.records.fetch import _Reader
from fairlead_model.partition import PartitionRegistration
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.primitives import NULL_UUID

Connect = Callable[..., FrameClient]
PARTITIONS = 6
STEPS = 60


class Switch:
    """Whether the reader may leave partitions out, and how many it did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = True
        self.left_out = 0
        is_at_end = _Reader._is_at_end

        def watched(reader: Any, fetch: Any) -> bool:
            found = self.is_on and is_at_end(reader, fetch)
            self.left_out += found
            return found

        monkeypatch.setattr(_Reader, "_is_at_end", watched)


class Sessions:
    """Two clients that ask the same: one with the short way, one without."""

    def __init__(self, switch: Switch, connect: Connect, *, version: int) -> None:
        self._switch = switch
        self._clients = connect(), connect()
        self._ids = [0, 0]
        self._epoch = 0
        self._version = version

    def compare(self, request: FetchRequest, *, in_session: bool) -> None:
        replies = []
        for number, client in enumerate(self._clients):
            self._switch.is_on = number == 0
            request.session_id = self._ids[number] if in_session else 0
            request.session_epoch = self._epoch if in_session else -1
            reply = client.call(request, self._version)
            if in_session:
                assert reply.error_code == 0
                self._ids[number] = reply.session_id
            replies.append(reply.responses)
        self._epoch += in_session
        assert replies[0] == replies[1]


class Changes:
    """What happens to partitions between the questions."""

    def __init__(self, live: LiveBroker, chance: random.Random) -> None:
        self._live = live
        self._chance = chance
        now_ms = live.broker.clock.now_ms()
        self._producers = [
            TransactionalProducer(7 + index, now_ms=now_ms) for index in range(PARTITIONS)
        ]

    def one(self) -> None:
        chance = self._chance
        index = chance.randrange(PARTITIONS)
        partition = self._live.broker.partitions["t", index]
        what = chance.choice(["append", "append", "delete", "elect", "replace", "begin", "end"])
        if what == "append":
            data = memoryview(bytearray(batch(b"v")))
            now_ms = self._live.broker.clock.now_ms()
            partition.append_as_leader(data, required_acks=1, now_ms=now_ms)
        elif what == "delete":
            at = min(partition.log_start_offset + 1, partition.last_stable_offset)
            partition.delete_records(at)
        elif what == "elect":
            isr = (0,) if chance.random() < 0.7 else (0, 1)
            epoch = partition.leader_epoch + 1
            partition.lead(
                PartitionRegistration(replicas=(0, 1), isr=isr, leader=0, leader_epoch=epoch)
            )
        elif what == "replace":
            partition.topic_id = topic_id_of("t") if chance.random() < 0.7 else b"n" * 16
        elif partition.log.producers.first_unstable_offset is None:
            self._producers[index].put(partition, b"v")
        else:
            self._producers[index].end(partition, commits=chance.random() < 0.5)


def question(live: LiveBroker, chance: random.Random, *, version: int) -> FetchRequest:
    """Return a request of some partitions, mostly at their ends."""
    asked = []
    for index in chance.sample(range(PARTITIONS), chance.randint(0, PARTITIONS)):
        partition = live.broker.partitions["t", index]
        offsets = [partition.high_watermark] * 3 + [
            partition.last_stable_offset,
            partition.log_end_offset,
            partition.log_start_offset - 1,
            partition.log_end_offset + 1,
        ]
        epoch = chance.choice([-1, partition.leader_epoch, partition.leader_epoch, 3])
        asked.append(
            FetchPartition(
                index,
                current_leader_epoch=epoch,
                fetch_offset=chance.choice(offsets),
                last_fetched_epoch=chance.choice([-1, -1, -1, partition.leader_epoch - 1]),
                partition_max_bytes=1 << 20,
            )
        )
    topic_id = NULL_UUID if version < 13 else topic_id_of("t")
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        isolation_level=chance.randint(0, 1),
        topics=[FetchTopic("t", topic_id, asked)] if asked else [],
    )


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("seed", range(10))
def test_replies_are_the_same(
    live: LiveBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch, seed: int, version: int
) -> None:
    chance = random.Random(seed)
    switch = Switch(monkeypatch)
    for index in range(PARTITIONS):
        live.add_partition("t", index)
    changes = Changes(live, chance)
    clients = Sessions(switch, connect, version=version)
    first = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
    topic_id = NULL_UUID if version < 13 else topic_id_of("t")
    clients.compare(
        FetchRequest(max_wait_ms=0, topics=[FetchTopic("t", topic_id, first)]), in_session=True
    )
    for _ in range(STEPS):
        live.run(changes.one)
        request = live.run(lambda: question(live, chance, version=version))
        clients.compare(request, in_session=chance.random() < 0.7)
    assert switch.left_out > STEPS, "most consumers are at the end"
