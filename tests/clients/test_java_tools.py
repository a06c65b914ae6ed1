"""Kafka's own command-line tools, as an administrator types them."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from client_adapters import CODECS, Confluent, Rec

from fairlead_bench.java_tools import JavaTools, ToolFailedError

pytestmark = pytest.mark.java


def new_name(purpose: str) -> str:
    return f"{purpose}-{time.monotonic_ns()}"


def test_kafka_topics_creates_describes_alters_and_deletes(tools: JavaTools) -> None:
    name = new_name("tool-topics")
    settings = ("--config", "retention.ms=3600000", "--config", "max.message.bytes=2000000")
    created = tools.run("kafka-topics", "--create", "--topic", name, "--partitions", "3", *settings)
    assert f"Created topic {name}" in created
    described = tools.run("kafka-topics", "--describe", "--topic", name)
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=3600000" in described
    assert (
        len(re.findall(r"Partition: \d+\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    )
    tools.run("kafka-topics", "--alter", "--topic", name, "--partitions", "5")
    assert name in tools.run("kafka-topics", "--list").split()
    described = tools.run("kafka-topics", "--describe", "--topic", name)
    assert "PartitionCount: 5" in described
    tools.run("kafka-topics", "--delete", "--topic", name)
    assert name not in tools.run("kafka-topics", "--list").split()


def test_kafka_topics_says_why_a_request_is_refused(tools: JavaTools) -> None:
    with pytest.raises(ToolFailedError, match="TopicExistsException"):
        name = new_name("tool-twice")
        tools.run("kafka-topics", "--create", "--topic", name)
        tools.run("kafka-topics", "--create", "--topic", name)
    with pytest.raises(ToolFailedError, match=r"InvalidReplicationFactorException|[Rr]eplication"):
        tools.run(
            "kafka-topics",
            *("--create", "--topic", new_name("tool-rf"), "--replication-factor", "7"),
        )
    with pytest.raises(ToolFailedError, match="does not exist"):
        tools.run("kafka-topics", "--describe", "--topic", new_name("tool-missing"))


def test_kafka_configs_alters_and_describes_topics(
    tools: JavaTools, make_topic: Callable[..., str]
) -> None:
    name = make_topic("tool-configs", retention_ms="3600000")
    entity = ("--entity-type", "topics", "--entity-name", name)
    added = "flush.messages=10,segment.bytes=1048576"
    tools.run("kafka-configs", "--alter", *entity, "--add-config", added)
    described = tools.run("kafka-configs", "--describe", *entity)
    assert {"flush.messages=10", "segment.bytes=1048576", "retention.ms=3600000"} <= {
        line.split()[0] for line in described.splitlines() if "=" in line
    }
    tools.run("kafka-configs", "--alter", *entity, "--delete-config", "flush.messages")
    described = tools.run("kafka-configs", "--describe", *entity)
    assert "flush.messages" not in described
    everything = tools.run("kafka-configs", "--describe", "--all", *entity)
    assert "min.insync.replicas=1" in everything
    assert "DEFAULT_CONFIG" in everything
    with pytest.raises(ToolFailedError, match=r"InvalidConfig|Unknown topic config"):
        tools.run("kafka-configs", "--alter", *entity, "--add-config", "no.such.setting=1")


def test_kafka_configs_describes_brokers(tools: JavaTools, is_kafka: bool) -> None:
    described = tools.run(
        "kafka-configs",
        *("--describe", "--all", "--entity-type", "brokers"),
        *("--entity-name", "1" if is_kafka else "0"),
    )
    assert "log.dirs=" in described
    assert "num.partitions=" in described


def test_kafka_delete_records_moves_the_log_start(
    tools: JavaTools, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    name = make_topic("tool-delete-records")
    Confluent(bootstrap).produce(name, [Rec(b"%d" % index) for index in range(10)])
    assert "low_watermark: 4" in tools.delete_records(name, 0, 4)
    earliest = tools.run("kafka-get-offsets", "--topic", name, "--time", "earliest")
    assert earliest.strip() == f"{name}:0:4"
    assert "OffsetOutOfRangeException" in tools.delete_records(name, 0, 400)


def test_kafka_log_dirs_shows_sizes(
    tools: JavaTools, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    name = make_topic("tool-log-dirs")
    Confluent(bootstrap).produce(name, [Rec(b"x" * 10_000)])
    output = tools.run("kafka-log-dirs", "--describe", "--topic-list", name)
    size = re.search(rf'"partition":"{name}-0","size":(\d+)', output)
    assert size is not None
    assert int(size.group(1)) > 10_000


def test_kafka_broker_api_versions_lists_every_api(tools: JavaTools) -> None:
    output = tools.run("kafka-broker-api-versions")
    for api in ("Produce(0)", "Fetch(1)", "ListOffsets(2)", "Metadata(3)", "ApiVersions(18)"):
        assert re.search(re.escape(api) + r": .*usable", output), api


@pytest.fixture(scope="session")
def dumped_segment(
    bootstrap: str, log_directory: Path, make_topic: Callable[..., str]
) -> tuple[Path, int]:
    """The folder of a partition with indexes of several entries, and its record count."""
    name = make_topic("tool-dump", index_interval_bytes="1024")
    client = Confluent(bootstrap)
    for codec in CODECS:
        records = [Rec(b"value %d" % index, b"key", (("h", b"v"),)) for index in range(50)]
        client.produce(name, records, codec=codec, is_idempotent=codec == "zstd")
    for index in range(20):
        client.produce(name, [Rec(bytes([65 + index]) * 1000)])
    return log_directory / f"{name}-0", len(CODECS) * 50 + 20


def test_kafka_dump_log_reads_our_segments(
    tools: JavaTools, dumped_segment: tuple[Path, int]
) -> None:
    folder, count = dumped_segment
    segment = folder / f"{0:020}.log"
    output = tools.run(
        "kafka-dump-log", "--files", str(segment), "--print-data-log", "--deep-iteration"
    )
    assert "Log starting offset: 0" in output
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert offsets == list(range(count))
    assert "isvalid: false" not in output
    assert set(re.findall(r"compresscodec: (\w+)", output)) == set(CODECS)
    assert "payload: value 49" in output


def test_kafka_dump_log_finds_our_indexes_consistent(
    tools: JavaTools, dumped_segment: tuple[Path, int]
) -> None:
    folder, _ = dumped_segment
    files = f"{folder / f'{0:020}.index'},{folder / f'{0:020}.timeindex'}"
    output = tools.run("kafka-dump-log", "--files", files)
    assert len(re.findall(r"^offset: \d+ position: \d+", output, re.MULTILINE)) >= 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", output, re.MULTILINE)) >= 1
    for complaint in ("Mismatches in", "Found timestamp mismatch", "out of order", "not found"):
        assert complaint not in output
