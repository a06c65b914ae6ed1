"""`spark.readStream.format("fairlead")`: the contents of each micro-batch, decided on the driver.

Spark has one object for a query in one Python process. It calls the methods in this order: once
`initialOffset`; then for each batch `latestOffset`, `partitions`, and `commit`, one batch late and
never for the last one. `latestOffset` gets the end of the last finished batch. The progress for the
consumer group comes from both.
"""

import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from fairlead_spark.cluster import Cluster, Topic, keep_cluster
from fairlead_spark.errors import DataLossError, OptionError, SourceError
from fairlead_spark.group.driver_identity import read_driver
from fairlead_spark.group.group_membership import Instance
from fairlead_spark.group.group_progress import GroupProgress
from fairlead_spark.offsets import NO_TOPIC_ID, StreamOffset, TopicPartition
from fairlead_spark.options import SourceOptions
from fairlead_spark.reading.batch_reader import (
    RangePartition,
    begins_earliest,
    read_partition,
)
from fairlead_spark.reading.boundaries import (
    check_start,
    find_partitions,
    read_earliest,
    read_latest,
    resolve_start,
)
from fairlead_spark.reading.planning import (
    build_ranges,
    cap_positions,
    count_new,
    find_regressions,
    limit_positions,
    split_ranges,
)

logger = logging.getLogger(__name__)


class FairleadStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One per query on the driver; tasks get a copy that only reads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: Mapping[TopicPartition, int] | None = None
        self._latest: StreamOffset | None = None
        self._initial: StreamOffset | None = None
        self._refusal: OptionError | SourceError | None = None
        """Why a new query cannot begin as its options say."""
        # The first batch of a new run waits for no more records, as in Spark's Kafka source: its
        # records may have waited long already.
        self._batch_at = -math.inf
        self._progress: GroupProgress | None = None
        if options.client.group_id is not None:
            instance = Instance(read_driver(), os.getpid())
            self._progress = GroupProgress(options.client, instance, options.subscription)

    def __getstate__(self) -> dict[str, Any]:
        """Return the options, because tasks need nothing else."""
        return {"_options": self._options}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name.
        """Return where a new query begins. Spark may call this again and expects the same."""
        if self._initial is None:
            cluster, topics, partitions = self._look()
            try:
                if self._options.starting.offsets:
                    check_start(self._options, read_latest(cluster, self._options, partitions))
                positions = resolve_start(cluster, self._options, partitions)
            except (OptionError, SourceError) as error:
                # Spark also asks when it runs a first batch again, and then needs no answer: the
                # batch knows where it began. A new query asks for its first batch next.
                self._refusal = error
                return {}
            self._initial, self._refusal = StreamOffset(positions, _ids(topics)), None
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit in the options; triggers that read all existing records ignore it."""
        options = self._options
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where every partition ends now: this query reads no further."""
        cluster, _, partitions = self._look()
        self._target = read_latest(cluster, self._options, partitions)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; `start` itself when there is nothing to read yet."""
        self._check_begun(start)
        done = StreamOffset.from_json(start)
        self._show_progress(done)
        cluster, topics, partitions = self._look(done)
        positions = self._positions_now(cluster, topics, partitions, done)
        latest = self._read_latest(cluster, partitions, positions)
        self._latest = StreamOffset(latest, _ids(topics))
        if self._target is not None:
            latest = cap_positions(latest, self._target, start=positions, read=done.positions)
        ends = self._apply_limit(positions, latest, limit)
        if ends is None:
            return start
        end = StreamOffset(ends, _ids(topics))
        if end.is_at(done):
            # Exactly the given offset, or Spark makes a batch of it.
            return start
        self._batch_at = time.monotonic()
        # When Spark runs the first batch again, it asks again where the query begins, and the log
        # has grown meanwhile: records in between would be in no batch.
        if self._initial is None or not done.is_at(self._initial):
            return end.to_json()
        # Not the positions in `done`: a topic that was created again since then begins again.
        begun = {each: positions[each] for each in done.positions if each in positions}
        return replace(end, begun=begun).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the topics, for the progress report."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch: equal for equal offsets, while the log has them."""
        begin, until = StreamOffset.from_json(start), StreamOffset.from_json(end)
        if until.begun is not None:
            begin = StreamOffset(until.begun, until.topic_ids)
        else:
            self._check_begun(start)
        cluster = keep_cluster(self._options.client)
        new = frozenset(
            each
            for each in until.positions
            if each not in begin.positions or _is_other_topic(each.topic, begin, until.topic_ids)
        )
        gone = self._find_gone(cluster, new)
        if gone:
            where = min(gone)
            self._lose(f"{where}, planned up to offset {until.positions[where]}, no longer exists")
        earliest = read_earliest(cluster, self._options, new - gone)
        ends = {each: at for each, at in until.positions.items() if each not in gone}
        positions = {
            each: earliest[each] if each in new else begin.positions[each] for each in ends
        }
        ranges = build_ranges(
            positions,
            ends,
            topic_ids=until.topic_ids,
            from_earliest=new
            | begins_earliest(self._options.starting, frozenset(until.begun or ())),
        )
        pieces = split_ranges(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the task's batches; Spark calls this in a task."""
        return read_partition(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Note that a batch is done; Spark reports it when it begins the next one."""
        self._show_progress(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Do nothing: Spark ends the process, and calls this only sometimes."""
        keep_cluster(self._options.client).close()
        if self._progress is not None:
            self._progress.close()

    def _check_begun(self, start: dict[str, Any]) -> None:
        if not start and self._refusal is not None:
            raise self._refusal

    def _attempts(self) -> Iterator[None]:
        """Yield once, and then after each pause that `fetchOffset.retryIntervalMs` means."""
        yield
        for _ in range(self._options.offset_retries):
            time.sleep(self._options.offset_retry_interval_ms / 1000)
            yield

    def _look(
        self, done: StreamOffset | None = None
    ) -> tuple[Cluster, dict[str, Topic], frozenset[TopicPartition]]:
        """Return the topics and partitions that exist.

        If a part of `done` seems to be gone, they are looked up again: a broker that has just
        started may not know yet what others know.
        """
        cluster = keep_cluster(self._options.client)
        topics: dict[str, Topic] = {}
        for _ in self._attempts():
            topics = cluster.find_topics(self._options.subscription)
            if done is None or _holds_all(topics, done):
                break
        return cluster, topics, find_partitions(self._options.subscription, topics)

    def _find_gone(
        self, cluster: Cluster, partitions: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Return partitions that do not exist: a batch that is run again may have deleted ones.

        They are looked up again, as in `_look`.
        """
        gone = partitions
        for _ in self._attempts():
            if not gone:
                break
            topics = cluster.read_topics(sorted({each.topic for each in gone}))
            gone = frozenset(
                each
                for each in gone
                if each.topic not in topics or each.partition not in topics[each.topic].leaders
            )
        return gone

    def _show_progress(self, done: StreamOffset) -> None:
        if self._progress is not None:
            self._progress.maybe_commit(done.positions)

    def _positions_now(
        self,
        cluster: Cluster,
        topics: Mapping[str, Topic],
        partitions: frozenset[TopicPartition],
        done: StreamOffset,
    ) -> dict[TopicPartition, int]:
        """Return where reading continues: new partitions begin at their earliest record."""
        ids = _ids(topics)
        remade = sorted({p.topic for p in done.positions if _is_other_topic(p.topic, done, ids)})
        if remade:
            self._lose(
                f"topic {remade[0]} was deleted and made again since the checkpoint was written: "
                "its offsets mean other records now"
            )
        gone = sorted(done.positions.keys() - partitions)
        if gone:
            self._lose(f"{gone[0]}, read up to offset {done.positions[gone[0]]}, no longer exists")
        new = {each for each in partitions if each not in done.positions or each.topic in remade}
        if new:
            logger.info("partitions not read before: %s", ", ".join(map(str, sorted(new))))
        earliest = read_earliest(cluster, self._options, new)
        return {
            each: earliest[each] if each in new else done.positions[each] for each in partitions
        }

    def _read_latest(
        self,
        cluster: Cluster,
        partitions: frozenset[TopicPartition],
        positions: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the ends of the logs; repeat if a new leader knows less than was read."""
        latest: dict[TopicPartition, int] = {}
        for _ in self._attempts():
            latest = read_latest(cluster, self._options, partitions)
            if not find_regressions(positions, latest):
                return latest
            cluster.forget_leaders()
        truncated = find_regressions(positions, latest)
        for each in truncated[:1]:
            self._lose(
                f"{each} ends at offset {latest[each]}, before {positions[each]}, which was "
                "already read: records were lost, or the topic was made again"
            )
        if self._progress is not None:
            self._progress.note_truncated(truncated)
        return latest

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Start the query with another checkpointLocation, or set failOnDataLoss "
                "to false to go on with what is there"
            )
        logger.warning("%s; going on, because failOnDataLoss is false", what)

    def _apply_limit(
        self,
        positions: Mapping[TopicPartition, int],
        latest: dict[TopicPartition, int],
        limit: ReadLimit,
    ) -> dict[TopicPartition, int] | None:
        """Limit a batch; None: there are too few new records, and the batch may wait."""
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return latest
        least = options.min_offsets_per_trigger
        if least is not None and self._target is None:
            waited_ms = (time.monotonic() - self._batch_at) * 1000
            is_due = waited_ms >= options.max_trigger_delay_ms
            if count_new(positions, latest) < least and not is_due:
                return None
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_offsets_per_trigger
        if most is None:
            return latest
        return limit_positions(positions, latest, records_max=most)


def _holds_all(topics: Mapping[str, Topic], done: StreamOffset) -> bool:
    """Tell whether every partition that was read is there, and of the same topic."""
    ids = _ids(topics)
    return all(
        each.topic in topics
        and each.partition in topics[each.topic].leaders
        and not _is_other_topic(each.topic, done, ids)
        for each in done.positions
    )


def _ids(topics: Mapping[str, Topic]) -> dict[str, bytes]:
    return {topic.name: topic.topic_id for topic in topics.values()}


def _is_other_topic(topic: str, known: StreamOffset, ids: Mapping[str, bytes]) -> bool:
    before, now = known.topic_ids.get(topic, NO_TOPIC_ID), ids.get(topic, NO_TOPIC_ID)
    return NO_TOPIC_ID not in (before, now) and before != now
