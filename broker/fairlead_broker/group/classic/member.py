"""The members of one group: what each said of itself, and what they have in common.

Pure. Kept in the order in which they joined, so that every choice among them is the same whenever
the same things happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairlead_broker.group.group_types import DescribedMember, JoinedMember
from fairlead_broker.group.member_names import names_bytes
from fairlead_broker.group.records.classic_records import MemberRecord
from fairlead_broker.limits import MEMBER_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.group.group_types import JoinRequest

Protocols = tuple[tuple[str, bytes], ...]


def member_bytes(protocols: Protocols) -> int:
    """Return about how much memory a member with these takes, without its assignment."""
    return MEMBER_OVERHEAD_BYTES + sum(len(name) + len(metadata) for name, metadata in protocols)


def join_bytes(request: JoinRequest) -> int:
    """Return about how much memory a member that joins like this will take."""
    return member_bytes(request.protocols) + names_bytes(
        request.member_id or request.new_member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
    )


@dataclass(slots=True)
class Member:
    """One member. Waiters are those of its parked requests, None while it has none."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    session_deadline_ms: int = 0
    assignment: bytes = b""
    join_waiter: Any = None
    sync_waiter: Any = None
    has_generation: bool = False
    """It is part of the present generation, not only of the next."""
    is_written_for: bool = False
    """It waits for a record of its own (KIP-345), with a waiter that the write's token has."""

    @classmethod
    def of_request(cls, member_id: str, request: JoinRequest) -> Member:
        member = cls(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.protocols,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
        )
        member.take_timeouts(request)
        return member

    @classmethod
    def of_record(cls, record: MemberRecord, protocol: str) -> Member:
        return cls(
            record.member_id,
            record.group_instance_id,
            record.client_id,
            record.client_host,
            ((protocol, record.subscription),),
            record.session_timeout_ms,
            record.rebalance_timeout_ms,
            assignment=record.assignment,
            has_generation=True,
        )

    def take_timeouts(self, request: JoinRequest) -> None:
        """JoinGroup 0 has no rebalance time-out: the session's stands for it."""
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        if self.rebalance_timeout_ms < 0:
            self.rebalance_timeout_ms = request.session_timeout_ms

    @property
    def memory_bytes(self) -> int:
        """Approximate memory that it takes beside its assignment."""
        return member_bytes(self.protocols) + names_bytes(
            self.member_id, self.group_instance_id, self.client_id, self.client_host
        )

    @property
    def is_waiting(self) -> bool:
        """Parked at this coordinator, so alive, whatever its heartbeats do."""
        return self.join_waiter is not None or self.sync_waiter is not None or self.is_written_for

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for this assignor; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def record(self, protocol: str, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def joined(self, protocol: str) -> JoinedMember:
        return JoinedMember(self.member_id, self.group_instance_id, self.metadata(protocol))

    def described(self, protocol: str | None) -> DescribedMember:
        """Without a protocol, what it said before no longer holds; what it was given may."""
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol is None else self.metadata(protocol),
            self.assignment,
        )


class Members:
    """All members of a group, by id and by static instance, with what they count up to (G10)."""

    __slots__ = ("_by_id", "_instances", "_joining", "_support", "memory_bytes")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._joining = 0
        self._support: dict[str, int] = {}
        self.memory_bytes = 0
        """Approximate memory of all of them."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def of_instance(self, group_instance_id: str | None) -> Member | None:
        """Return who holds a static instance id."""
        if group_instance_id is None:
            return None
        return self._by_id.get(self._instances.get(group_instance_id, ""))

    @property
    def joining(self) -> int:
        """How many wait for the rebalance to be complete."""
        return self._joining

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: Member) -> None:
        self._by_id[member.member_id] = member
        if member.group_instance_id is not None:
            self._instances[member.group_instance_id] = member.member_id
        self._count(member, 1)
        self.memory_bytes += len(member.assignment)

    def remove(self, member: Member) -> None:
        del self._by_id[member.member_id]
        if member.group_instance_id is not None:
            del self._instances[member.group_instance_id]
        self._count(member, -1)
        self.memory_bytes -= len(member.assignment)
        if member.join_waiter is not None:
            self._joining -= 1

    def rename(self, member: Member, member_id: str) -> None:
        """Another process takes over a static member: its place stays, its id is the new one."""
        self.memory_bytes -= member.memory_bytes
        old_id, member.member_id = member.member_id, member_id
        self.memory_bytes += member.memory_bytes
        self._by_id = {
            member_id if each == old_id else each: value for each, value in self._by_id.items()
        }
        if member.group_instance_id is not None:
            self._instances[member.group_instance_id] = member_id

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def change_client(self, member: Member, client_id: str, client_host: str) -> None:
        self.memory_bytes -= member.memory_bytes
        member.client_id, member.client_host = client_id, client_host
        self.memory_bytes += member.memory_bytes

    def assign(self, member: Member, assignment: bytes) -> None:
        """Set what the member reads from now on; empty for nothing."""
        self.memory_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def park_join(self, member: Member, waiter: Any) -> Any:
        """Let it wait for the rebalance; gives the waiter whose place it took, or None."""
        replaced, member.join_waiter = member.join_waiter, waiter
        self._joining += replaced is None
        return replaced

    def take_join_waiter(self, member: Member) -> Any:
        """Return the waiter to answer now, which no longer waits; None if there is none."""
        waiter, member.join_waiter = member.join_waiter, None
        self._joining -= waiter is not None
        return waiter

    def have_common(self, protocols: Protocols) -> bool:
        """Tell whether all members support one of these."""
        return any(self._support.get(name) == len(self._by_id) for name, _ in protocols)

    def elect_protocol(self) -> str:
        """Return the assignor that most members like best among those that all support.

        Each votes for the first on its list; of equals, the one voted for first wins.
        """
        votes: dict[str, int] = {}
        for member in self:
            for name, _ in member.protocols:
                if self._support[name] == len(self._by_id):
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def _count(self, member: Member, change: int) -> None:
        self.memory_bytes += change * member.memory_bytes
        # A client that names an assignor twice supports it once.
        for name in dict.fromkeys(name for name, _ in member.protocols):
            count = self._support.get(name, 0) + change
            if count:
                self._support[name] = count
            else:
                del self._support[name]
