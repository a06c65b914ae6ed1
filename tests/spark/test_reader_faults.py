"""The stream reader driven as Spark drives it, hook by hook, without a session: faults and lag.

What Spark calls and when is in `fairlead_spark/reading/stream_reader.py`. Here a batch is its
offsets and its rows.
"""

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from spark_source import Topics

from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import Cluster, Topic
from fairlead_spark.errors import DataLossError, FencedError, OptionError, SourceError
from fairlead_spark.offsets import EARLIEST_LOCAL
from fairlead_spark.offsets import TopicPartition as Where
from fairlead_spark.options import parse_sink_options, parse_source_options
from fairlead_spark.reading import stream_reader
from fairlead_spark.reading.stream_reader import FairleadStreamReader
from fairlead_spark.writing.sink import RowWriter
from fairlead_spark.writing.sink_columns import SinkColumns
from fairlead_wire.messages.metadata import MetadataRequest

Offset = dict[str, Any]


class Query:
    """A checkpoint and the reader of the run that uses it."""

    opened: ClassVar[list["Query"]] = []
    reader: FairleadStreamReader

    def __init__(self, bootstrap: str, topic: str = "", **options: str) -> None:
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            **({"subscribe": topic} if topic else {}),
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "10",
            "kafka.fetch.max.wait.ms": "50",
        } | options
        self.done: Offset | None = None
        self.values: list[int] = []
        self.batches: list[int] = []
        self.start_run()
        self.opened.append(self)

    def start_run(self, **options: str) -> None:
        """A new driver on the same checkpoint."""
        self._options |= options
        if self in self.opened:
            self.reader.stop()
        self.reader = FairleadStreamReader(parse_source_options(self._options, is_stream=True))

    def plan(self) -> tuple[Offset, Offset]:
        """Start and end of the next batch; equal if there is none."""
        start = self.done if self.done is not None else self.reader.initialOffset()
        start = json.loads(json.dumps(start))
        return start, self.reader.latestOffset(start, self.reader.getDefaultReadLimit())

    def run_batch(self, start: Offset, end: Offset) -> None:
        rows = 0
        for partition in self.reader.partitions(start, end):
            # Tasks get copies, as in Spark.
            reader = pickle.loads(pickle.dumps(self.reader))
            for batch in reader.read(pickle.loads(pickle.dumps(partition))):
                rows += batch.num_rows
                self.values += [int(value.as_py()[6:]) for value in batch.column(1)]
        self.batches.append(rows)
        self.done = end

    def run(self) -> None:
        """Batches until nothing is left."""
        while True:
            start, end = self.plan()
            if start == end:
                return
            self.run_batch(start, end)


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    for query in Query.opened:
        query.reader.stop()
    Query.opened.clear()


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """Offsets of a group, as any tool sees them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        return [each.offset for each in consumer.committed(wanted, timeout=60)]
    finally:
        consumer.close()


def delete_before(topics: Topics, topic: str, offset: int) -> None:
    for future in topics.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(60)


def test_limits_share_out_and_all_is_read_once(topics: Topics) -> None:
    topics.fill(topics.create("shares"), 0, 1000)
    query = Query(topics.bootstrap, "shares", maxOffsetsPerTrigger="300", minPartitions="5")
    query.run()
    assert query.batches == [300, 300, 300, 100]
    assert sorted(query.values) == list(range(1000))


def test_all_available_ignores_the_limit(topics: Topics) -> None:
    topics.fill(topics.create("unlimited"), 0, 100)
    query = Query(topics.bootstrap, "unlimited", maxOffsetsPerTrigger="10")
    end = query.reader.latestOffset(query.reader.initialOffset(), ReadAllAvailable())
    assert end["unlimited"] == {"0": 50, "1": 50}


def test_too_few_wait_but_not_in_a_runs_first_batch(topics: Topics) -> None:
    topics.fill(topics.create("trickle"), 0, 5)
    query = Query(topics.bootstrap, "trickle", minOffsetsPerTrigger="10", maxTriggerDelay="1d")
    query.run()
    topics.fill("trickle", 5, 7)
    query.run()
    assert query.batches == [5]
    topics.fill("trickle", 12, 3)
    query.run()
    assert query.batches == [5, 10]
    topics.fill("trickle", 15, 1)
    query.start_run()
    query.run()
    assert query.batches == [5, 10, 1]


def test_available_now_ends_at_what_there_was(topics: Topics) -> None:
    topics.fill(topics.create("now"), 0, 100)
    query = Query(topics.bootstrap, "now", maxOffsetsPerTrigger="30")
    query.reader.prepareForTriggerAvailableNow()
    topics.fill("now", 100, 100)
    topics.grow("now", 3)
    query.run()
    assert sorted(query.values) == list(range(100))
    latest = query.reader.reportLatestOffset()
    assert latest is not None and latest["now"]["0"] == 100
    query.start_run()
    query.run()
    assert sorted(query.values) == list(range(200))


def test_the_group_shows_each_batch_that_is_done_and_no_other(topics: Topics) -> None:
    topics.fill(topics.create("lagging"), 0, 100)
    options = {"kafka.group.id": "lagging-job", "maxOffsetsPerTrigger": "40"}
    query = Query(topics.bootstrap, "lagging", **options)
    start, end = query.plan()
    assert committed(topics.bootstrap, "lagging-job", "lagging", 2) == [0, 0]
    query.run_batch(start, end)
    assert committed(topics.bootstrap, "lagging-job", "lagging", 2) == [0, 0]
    query.reader.commit(end)
    assert committed(topics.bootstrap, "lagging-job", "lagging", 2) == [20, 20]
    query.run()
    assert committed(topics.bootstrap, "lagging-job", "lagging", 2) == [50, 50]


def test_a_driver_that_was_replaced_commits_nothing_any_more_and_ends(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.fill(topics.create("fenced"), 0, 100)
    options = {"kafka.group.id": "fenced-job", "maxOffsetsPerTrigger": "10"}
    older = Query(topics.bootstrap, "fenced", **options)
    older.run_batch(*older.plan())
    older.plan()
    monkeypatch.setattr(stream_reader, "read_driver", lambda: "newer")
    newer = Query(topics.bootstrap, "fenced", **options)
    newer.done = older.done
    for _ in range(3):
        newer.run_batch(*newer.plan())
    newer.plan()
    assert committed(topics.bootstrap, "fenced-job", "fenced", 2) == [20, 20]
    with pytest.raises(FencedError, match="group fenced-job: another driver has started"):
        older.plan()
    assert committed(topics.bootstrap, "fenced-job", "fenced", 2) == [20, 20]
    newer.run()
    assert committed(topics.bootstrap, "fenced-job", "fenced", 2) == [50, 50]


def test_a_group_with_members_does_not_hold_up_the_query(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topics.fill(topics.create("shared"), 0, 10)
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "members"})
    assigned: list[Any] = []
    consumer.subscribe(["shared"], on_assign=lambda _, parts: assigned.extend(parts))
    try:
        for _ in range(200):
            consumer.poll(0.1)
            if assigned:
                break
        assert assigned
        query = Query(topics.bootstrap, "shared", **{"kafka.group.id": "members"})
        query.run()
    finally:
        consumer.close()
    assert sorted(query.values) == list(range(10))
    assert "name another one in kafka.group.id" in caplog.text


def test_partitions_that_are_added_are_read_from_their_start(topics: Topics) -> None:
    topics.fill(topics.create("grown"), 0, 20)
    query = Query(topics.bootstrap, "grown")
    query.run()
    topics.grow("grown", 4)
    topics.fill("grown", 20, 40, partitions=4)
    query.run()
    assert sorted(query.values) == list(range(60))


def test_a_topic_that_was_made_again(topics: Topics) -> None:
    topics.fill(topics.create("remade"), 0, 20)
    query = Query(topics.bootstrap, "remade")
    query.run()
    topics.delete("remade")
    topics.create_when_gone("remade")
    topics.fill("remade", 100, 30)
    with pytest.raises(DataLossError, match="remade was deleted and made again"):
        query.plan()
    query.start_run(failOnDataLoss="false")
    query.run()
    assert sorted(query.values) == [*range(20), *range(100, 130)]


def test_a_topic_made_again_before_a_querys_first_batch(topics: Topics) -> None:
    """The query waits for its first record, and the topic's new records have lower offsets."""
    topics.fill(topics.create("early"), 0, 20)
    query = Query(topics.bootstrap, "early", startingOffsets="latest", failOnDataLoss="false")
    query.run()
    assert query.batches == []
    topics.delete("early")
    topics.create_when_gone("early")
    topics.fill("early", 100, 30)
    query.run()
    assert sorted(query.values) == list(range(100, 130))


