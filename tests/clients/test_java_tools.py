"""Kafka's own command-line tools, as an administrator types them."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from client_adapters import CODECS, Confluent, Rec
from log_batches import LogBench, record_batch

from fairlead_bench.peers.java_tools import JavaTools, ToolFailedError
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_wire.records import Record

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


def test_kafka_configs_alters_describes_and_lists_groups(tools: JavaTools) -> None:
    """A group is configured before it exists; describing all finds it by ListConfigResources."""
    group = new_name("tool group")
    entity = ("--entity-type", "groups", "--entity-name", group)
    session = "consumer.session.timeout.ms"
    added = f"{session}=50000,consumer.heartbeat.interval.ms=6000"
    tools.run("kafka-configs", "--alter", *entity, "--add-config", added)
    for described in (
        tools.run("kafka-configs", "--describe", *entity),
        tools.run("kafka-configs", "--describe", "--entity-type", "groups"),
    ):
        assert f"Dynamic configs for group {group} are:" in described
        assert f"{session}=50000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:" in described
        assert f"DEFAULT_CONFIG:group.{session}=45000}}" in described
    everything = tools.run("kafka-configs", "--describe", "--all", *entity)
    assert "consumer.assignment.interval.ms=1000" in everything
    for wrong, reason in (
        (f"{session}=999", r"group\.consumer\.min\.session\.timeout\.ms"),
        (f"{session}=70000", r"group\.consumer\.max\.session\.timeout\.ms"),
        ("consumer.nonsense=1", r"[Uu]nknown group config"),
    ):
        with pytest.raises(ToolFailedError, match=rf"InvalidConfigurationException: .*{reason}"):
            tools.run("kafka-configs", "--alter", *entity, "--add-config", wrong)
    deleted = f"{session},consumer.heartbeat.interval.ms"
    tools.run("kafka-configs", "--alter", *entity, "--delete-config", deleted)
    assert group not in tools.run("kafka-configs", "--describe", "--entity-type", "groups")
    described = tools.run("kafka-configs", "--describe", *entity)
    assert f"The group '{group}' doesn't exist and doesn't have dynamic config." in described


def test_kafka_configs_describes_brokers(tools: JavaTools, is_kafka: bool) -> None:
    described = tools.run(
        "kafka-configs",
        *("--describe", "--all", "--entity-type", "brokers"),
        *("--entity-name", "1" if is_kafka else "0"),
    )
    assert "log.dirs=" in described
    assert "num.partitions=" in described


def test_kafka_configs_alters_brokers_while_they_run(tools: JavaTools, is_kafka: bool) -> None:
    everybody = ("--entity-type", "brokers", "--entity-default")
    one = ("--entity-type", "brokers", "--entity-name", "1" if is_kafka else "0")
    tools.run("kafka-configs", "--alter", *everybody, "--add-config", "message.max.bytes=2000000")
    tools.run("kafka-configs", "--alter", *one, "--add-config", "message.max.bytes=3000000")
    assert "message.max.bytes=2000000" in tools.run("kafka-configs", "--describe", *everybody)
    described = tools.run("kafka-configs", "--describe", *one)
    places = "DYNAMIC_BROKER_CONFIG:message.max.bytes=3000000, "
    places += "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000, "
    places += "DEFAULT_CONFIG:message.max.bytes=1048588"
    assert f"message.max.bytes=3000000 sensitive=false synonyms={{{places}}}" in described
    with pytest.raises(ToolFailedError, match="Cannot update these configs dynamically: Set"):
        tools.run("kafka-configs", "--alter", *one, "--add-config", "num.partitions=3")
    for entity in (one, everybody):
        tools.run("kafka-configs", "--alter", *entity, "--delete-config", "message.max.bytes")
    assert "message.max.bytes" not in tools.run("kafka-configs", "--describe", *one)


def test_kafka_configs_alters_levels_of_loggers(tools: JavaTools, is_kafka: bool) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1" if is_kafka else "0")
    name = "kafka.server.ReplicaManager" if is_kafka else "fairlead_broker.local_replicas"
    tools.run("kafka-configs", "--alter", *loggers, "--add-config", f"{name}=ERROR")
    assert f"{name}=ERROR" in tools.run("kafka-configs", "--describe", *loggers)
    with pytest.raises(ToolFailedError, match="Invalid broker logger"):
        tools.run("kafka-configs", "--alter", *loggers, "--add-config", "no.such.logger=INFO")
    tools.run("kafka-configs", "--alter", *loggers, "--delete-config", name)
    assert f"{name}=ERROR" not in tools.run("kafka-configs", "--describe", *loggers)


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
        # A batch of one has to get smaller, too: librdkafka sends what does not as it is.
        values = [b"value %d" % index + bytes(200) for index in range(50)]
        records = [Rec(value, b"key", (("h", b"v"),)) for value in values]
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


def test_kafka_dump_log_reads_our_transactions(tools: JavaTools, tmp_path: Path) -> None:
    """Markers, aborted transactions and what is known of producers, in Kafka's own formats."""
    log = LogBench(str(tmp_path / "t-0")).create()
    for producer_id in (7, 8):
        guard = log.producers.begin_verification(producer_id, 3, 0, supports_epoch_bump=False)
        batch = record_batch(
            Record(0, 1_000, None, b"v"),
            producer_id=producer_id,
            producer_epoch=3,
            base_sequence=0,
            is_transactional=True,
        )
        log.append_as_leader(batch, leader_epoch=0, now_ms=1_000, guard=guard)
    log.append_end_marker(EndMarker(7, 3, 5, False, 1), leader_epoch=0, now_ms=2_000)
    log.roll(2_000)
    log.close()
    stem = tmp_path / "t-0" / f"{0:020}"
    shown = tools.run("kafka-dump-log", "--files", f"{stem}.log", "--print-data-log")
    assert "endTxnMarker: ABORT coordinatorEpoch: 5" in shown
    assert "isTransactional: true isControl: true" in shown
    assert "isvalid: false" not in shown
    shown = tools.run("kafka-dump-log", "--files", f"{stem}.txnindex")
    assert "producerId: 7 firstOffset: 0 lastOffset: 2 lastStableOffset: 1" in shown
    shown = tools.run("kafka-dump-log", "--files", str(tmp_path / "t-0" / f"{3:020}.snapshot"))
    known = re.findall(
        r"producerId: (\d) producerEpoch: 3 coordinatorEpoch: (\S+) currentTxnFirstOffset: (\S+)",
        shown,
    )
    assert sorted(known) == [("7", "5", "OptionalLong.empty"), ("8", "-1", "OptionalLong[1]")], (
        shown
    )


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


