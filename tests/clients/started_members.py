"""Members of consumer groups that a test starts, watches and waits for."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_member import ConfluentMember
from group_member import GroupMember, Membership
from library_members import MEMBERS
from member_processes import JavaMember, KcatMember, LibraryProcess, MemberProcess
from waiting import wait_until

DEADLINE_S = 60
LIBRARIES = tuple(MEMBERS)
AskedMember = GroupMember | LibraryProcess
AnyMember = GroupMember | MemberProcess


def library_member(name: str, bootstrap: str, membership: Membership) -> AskedMember:
    """A member whose client can be asked; one of librdkafka has a process of its own.

    Where members leave while others are given their partitions, one of librdkafka's calls can wait
    for ever with the interpreter's lock in its hand, and every thread of the process with it.
    """
    if name == ConfluentMember.name:
        return LibraryProcess(name, bootstrap, membership)
    return MEMBERS[name](bootstrap, membership)


class Members:
    """Starts members of any client, and ends those that are left."""

    def __init__(self, bootstrap: str, request: pytest.FixtureRequest) -> None:
        self._bootstrap, self._request = bootstrap, request
        self._started: list[AnyMember] = []

    def library(self, name: str, group: str, topics: Sequence[str], **options: Any) -> AskedMember:
        """A member whose client can be asked."""
        membership = Membership(group, tuple(topics), **options)
        member = library_member(name, self._bootstrap, membership)
        self._started.append(member)
        return member.start()

    def any_client(self, name: str, group: str, topics: Sequence[str], **options: Any) -> AnyMember:
        """A member that can be watched."""
        if name in MEMBERS:
            return self.library(name, group, topics, **options)
        membership = Membership(group, tuple(topics), **options)
        member: MemberProcess
        if name == "kcat":
            self._request.getfixturevalue("kcat")
            member = KcatMember(self._bootstrap, membership)
        else:
            member = JavaMember(self._request.getfixturevalue("tools"), membership)
        self._started.append(member)
        return member.start()

    def killable(self, name: str, group: str, topics: Sequence[str], **options: Any) -> Any:
        """A member in a process of its own."""
        if name in MEMBERS:
            membership = Membership(group, tuple(topics), **options)
            member = LibraryProcess(name, self._bootstrap, membership)
            self._started.append(member)
            return member.start()
        return self.any_client(name, group, topics, **options)

    def close(self) -> None:
        with ExitStack() as stack:
            for member in self._started:
                stack.callback(member.close)
                member.begin_close()


def wait_until_shared(
    members: Sequence[AnyMember], topic: str, partitions: int, *, is_even: bool = True
) -> None:
    """Until these members hold all partitions, each one in one place, and evenly."""
    everything = sorted((topic, index) for index in range(partitions))
    least, spare = divmod(partitions, len(members))

    def is_shared() -> bool:
        held = [member.assigned for member in members]
        counts = {len(places) for places in held}
        return sorted(place for places in held for place in places) == everything and (
            not is_even or counts <= {least, least + bool(spare)}
        )

    wait_until(is_shared, lambda: f"never shared: {[(m.assigned, m.errors) for m in members]}")


def wait_until_read(members: Iterable[AnyMember], values: Iterable[bytes]) -> None:
    readers, wanted = list(members), set(values)

    def missing_values() -> set[bytes]:
        return wanted.difference(*(member.values for member in readers))

    wait_until(
        lambda: not missing_values(),
        lambda: f"never read: {sorted(missing_values())[:5]} {[m.errors for m in readers]}",
    )


def all_values(members: Iterable[AnyMember]) -> Counter[bytes]:
    return Counter(value for member in members for value in member.values)


def wait_until_member_fails(member: AnyMember, *errors: str) -> None:
    wait_until(
        lambda: any(error in said for said in member.errors for error in errors),
        lambda: f"expected one of {errors}, found {member.errors}",
    )
