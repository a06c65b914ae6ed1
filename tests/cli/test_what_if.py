"""`fairlead whatif` on a real cluster, and what happens when the broker is really killed."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from local_cluster import PATIENT, Cli
from waiting import wait_until

from fairlead_cli.client.cluster_state import read_cluster
from fairlead_controller.decisions.what_if import is_below
from fairlead_model.cluster import ClusterImage

# On a busy machine; less than two times the time-out of a request to a broker.
FOR_BOTH_S = 25.0
MINIMUM = ("--config", "min.insync.replicas=2")


@contextmanager
def nobody_restarts(cli: Cli) -> Iterator[None]:
    """Hold the supervisor, which starts again what dies."""
    supervisor = cli.status()["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)


def kill(cli: Cli, broker_ids: list[int]) -> None:
    pids = {broker["id"]: broker["pid"] for broker in cli.status()["brokers"]}
    for each in broker_ids:
        os.kill(pids[each], signal.SIGKILL)


def image_of(cli: Cli) -> ClusterImage:
    """The cluster as broker 0 knows it, which these tests leave alone."""
    return read_cluster(f"127.0.0.1:{cli.port}").state.image


def is_whole(image: ClusterImage, brokers: int) -> bool:
    return len(image.brokers) == brokers and not any(
        partition.is_under_replicated for topic in image.topics() for partition in topic.partitions
    )


def what_happened(before: ClusterImage, after: ClusterImage, dead: set[int]) -> dict[str, Any]:
    """What a forecast should have said, found by looking at the cluster afterwards."""
    found: dict[str, Any] = {
        "leadersMove": [],
        "withoutLeader": [],
        "belowMinimum": [],
        "lastCopies": [],
    }
    for old in sorted(before.topics(), key=lambda topic: topic.name):
        new = after.topic(old.name)
        assert new is not None
        for index, (was, now) in enumerate(zip(old.partitions, new.partitions, strict=True)):
            place = {"topic": old.name, "partition": index}
            if was.leader != now.leader and now.has_leader:
                found["leadersMove"].append(place | {"from": was.leader, "to": now.leader})
            if was.has_leader and not now.has_leader:
                found["withoutLeader"].append(place)
            if now.has_leader and is_below(now) and not is_below(was):
                sizes = {"inSync": len(now.isr), "minimum": now.effective_min_isr}
                found["belowMinimum"].append(place | sizes)
            if {*now.isr, *now.elr} <= dead:
                found["lastCopies"].append(place)
    return found


def make_topics(cli: Cli) -> None:
    cli.ok("topic", "create", "one", "--partitions", "6", "--replication-factor", "1")
    cli.ok("topic", "create", "two", "--partitions", "6", "--replication-factor", "2", *MINIMUM)
    cli.ok("topic", "create", "three", "--partitions", "6", "--replication-factor", "3", *MINIMUM)


def assigned(cli: Cli) -> int:
    """How many partitions the group's member has."""
    described = cli("group", "describe", "readers", "--members", "-o", "json")
    if described.code:
        return 0
    return sum(len(each["partitions"]) for each in described.json[0]["members"])


def are_gone(cli: Cli, brokers: list[int]) -> bool:
    return image_of(cli).brokers.keys().isdisjoint(brokers)


def test_a_killed_broker_does_what_was_foretold(cli: Cli) -> None:
    assert cli.up("--brokers", "4", *PATIENT).code == 0
    make_topics(cli)
    cli.spawn("consume", "three", "--group", "readers")
    wait_until(lambda: assigned(cli) == 6)
    for dead in ([1], [2, 3]):
        with nobody_restarts(cli):
            before = image_of(cli)
            target = f"broker/{','.join(map(str, dead))}"
            foretold = cli("whatif", target, "-o", "json")
            assert (foretold.code, foretold.json["safe"]) == (1, False)
            assert cli("whatif", target).out.startswith("NOT SAFE")
            kill(cli, dead)
            wait_until(partial(are_gone, cli, dead))
            happened = what_happened(before, image_of(cli), set(dead))
        told = {name: foretold.json[name] for name in happened}
        assert told == happened
        assert told["withoutLeader"] and told["belowMinimum"] and told["lastCopies"]
        groups = {each["group"]: each for each in foretold.json["groups"]}
        reads = [each for each in told["leadersMove"] if each["topic"] == "three"]
        assert groups["readers"]["partitions"] == len(reads) > 0
        # What dies is started again, and in sync again, before the next ones die.
        wait_until(lambda: is_whole(image_of(cli), 4))


def test_it_says_whether_it_is_safe_now(cli: Cli) -> None:
    assert cli.up(*PATIENT).code == 0
    cli.ok("topic", "create", "three", "--partitions", "6", "--replication-factor", "3", *MINIMUM)
    safe = cli("whatif", "broker/2", "-o", "json")
    assert (safe.code, safe.json["safe"]) == (0, True)
    assert len([each for each in safe.json["leadersMove"] if each["topic"] == "three"]) == 2
    assert safe.json["recovery"]["source"].startswith("docs/failover.md")
    assert cli.ok("whatif", "broker/2").out.startswith("SAFE: broker 2 can be taken away now.")
    with nobody_restarts(cli):
        kill(cli, [1])
        wait_until(lambda: 1 not in image_of(cli).brokers)
        refused = cli("whatif", "broker/2", "-o", "json")
        assert refused.code == 1
        assert [each["topic"] for each in refused.json["belowMinimum"]] == ["three"] * 6
        gone = cli("whatif", "broker/1", "-o", "json")
        assert (gone.code, gone.json["leadersMove"]) == (0, []), "it is gone already"


def test_a_broker_that_is_frozen_is_not_waited_for(cli: Cli) -> None:
    """Each broker is asked what it is ordered to do; once that took 15 seconds of the answer."""
    assert cli.up().code == 0
    cli.ok("broker", "pause", "0")
    try:
        began = time.monotonic()
        told = cli("whatif", "broker/2", "-o", "json")
        plan = cli.ok("rebalance", "-o", "json")
        assert time.monotonic() - began < FOR_BOTH_S, (told, plan)
    finally:
        cli.ok("broker", "resume", "0")
    assert told.json["safe"] in (True, False)
    assert plan.json["moves"] == []


def test_what_means_no_broker_is_said(cli: Cli) -> None:
    assert cli.up("--brokers", "1").code == 0
    refusals = {
        "broker/7": "there is no broker 7",
        "broker/x": "'x' is no list of broker ids",
        "rack/a": "no broker is in rack 'a'",
        "node/a": "'node' is no kind of target",
        "1": "'1' names no target",
    }
    for target, message in refusals.items():
        refused = cli("whatif", target)
        assert (refused.code, refused.out) == (2, ""), refused
        assert message in refused.err
