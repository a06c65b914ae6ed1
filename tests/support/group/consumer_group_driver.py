"""Drives a ConsumerGroup step by step: short heartbeats, a clock, writes that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.group.assignors.assignment import TopicIdPartition
from fairlead_broker.group.consumer.consumer_group import ConsumerGroup
from fairlead_broker.group.consumer.consumer_members import ConsumerGroupSettings
from fairlead_broker.group.consumer.migration_policy import MigrationPolicy
from fairlead_broker.group.consumer.topic_patterns import check_pattern
from fairlead_broker.group.group_types import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Downgrade,
    Effects,
    GroupWrite,
    JoinRequest,
    JoinResult,
    LeavingMember,
    ResolutionRequest,
    SyncRequest,
    SyncResult,
)
from fairlead_broker.group.records.consumer_records import decode_key, decode_value
from fairlead_broker.group.records.consumer_state import ConsumerGroupState
from fairlead_model.cluster import ClusterImage, empty_image
from fairlead_model.delta import Change, PartitionChanged, TopicChanged, TopicRemoved
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.topic import TopicHeader
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WALL_MS = 1_700_000_000_000
SETTINGS = ConsumerGroupSettings(
    session_timeout_ms=45_000,
    heartbeat_interval_ms=5_000,
    assignment_interval_ms=0,
    size_max=1_000,
    assignors=("uniform", "range"),
    regex_refresh_interval_ms=600_000,
    migration_policy=MigrationPolicy.BIDIRECTIONAL,
    classic_size_max=1_000,
)
Held = dict[str, list[int]]
"""Partitions by topic."""


def topic_id(name: str) -> TopicId:
    return TopicId(name.encode().ljust(16, b"#"))


def partitions(held: Held) -> frozenset[TopicIdPartition]:
    return frozenset(
        TopicIdPartition(topic_id(name), each) for name, indexes in held.items() for each in indexes
    )


def held(found: Iterable[TopicIdPartition]) -> Held:
    result: Held = {}
    for each in sorted(found):
        result.setdefault(each.topic_id.rstrip(b"#").decode(), []).append(each.partition)
    return result


def image_of(topics: Mapping[str, int], image: ClusterImage | None = None) -> ClusterImage:
    """Return the image with exactly these topics, with their numbers of partitions."""
    image = empty_image("cluster") if image is None else image
    changes: list[Change] = [
        TopicRemoved(topic_id(name)) for name in image.names if name not in topics
    ]
    for name, count in topics.items():
        known = image.topic(name)
        if known is not None and len(known.partitions) == count:
            continue
        changes.append(TopicChanged(TopicHeader(name, topic_id(name), count)))
        changes += [
            PartitionChanged(topic_id(name), index, PartitionRegistration((1,), (1,), leader=1))
            for index in range(0 if known is None else len(known.partitions), count)
        ]
    return image.apply(changes)


def subscription(*topics: str, owned: Held | None = None, version: int = 1) -> bytes:
    """Return a consumer's metadata."""
    parts = [version.to_bytes(2, "big"), len(topics).to_bytes(4, "big")]
    for name in topics:
        parts += (len(name).to_bytes(2, "big"), name.encode())
    parts.append(b"\xff\xff\xff\xff")
    if version >= 1:
        parts.append(len(owned or {}).to_bytes(4, "big"))
        for name, indexes in (owned or {}).items():
            parts += (len(name).to_bytes(2, "big"), name.encode())
            parts.append(len(indexes).to_bytes(4, "big"))
            parts += [each.to_bytes(4, "big") for each in indexes]
    return b"".join(parts)