def test_a_first_batch_of_a_pattern_that_matched_nothing_is_run_again(topics: Topics) -> None:
    """Its topic came after the query, so all of it is read, also by the next driver."""
    query = Query(topics.bootstrap, subscribePattern="awaited-.*", startingOffsets="latest")
    query.run()
    topics.fill(topics.create("awaited-1"), 0, 20)
    _, end = query.plan()
    query.start_run()
    query.run_batch(query.reader.initialOffset(), json.loads(json.dumps(end)))
    query.run()
    assert sorted(query.values) == list(range(20))


@pytest.mark.parametrize(
    ("begin", "seen"),
    [
        ({"startingOffsets": '{"%s": {"0": 2, "1": 2}}'}, 4),
        ({"startingTimestamp": "1700000000004"}, 4),
    ],
)
def test_a_first_batch_is_run_again_where_options_say_nothing_of_an_added_partition(
    topics: Topics, begin: dict[str, str], seen: int
) -> None:
    """The checkpoint says where the query began: what a new query would be refused for is past."""
    (option,) = begin
    name = f"added-{option.lower()}"
    topics.fill(topics.create(name), 0, 20)
    query = Query(topics.bootstrap, name, **{option: begin[option].replace("%s", name)})
    _, end = query.plan()
    topics.grow(name, 3)
    query.start_run()
    query.run_batch(query.reader.initialOffset(), json.loads(json.dumps(end)))
    query.run()
    assert sorted(query.values) == list(range(seen, 20))
    unknowing = Query(topics.bootstrap, name, **query._options)
    with pytest.raises((OptionError, SourceError), match=f"{name}-2"):
        unknowing.plan()


