"""`group` and `consume --group`, on our brokers or (FAIRLEAD_CLIENTS_AGAINST=kafka) on Kafka's.

What Apache Kafka fails here is a fault of the test: both must give the same answers.
"""

import os
import pty
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from remote_cluster import Remote, running_remote
from running_command import RunningCommand
from waiting import wait_until

RECORDS = 90


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with running_remote(tmp_path_factory.mktemp("groups") / "data") as remote:
        yield remote


@pytest.fixture
def spawn(remote: Remote) -> Iterator[Callable[..., RunningCommand]]:
    """Starts commands; whatever still runs in the end is killed."""
    started: list[RunningCommand] = []

    def start(*arguments: str) -> RunningCommand:
        started.append(RunningCommand(remote.spawn(*arguments)))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.end()
    remote.spawned.clear()


@pytest.fixture
def topic(remote: Remote, request: pytest.FixtureRequest) -> str:
    """Three partitions with thirty records each."""
    name = f"t-{time.monotonic_ns()}"
    remote.ok("topic", "create", name, "--partitions", "3", "--replication-factor", "1")
    lines = "".join(f"record-{number}\n" for number in range(RECORDS))
    remote.ok("produce", name, "--partitioner", "round-robin", stdin=lines)
    return name


@pytest.fixture
def group() -> str:
    return f"g-{time.monotonic_ns()}"


def describe(remote: Remote, group: str) -> dict[str, Any]:
    (document,) = remote.ok("group", "describe", group, "-o", "json").json
    found: dict[str, Any] = document
    return found


def committed(remote: Remote, group: str) -> dict[tuple[str, int], int]:
    offsets = describe(remote, group)["offsets"]
    return {(each["topic"], each["partition"]): each["committed"] for each in offsets}


def read_all(remote: Remote, topic: str, group: str) -> list[str]:
    return remote.ok("consume", topic, "-g", group, "--until-end").out.split()


def test_a_group_goes_on_where_it_was(remote: Remote, topic: str, group: str) -> None:
    first = remote.ok("consume", topic, "-g", group, "--count", "40")
    assert f"group {group}: assigned {topic}-0 from beginning" in first.err
    assert "40 records, offsets committed, left" in first.err
    seen = describe(remote, group)
    assert (seen["state"], seen["members"], seen["type"]) == ("Empty", [], "classic")
    second = read_all(remote, topic, group)
    assert sorted(first.out.split() + second) == sorted(f"record-{n}" for n in range(RECORDS))
    seen = describe(remote, group)
    assert seen["lag"] == 0
    assert [(each["committed"], each["logEnd"], each["lag"]) for each in seen["offsets"]] == [
        (30, 30, 0)
    ] * 3
    assert {each["leaderEpoch"] for each in seen["offsets"]} == {0}
    listed = remote.ok("group", "list", "--lag", "-o", "json").json
    told = {"group": group, "state": "Empty", "type": "classic", "protocol": "classic"}
    assert {**told, "members": 0, "lag": 0} in listed
    names = [
        each["group"] for each in remote.ok("group", "list", "--state", "stable", "-o", "json").json
    ]
    assert group not in names


def test_tables_say_what_json_says(remote: Remote, topic: str, group: str) -> None:
    remote.ok("consume", topic, "-g", group, "--until-end")
    remote.ok("produce", topic, "--partition", "1", stdin="record-more\n")
    table = remote.ok("group", "describe", group).out
    assert "state        Empty (classic)" in table
    assert "lag          1 record, 1 of 3 partitions behind" in table
    rows = [line.split() for line in table.splitlines() if line.startswith(f" {topic}")]
    assert rows[1] == [topic, "1", "30", "0", "31", "1"]
    assert "No members." in remote.ok("group", "describe", group, "--members").out
    assert topic not in remote.ok("group", "describe", group, "--state").out


def test_nothing_is_committed_with_commit_never(remote: Remote, topic: str, group: str) -> None:
    peeked = remote.ok("consume", topic, "-g", group, "--commit", "never", "--until-end")
    assert len(peeked.out.split()) == RECORDS
    assert describe(remote, group)["offsets"] == []
    assert "No committed offsets." in remote.ok("group", "describe", group).out


