"""A query's progress as offsets of a consumer group, so that every Kafka tool shows its lag.

The truth is Spark's checkpoint, the group is a mirror: a commit that fails is logged and tried
again later, and never holds up a batch. The group has no members (generation -1).

**Older runs.** Beside each offset stands the run that wrote it. A run's number is above any that
the group held when the run first looked. Before each commit the group is read: a run that meets a
higher number than its own is the older one, of a driver that was thought dead, and stops. A plain
commit cannot be fenced by the broker: between reading and writing such a driver may still write
once, and the newer run corrects it with its next batch.
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import CONNECTION_ERRORS, Cluster, PassingError
from fairlead_spark.errors import SourceError, error_of
from fairlead_spark.offsets import PartitionValues, TopicPartition
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.find_coordinator import FindCoordinatorRequest
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fairlead_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

logger = logging.getLogger(__name__)

FIND_COORDINATOR_VERSION: Final = 3
OFFSET_FETCH_VERSION: Final = 7
OFFSET_COMMIT_VERSION: Final = 8
_NO_RUN: Final = 0


class Committed(NamedTuple):
    """What the group holds for a partition."""

    offset: int
    run: int


class GroupProgress:
    """Commits what a query has done to group `settings.group_id`."""

    def __init__(self, settings: ClientSettings) -> None:
        self._group = settings.group_id or ""
        # Connections of its own: they give up sooner than those that read.
        self._cluster = Cluster(replace(settings, request_timeout_s=limits.GROUP_TIMEOUT_S))
        self._coordinator: tuple[str, int] | None = None
        self._done: PartitionValues = {}
        self._run = _NO_RUN
        self._batches = 0
        self._is_superseded = False
        self._backoff_s = limits.RETRY_BACKOFF_S
        self._silent_until = 0.0

    def maybe_commit(self, positions: PartitionValues) -> bool:
        """Commits the ends of a batch that is done; False if there was no need, or it failed."""
        is_waiting = time.monotonic() < self._silent_until
        if self._is_superseded or is_waiting or positions == self._done:
            return False
        try:
            # A group's first commit makes its coordinator: that takes a moment.
            self._cluster.retry(
                lambda: self._commit(positions), "the group", timeout_s=limits.GROUP_TIMEOUT_S
            )
        except SourceError as error:
            self._silent_until = time.monotonic() + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, limits.GROUP_BACKOFF_S_MAX)
            logger.warning(
                "group %s does not show the progress of this query yet: %s", self._group, error
            )
            return False
        self._backoff_s = limits.RETRY_BACKOFF_S
        self._done = dict(positions)
        return not self._is_superseded

    def close(self) -> None:
        """Drops the connections; a later commit makes new ones."""
        self._cluster.close()

    def _commit(self, positions: PartitionValues) -> None:
        stored = self._read(positions)
        newest = max((each.run for each in stored.values()), default=_NO_RUN)
        if self._run == _NO_RUN:
            self._run = max(time.time_ns() // 1_000_000, newest + 1)
        elif newest > self._run:
            self._is_superseded = True
            logger.warning(
                "group %s belongs to a later run of this query: this one commits nothing any more",
                self._group,
            )
            return
        due = choose_offsets(positions, stored, run=self._run)
        if due:
            self._write(due)

    def _read(self, positions: PartitionValues) -> dict[TopicPartition, Committed]:
        topics: dict[str, OffsetFetchRequestTopic] = {}
        for each in positions:
            topic = topics.setdefault(each.topic, OffsetFetchRequestTopic(each.topic))
            topic.partition_indexes.append(each.partition)
        request = OffsetFetchRequest(group_id=self._group, topics=list(topics.values()))
        reply = self._ask_coordinator(request, OFFSET_FETCH_VERSION)
        self._raise_unless_fine(reply.error_code)
        found = {}
        for topic in reply.topics:
            for part in topic.partitions:
                self._raise_unless_fine(part.error_code)
                where = TopicPartition(topic.name, part.partition_index)
                found[where] = Committed(part.committed_offset, read_run(part.metadata))
        return found

    def _write(self, positions: PartitionValues) -> None:
        self._batches += 1
        note = json.dumps({"source": "fairlead", "run": self._run, "commit": self._batches})
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for each, offset in positions.items():
            topic = topics.setdefault(each.topic, OffsetCommitRequestTopic(name=each.topic))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=each.partition,
                    committed_offset=offset,
                    committed_metadata=note,
                )
            )
        request = OffsetCommitRequest(group_id=self._group, topics=list(topics.values()))
        reply = self._ask_coordinator(request, OFFSET_COMMIT_VERSION)
        for topic in reply.topics:
            for part in topic.partitions:
                self._raise_unless_fine(part.error_code)

    def _ask_coordinator(self, request: Any, version: int) -> Any:
        if self._coordinator is None:
            found = self._cluster.call_any(
                FindCoordinatorRequest(key=self._group), FIND_COORDINATOR_VERSION
            )
            self._raise_unless_fine(found.error_code)
            self._coordinator = (found.host, found.port)
        try:
            return self._cluster.call_address(*self._coordinator, request, version)
        except CONNECTION_ERRORS:
            self._coordinator = None
            raise

    def _raise_unless_fine(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        self._coordinator = None
        error = error_of(code)
        text = f"group {self._group}: {error.name}: {error.description}"
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            raise SourceError(
                f"{text} Consumers use this group: name another one in kafka.group.id"
            )
        if error.retriable:
            raise PassingError(text)
        raise SourceError(text)


def choose_offsets(
    positions: PartitionValues, stored: Mapping[TopicPartition, Committed], *, run: int
) -> dict[TopicPartition, int]:
    """What to commit: all that an older run (or another tool) wrote, else only what is ahead.

    A new run may set a group back: its query was started over, and lag means what is left to read.
    """
    nothing = Committed(-1, _NO_RUN)
    return {
        each: offset
        for each, offset in positions.items()
        if stored.get(each, nothing).run != run or stored.get(each, nothing).offset < offset
    }


def read_run(metadata: str | None) -> int:
    """The run that wrote an offset; 0 for one that no query wrote."""
    try:
        note = json.loads(metadata or "{}")
        run = note.get("run", _NO_RUN) if note.get("source") == "fairlead" else _NO_RUN
    except (AttributeError, ValueError):
        return _NO_RUN
    return run if isinstance(run, int) else _NO_RUN