def test_a_topic_made_again_between_plan_and_read(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MISSING_TOPIC_S", 0.5)
    topics.fill(topics.create("swapped"), 0, 20)
    query = Query(topics.bootstrap, "swapped", **{"kafkaConsumer.pollTimeoutMs": "20000"})
    start, end = query.plan()
    topics.delete("swapped")
    topics.create_when_gone("swapped")
    topics.fill("swapped", 100, 30)
    with pytest.raises(DataLossError, match="swapped was deleted and made again while"):
        query.run_batch(start, end)


def test_a_topic_deleted_between_plan_and_read(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MISSING_TOPIC_S", 0.5)
    topics.fill(topics.create("deleted"), 0, 20)
    query = Query(topics.bootstrap, "deleted")
    start, end = query.plan()
    topics.delete("deleted")
    with pytest.raises(DataLossError, match="topic deleted does not exist: it was deleted while"):
        query.run_batch(start, end)
    query.start_run(failOnDataLoss="false")
    query.run_batch(start, end)
    assert query.values == []


def test_a_topic_that_was_new_to_a_batch_and_deleted_before_that_is_run_again(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver died. The checkpoint holds the batch's end, so each later driver runs it."""
    monkeypatch.setattr(limits, "MISSING_TOPIC_S", 0.5)
    topics.fill(topics.create("brief-1"), 0, 20)
    query = Query(topics.bootstrap, subscribePattern="brief-.*")
    query.run()
    topics.fill("brief-1", 20, 10)
    topics.fill(topics.create("brief-2"), 100, 10)
    start, end = query.plan()
    topics.delete("brief-2")
    query.start_run()
    with pytest.raises(DataLossError, match=r"brief-2-0, .* no longer exists.*failOnDataLoss"):
        query.run_batch(start, end)
    query.start_run(failOnDataLoss="false")
    query.run_batch(start, end)
    query.run()
    assert sorted(query.values) == list(range(30))


def test_a_worker_that_remembers_the_old_topic_looks_again(topics: Topics) -> None:
    topics.fill(topics.create("remembered"), 0, 20)
    Query(topics.bootstrap, "remembered").run()
    topics.delete("remembered")
    topics.create_when_gone("remembered")
    topics.fill("remembered", 100, 30)
    # Another process than this worker has planned the batch.
    later = Query(topics.bootstrap, "remembered", **{"kafka.client.id": "driver"})
    start, end = later.plan()
    worker = Query(topics.bootstrap, "remembered")
    worker.run_batch(start, end)
    assert sorted(worker.values) == list(range(100, 130))


def test_records_that_went_before_they_were_read(topics: Topics) -> None:
    topics.fill(topics.create("gone", 1), 0, 20, partitions=1)
    query = Query(topics.bootstrap, "gone")
    query.run()
    topics.fill("gone", 20, 30, partitions=1)
    delete_before(topics, "gone", 35)
    with pytest.raises(DataLossError, match="offsets 20 to 34 of gone-0 are no longer there"):
        query.run()
    query.start_run(failOnDataLoss="false")
    query.run()
    assert query.values == [*range(20), *range(35, 50)]


def test_a_broker_says_where_its_own_disks_begin(topics: Topics) -> None:
    topics.fill(topics.create("local", 1), 0, 20, partitions=1)
    delete_before(topics, "local", 7)
    cluster = Cluster(ClientSettings(topics.bootstrap))
    where = Where("local", 0)
    assert cluster.list_offsets({where: EARLIEST_LOCAL}) == {where: 7}
    cluster.close()


def test_a_log_that_ends_before_what_was_read(topics: Topics) -> None:
    topics.fill(topics.create("shorter", 1), 0, 20, partitions=1)
    query = Query(topics.bootstrap, "shorter")
    start, _ = query.plan()
    query.done = start | {"shorter": {"0": 90}}
    with pytest.raises(DataLossError, match="shorter-0 ends at offset 20, before 90"):
        query.plan()
    query.start_run(failOnDataLoss="false")
    query.run()
    topics.fill("shorter", 20, 5, partitions=1)
    query.run()
    assert query.values == list(range(20, 25))


def test_the_group_of_a_query_whose_log_was_truncated_goes_back_to_its_end(topics: Topics) -> None:
    topics.fill(topics.create("truncated", 1), 0, 20, partitions=1)
    options = {"kafka.group.id": "truncated-job", "failOnDataLoss": "false"}
    query = Query(topics.bootstrap, "truncated", **options)
    start, _ = query.plan()
    read = query.done = start | {"truncated": {"0": 90}}
    start, end = query.plan()
    assert committed(topics.bootstrap, "truncated-job", "truncated", 1) == [90]
    # As Spark does before each batch, for the one before.
    query.reader.commit(read)
    query.run_batch(start, end)
    query.run()
    assert committed(topics.bootstrap, "truncated-job", "truncated", 1) == [20]
    # Otherwise it goes forward only: Spark tells of some batches twice.
    topics.fill("truncated", 20, 5, partitions=1)
    before = query.done
    query.run()
    query.reader.commit(before)
    assert committed(topics.bootstrap, "truncated-job", "truncated", 1) == [25]


def test_nobody_answers() -> None:
    options = parse_source_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "any"}, is_stream=True
    )
    cluster = Cluster(options.client)
    request = MetadataRequest(topics=None)
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1 gave no answer about the topics"):
        cluster.retry(lambda: cluster.call_any(request, 9), "the topics", timeout_s=0.3)


@pytest.mark.parametrize("known", [{}, {"behind": {0: 0}}])
def test_a_broker_that_knows_less_for_a_moment_loses_and_doubles_nothing(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, known: dict[str, dict[int, int]]
) -> None:
    """It has just started, and has not heard of the topic yet, or of its second partition."""
    if "behind" not in topics.admin.list_topics(timeout=60).topics:
        topics.fill(topics.create("behind"), 0, 100)
    query = Query(topics.bootstrap, "behind", failOnDataLoss="false")
    query.run()
    find, answers = Cluster.find_topics, [known]

    def find_topics(cluster: Cluster, subscription: Any) -> dict[str, Topic]:
        found = find(cluster, subscription)
        if answers:
            return {
                name: replace(found[name], leaders=leaders)
                for name, leaders in answers.pop().items()
            }
        return found

    monkeypatch.setattr(Cluster, "find_topics", find_topics)
    query.run()
    assert not answers
    assert sorted(query.values) == list(range(100))


def test_a_start_behind_the_end_is_called_that(topics: Topics) -> None:
    """Nothing was read before: no record was lost."""
    topics.create("short")
    query = Query(topics.bootstrap, "short", startingOffsets='{"short": {"0": 0, "1": 7}}')
    with pytest.raises(OptionError, match="short-1 from offset 7, its log ends at 0: correct it"):
        query.plan()


def write_meanwhile(bootstrap: str, topic: str, act: Callable[[], Any]) -> None:
    """Writes 3,000 rows over three partitions, and acts when half of them are on their way."""
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.batch.size": "2000"}
    options = parse_sink_options(given)

    def rows() -> Iterator[pa.RecordBatch]:
        for first in range(0, 3000, 300):
            if first == 1500:
                act()
            numbers = range(first, first + 300)
            values = pa.array([b"value %d" % number for number in numbers])
            partitions = pa.array([number % 3 for number in numbers], pa.int32())
            yield pa.RecordBatch.from_arrays([values, partitions], ["value", "partition"])

    cluster = Cluster(options.client)
    try:
        writer = RowWriter(options, SinkColumns(value=0, partition=1), cluster)
        assert writer.write(rows()).records == 3000
    finally:
        cluster.close()


def test_a_leader_dies_between_plan_and_read_and_one_in_the_middle_of_both(
    make_cluster: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SINK_GATHER_BYTES", 2000)
    replicated = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    settings = dict.fromkeys(replicated, "3")
    cluster = make_cluster(brokers=3, settings=settings, is_patient=True)
    topics = Topics(cluster.bootstrap)
    topics.fill(topics.create("survivors", 3, copies=3), 0, 3000, partitions=3)
    query = Query(
        cluster.bootstrap,
        "survivors",
        maxOffsetsPerTrigger="1500",
        **{"kafka.group.id": "survivors-job", "kafka.max.partition.fetch.bytes": "1000"},
    )
    start, end = query.plan()
    leaders = topics.admin.list_topics("survivors", timeout=60).topics["survivors"].partitions
    topics.create("written", 3, copies=3, min_insync_replicas="2")
    write_meanwhile(cluster.bootstrap, "written", cluster.brokers[leaders[0].leader].kill)
    query.run_batch(start, end)
    query.run()
    assert sorted(query.values) == list(range(3000))
    assert committed(cluster.bootstrap, "survivors-job", "survivors", 3) == [1000] * 3
    copy = Query(cluster.bootstrap, "written")
    copy.run()
    assert copy.values == [*range(0, 3000, 3), *range(1, 3000, 3), *range(2, 3000, 3)]
