"""Groups of KIP-848 (`group.protocol=consumer`) as users of librdkafka and of Java see them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from started_members import (
    Members,
    all_values,
    wait_until_member_fails,
    wait_until_read,
    wait_until_shared,
)
from waiting import wait_until

LIBRDKAFKA, JAVA = "confluent-kafka", "Java console"
NEW = {"protocol": "consumer", "assignor": "uniform"}
Topics = Callable[..., str]
Write = Callable[..., list[bytes]]


def test_members_share_the_partitions_and_one_that_leaves_gives_them_back(
    members: Members, group: str, make_topic: Topics, write: Write
) -> None:
    topic = make_topic("new-shared", partitions=4)
    both = [members.library(LIBRDKAFKA, group, [topic], **NEW) for _ in range(2)]
    wait_until_shared(both, topic, 4)
    values = write(topic, 40, 4)
    wait_until_read(both, values)
    assert all_values(both) == Counter(values)
    assert [len(member.found) for member in both] == [20, 20]
    both[1].commit(dict.fromkeys(both[1].assigned, 10))
    both[1].close()
    wait_until_shared(both[:1], topic, 4)
    values = write(topic, 40, 4)
    wait_until_read(both[:1], values)
    assert not both[0].errors + both[1].errors
    # What the other one committed was not read again.
    assert len(both[0].found) == 60


def test_commits_go_on_while_others_join_and_leave(
    members: Members, group: str, make_topic: Topics, write: Write
) -> None:
    """KIP-1251: an epoch that is behind is good enough for what the member had at it."""
    topic = make_topic("new-commits", partitions=4)
    steady = members.library(LIBRDKAFKA, group, [topic], **NEW)
    wait_until_shared([steady], topic, 4)
    wait_until_read([steady], write(topic, 8, 4))
    for _ in range(3):
        guest = members.library(LIBRDKAFKA, group, [topic], **NEW)
        for _ in range(10):
            steady.commit({(topic, 0): 1} if (topic, 0) in steady.assigned else {})
        wait_until_shared([steady, guest], topic, 4)
        guest.close()
        wait_until_shared([steady], topic, 4)
    assert not steady.errors


def test_a_killed_member_is_missed_after_its_session(
    members: Members, group: str, make_topic: Topics, write: Write
) -> None:
    topic = make_topic("new-killed", partitions=2)
    victim = members.killable(LIBRDKAFKA, group, [topic], **NEW)
    wait_until_shared([victim], topic, 2)
    survivor = members.library(LIBRDKAFKA, group, [topic], **NEW)
    wait_until_shared([victim, survivor], topic, 2)
    victim.kill()
    wait_until_shared([survivor], topic, 2)
    wait_until_read([survivor], write(topic, 10, 2))


def test_a_static_member_comes_back_once_its_predecessor_has_gone(
    members: Members, group: str, make_topic: Topics
) -> None:
    topic = make_topic("new-static", partitions=2)

    def is_refused_before() -> bool:
        """On a busy machine the session may be over before the next one comes: once more then."""
        killed = members.killable(LIBRDKAFKA, group, [topic], instance="one", **NEW)
        wait_until_shared([killed], topic, 2)
        killed.kill()
        early = members.library(LIBRDKAFKA, group, [topic], instance="one", **NEW)
        wait_until(lambda: early.errors or early.assigned, "nothing came of it")
        is_refused = not early.assigned
        if is_refused:
            wait_until_member_fails(early, "UNRELEASED_INSTANCE_ID", "_FATAL")
        early.close()
        return is_refused

    wait_until(is_refused_before, "whoever comes early is never refused")

    def is_back() -> bool:
        again = members.library(LIBRDKAFKA, group, [topic], instance="one", **NEW)
        wait_until(lambda: again.errors or again.assigned, "nothing came of it")
        if again.errors:
            again.close()
        return not again.errors

    wait_until(is_back, "a killed static member never came back")


def test_a_pattern_finds_topics_of_now_and_later(
    members: Members, group: str, make_topic: Topics, write: Write
) -> None:
    first = make_topic(f"new-pattern-{group}")
    reader = members.library(LIBRDKAFKA, group, [], pattern=f"new-pattern-{group}.*", **NEW)
    values = write(first, 5)
    wait_until_read([reader], values)
    second = make_topic(f"new-pattern-{group}")
    wait_until_read([reader], write(second, 5))
    assert not reader.errors


@pytest.mark.java
def test_java_shares_a_group_with_librdkafka(
    members: Members,
    group: str,
    make_topic: Topics,
    write: Write,
    member_count: Callable[[str], int],
) -> None:
    topic = make_topic("new-java", partitions=4)
    java = members.any_client(JAVA, group, [topic], protocol="consumer")
    other = members.library(LIBRDKAFKA, group, [topic], **NEW)
    wait_until(lambda: member_count(group) == 2, lambda: str(java.said))  # type: ignore[union-attr]
    wait_until(lambda: len(other.assigned) == 2, lambda: str(other.events))
    values = write(topic, 40, 4)
    wait_until_read([java, other], values)
    assert all_values([java, other]) == Counter(values)
    java.close()
    wait_until_shared([other], topic, 4)
    assert not java.errors + other.errors


@pytest.mark.parametrize("name", [LIBRDKAFKA, "kafka-python", "aiokafka"])
def test_a_group_changes_its_protocol_while_it_reads(
    name: str, members: Members, group: str, make_topic: Topics, write: Write
) -> None:
    topic = make_topic("new-upgrade", partitions=4)
    old: Any = members.library(name, group, [topic], auto_commit_ms=200)
    wait_until_shared([old], topic, 4)
    values = write(topic, 20, 4)
    wait_until_read([old], values)
    new = members.library(LIBRDKAFKA, group, [topic], auto_commit_ms=200, **NEW)
    wait_until_shared([old, new], topic, 4)
    values += write(topic, 20, 4)
    wait_until_read([old, new], values)
    new.close()
    wait_until_shared([old], topic, 4)
    values += write(topic, 20, 4)
    wait_until_read([old, new], values)
    assert not old.errors + new.errors


def test_who_is_left_commits_what_it_has_read_before_the_group_is_classic_again(
    members: Members, group: str, make_topic: Topics, write: Write
) -> None:
    """Nothing is read twice, though the automatic commit is hours away: it is done on the way."""
    topic = make_topic("new-downgrade", partitions=4)
    old = members.library(LIBRDKAFKA, group, [topic], auto_commit_ms=3_600_000)
    wait_until_shared([old], topic, 4)
    new = members.library(LIBRDKAFKA, group, [topic], auto_commit_ms=3_600_000, **NEW)
    wait_until_shared([old, new], topic, 4)
    values = write(topic, 40, 4)
    wait_until_read([old, new], values)
    new.close()
    wait_until_shared([old], topic, 4)
    values += write(topic, 20, 4)
    wait_until_read([old, new], values)
    assert all_values([old, new]) == Counter(values)
    assert "lost" not in {event.kind for event in old.events}
    assert not old.errors + new.errors