def test_from_end_counts_where_nothing_is_committed(remote: Remote, topic: str, group: str) -> None:
    skipped = remote.ok("consume", topic, "-g", group, "--from", "end", "--until-end")
    assert (skipped.out, "from end" in skipped.err) == ("", True)
    remote.ok("group", "reset", group, "--topic", topic, "--to-offset", "29", "--execute")
    again = remote.ok("consume", topic, "-g", group, "--from", "end", "--until-end")
    assert len(again.out.split()) == 3


def test_several_topics_share_a_group(remote: Remote, topic: str, group: str) -> None:
    other = f"{topic}-other"
    remote.ok("topic", "create", other, "--replication-factor", "1")
    remote.ok("produce", other, stdin="record-x\n")
    read = remote.ok("consume", topic, other, "-g", group, "--until-end", "--offsets").out
    assert f"{other}:0:0\trecord-x" in read
    assert set(committed(remote, group)) == {(topic, 0), (topic, 1), (topic, 2), (other, 0)}
    alone = remote.ok("consume", topic, other, "--until-end").out.split()
    assert len(alone) == RECORDS + 1


def test_members_share_take_over_and_are_named_in_refusals(
    remote: Remote, topic: str, group: str, spawn: Callable[..., RunningCommand]
) -> None:
    one = spawn("consume", topic, "-g", group)
    one.wait_for(f"assigned {topic}-0 from beginning")
    wait_until(lambda: len(one.records) == RECORDS)
    two = spawn("consume", topic, "-g", group, "--instance-id", "two")
    two.wait_for(f"assigned {topic}-")
    one.wait_for("revoked")
    wait_until(lambda: describe(remote, group)["state"] == "Stable")
    seen = describe(remote, group)
    assert seen["assignor"] == "cooperative-sticky"
    assert sorted(len(each["partitions"]) for each in seen["members"]) == [1, 2]
    assert {each["instanceId"] for each in seen["members"]} == {None, "two"}
    assert {each["clientId"] for each in seen["members"]} == {"fairlead-cli"}
    owners = {each["memberId"] for each in seen["offsets"]}
    assert owners == {each["memberId"] for each in seen["members"]}
    for arguments in (
        ["reset", group, "--topic", topic, "--to-earliest", "--execute"],
        ["delete", group],
    ):
        refused = remote("group", *arguments)
        assert refused.code == 1
        assert f"group '{group}' is Stable and has 2 members" in refused.err
        assert "instance two (client fairlead-cli, host 127.0.0.1, 1 partition)" in refused.err
    planned = remote.ok("group", "reset", group, "--topic", topic, "--to-earliest")
    assert "It would be refused now" in planned.err
    subscribed = remote("group", "delete", group, "--topic", topic)
    assert (subscribed.code, "GROUP_SUBSCRIBED_TO_TOPIC" in subscribed.err) == (1, True)
    assert one.end(signal.SIGINT) == 130
    assert one.has(f"group {group}: {RECORDS} records, offsets committed, left")
    wait_until(lambda: len(describe(remote, group)["members"]) == 1)
    wait_until(lambda: len(describe(remote, group)["members"][0]["partitions"]) == 3)
    assert set(committed(remote, group).values()) == {30}
    assert two.end(signal.SIGTERM) == -signal.SIGTERM
    # A static member keeps its place until its session times out.
    assert two.has("two stays a member until its session times out")
    assert [each["instanceId"] for each in describe(remote, group)["members"]] == ["two"]


