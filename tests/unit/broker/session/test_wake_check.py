"""Produces that wait while a broker that was stopped asks whether it still leads."""

import asyncio
from typing import Any

from fairlead_broker.api_registry import PENDING, RequestContext
from fairlead_broker.authorization import ANONYMOUS
from fairlead_broker.handlers.records.produce import produce
from fairlead_broker.limits import HELD_REQUEST_OVERHEAD_BYTES, PARTITIONS_PER_REQUEST_MAX
from fairlead_broker.replication.wake_guard import PATIENCE_MS
from fairlead_broker.session import wake_check
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from fairlead_wire.records import Record, encode_batch

LONG_MS = 60_000
VERSION = 9


class Channel:
    """What a held request came in on."""

    peer_check = None
    replica_ids = range(2**31)
    client_host = "127.0.0.1"
    principal = ANONYMOUS
    authorizer = None
    quotas = None

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.answers: list[Any] = []
        self.closed: str | None = None

    def on_response(self, context: RequestContext, response: Any) -> None:
        self.answers.append(response)

    def close(self, reason: str) -> None:
        self.closed = reason


def request_of(partition_count: int = 1, acks: int = 1) -> ProduceRequest:
    records = memoryview(bytearray(encode_batch([Record(0, 1_700_000_000_000, None, b"v")])))
    data = [PartitionProduceData(index, records) for index in range(partition_count)]
    return ProduceRequest(None, acks, 1000, [TopicProduceData("t", partition_data=data)])


def send(broker: Any, request: ProduceRequest) -> Channel:
    """A request that is held, or answered at once."""
    channel = Channel(broker)
    context = RequestContext(channel, 0, VERSION, 1, "test")  # type: ignore[arg-type]
    outcome = produce(request, context)
    if outcome is not PENDING:
        channel.answers.append(outcome)
    return channel


async def until_answered(*channels: Channel) -> None:
    async with asyncio.timeout(30):
        while not all(channel.answers for channel in channels):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def confirms(_: dict[str, Any]) -> dict[str, Any]:
    return {}


def test_one_request_that_is_refused_does_not_keep_the_others_waiting(stage: Any) -> None:
    stage.topic("t")
    stage.controller.script["confirm_deletions"] = confirms

    async def act() -> None:
        stage.clock.advance(LONG_MS)
        first = send(stage.broker, request_of())
        wrong = send(stage.broker, request_of(PARTITIONS_PER_REQUEST_MAX + 1))
        last = send(stage.broker, request_of())
        assert (first.answers, last.answers) == ([], []), "nobody has said yet that it leads"
        await until_answered(first, last)
        assert wrong.closed == f"a produce request to {PARTITIONS_PER_REQUEST_MAX + 1} partitions"

    stage.run(act())
    assert stage.partition("t").log_end_offset == 2


def test_what_comes_while_others_are_held_waits_behind_them(stage: Any) -> None:
    stage.topic("t")

    async def act() -> None:
        stage.clock.advance(LONG_MS)
        first = send(stage.broker, request_of())
        # The guard is open again by now, and the task that lets go has not run yet.
        for _ in range(20):
            stage.clock.advance(100)
            stage.broker.wake_check.must_hold()
        second = send(stage.broker, request_of())
        assert (first.answers, second.answers) == ([], [])
        await until_answered(first, second)

    stage.run(act())
    assert stage.partition("t").log_end_offset == 2


def test_what_is_held_goes_on_although_whoever_asked_the_controller_died(stage: Any) -> None:
    stage.topic("t")

    def break_down(_: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("something else than an answer")

    stage.controller.script["confirm_deletions"] = break_down

    async def act() -> None:
        watching = asyncio.create_task(stage.broker.wake_check.run())
        stage.clock.advance(LONG_MS)
        held = send(stage.broker, request_of())
        assert held.answers == []
        await asyncio.sleep(0.01)
        stage.clock.advance(PATIENCE_MS + 1)
        await until_answered(held)
        watching.cancel()

    stage.run(act())
    assert stage.partition("t").log_end_offset == 1


def test_requests_without_records_count_among_what_is_held(stage: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(wake_check, "HELD_REQUEST_BYTES_MAX", 10 * HELD_REQUEST_OVERHEAD_BYTES)
    stage.controller.script["confirm_deletions"] = confirms

    async def act() -> None:
        stage.clock.advance(LONG_MS)
        channels = [send(stage.broker, ProduceRequest(None, 1, 1000, [])) for _ in range(11)]
        assert [len(channel.answers) for channel in channels] == [0] * 10 + [1]
        await until_answered(*channels)

    stage.run(act())