class Host:
    """The group's view of the cluster: `image` and `settings` may be set at any time."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self._image = image_of(topics)
        self.image_number = self.topics_number = 0
        self.settings = SETTINGS

    @property
    def image(self) -> ClusterImage:
        return self._image

    def set_topics(self, topics: Mapping[str, int]) -> None:
        image = image_of(topics, self._image)
        self.image_number += 1
        self.topics_number += image.names is not self._image.names
        self._image = image

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        return self.settings

    def check_regular_expression(self, pattern: str) -> None:
        check_pattern(pattern)


class ConsumerGroupDriver:
    """One group `g`. Writes wait in `writes` until `commit`, unless `auto_commit`.

    `log` has the newest record of each key, as compaction would leave it.
    """

    def __init__(self, *, auto_commit: bool = True, **topics: int) -> None:
        self.host = Host(topics)
        self.group = ConsumerGroup("g", self.host)
        self.auto_commit = auto_commit
        self.now_ms = 0
        self.answers: dict[Any, Any] = {}
        self.writes: list[GroupWrite] = []
        self.batches: list[list[tuple[bytes, bytes | None]]] = []
        self.log: dict[bytes, bytes] = {}
        self.resolution: ResolutionRequest | None = None
        self.downgrade: Downgrade | None = None
        self._asked = 0

    @property
    def times(self) -> dict[str, int]:
        return {"now_ms": self.now_ms, "now_wall_ms": WALL_MS + self.now_ms}

    @property
    def state(self) -> ConsumerGroupState:
        return self.group.state

    def asks_for_topics(self) -> bool:
        """Tell whether patterns wait to be matched."""
        return self.resolution is not None

    def take(self, effects: Effects) -> None:
        for write in effects.writes:
            assert not write.violation, write.violation
        self.writes += effects.writes
        self.answers.update(dict(effects.replies))
        self.resolution = effects.resolution or self.resolution
        self.downgrade = effects.downgrade or self.downgrade
        if self.auto_commit and self.writes:
            self.commit()

    def commit(self, error: ErrorCode = ErrorCode.NONE, *, count: int | None = None) -> None:
        """Settle writes: all, or the first `count`."""
        settled, self.writes = self.writes[:count], self.writes[len(self.writes[:count]) :]
        for write in settled:
            if error is ErrorCode.NONE:
                self.batches.append(list(write.records))
                for key, value in write.records:
                    if value is None:
                        self.log.pop(key, None)
                    else:
                        self.log[key] = value
            self.take(self.group.written(write, error, **self.times))

    def send(
        self,
        member_id: str,
        epoch: int,
        topics: Iterable[str] | None = None,
        *,
        owned: Held | None = None,
        instance: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        timeout_ms: int = -1,
        rack: str | None = None,
    ) -> str:
        """Send a heartbeat; return the name of its answer in `answers`. KafkaError if refused."""
        self._asked += 1
        waiter = f"{member_id}-{self._asked}"
        asked = ConsumerHeartbeat(
            member_id,
            epoch,
            instance,
            rack,
            "client",
            "/10.0.0.1",
            timeout_ms,
            None if topics is None else tuple(sorted(topics)),
            regex,
            assignor,
            None if owned is None else partitions(owned),
            lambda name: True,
        )
        self.take(self.group.consumer_heartbeat(asked, waiter, **self.times))
        return waiter

    def beat(
        self, member_id: str, epoch: int, *args: Any, **options: Any
    ) -> ConsumerHeartbeatResult:
        """Return the answer to a heartbeat that is answered at once."""
        answer = self.answers[self.send(member_id, epoch, *args, **options)]
        assert isinstance(answer, ConsumerHeartbeatResult)
        return answer

    def join(
        self,
        member_id: str,
        topics: Iterable[str] | None = ("t",),
        *,
        timeout_ms: int = 10_000,
        **options: Any,
    ) -> ConsumerHeartbeatResult:
        return self.beat(member_id, 0, topics, owned={}, timeout_ms=timeout_ms, **options)

    def epoch(self, member_id: str) -> int:
        return self.state.current(member_id).member_epoch

    def held(self, member_id: str) -> Held:
        return held(self.state.current(member_id).assigned)

    def settle(self, *member_ids: str) -> None:
        """Send heartbeats of members that revoke at once, until nothing changes."""
        for _ in range(20):
            before = dict(self.state.currents)
            for member_id in member_ids:
                self.beat(member_id, self.epoch(member_id), owned=self.held(member_id))
            if before == self.state.currents:
                return
        raise AssertionError("the group comes to no rest")

    def classic_join(
        self,
        waiter: str,
        member_id: str = "",
        *topics: str,
        owned: Held | None = None,
        instance: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        needs_id: bool = False,
        protocol_type: str = "consumer",
        metadata: bytes | None = None,
    ) -> JoinResult:
        if metadata is None:
            metadata = subscription(*(topics or ("t",)), owned=owned)
        request = JoinRequest(
            member_id,
            instance,
            "client",
            "/10.0.0.1",
            protocol_type,
            tuple((name, metadata) for name in protocols),
            20_000,
            10_000,
            f"new-{waiter}",
            needs_id,
        )
        self.take(self.group.join(request, waiter, **self.times))
        answer = self.answers[waiter]
        assert isinstance(answer, JoinResult)
        return answer

    def classic_sync(self, member_id: str, generation_id: int, **options: Any) -> SyncResult:
        self._asked += 1
        waiter = f"sync-{self._asked}"
        request = SyncRequest(
            member_id, generation_id, options.pop("instance", None), "consumer", "range", **options
        )
        self.take(self.group.sync(request, waiter, **self.times))
        answer = self.answers[waiter]
        assert isinstance(answer, SyncResult)
        return answer

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        leaving = [LeavingMember(*each) for each in members]
        codes, effects = self.group.leave(leaving, **self.times)
        self.take(effects)
        return codes

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        offsets: Held | None = None,
        *,
        version: int = 9,
    ) -> ErrorCode:
        named = [(name, each, b"") for name, all_ in (offsets or {}).items() for each in all_]
        return self.group.check_commit(
            member_id, epoch, None, now_ms=self.now_ms, version=version, offsets=named
        )

    def resolve(self, topics: dict[str, frozenset[str]] | None) -> None:
        self.take(self.group.regular_expressions_resolved(topics, **self.times))

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass with a tick whenever one is due, as the shell does it."""
        end_ms = self.now_ms + milliseconds
        for _ in range(100_000):
            due_ms = self.group.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.group.tick(**self.times))
        else:
            raise AssertionError(f"a deadline that no tick moves: {due_ms}")
        self.now_ms = end_ms

    def reload(self, log: Mapping[bytes, bytes] | None = None) -> ConsumerGroupDriver:
        """Return another coordinator, which has replayed what was committed."""
        other = ConsumerGroupDriver(auto_commit=self.auto_commit)
        other.host, other.now_ms, other._asked = self.host, self.now_ms, self._asked
        other.log = dict(self.log if log is None else log)
        other.group = load(other.log, self.host)
        other.take(other.group.on_loaded(**other.times))
        return other

    def require_replayable(self) -> None:
        """Check that the live state equals the replayed one (R22)."""
        replayed = load(self.log, self.host).members.speculative.committed
        live = self.group.members.speculative.committed
        for name in ConsumerGroupState.__slots__:
            assert getattr(replayed, name) == getattr(live, name), name


def load(log: Mapping[bytes, bytes], host: Host) -> ConsumerGroup:
    records = []
    for key, value in log.items():
        decoded = decode_key(key)
        assert decoded is not None
        records.append((decoded, decode_value(decoded.type, value)))
    return ConsumerGroup.from_records("g", records, host)