@pytest.mark.usefixtures("counted_hangups")
def test_a_member_whose_terminal_closes_commits_and_leaves(
    remote: Remote, topic: str, group: str
) -> None:
    """A terminal sends SIGHUP, and takes nothing more of what is written."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        remote.command("consume", topic, "-g", group),
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
    )
    os.close(end)
    seen = b""
    while seen.count(b"record-") < RECORDS:
        seen += os.read(terminal, 65536)
    process.send_signal(signal.SIGHUP)
    os.close(terminal)
    assert process.wait(60) != 0
    assert describe(remote, group)["members"] == []
    assert set(committed(remote, group).values()) == {30}


def test_a_killed_member_repeats_but_skips_nothing(
    remote: Remote, topic: str, group: str, spawn: Callable[..., RunningCommand]
) -> None:
    first = spawn("consume", topic, "-g", group, "--instance-id", "same")
    first.wait_for("record-")
    first.end(signal.SIGKILL)
    # The same static member returns at once; a dynamic one would wait for the session to end.
    second = remote.ok("consume", topic, "-g", group, "--instance-id", "same", "--until-end")
    seen = Counter(first.records + second.out.split())
    assert set(seen) == {f"record-{number}" for number in range(RECORDS)}
    assert set(committed(remote, group).values()) == {30}


def test_a_second_process_with_an_instance_id_fences_the_first(
    remote: Remote, topic: str, group: str, spawn: Callable[..., RunningCommand]
) -> None:
    first = spawn("consume", topic, "-g", group, "--instance-id", "same")
    wait_until(lambda: len(first.records) == RECORDS)
    second = spawn("consume", topic, "-g", group, "--instance-id", "same")
    assert first.end() == 1
    assert first.has("Another process has joined under this --instance-id")
    second.wait_for("assigned")


def test_members_must_divide_partitions_in_the_same_way(
    remote: Remote, topic: str, group: str, spawn: Callable[..., RunningCommand]
) -> None:
    first = spawn("consume", topic, "-g", group, "--assignor", "range")
    first.wait_for("assigned")
    refused = remote("consume", topic, "-g", group, "--assignor", "roundrobin", "--until-end")
    assert refused.code == 1
    assert "INCONSISTENT_GROUP_PROTOCOL" in refused.err
    assert describe(remote, group)["assignor"] == "range"


def test_a_reset_is_planned_before_it_is_done(remote: Remote, topic: str, group: str) -> None:
    read_all(remote, topic, group)
    to_five = ("group", "reset", group, "--topic", f"{topic}:0,2", "--to-offset", "5")
    planned = remote.ok(*to_five)
    rows = [line.split() for line in planned.out.splitlines() if line.startswith(f" {topic}")]
    assert rows == [[topic, p, "30", "5", "-25", "0", "30", "25"] for p in ("0", "2")]
    assert "Nothing was changed. Add --execute to move 2 offsets" in planned.err
    assert set(committed(remote, group).values()) == {30}
    done = remote.ok(*to_five, "--execute")
    assert f"Moved 2 offsets of group {group} to offset 5." in done.err
    assert list(committed(remote, group).values()) == [5, 30, 5]
    document = remote.ok(
        *("group", "reset", group, "--all-topics", "--shift-by", "-10", "--execute"),
        *("-o", "json"),
    ).json
    assert document["executed"] is True
    assert [(each["old"], each["new"], each["note"]) for each in document["partitions"]] == [
        (5, 0, "-5 is below the log start"),
        (30, 20, None),
        (5, 0, "-5 is below the log start"),
    ]
    assert list(committed(remote, group).values()) == [0, 20, 0]
    assert len(read_all(remote, topic, group)) == 70


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 30),
        (("--to-current",), 30),
        (("--to-offset", "31"), 30),
        (("--to-datetime", "2001-01-01T00:00Z"), 0),
        (("--to-datetime", "2999-01-01T00:00Z"), 30),
        (("--by-duration", "1d"), 0),
        (("--by-duration", "PT0S"), 30),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_group_that_does_not_exist_is_given_offsets(
    remote: Remote, topic: str, group: str, target: tuple[str, ...], offset: int
) -> None:
    remote.ok("group", "reset", group, "--topic", topic, *target, "--execute")
    assert committed(remote, group) == {(topic, number): offset for number in range(3)}
    assert describe(remote, group)["type"] == "simple"


# kafka-python leaves sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_what_was_committed_beside_offsets_is_shown_as_it_is(
    remote: Remote, topic: str, group: str
) -> None:
    from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

    # Each fills its memory to the end: librdkafka's Python client would show what lies behind.
    written = {partition: "m" * length for partition, length in enumerate((24, 40, 56))}
    consumer = KafkaConsumer(bootstrap_servers=remote.bootstrap, group_id=group)
    places = {partition: TopicPartition(topic, partition) for partition in written}
    consumer.assign(list(places.values()))
    consumer.commit(
        {place: OffsetAndMetadata(3, written[number], -1) for number, place in places.items()}
    )
    consumer.close(autocommit=False)
    seen = {each["partition"]: each["metadata"] for each in describe(remote, group)["offsets"]}
    assert seen == written


def test_offsets_out_of_the_log_are_pointed_out(remote: Remote, topic: str, group: str) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": remote.bootstrap})
    offsets = [
        TopicPartition(topic, 0, 3, metadata="by hand"),
        TopicPartition(topic, 1, 33, metadata="m" * 57),
    ]
    request = ConsumerGroupTopicPartitions(group, offsets)
    admin.alter_consumer_group_offsets([request])[group].result(60)
    removed = admin.delete_records([TopicPartition(topic, 0, 10)])
    for future in removed.values():
        future.result(60)
    seen = {each["partition"]: each for each in describe(remote, group)["offsets"]}
    assert (seen[0]["problem"], seen[0]["lag"]) == ("below the log start 10: 7 gone", 27)
    assert seen[0]["metadata"] == "by hand"
    assert (seen[1]["problem"], seen[1]["lag"]) == ("3 beyond the log end", 0)
    table = remote.ok("group", "describe", group).out
    assert "problems     2 partitions, see below" in table
    assert "by hand" in table
    remote.ok("group", "reset", group, "--all-topics", "--to-current", "--execute")
    assert committed(remote, group) == {(topic, 0): 10, (topic, 1): 30}


def test_a_group_is_deleted_whole_or_by_topic(remote: Remote, topic: str, group: str) -> None:
    read_all(remote, topic, group)
    deleted = remote.ok("group", "delete", group, "--topic", f"{topic}:0")
    assert f"Deleted 1 offset of group {group}." in deleted.out
    assert set(committed(remote, group)) == {(topic, 1), (topic, 2)}
    again = remote("group", "delete", group, "--topic", f"{topic}:0")
    assert (again.code, "no committed offsets there" in again.err) == (1, True)
    # Any client may name a group: what is told to be pasted must not run anything else.
    odd = f"{group} $(touch here)"
    remote.ok("group", "reset", odd, "--topic", topic, "--to-earliest", "--execute")
    told = remote("group", "delete", odd, "--topic", "no-such-topic")
    assert f"fairlead group describe '{odd}' --bootstrap" in told.err
    assert f"Deleted group {group}." in remote.ok("group", "delete", group).out
    gone = remote("group", "describe", group)
    assert (gone.code, f"group '{group}' does not exist" in gone.err) == (1, True)
    assert remote("group", "delete", group).code == 1
    remote.ok("group", "delete", group, "--if-exists")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "no-such-group"], "fairlead group list"),
        (["delete", "no-such-group"], "group 'no-such-group' does not exist"),
        (["delete", "no-such-group", "--topic", "t"], "group 'no-such-group' does not exist"),
        (["reset", "new", "--all-topics", "--to-latest"], "has no committed offsets"),
        (["reset", "new", "--topic", "no-such-topic", "--to-latest"], "does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_refusal_says_what_to_do(remote: Remote, arguments: list[str], message: str) -> None:
    refused = remote("group", *arguments)
    assert refused.code == 1
    assert message in refused.err
    assert "Traceback" not in refused.err


def test_a_reset_of_partitions_that_are_not_there_is_refused_whole(
    remote: Remote, topic: str, group: str
) -> None:
    refused = remote("group", "reset", group, "--topic", f"{topic}:0,3", "--to-latest", "--execute")
    assert (refused.code, "has no partition 3" in refused.err) == (1, True)
    assert remote("group", "describe", group).code == 1


def test_names_are_completed_from_the_cluster(
    remote: Remote, topic: str, group: str, tmp_path: Path
) -> None:
    remote.ok("group", "reset", group, "--topic", topic, "--to-latest", "--execute")

    def complete(words: str) -> list[str]:
        environment = os.environ | {
            "_FAIRLEAD_COMPLETE": "bash_complete",
            "COMP_WORDS": f"fairlead {words}",
            "COMP_CWORD": str(len(words.split())),
            "FAIRLEAD_BOOTSTRAP": remote.bootstrap,
        }
        command = [sys.executable, "-m", "fairlead_cli.main"]
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert result.stderr == ""
        return [line.removeprefix("plain,") for line in result.stdout.split()]

    # On a busy machine the brokers may not answer in time: then nothing is offered.
    wait_until(lambda: complete(f"group describe {group[:-2]}") == [group])
    wait_until(lambda: complete(f"consume --group {group[:-2]}") == [group])
    wait_until(lambda: complete(f"group reset {group} --topic {topic}") == [topic])
    wait_until(lambda: complete(f"produce {topic}") == [topic])
    assert complete(f"consume {topic} --bootstrap 127.0.0.1:1 {topic}") == []
