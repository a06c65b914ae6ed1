"""Consumers of both protocols come and go in one group, which changes its protocol under them.

What each consumer reads is what its client would read: one of the classic protocol is cooperative,
and reads on until it is told otherwise. Nothing may be read by two of them, whatever the group
speaks, and whichever coordinator comes next (G12).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from consumer_group_driver import WALL_MS, Host, held, load, partitions, subscription

from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.consumer.consumer_group import ConsumerGroup
from fairlead_broker.group.consumer.protocol_migration import upgraded
from fairlead_broker.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from fairlead_broker.group.group_types import (
    ConsumerHeartbeat,
    Effects,
    JoinedMember,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
)
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTITIONS = 6
CLASSIC_KEY = b"\0\2\0\1g"
TIMES = {"now_ms": 0, "now_wall_ms": WALL_MS}
FOREVER_MS = 10**9
STEPS = 250


class Coordinator:
    """One group as its shell keeps it; every write is committed at once."""

    def __init__(self) -> None:
        self.host = Host({"t": PARTITIONS})
        self.group: ClassicGroup | ConsumerGroup = classic_group()
        self.log: dict[bytes, bytes] = {}
        self.answers: dict[int, Any] = {}
        self._asked = 0

    def new_waiter(self) -> int:
        self._asked += 1
        return self._asked

    def take(self, effects: Effects, group: ClassicGroup | ConsumerGroup | None = None) -> None:
        """Carry out what a group wants: the one of now, or the one before a change."""
        speaker = self.group if group is None else group
        change, begun = effects.downgrade, Effects()
        if change is not None:
            self.group = classic_group(change.record)
            self.group.take_protocols(change.protocols)
            begun = self.group.on_loaded(**TIMES)
        self.answers.update(dict(effects.replies))
        for write in effects.writes:
            assert not write.violation, write.violation
            for key, value in write.records:
                if value is None:
                    self.log.pop(key, None)
                else:
                    self.log[key] = value
            self.take(speaker.written(write, ErrorCode.NONE, **TIMES), speaker)
        if change is not None:
            self.take(begun)

    def heartbeat(self, asked: ConsumerHeartbeat) -> Any:
        waiter, classic = self.new_waiter(), None
        group = self.group
        if isinstance(group, ClassicGroup):
            if asked.member_epoch != 0:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            classic, members = group, group.migrating_members()
            image, generation = self.host.image, classic.generation_id
            records = upgraded("consumer", generation, members, image) if members else []
            group = ConsumerGroup.from_classic("g", records, self.host)
        effects = group.consumer_heartbeat(asked, waiter, **TIMES)
        self.group = group
        self.take(effects)
        if classic is not None:
            self.take(classic.answer_all(ErrorCode.REBALANCE_IN_PROGRESS), classic)
        return self.answers.pop(waiter)

    def join(self, request: JoinRequest, waiter: int) -> None:
        if isinstance(self.group, ConsumerGroup) and self.group.is_empty:
            write = self.group.retire()
            self.take(Effects(writes=[] if write is None else [write]))
            self.group = classic_group()
        self.take(self.group.join(request, waiter, **TIMES))

    def fail_over(self) -> None:
        """Begin anew from the log, as the next coordinator does."""
        records = {key: value for key, value in self.log.items() if key != CLASSIC_KEY}
        assert not (records and CLASSIC_KEY in self.log), "a group of two kinds"
        self.group = (
            load(records, self.host) if records else classic_group(self.log.get(CLASSIC_KEY))
        )
        self.answers.clear()
        if not self.group.is_empty:
            self.take(self.group.on_loaded(**TIMES))


def classic_group(record: bytes | None = None) -> ClassicGroup:
    if record is None:
        return ClassicGroup("g", initial_rebalance_delay_ms=0, size_max=100)
    return ClassicGroup.from_record(
        "g", record, initial_rebalance_delay_ms=0, size_max=100, now_ms=0
    )


class Cooperative:
    """A consumer of the classic protocol, which leads where it is told to."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self.coordinator = coordinator
        self.name = name
        self.reading: set[int] = set()
        self.member_id = ""
        self.generation = -1
        self.must_join = True
        self.waiter: int | None = None

    def step(self) -> None:
        coordinator = self.coordinator
        if self.waiter is not None:
            self._look_for_answer(self.waiter)
        elif self.must_join:
            self.waiter = coordinator.new_waiter()
            owned = {"t": sorted(self.reading)} if self.reading else {}
            protocols = (("cooperative", subscription("t", owned=owned)),)
            request = JoinRequest(
                *(self.member_id, None, "client", "/h", "consumer", protocols),
                *(FOREVER_MS, FOREVER_MS, f"{self.name}-{self.waiter}"),
            )
            coordinator.join(request, self.waiter)
        else:
            code = coordinator.group.heartbeat(self.member_id, self.generation, None, now_ms=0)
            self._heed(code)

    def _look_for_answer(self, waiter: int) -> None:
        coordinator = self.coordinator
        result = coordinator.answers.pop(waiter, None)
        if result is None:
            return
        self.waiter = None
        if result.error is not ErrorCode.NONE:
            self._heed(result.error)
        elif isinstance(result, JoinResult):
            self.member_id, self.generation = result.member_id, result.generation_id
            parts = assign(result.members) if result.leader == self.member_id else {}
            self.waiter = coordinator.new_waiter()
            request = SyncRequest(
                self.member_id, self.generation, None, None, None, tuple(parts.items())
            )
            coordinator.take(coordinator.group.sync(request, self.waiter, **TIMES))
        else:
            given = set(decode_assignment(result.assignment).partitions.get("t", ()))
            self.must_join = not self.reading <= given
            self.reading = given

    def _heed(self, code: ErrorCode) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.reading = set()
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        else:
            assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        self.must_join = code is not ErrorCode.NONE

    def hang_up(self) -> None:
        """Lose the coordinator: what was asked is asked again, from the start."""
        if self.waiter is not None:
            self.waiter, self.must_join = None, True

    def leave(self) -> None:
        self.reading = set()
        leaving = [LeavingMember(self.member_id, None)]
        _, effects = self.coordinator.group.leave(leaving, **TIMES)
        self.coordinator.take(effects)


