"""What a consumer instance reads when its client changes its mind between two heartbeats."""

import asyncio
from typing import Any

import pytest
from waiting import until

from fairlead_broker.authorization import ANONYMOUS
from fairlead_broker.rest.calls import KafkaCalls
from fairlead_broker.rest.instances.group_member import RETRY_S, GroupMember, Subscription
from fairlead_broker.rest.instances.group_offsets import Committed, GroupOffsets
from fairlead_broker.rest.instances.instance import ConsumerInstance, InstanceConfig
from fairlead_broker.rest.records.rendering import Form
from fairlead_wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

CONFIG = InstanceConfig(Form.JSON, "latest", False, 0, 1, None)
BOTH, ONE = Subscription(("a", "b")), Subscription(("a",))
IDS = {"a": b"a" * 16, "b": b"b" * 16}


class Coordinator:
    """Gives partition 0 of each topic to whoever subscribes to it, once it may answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_answer = asyncio.Event()
        self.epoch = 1
        self.interval_ms = 10
        self.asked: list[ConsumerGroupHeartbeatRequest] = []
        self.ids = dict(IDS)
        self.told: dict[str, bytes] = {}
        self._topics: list[str] = []
        monkeypatch.setattr(KafkaCalls, "have_offsets_topic_made", self._nothing)
        monkeypatch.setattr(KafkaCalls, "ask_coordinator", self._ask)
        monkeypatch.setattr(KafkaCalls, "would_allow", lambda *_: True)
        monkeypatch.setattr(ConsumerInstance, "_look_up", self._nothing)

        class Host:
            class broker:  # noqa: N801
                class image:  # noqa: N801
                    topic_name = staticmethod(self._name_of)

        host: Any = Host()
        self.calls = KafkaCalls(host, "h", ANONYMOUS, None)

    def _name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, each in self.ids.items() if each == topic_id), None)

    async def _nothing(self, *_: Any) -> None:
        pass

    async def _ask(self, _group: str, build: Any, *_: Any, **__: Any) -> Any:
        request = build(1_000)
        self.asked.append(request)
        await self.may_answer.wait()
        topics = request.subscribed_topic_names
        if topics is not None:
            self._topics = topics
        assigned = {name: self.ids[name] for name in self._topics}
        is_told = topics is not None or assigned != self.told
        self.told = assigned
        given = [ResponseTopicPartitions(topic_id, [0]) for topic_id in assigned.values()]
        return ConsumerGroupHeartbeatResponse(
            member_epoch=self.epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=Assignment(given) if is_told else None,
        )


def test_a_topic_that_is_wanted_again_before_the_group_knew_is_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        coordinator = Coordinator(monkeypatch)
        coordinator.may_answer.set()
        instance = ConsumerInstance(coordinator.calls, "g", "i", CONFIG)
        await instance.subscribe(BOTH)
        await until(lambda: set(instance.positions) == {("a", 0), ("b", 0)})
        # While a heartbeat waits for its answer, the client changes its mind twice.
        coordinator.may_answer.clear()
        heard = len(coordinator.asked)
        await until(lambda: len(coordinator.asked) > heard)
        await instance.subscribe(ONE)
        assert set(instance.positions) == {("a", 0)}
        await instance.subscribe(BOTH)
        coordinator.may_answer.set()
        heard = len(coordinator.asked)
        await until(lambda: len(coordinator.asked) > heard + 2)
        assert set(instance.positions) == {("a", 0), ("b", 0)}
        await instance.close(confirm=False)

    asyncio.run(story())


def test_what_was_read_of_a_topic_is_not_committed_for_the_next_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committed: list[object] = []

    async def commit(_: GroupOffsets, offsets: object, *__: Any, **___: Any) -> None:
        committed.append(offsets)

    monkeypatch.setattr(GroupOffsets, "commit", commit)

    async def story() -> None:
        coordinator = Coordinator(monkeypatch)
        coordinator.may_answer.set()
        instance = ConsumerInstance(coordinator.calls, "g", "i", CONFIG._replace(auto_commit=True))
        await instance.subscribe(BOTH)
        await until(lambda: set(instance.positions) == {("a", 0), ("b", 0)})
        read = {key: instance.positions.get(key) for key in instance.positions}
        for position in read.values():
            assert position is not None
            position.start(100, committed=100)
            position.offset = 150
        instance.positions.receive()
        coordinator.ids["a"] = b"A" * 16
        await until(lambda: instance.positions.get(("a", 0)) not in (None, read["a", 0]))
        await instance.close(confirm=True)
        assert committed == [{("b", 0): Committed(150)}]

    asyncio.run(story())


def test_a_group_that_has_just_changed_is_asked_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Members that start together would wait for each other's next heartbeat, which is seconds."""
    now_s = 1_000.0

    async def story() -> None:
        nonlocal now_s
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
        coordinator = Coordinator(monkeypatch)
        coordinator.may_answer.set()
        coordinator.interval_ms = 5_000
        instance = ConsumerInstance(coordinator.calls, "g", "i", CONFIG)
        member = GroupMember(coordinator.calls, "g", "i", instance)
        member.subscribe(ONE)
        assert [await member.beat(), await member.beat()] == [0.0, RETRY_S]
        for after_s, pause_s in ((1.0, 1.0), (2.0, 2.0), (6.0, 5.0), (60.0, 5.0)):
            now_s = 1_000.0 + after_s
            assert await member.beat() == pause_s
        # Another member has joined or left: this one has the same partitions in a new epoch.
        coordinator.epoch += 1
        assert [await member.beat(), await member.beat()] == [RETRY_S, RETRY_S]
        now_s += 0.5
        assert await member.beat() == 0.5

    asyncio.run(story())
