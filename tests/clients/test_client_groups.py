"""Consumer groups as each client's users see them: sharing, rebalances, positions, faults."""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from group_members import MEMBERS, GroupMember, Membership
from member_processes import JavaMember, KcatMember, LibraryProcess, MemberProcess

from conftest import CLIENT_NAMES

pytestmark = [
    # kafka-python and aiokafka leave sockets to the garbage collector when a group moves on.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

DEADLINE_S = 40
LIBRARIES = tuple(MEMBERS)
AnyMember = GroupMember | MemberProcess


class Members:
    """Starts members of any client, and ends those that are left."""

    def __init__(self, bootstrap: str, request: pytest.FixtureRequest) -> None:
        self._bootstrap, self._request = bootstrap, request
        self._started: list[AnyMember] = []

    def library(self, name: str, group: str, topics: Sequence[str], **options: Any) -> GroupMember:
        """A member whose client can be asked."""
        membership = Membership(group, tuple(topics), **options)
        member = MEMBERS[name](self._bootstrap, membership)
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


@pytest.fixture
def members(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Members]:
    started = Members(bootstrap, request)
    yield started
    started.close()


@pytest.fixture
def group() -> str:
    return f"group-{time.monotonic_ns()}"


@pytest.fixture(scope="session")
def write(bootstrap: str) -> Callable[..., list[bytes]]:
    """Writes this many new values, spread evenly over the partitions of a topic."""
    from confluent_kafka import Producer

    numbers = itertools.count()

    def produce(topic: str, count: int, partitions: int = 1, *, timestamp: int = 0) -> list[bytes]:
        values = [b"value-%d" % next(numbers) for _ in range(count)]
        errors: list[Any] = []
        # A new one knows the partitions that there are now.
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 2})
        for index, value in enumerate(values):
            producer.produce(
                topic,
                value,
                partition=index % partitions,
                timestamp=timestamp and timestamp + index,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(DEADLINE_S) == 0, "not acknowledged in time"
        assert not errors
        return values

    return produce


@pytest.fixture(scope="session")
def member_count(bootstrap: str) -> Callable[[str], int]:
    """Members of a stable group, as an administrator is told; -1 while it is not stable."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def count(group: str) -> int:
        future = admin.describe_consumer_groups([group], request_timeout=10)[group]
        description = future.result(DEADLINE_S)
        return len(description.members) if description.state.name == "STABLE" else -1

    return count


def wait_for(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


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

    wait_for(is_shared, lambda: f"never shared: {[(m.assigned, m.errors) for m in members]}")


def wait_until_read(members: Iterable[AnyMember], values: Iterable[bytes]) -> None:
    readers, wanted = list(members), set(values)

    def missing_values() -> set[bytes]:
        return wanted.difference(*(member.values for member in readers))

    wait_for(
        lambda: not missing_values(),
        lambda: f"never read: {sorted(missing_values())[:5]} {[m.errors for m in readers]}",
    )


def all_values(members: Iterable[AnyMember]) -> Counter[bytes]:
    return Counter(value for member in members for value in member.values)


def wait_until_member_fails(member: AnyMember, *errors: str) -> None:
    wait_for(
        lambda: any(error in said for said in member.errors for error in errors),
        lambda: f"expected one of {errors}, found {member.errors}",
    )


# Sharing and broadcast


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_members_of_a_group_share_the_partitions_and_read_each_record_once(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
    member_count: Callable[[str], int],
) -> None:
    topic = make_topic("shared", partitions=4)
    both = [members.any_client(name, group, [topic]) for _ in range(2)]
    if name == "Java console":
        wait_for(lambda: member_count(group) == 2, lambda: f"{both[0].said} {both[1].said}")
    else:
        wait_until_shared(both, topic, 4)
    values = write(topic, 40, 4)
    wait_until_read(both, values)
    assert all_values(both) == Counter(values)
    assert [len(member.found) for member in both] == [20, 20]
    assert not both[0].errors + both[1].errors


def test_each_group_reads_everything_whatever_its_client(
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("broadcast", partitions=2)
    values = write(topic, 10, 2)
    readers = [
        members.any_client(name, f"{group}-{index}", [topic])
        for index, name in enumerate(CLIENT_NAMES)
    ]
    for reader in readers:
        wait_until_read([reader], values)
    values += write(topic, 10, 2)
    for reader in readers:
        wait_until_read([reader], values)
        assert all_values([reader]) == Counter(values)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_member_beyond_the_partitions_is_idle_until_another_leaves(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
    member_count: Callable[[str], int],
) -> None:
    topic = make_topic("idle")
    options = {"session_ms": 20_000, "auto_commit_ms": 1_000}
    both = [members.library(name, group, [topic], **options) for _ in range(2)]
    wait_until_shared(both, topic, 1)
    wait_for(lambda: member_count(group) == 2, lambda: "the second never joined")
    busy, idle = sorted(both, key=lambda member: len(member.assigned), reverse=True)
    first = write(topic, 5)
    wait_until_read([busy], first)
    assert not idle.found
    left_s = time.monotonic()
    busy.close()
    wait_until_shared([idle], topic, 1)
    assert time.monotonic() - left_s < 10, "close() left nothing, the session ran out"
    second = write(topic, 5)
    wait_until_read([idle], second)
    assert all_values(both) == Counter(first + second)


def test_members_of_three_libraries_share_one_group(
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("mixed", partitions=7)
    mixed: list[AnyMember] = [members.library(name, group, [topic]) for name in LIBRARIES]
    wait_until_shared(mixed, topic, 7)
    values = write(topic, 70, 7)
    wait_until_read(mixed, values)
    assert all_values(mixed) == Counter(values)
    # Whoever leads, each of the libraries' leaders understands the others' subscriptions.
    for leaver in list(mixed):
        place = sorted(leaver.assigned)[0]
        assert isinstance(leaver, GroupMember)
        leaver.commit(dict.fromkeys(leaver.assigned, 10))
        assert leaver.committed(place) is not None
        leaver.close()
        mixed.remove(leaver)
        mixed.append(members.library(leaver.name, group, [topic]))
        wait_until_shared(mixed, topic, 7)
    more = write(topic, 70, 7)
    wait_until_read(mixed, more)
    assert all_values(mixed)[more[0]] == 1


# Assignors


ASSIGNORS = [(name, assignor) for name in LIBRARIES for assignor in MEMBERS[name].assignors]


@pytest.mark.parametrize(("name", "assignor"), ASSIGNORS)
def test_every_assignor_shares_evenly_while_members_come_and_go(
    name: str,
    assignor: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic(assignor, partitions=6)
    three = [members.library(name, group, [topic], assignor=assignor) for _ in range(2)]
    wait_until_shared(three, topic, 6)
    before = {member: member.assigned for member in three}
    told = {member: len(member.events) for member in three}
    three.append(members.library(name, group, [topic], assignor=assignor))
    wait_until_shared(three, topic, 6)
    values = write(topic, 60, 6)
    wait_until_read(three, values)
    assert all_values(three) == Counter(values)
    assert not [error for member in three for error in member.errors]
    if assignor == "cooperative-sticky":
        for member, places in before.items():
            kept = places & member.assigned
            assert len(kept) == 2
            taken = [event for event in member.events[told[member] :] if event.kind == "revoked"]
            assert not kept.intersection(*(event.places for event in taken))
            assert {place for event in taken for place in event.places} == places - kept


@pytest.mark.java
@pytest.mark.parametrize("assignor", ["roundrobin", "sticky", "cooperative-sticky"])
def test_every_assignor_of_the_java_client(
    assignor: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
    member_count: Callable[[str], int],
) -> None:
    topic = make_topic("java-assignors", partitions=4)
    both = [members.any_client("Java console", group, [topic], assignor=assignor) for _ in range(2)]
    wait_for(lambda: member_count(group) == 2, lambda: f"{both[0].errors} {both[1].errors}")
    values = write(topic, 40, 4)
    wait_until_read(both, values)
    assert all_values(both) == Counter(values)
    assert {len({record.place for record in member.found}) for member in both} == {2}


def test_a_cooperative_rebalance_does_not_stop_partitions_that_stay(
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    """What they keep is read on, record by record, while a third member comes."""
    topic = make_topic("incremental", partitions=4)
    options = {"assignor": "cooperative-sticky"}
    both = [members.library("confluent-kafka", group, [topic], **options) for _ in range(2)]
    wait_until_shared(both, topic, 4)
    arriving = members.library("confluent-kafka", group, [topic], **options)
    values = []
    while not arriving.assigned:
        values += write(topic, 4, 4)
    wait_until_shared([*both, arriving], topic, 4)
    wait_until_read([*both, arriving], values)
    for member in both:
        revoked = {
            place for each in member.events if each.kind == "revoked" for place in each.places
        }
        assert not member.assigned & revoked
        for place in member.assigned:
            offsets = [record.offset for record in member.found if record.place == place]
            assert offsets == list(range(len(values) // 4))


# Positions


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_member_resumes_at_the_committed_offset(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("resume")
    place = (topic, 0)
    values = write(topic, 10)
    member = members.library(name, group, [topic])
    wait_until_read([member], values)
    assert member.committed(place) is None
    member.commit({place: 4}, "why four")
    assert member.committed(place) == (4, "" if name == "aiokafka" else "why four")
    assert member.commit_later({place: 6}).result(DEADLINE_S) == ""
    assert member.committed(place) == (6, "")
    member.close()
    assert not member.errors
    again = members.library(name, group, [topic], reset="none")
    wait_until_read([again], values[6:])
    assert again.values == values[6:]


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_automatic_commits_are_where_the_next_member_begins(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("automatic", partitions=2)
    first = write(topic, 10, 2)
    member = members.any_client(name, group, [topic], auto_commit_ms=200)
    wait_until_read([member], first)
    member.close()
    second = write(topic, 10, 2)
    again = members.any_client(name, group, [topic], auto_commit_ms=200)
    wait_until_read([again], second)
    assert all_values([again]) == Counter(second)


@pytest.mark.parametrize("name", LIBRARIES)
def test_seeking_to_an_offset_the_beginning_and_a_time(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic, began_ms = make_topic("seek"), 1_700_000_000_000
    place = (topic, 0)
    values = write(topic, 10, timestamp=began_ms)
    member = members.library(name, group, [topic])
    wait_until_read([member], values)

    def reads_again(expected: list[bytes]) -> None:
        wait_for(lambda: member.values == expected, lambda: f"{member.values} not {expected}")

    member.seek(place, 7)
    reads_again(values + values[7:])
    member.seek_to_beginning(place)
    reads_again(values + values[7:] + values)
    at = member.offset_at(place, began_ms + 5)
    assert at == 5
    member.seek(place, at)
    reads_again(values + values[7:] + values + values[5:])


@pytest.mark.parametrize("name", LIBRARIES)
def test_where_a_group_without_offsets_begins(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("reset")
    old = write(topic, 5)
    readers = {
        reset: members.library(name, f"{group}-{reset}", [topic], reset=reset)
        for reset in ("earliest", "latest", "none")
    }
    wait_until_member_fails(
        readers["none"], "_AUTO_OFFSET_RESET", "NoOffsetForPartition", "NoOffsetForPartitionError"
    )
    wait_until_read([readers["earliest"]], old)
    new: list[bytes] = []
    # `latest` is where the log ended when the client asked: write until it has begun.
    while not readers["latest"].found:
        new += write(topic, 1)
        wait_until_read([readers["earliest"]], new)
    wait_until_read([readers["latest"]], new[-1:])
    assert readers["earliest"].values == old + new
    assert readers["latest"].values == new[-len(readers["latest"].found) :]
    assert not readers["none"].found


# Members that come back, stall and die


@pytest.mark.parametrize("name", [*LIBRARIES, "kcat"])
def test_a_static_member_that_restarts_gets_its_partitions_back_and_disturbs_nobody(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("static", partitions=4)
    options = {"session_ms": 20_000, "auto_commit_ms": 500}
    first, second = (
        members.any_client(name, group, [topic], instance=instance, **options)
        for instance in ("first", "second")
    )
    wait_until_shared([first, second], topic, 4)
    places, told = first.assigned, len(second.events)
    values = write(topic, 8, 4)
    wait_until_read([first, second], values)
    first.close()
    missed = write(topic, 8, 4)
    back = members.any_client(name, group, [topic], instance="first", **options)
    wait_for(lambda: back.assigned == places, lambda: f"{back.assigned} {back.errors}")
    wait_until_read([back, second], missed)
    after = second.events[told:]
    if name == "kafka-python":
        # Its leader joins once more when its view of the topic comes after its assignment.
        after = [event for event in after if event.places not in (second.assigned, frozenset())]
    assert not after, "the other member was rebalanced"
    assert not second.errors
    assert set(back.values) <= set(missed)


FENCED = {
    "confluent-kafka": ("_FATAL", "FENCED_INSTANCE_ID"),
    "kafka-python": ("FencedInstanceIdError",),
}


@pytest.mark.parametrize("name", FENCED)
def test_a_second_instance_fences_the_first(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    """aiokafka names its instance only while joining, so it can be told apart, not fenced."""
    topic = make_topic("fenced")
    first = members.library(name, group, [topic], instance="only")
    wait_until_shared([first], topic, 1)
    second = members.library(name, group, [topic], instance="only")
    wait_until_shared([second], topic, 1)
    with pytest.raises(Exception) as refusal:
        first.commit({(topic, 0): 0})
    assert first.name_error(refusal.value) in FENCED[name]
    wait_until_read([second], write(topic, 5))
    assert not second.errors


LEFT_BEHIND = {
    # librdkafka leaves the group by itself, and knows that it has.
    "confluent-kafka": ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "_MAX_POLL_EXCEEDED"),
    "kafka-python": ("CommitFailedError", "UnknownMemberIdError", "IllegalGenerationError"),
    # It joins again by itself when it hears of the rebalance, and may know what it lost by then.
    "aiokafka": (
        "CommitFailedError",
        "UnknownMemberIdError",
        "IllegalGenerationError",
        "IllegalStateError",
    ),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_member_that_stalls_loses_its_partitions_and_may_not_commit(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("stalls")
    options = {"session_ms": 1_500, "max_poll_ms": 1_500}
    stalled = members.library(name, group, [topic], **options)
    values = write(topic, 5)
    wait_until_read([stalled], values)
    stalled.stall()
    heir = members.library(name, group, [topic], **options)
    wait_for(lambda: bool(heir.assigned), lambda: f"not taken over: {heir.errors}")
    wait_until_read([heir], values)
    with pytest.raises(Exception) as refusal:
        stalled.commit({(topic, 0): 3})
    assert stalled.name_error(refusal.value) in LEFT_BEHIND[name]
    heir.commit({(topic, 0): 5})
    assert heir.committed((topic, 0)) == (5, "")
    stalled.wake()
    heir.close()
    more = write(topic, 5)
    wait_until_read([stalled], more)


@pytest.mark.parametrize("name", [*LIBRARIES, "kcat"])
def test_the_partitions_of_a_killed_member_are_taken_over_where_it_committed(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("killed", partitions=2)
    options = {"session_ms": 1_500, "auto_commit_ms": 100}
    survivor = members.any_client(name, group, [topic], **options)
    victim = members.killable(name, group, [topic], **options)
    wait_until_shared([survivor, victim], topic, 2)
    values = write(topic, 10, 2)
    wait_until_read([survivor, victim], values)
    killed_s = time.monotonic()
    victim.kill()
    values += write(topic, 10, 2)
    wait_until_shared([survivor], topic, 2)
    assert time.monotonic() - killed_s > 0.5, "the session did not last"
    wait_until_read([survivor, victim], values)
    survivor_repeats = [value for value, count in Counter(survivor.values).items() if count > 1]
    assert not survivor_repeats


# Topics that change


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_subscription_by_pattern_finds_topics_that_come_later(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    prefix = f"pattern-{time.monotonic_ns()}"
    values = write(make_topic(f"{prefix}-first"), 5)
    make_topic("other")
    options = {"metadata_age_ms": 500, "auto_commit_ms": 100}
    member = members.any_client(name, group, [], pattern=f"{prefix}-.*", **options)
    wait_until_read([member], values)
    later = write(make_topic(f"{prefix}-second"), 5)
    wait_until_read([member], later)
    assert all_values([member]) == Counter(values + later)


@pytest.mark.parametrize("name", LIBRARIES)
def test_partitions_that_a_topic_gains_are_read_from_their_first_record(
    name: str,
    bootstrap: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic = make_topic("grows", partitions=2)
    both = [members.library(name, group, [topic], metadata_age_ms=500) for _ in range(2)]
    wait_until_shared(both, topic, 2)
    values = write(topic, 10, 2)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(DEADLINE_S)
    values += write(topic, 20, 4)
    wait_until_shared(both, topic, 4)
    wait_until_read(both, values)
