"""Where members begin to read: what was committed, what they seek, what there is at first."""

from collections import Counter
from collections.abc import Callable

import pytest
from clients_under_test import CLIENT_NAMES
from started_members import (
    DEADLINE_S,
    LIBRARIES,
    Members,
    all_values,
    wait_until_member_fails,
    wait_until_read,
)
from waiting import wait_until

pytestmark = [
    # kafka-python and aiokafka leave sockets to the garbage collector when a group moves on.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


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
    topic, began_ms = make_topic("seek", retention_ms="-1"), 1_700_000_000_000
    place = (topic, 0)
    values = write(topic, 10, timestamp=began_ms)
    member = members.library(name, group, [topic])
    wait_until_read([member], values)

    def reads_again(expected: list[bytes]) -> None:
        wait_until(lambda: member.values == expected, lambda: f"{member.values} not {expected}")

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
