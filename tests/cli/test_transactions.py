"""`txn`, and transactions of `produce`, on our brokers or (FAIRLEAD_CLIENTS_AGAINST=kafka) Kafka's.

What Apache Kafka fails here is a fault of the test: both must give the same answers.
"""

import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from marked_transactions import wait_until_marked
from remote_cluster import Remote, running_remote
from running_command import RunningCommand
from waiting import wait_until

READ = ("--until-end", "--isolation")


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with running_remote(tmp_path_factory.mktemp("transactions") / "data") as remote:
        yield remote


@pytest.fixture
def topic(remote: Remote) -> str:
    name = f"t-{time.monotonic_ns()}"
    remote.ok("topic", "create", name, "--partitions", "1", "--replication-factor", "1")
    return name


@pytest.fixture
def transactional_id() -> str:
    return f"id-{time.monotonic_ns()}"


@pytest.fixture
def begin(remote: Remote) -> Callable[[str, str], Producer]:
    """A producer with one record in an open transaction."""

    def begun(transactional_id: str, topic: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": remote.bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 600_000,
            }
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, b"open")
        producer.flush(30)
        return producer

    return begun


def listed(remote: Remote, *arguments: str) -> dict[str, dict[str, Any]]:
    documents = remote.ok("txn", "list", *arguments, "-o", "json").json
    return {each["transactionalId"]: each for each in documents}


def read(remote: Remote, topic: str, isolation: str) -> list[str]:
    wait_until_marked(remote.bootstrap)
    return remote.ok("consume", topic, *READ, isolation).out.split()


def test_what_is_produced_in_a_transaction_is_read_when_it_is_committed(
    remote: Remote, topic: str, transactional_id: str
) -> None:
    produced = remote.ok(
        *("produce", topic, "--transactional-id", transactional_id), stdin="a\nb\nc\n"
    )
    assert "3 records" in produced.err
    assert read(remote, topic, "read_committed") == ["a", "b", "c"]
    (found,) = remote.ok("txn", "describe", transactional_id, "-o", "json").json
    assert found["state"] == "CompleteCommit"
    assert (found["openForMs"], found["partitions"]) == (None, {})
    assert transactional_id in remote.ok("txn", "list").out


def test_a_transaction_is_committed_every_so_many_records(
    remote: Remote, topic: str, transactional_id: str
) -> None:
    lines = "".join(f"{number}\n" for number in range(25))
    remote.ok(
        *("produce", topic, "--transactional-id", transactional_id, "--commit-every", "10"),
        stdin=lines,
    )
    wait_until_marked(remote.bootstrap)
    offsets = remote.ok("consume", topic, *READ, "read_committed", "--offsets").out.split("\n")
    # A commit takes an offset of its own, behind ten records.
    assert [int(re.findall(r"\d+", line)[1]) for line in offsets if line][8:12] == [8, 9, 11, 12]


def test_a_bad_line_aborts_what_is_open_and_leaves_what_was_committed(
    remote: Remote, topic: str, transactional_id: str
) -> None:
    lines = '{"n": 1}\n{"n": 2}\n{"n": 3}\nnot json\n'
    failed = remote(
        *("produce", topic, "--input", "jsonl", "--key-field", "n"),
        *("--transactional-id", transactional_id, "--commit-every", "2"),
        stdin=lines,
    )
    assert failed.code != 0
    assert "2 records of" in failed.err
    assert "are committed; the transaction of the last 1 is aborted" in failed.err
    assert len(read(remote, topic, "read_committed")) == 4  # Two documents of two words.
    (found,) = remote.ok("txn", "describe", transactional_id, "-o", "json").json
    assert found["state"] == "CompleteAbort"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_aborts_what_is_open(
    remote: Remote,
    topic: str,
    transactional_id: str,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    slow = tmp_path / "lines"
    slow.write_text("a\n" * 1000)
    running = RunningCommand(
        remote.spawn(
            *("produce", topic, str(slow), "--rate", "5", "--transactional-id", transactional_id)
        )
    )
    wait_until(lambda: transactional_id in listed(remote, "--state", "Ongoing"))
    assert running.end(number) == code
    assert running.has("0 records of")
    assert read(remote, topic, "read_committed") == []
    assert transactional_id not in listed(remote, "--state", "Ongoing")


def test_a_producer_that_another_one_fences_ends_though_more_records_come(
    remote: Remote, topic: str, transactional_id: str, tmp_path: Path
) -> None:
    """It took records until its input ended, and then ended with a traceback."""
    slow = tmp_path / "lines"
    slow.write_text("a\n" * 1000)
    arguments = ("produce", topic, "--transactional-id", transactional_id)
    running = RunningCommand(remote.spawn(*arguments[:2], str(slow), "--rate", "5", *arguments[2:]))
    wait_until(lambda: transactional_id in listed(remote, "--state", "Ongoing"))
    remote.ok(*arguments, stdin="b\n")
    assert running.end() == 1
    assert running.has("Another producer has begun"), running.lines
    assert not running.has("Traceback")
    assert read(remote, topic, "read_committed") == ["b"]


def test_an_open_transaction_is_listed_described_and_aborted(
    remote: Remote, topic: str, transactional_id: str, begin: Callable[[str, str], Producer]
) -> None:
    producer = begin(transactional_id, topic)
    assert read(remote, topic, "read_committed") == []
    assert read(remote, topic, "read_uncommitted") == ["open"]
    found = listed(remote, "--state", "Ongoing")[transactional_id]
    assert transactional_id in listed(remote, "--producer-id", str(found["producerId"]))
    assert transactional_id not in listed(remote, "--longer-than", "1h")
    (described,) = remote.ok("txn", "describe", transactional_id, "-o", "json").json
    assert described["state"] == "Ongoing"
    assert described["partitions"] == {topic: [0]}
    assert 0 <= described["openForMs"] < 120_000
    assert f"{topic}: 0" in remote.ok("txn", "describe", transactional_id).out
    assert "Aborted the transaction" in remote.ok("txn", "abort", transactional_id).out
    wait_until(lambda: transactional_id not in listed(remote, "--state", "PrepareAbort"))
    assert read(remote, topic, "read_committed") == []
    with pytest.raises(Exception, match=r"[Ff]enced|FENCED|epoch"):
        producer.commit_transaction(30)


def test_a_transaction_that_its_coordinator_knows_does_not_hang(
    remote: Remote, topic: str, transactional_id: str, begin: Callable[[str, str], Producer]
) -> None:
    producer = begin(transactional_id, topic)
    found = remote.ok("txn", "find-hanging", "--topic", topic, "--longer-than", "1ms")
    assert "No transaction hangs." in found.err
    producer.abort_transaction(30)


def test_one_that_is_not_there_is_named(remote: Remote, topic: str) -> None:
    failed = remote("txn", "describe", "nobody")
    assert failed.code == 1
    assert "there is no transactional id 'nobody'" in failed.err
    failed = remote("txn", "abort", "--topic", f"{topic}:0", "--start-offset", "7")
    assert failed.code == 1
    assert f"no open transaction began at offset 7 of {topic}-0" in failed.err
    assert "txn find-hanging" in failed.err
    assert remote("txn", "abort").code == 2