def test_kafka_features_shows_and_changes_levels(tools: JavaTools) -> None:
    def described() -> dict[str, list[str]]:
        pattern = (
            r"Feature: (\S+)\s+SupportedMinVersion: (\d+)\s+SupportedMaxVersion: (\d+)\s+"
            r"FinalizedVersionLevel: (\d+)\s"
        )
        text = tools.run("kafka-features", "describe")
        return {name: levels for name, *levels in re.findall(pattern, text)}

    whole = {
        "fairlead.version": ["1", "2", "2"],
        "group.version": ["0", "1", "1"],
        "transaction.version": ["0", "2", "2"],
    }
    assert described() == whole
    lowered = ("--feature", "transaction.version=1")
    dry = tools.run("kafka-features", "downgrade", *lowered, "--dry-run")
    assert "transaction.version can be downgraded to 1" in dry
    assert described() == whole
    try:
        done = tools.run("kafka-features", "downgrade", *lowered)
        assert "transaction.version was downgraded to 1" in done
        assert described() == whole | {"transaction.version": ["0", "2", "1"]}
    finally:
        tools.run("kafka-features", "upgrade", "--feature", "transaction.version=2")
    assert described() == whole
    with pytest.raises(ToolFailedError, match=r"never falls"):
        tools.run("kafka-features", "downgrade", "--feature", "fairlead.version=1")
    with pytest.raises(ToolFailedError, match=r"this cluster has no feature '\w+\.version'"):
        tools.run("kafka-features", "upgrade", "--release-version", "4.3")
    # These two ask no cluster.
    assert "metadata.version=" in tools.run("kafka-features", "version-mapping")
    of_groups = tools.run("kafka-features", "feature-dependencies", "--feature", "group.version=1")
    assert "group.version=1" in of_groups


def test_kafka_cluster_forgets_no_broker_that_serves(tools: JavaTools) -> None:
    assert "Cluster ID: " in tools.run("kafka-cluster", "cluster-id")
    with pytest.raises(ToolFailedError, match="it is in service"):
        tools.run("kafka-cluster", "unregister", "--id", "0")
    with pytest.raises(ToolFailedError, match="broker 77 is not registered"):
        tools.run("kafka-cluster", "unregister", "--id", "77")
