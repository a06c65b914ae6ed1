"""A group of the classic protocol under random requests, against what must always hold.

The driver's `take` already fails if one request is answered twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_driver import GroupDriver
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_broker.group.group_types import GroupState, JoinResult, SyncResult
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

INSTANCES = (None, None, "i1", "i2")
METADATA = (
    (("range", b"a"),),
    (("range", b"b"), ("sticky", b"b")),
    (("sticky", b"c"), ("range", b"c")),
    (("sticky", b"d"),),
)
FAILURE = ErrorCode.COORDINATOR_NOT_AVAILABLE

STEPS = [
    *("join", "join", "rejoin", "rejoin", "sync", "sync", "heartbeat", "leave"),
    *("commit", "commit", "fail", "time", "forget", "delete"),
]

steps = st.lists(
    st.tuples(
        st.sampled_from(STEPS),
        st.integers(0, 7),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=60,
)


class Walk:
    """Plays steps, and looks after each at what must hold."""

    def __init__(self, delay_ms: int, size_max: int) -> None:
        self.driver = GroupDriver(delay_ms=delay_ms, size_max=size_max)
        self.waiters = 0
        self.asked: dict[int, str] = {}
        """Waiters of joins and syncs, and which it was; without those that hung up."""
        self.generation = 0
        self.assigned: dict[int, dict[str, bytes]] = {}
        """By generation, what its leader first sent."""
        self.synced: dict[int, tuple[int, str]] = {}
        self.known: list[tuple[str, str | None]] = [("nobody", None)]

    def play(self, step: tuple[str, int, int, int]) -> None:
        name, who, first, second = step
        action: Callable[[int, int, int], Any] = getattr(self, name)
        before = self.driver.group.leader
        action(who, first, second)
        self.learn()
        self.check(before)

    def waiter(self, kind: str) -> int:
        self.waiters += 1
        self.asked[self.waiters] = kind
        return self.waiters

    def member(self, who: int) -> tuple[str, str | None]:
        """Somebody who has joined at some time, the latest first."""
        return self.known[-1 - who % len(self.known)]

    def join(self, who: int, instance: int, metadata: int) -> None:
        self.driver.join(
            self.waiter("join"),
            instance=INSTANCES[instance],
            protocols=METADATA[metadata],
            needs_id=who % 2 == 0,
            skips=who % 3 == 0,
        )

    def rejoin(self, who: int, metadata: int, _: int) -> None:
        member_id, instance = self.member(who)
        self.driver.join(
            self.waiter("join"), member_id, instance=instance, protocols=METADATA[metadata]
        )

    def sync(self, who: int, back: int, _: int) -> None:
        group = self.driver.group
        member_id, instance = self.member(who)
        generation = group.generation_id - back // 3
        assignments = {
            each.member_id: f"{self.waiters} {generation} {each.member_id}".encode()
            for each in group.members
        }
        waiter = self.waiter("sync")
        self.synced[waiter] = (generation, member_id)
        writes = len(self.driver.writes)
        self.driver.sync(waiter, member_id, generation, assignments, instance=instance)
        if len(self.driver.writes) > writes:
            assert member_id == group.leader
            assert generation not in self.assigned
            self.assigned[generation] = assignments

    def heartbeat(self, who: int, back: int, _: int) -> None:
        group = self.driver.group
        member_id, instance = self.member(who)
        error = self.driver.heartbeat(member_id, group.generation_id - back // 3, instance)
        if error is ErrorCode.NONE:
            assert group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
            assert group.members.get(member_id) is not None

    def leave(self, who: int, _: int, __: int) -> None:
        member_id, instance = self.member(who)
        (error,) = self.driver.leave((member_id, instance))
        if error is ErrorCode.NONE:
            assert self.driver.group.members.get(member_id) is None

    def commit(self, _: int, __: int, ___: int) -> None:
        self.driver.commit()

    def fail(self, _: int, __: int, ___: int) -> None:
        self.driver.commit(FAILURE)

    def time(self, who: int, _: int, __: int) -> None:
        self.driver.pass_time((1, 500, 3_000, 9_000, 11_000, 30_000, 61_000, 1)[who])

    def forget(self, who: int, _: int, __: int) -> None:
        waiting = [each for each in self.asked if each not in self.driver.answers]
        if waiting:
            waiter = waiting[who % len(waiting)]
            self.driver.group.forget_waiter(waiter)
            del self.asked[waiter]

    def delete(self, _: int, __: int, ___: int) -> None:
        """Only as far as a group that is not empty is left alone."""
        if self.driver.state is not GroupState.EMPTY:
            error, effects = self.driver.group.delete()
            assert error is ErrorCode.NON_EMPTY_GROUP
            assert not effects.writes

    def keep(self, member_id: str) -> None:
        """Know a member from now on, if it is new."""
        if all(known != member_id for known, _ in self.known):
            member = self.driver.group.members.get(member_id)
            self.known.append((member_id, None if member is None else member.group_instance_id))

    def learn(self) -> None:
        for waiter, answer in self.driver.answers.items():
            if isinstance(answer, JoinResult) and answer.member_id:
                self.keep(answer.member_id)
            if isinstance(answer, SyncResult) and answer.error is ErrorCode.NONE:
                generation, member_id = self.synced[waiter]
                sent = self.assigned[generation].get(member_id)
                if sent is not None:
                    assert answer.assignment == sent

    def check(self, leader_before: str) -> None:
        driver, group = self.driver, self.driver.group
        assert group.generation_id >= self.generation
        if group.generation_id == self.generation and group.members.get(leader_before):
            assert group.leader == leader_before or group.state is GroupState.PREPARING_REBALANCE
        self.generation = group.generation_id
        members = list(group.members)
        if members:
            assert group.members.get(group.leader) is not None
        else:
            assert group.state in {GroupState.EMPTY, GroupState.PREPARING_REBALANCE}
        assert group.members.joining == sum(each.join_waiter is not None for each in members)
        held = [each.group_instance_id for each in members if each.group_instance_id]
        assert len(held) == len(set(held))
        if group.state is not GroupState.PREPARING_REBALANCE:
            assert not group.members.joining
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert all(each.sync_waiter is None for each in members)
        if group.state is GroupState.STABLE and not driver.writes:
            self.check_record()

    def check_record(self) -> None:
        """Of a settled group another coordinator can go on from the record."""
        if self.driver.group.rebalance.is_logged:
            assert self.driver.reload().group.describe() == self.driver.group.describe()

    def end(self) -> None:
        """Everybody falls silent: all are answered, and the group ends up empty."""
        for _ in range(8):
            self.driver.commit()
            self.driver.pass_time(61_000)
        self.driver.commit()
        self.learn()
        assert self.driver.state is GroupState.EMPTY
        assert not self.driver.group.pending
        assert not self.asked.keys() - self.driver.answers.keys()
        assert self.driver.group.next_deadline_ms() is None


@settings(max_examples=300, deadline=None)
@given(steps, st.sampled_from([0, 3_000]), st.sampled_from([2, 3, 100]))
def test_whatever_is_asked_a_group_keeps_its_promises(
    played: list[tuple[str, int, int, int]], delay_ms: int, size_max: int
) -> None:
    walk = Walk(delay_ms, size_max)
    for step in played:
        walk.play(step)
    walk.end()
