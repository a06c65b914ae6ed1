"""Drives a ClassicGroup step by step: short requests, a clock, answers, writes on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.group_types import (
    Effects,
    GroupState,
    GroupWrite,
    JoinRequest,
    JoinResult,
    LeavingMember,
    Result,
    SyncRequest,
    SyncResult,
)
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

WALL_MS = 1_700_000_000_000
RANGE = (("range", b"sub"),)


def subscription(*topics: str) -> bytes:
    """A consumer's metadata in version 0."""
    encoded = [topic.encode() for topic in topics]
    names = b"".join(len(topic).to_bytes(2, "big") + topic for topic in encoded)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class GroupDriver:
    """One group, its time, and its answers. Writes wait in `writes` until `commit`."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 1_000) -> None:
        self.delay_ms, self.size_max = delay_ms, size_max
        self.group = ClassicGroup("g", initial_rebalance_delay_ms=delay_ms, size_max=size_max)
        self.now_ms = 0
        self.answers: dict[Any, Result] = {}
        self.writes: list[GroupWrite] = []
        self.logged: bytes | None = None
        self._ids = 0

    @property
    def state(self) -> GroupState:
        return self.group.state

    @property
    def times(self) -> dict[str, int]:
        return {"now_ms": self.now_ms, "now_wall_ms": WALL_MS + self.now_ms}

    def take(self, effects: Effects) -> None:
        self.writes += effects.writes
        for waiter, result in effects.replies:
            assert waiter not in self.answers, f"{waiter} is answered twice"
            self.answers[waiter] = result

    def joined(self, waiter: Any) -> JoinResult:
        answer = self.answers[waiter]
        assert isinstance(answer, JoinResult)
        return answer

    def synced(self, waiter: Any) -> SyncResult:
        answer = self.answers[waiter]
        assert isinstance(answer, SyncResult)
        return answer

    def join(
        self,
        waiter: Any,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        needs_id: bool = False,
        skips: bool = False,
        new_id: str | None = None,
    ) -> None:
        """Join; a member without an id gets m1, m2, … unless `new_id` names it."""
        if new_id is None and not member_id:
            self._ids += 1
            new_id = f"m{self._ids}"
        request = JoinRequest(
            member_id,
            instance,
            "client",
            "/10.0.0.1",
            protocol_type,
            protocols,
            session_ms,
            rebalance_ms,
            new_id or "",
            needs_id,
            skips,
        )
        self.take(self.group.join(request, waiter, **self.times))

    def sync(
        self,
        waiter: Any,
        member_id: str,
        generation_id: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> None:
        request = SyncRequest(
            member_id,
            generation_id,
            instance,
            protocol_type,
            protocol_name,
            tuple((assignments or {}).items()),
        )
        self.take(self.group.sync(request, waiter, **self.times))

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        leaving = [LeavingMember(member_id, instance) for member_id, instance in members]
        errors, effects = self.group.leave(leaving, **self.times)
        self.take(effects)
        return errors

    def heartbeat(
        self, member_id: str, generation_id: int, instance: str | None = None
    ) -> ErrorCode:
        return self.group.heartbeat(member_id, generation_id, instance, now_ms=self.now_ms)

    def check_commit(
        self, member_id: str, generation_id: int, instance: str | None = None
    ) -> ErrorCode:
        return self.group.check_commit(member_id, generation_id, instance, now_ms=self.now_ms)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Settle all writes so far."""
        writes, self.writes = self.writes, []
        for write in writes:
            if error is ErrorCode.NONE:
                ((_, self.logged),) = write.records
            self.take(self.group.written(write, error, **self.times))

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass with a tick whenever one is due, as the shell does it."""
        end_ms = self.now_ms + milliseconds
        for _ in range(100_000):
            due_ms = self.group.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.group.tick(**self.times))
        else:
            raise AssertionError(f"a deadline that no tick moves: {due_ms}")
        self.now_ms = end_ms

    def reload(self) -> GroupDriver:
        """Return another coordinator, which has replayed what was committed."""
        other = GroupDriver(delay_ms=self.delay_ms, size_max=self.size_max)
        other.now_ms, other._ids, other.logged = self.now_ms, self._ids, self.logged
        if self.logged is not None:
            other.group = ClassicGroup.from_record(
                "g",
                self.logged,
                initial_rebalance_delay_ms=self.delay_ms,
                size_max=self.size_max,
                now_ms=self.now_ms,
            )
        return other

    def gather(self, count: int, *, static: bool = False, **options: Any) -> list[str]:
        """Build a stable group of `count` members, each assigned its own id; the first leads."""
        ids: list[str] = []
        for number in range(1, count + 1):
            instance = f"i{number}" if static else None
            self.join(("join", number), instance=instance, **options)
            for member_id in ids:
                held = f"i{ids.index(member_id) + 1}" if static else None
                self.join(("rejoin", number, member_id), member_id, instance=held, **options)
            ids.append(self.joined(("join", number)).member_id)
        self.settle(ids)
        assert self.state is GroupState.STABLE
        return ids

    def settle(self, ids: list[str]) -> None:
        generation = self.group.generation_id
        for member_id in [each for each in ids if each != self.group.leader]:
            self.sync(("sync", member_id, generation), member_id, generation)
        assignments = {member_id: member_id.encode() for member_id in ids}
        leader = self.group.leader
        self.sync(("sync", leader, generation), leader, generation, assignments)
        self.commit()
