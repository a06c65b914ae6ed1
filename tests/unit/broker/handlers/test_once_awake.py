"""What coordinators are asked while a broker that was stopped asks whether it still is one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from group_cluster import Call
from waiting import until

from fairlead_broker.api_registry import HANDLERS, load_handlers
from fairlead_broker.coordinator.shard import ShardState
from fairlead_broker.limits import HELD_REQUEST_OVERHEAD_BYTES
from fairlead_broker.session import wake_check
from fairlead_model.cluster import ClusterDelta, PartitionChanged
from fairlead_model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages import REQUESTS
from fairlead_wire.messages.heartbeat import HeartbeatRequest
from fairlead_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fairlead_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STOP_MS = 60_000
SESSION_MS = 300
SOON = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "50"}
soon = pytest.mark.parametrize("stage", [SOON], indirect=True)

NOT_OF_A_COORDINATOR = {
    ApiKey.FIND_COORDINATOR: "every broker answers it out of its image",
    ApiKey.DESCRIBE_PRODUCERS: "of the leader of a partition",
    ApiKey.WRITE_TXN_MARKERS: "of the leader of a partition",
}
load_handlers()
COORDINATED = sorted(
    key
    for key, handler in HANDLERS.items()
    if handler.call.__module__.startswith(
        ("fairlead_broker.handlers.groups.", "fairlead_broker.handlers.transactions.")
    )
    and key not in NOT_OF_A_COORDINATOR
)


class ClosingCall(Call):
    """One whose connection may be closed."""

    closed = ""

    def close(self, reason: str) -> None:
        self.closed = reason


class Verification:
    """No transaction is known."""

    def verify(self, *asked: Any, answer: Callable[..., None], **_: Any) -> None:
        answer(dict.fromkeys(asked[-1], ErrorCode.NOT_COORDINATOR))


class Controller:
    """Answers the question of a broker that woke, once it may."""

    longest_stop_ms = 1_250
    has_session = True

    def __init__(self, stage: Any) -> None:
        self.may_answer = asyncio.Event()
        self.decide: Callable[[], None] = lambda: None
        self.asked = 0
        stage.broker.controller = self
        stage.broker.verification = Verification()

    async def call(self, method: str, body: dict[str, Any], *, timeout_ms: int) -> dict[str, Any]:
        assert method == "confirm_deletions"
        self.asked += 1
        await self.may_answer.wait()
        self.decide()
        return {}


async def coordinating(stage: Any) -> Controller:
    """The broker of a stage has loaded what it coordinates."""
    broker = stage.broker

    def is_loaded() -> bool:
        shards = [each.shards.get(0) for each in broker.coordinators.values()]
        return all(shard is not None and shard.state is ShardState.ACTIVE for shard in shards)

    await until(is_loaded)
    return Controller(stage)


def tell(stage: Any, story: Callable[[Controller], Awaitable[None]]) -> None:
    """A story of one broker that coordinates all groups and transactional ids."""
    stage.topic(CONSUMER_OFFSETS)
    stage.topic(TRANSACTION_STATE)

    async def act() -> None:
        await story(await coordinating(stage))

    stage.run(act())


async def joined(stage: Any, session_ms: int = SESSION_MS) -> HeartbeatRequest:
    """A group of one member, and what that sends from now on."""
    join = Call(
        stage.broker,
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=STOP_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff")],
        ),
        3,
    )
    await until(lambda: join.reply is not None)
    member_id, generation = join.reply.member_id, join.reply.generation_id
    sync = Call(
        stage.broker,
        SyncGroupRequest(
            "g",
            generation,
            member_id,
            None,
            None,
            None,
            [SyncGroupRequestAssignment(member_id, b"all")],
        ),
        3,
    )
    await until(lambda: sync.reply is not None)
    assert sync.reply.error_code == 0
    return HeartbeatRequest("g", generation, member_id)


@pytest.mark.parametrize("key", COORDINATED, ids=lambda key: ApiKey(key).name)
def test_requests_of_every_kind_wait_for_the_controller(stage: Any, key: int) -> None:
    async def story(controller: Controller) -> None:
        stage.clock.advance(STOP_MS)
        call = Call(stage.broker, REQUESTS[key](), HANDLERS[key].versions[1], is_internal=True)
        await until(lambda: controller.asked == 1)
        assert call.reply is None
        controller.may_answer.set()
        await until(lambda: call.replies == 1)

    tell(stage, story)


def test_the_rest_does_not_wait(stage: Any) -> None:
    async def story(_: Controller) -> None:
        stage.clock.advance(STOP_MS)
        for key in NOT_OF_A_COORDINATOR:
            assert Call(stage.broker, REQUESTS[key](), HANDLERS[key].versions[1]).replies == 1

    tell(stage, story)


@soon
def test_a_member_outlives_the_stop_of_its_coordinator(stage: Any) -> None:
    """Its session is over by the clock; but it was the coordinator that did not listen."""

    async def story(controller: Controller) -> None:
        beat = await joined(stage)
        stage.clock.advance(STOP_MS)
        heartbeat = Call(stage.broker, beat, 3)
        # The timer of its session comes, and is not what ends it.
        await asyncio.sleep(1.5 * SESSION_MS / 1000)
        assert heartbeat.reply is None
        group = stage.broker.group_coordinator.groups["g"]
        assert group.protocol.state.value == "Stable"
        controller.may_answer.set()
        await until(lambda: heartbeat.reply is not None)
        assert cast("Any", heartbeat).reply.error_code == 0
        # From now on it has to be heard again.
        for _ in range(20):
            stage.clock.advance(100)
            stage.broker.wake_check.must_hold()
        await until(lambda: group.protocol.state.value == "Empty")

    tell(stage, story)


@soon
def test_a_member_is_told_of_the_coordinator_that_has_taken_over(stage: Any) -> None:
    async def story(controller: Controller) -> None:
        beat = await joined(stage)

        def replace() -> None:
            topic = stage.image.topic(CONSUMER_OFFSETS)
            registration = topic.partitions[0].changed(leader=2)
            delta = ClusterDelta((PartitionChanged(topic.topic_id, 0, registration),))
            stage.broker.publish(delta, stage.image.apply(delta))

        controller.decide = replace
        stage.clock.advance(STOP_MS)
        heartbeat = Call(stage.broker, beat, 3)
        controller.may_answer.set()
        await until(lambda: heartbeat.reply is not None)
        assert heartbeat.reply.error_code == ErrorCode.NOT_COORDINATOR

    stage.neighbour(2)
    tell(stage, story)


@soon
def test_nothing_is_done_for_who_hangs_up_meanwhile(stage: Any) -> None:
    async def story(controller: Controller) -> None:
        stage.clock.advance(STOP_MS)
        join = Call(stage.broker, JoinGroupRequest("g", SESSION_MS, STOP_MS, ""), 3)
        stays = Call(stage.broker, HeartbeatRequest("g", 1, "m"), 3)
        join.disconnect()
        controller.may_answer.set()
        await until(lambda: stays.reply is not None)
        assert join.replies == 0
        assert "g" not in stage.broker.group_coordinator.groups

    tell(stage, story)


def test_what_is_kept_is_bounded(stage: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(wake_check, "HELD_REQUEST_BYTES_MAX", 3 * HELD_REQUEST_OVERHEAD_BYTES)

    async def story(controller: Controller) -> None:
        stage.clock.advance(STOP_MS)
        calls = [ClosingCall(stage.broker, HeartbeatRequest("g", 1, "m"), 3) for _ in range(3)]
        assert [bool(call.closed) for call in calls] == [False, False, True]
        controller.may_answer.set()
        await until(lambda: calls[1].reply is not None)
        assert [call.replies for call in calls] == [1, 1, 0]

    tell(stage, story)


def test_a_request_that_is_refused_later_closes_only_its_connection(stage: Any) -> None:
    handler = HANDLERS[ApiKey.DESCRIBE_GROUPS]
    names = [str(number) for number in range(20_000)]
    request = cast("Any", REQUESTS[ApiKey.DESCRIBE_GROUPS])(groups=names)
    with pytest.raises(RemoteProtocolError):
        Call(stage.broker, request, handler.versions[1])

    async def story(controller: Controller) -> None:
        stage.clock.advance(STOP_MS)
        wrong = ClosingCall(stage.broker, request, handler.versions[1])
        last = Call(stage.broker, HeartbeatRequest("g", 1, "m"), 3)
        controller.may_answer.set()
        await until(lambda: last.reply is not None)
        assert "20000 groups" in wrong.closed

    tell(stage, story)