def assign(members: Sequence[JoinedMember]) -> dict[str, bytes]:
    """As cooperative assignors do: what one owns nobody else gets before it is given up."""
    owned = {
        each.member_id: decode_subscription(each.metadata).owned.get("t", []) for each in members
    }
    quota = -(-PARTITIONS // len(members))
    taken: set[int] = set()
    parts: dict[str, list[int]] = {}
    for member_id, mine in owned.items():
        parts[member_id] = [each for each in mine if each not in taken][:quota]
        taken.update(parts[member_id])
    held_back = {each for mine in owned.values() for each in mine}
    for partition in sorted(set(range(PARTITIONS)) - taken - held_back):
        min(parts.values(), key=len).append(partition)
    return {member_id: encode_assignment(1, {"t": mine}) for member_id, mine in parts.items()}


class Assigned:
    """A consumer of KIP-848, which gives up at once what it must."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self.coordinator = coordinator
        self.name = name
        self.reading: set[int] = set()
        self.epoch = 0

    def step(self) -> None:
        try:
            result = self._beat(self.epoch)
        except KafkaError:
            self.epoch, self.reading = 0, set()
            return
        assert result.error is ErrorCode.NONE
        self.epoch = result.member_epoch
        if result.assigned is not None:
            self.reading = set(held(result.assigned).get("t", ()))

    def _beat(self, epoch: int) -> Any:
        owned = partitions({"t": sorted(self.reading)}) if epoch else frozenset()
        return self.coordinator.heartbeat(
            ConsumerHeartbeat(
                *(self.name, epoch, None, None, "client", "/h", FOREVER_MS),
                *(("t",), None, None, owned, lambda name: True),
            )
        )

    def hang_up(self) -> None:
        """Nothing is on its way: every answer came at once."""

    def leave(self) -> None:
        self.reading = set()
        if self.epoch:
            self._beat(-1)


@pytest.mark.parametrize("seed", range(100))
def test_nothing_is_read_twice_while_the_group_changes_its_protocol(seed: int) -> None:
    chance = random.Random(seed)
    coordinator = Coordinator()
    consumers: list[Cooperative | Assigned] = [
        Cooperative(coordinator, f"c{number}") for number in range(chance.randint(1, 3))
    ]
    for number in range(STEPS):
        event = chance.random()
        if event < 0.05 and len(consumers) < 6:
            kind = chance.choice((Cooperative, Assigned, Assigned))
            consumers.append(kind(coordinator, f"n{number}"))
        elif 0.05 < event < 0.10 and len(consumers) > 1:
            consumers.pop(chance.randrange(len(consumers))).leave()
        elif 0.10 < event < 0.12:
            coordinator.fail_over()
            for each in consumers:
                each.hang_up()
        else:
            chance.choice(consumers).step()
        read = [partition for each in consumers for partition in each.reading]
        assert len(read) == len(set(read)), f"after step {number}"
