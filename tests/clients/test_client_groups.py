"""Consumer groups as each client's users see them: who reads what, by which assignor."""

import time
from collections import Counter
from collections.abc import Callable

import pytest
from clients_under_test import CLIENT_NAMES
from library_members import MEMBERS
from started_members import (
    DEADLINE_S,
    LIBRARIES,
    AskedMember,
    Members,
    all_values,
    wait_until_read,
    wait_until_shared,
)
from waiting import wait_until

pytestmark = [
    # kafka-python and aiokafka leave sockets to the garbage collector when a group moves on.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


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
        wait_until(lambda: member_count(group) == 2, lambda: str([vars(each) for each in both]))
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
    options = {"session_ms": 50_000, "max_poll_ms": 60_000, "auto_commit_ms": 1_000}
    both = [members.library(name, group, [topic], **options) for _ in range(2)]
    # Both joined before anybody is asked who has the partition: a join lets go of all of them.
    wait_until(lambda: member_count(group) == 2, lambda: "the second never joined")
    wait_until_shared(both, topic, 1)
    busy, idle = sorted(both, key=lambda member: len(member.assigned), reverse=True)
    first = write(topic, 5)
    wait_until_read([busy], first)
    assert not idle.found
    left_s = time.monotonic()
    busy.close()
    wait_until_shared([idle], topic, 1)
    assert time.monotonic() - left_s < 45, "close() left nothing, the session ran out"
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
    mixed: list[AskedMember] = [members.library(name, group, [topic]) for name in LIBRARIES]
    wait_until_shared(mixed, topic, 7)
    values = write(topic, 70, 7)
    wait_until_read(mixed, values)
    assert all_values(mixed) == Counter(values)
    # Whoever leads, each of the libraries' leaders understands the others' subscriptions.
    for leaver in list(mixed):
        place = sorted(leaver.assigned)[0]
        leaver.commit(dict.fromkeys(leaver.assigned, 10))
        assert leaver.committed(place) is not None
        leaver.close()
        mixed.remove(leaver)
        mixed.append(members.library(leaver.name, group, [topic]))
        wait_until_shared(mixed, topic, 7)
    more = write(topic, 70, 7)
    wait_until_read(mixed, more)
    assert all_values(mixed)[more[0]] == 1


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
    wait_until(lambda: member_count(group) == 2, lambda: f"{both[0].errors} {both[1].errors}")
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
