"""A member of a group outlives the broker that coordinates it."""

import signal
from collections import Counter

from local_cluster import Cli
from running_command import RunningCommand
from waiting import wait_until

GROUP = "survivors"


def describe(cluster: Cli) -> dict[str, object]:
    (document,) = cluster.ok("group", "describe", GROUP, "-o", "json").json
    found: dict[str, object] = document
    return found


def write(cluster: Cli, topic: str, first: int) -> None:
    lines = "".join(f"record-{number}\n" for number in range(first, first + 30))
    cluster.ok("produce", topic, "--partitioner", "round-robin", stdin=lines)


def test_a_member_reads_on_when_its_coordinator_is_killed(cluster: Cli) -> None:
    topic = "outlived"
    cluster.ok("topic", "create", topic, "--partitions", "3")
    write(cluster, topic, 0)
    member = RunningCommand(cluster.spawn("consume", topic, "--group", GROUP))
    wait_until(lambda: len(member.records) == 30)
    before = describe(cluster)
    coordinator = before["coordinator"]
    assert isinstance(coordinator, dict)
    cluster.ok("broker", "kill", str(coordinator["id"]))
    write(cluster, topic, 30)
    wait_until(lambda: len(set(member.records)) == 60)
    # The new coordinator has the group as it was: nobody had to join again.
    assert not member.has("revoked")
    assert not member.has("lost")
    assert member.end(signal.SIGINT) == 130
    assert member.has("offsets committed, left")
    seen = describe(cluster)
    assert (seen["state"], seen["lag"], seen["members"]) == ("Empty", 0, [])
    assert set(Counter(member.records)) == {f"record-{number}" for number in range(60)}
    again = cluster.ok("consume", topic, "--group", GROUP, "--until-end")
    assert again.out == ""
