"""What followers of this broker's partitions want, kept between their fetches.

One session per follower broker. A fetch names only the partitions whose position changed, and only
partitions with something new are looked at, so that idle ones cost neither side anything. A
session belongs to its newest fetch: another process start, or a connection made anew, begins
another session and ends this one.

`news` are the partitions to look at for the next answer: those that the last fetch named, and
those that have moved since (`advanced`, told once a turn of the loop). A partition that was
answered with records, or with an error, is left alone until the follower names it again.

An earlier start of the follower's broker does not end the session of a later one (R11). It may be
alive still, cut off from the controller, while another process has taken its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.replication.broker_epochs import UNKNOWN_BROKER_EPOCH
from fairlead_broker.replication.follower_state import FetchPosition
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from fairlead_broker.log.lookup import Arrival
    from fairlead_broker.replication.partition import Partition
    from fairlead_wire.messages.fetch import PartitionData

INITIAL_EPOCH: Final = 0
_INT32_MAX: Final = 2**31 - 1
_NEVER_TOLD: Final = -2


class FollowedPartition:
    """One partition of a session. `refusal` is an answer that is ready: an error, a divergence."""

    __slots__ = (
        "arrival",
        "index",
        "is_answered",
        "max_bytes",
        "partition",
        "position",
        "refusal",
        "told_high_watermark",
        "told_log_start_offset",
        "topic_id",
    )

    def __init__(self, topic_id: bytes, index: int) -> None:
        self.topic_id = topic_id
        self.index = index
        self.partition: Partition | None = None
        self.position = FetchPosition(-1, -1, -1)
        self.max_bytes = 0
        self.refusal: PartitionData | None = None
        self.arrival: Arrival | None = None
        """Of the records that the follower asks for, while they lie elsewhere."""
        self.is_answered = False
        self.told_high_watermark = _NEVER_TOLD
        self.told_log_start_offset = _NEVER_TOLD

    def note_told(self, *, high_watermark: int, log_start_offset: int) -> bool:
        """Take note of the marks in an answer; whether the follower didn't know them."""
        is_news = (
            high_watermark != self.told_high_watermark
            or log_start_offset != self.told_log_start_offset
        )
        self.told_high_watermark = high_watermark
        self.told_log_start_offset = log_start_offset
        return is_news

    def note_start(self, own_offset: int, leader_offset: int) -> None:
        """Take note of where the follower's log starts, which it says with its position.

        One that starts later than the leader's has nothing to hear; -1 is an earlier release.
        """
        if own_offset >= 0:
            self.told_log_start_offset = min(own_offset, leader_offset)

    def lacks_start(self, log_start_offset: int) -> bool:
        """Tell whether the leader's log starts later than the follower knows."""
        return log_start_offset > self.told_log_start_offset >= 0


class FollowerSession:
    """`epoch` is the one that the next fetch must carry; `on_news` is set while one is parked."""

    __slots__ = (
        "broker_epoch",
        "epoch",
        "last_fetch_ms",
        "news",
        "on_end",
        "on_news",
        "partitions",
        "replica_id",
        "session_id",
        "watched",
    )

    def __init__(self, session_id: int, replica_id: int, broker_epoch: int) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.epoch = INITIAL_EPOCH + 1
        self.last_fetch_ms = 0
        self.partitions: dict[tuple[bytes, int], FollowedPartition] = {}
        self.watched: dict[Partition, FollowedPartition] = {}
        self.news: dict[FollowedPartition, None] = {}
        self.on_news: Callable[[], None] | None = None
        self.on_end: Callable[[], None] | None = None

    def name(self, topic_id: bytes, index: int) -> FollowedPartition:
        """Add a partition that the follower asks for, or take a new position of it."""
        key = (topic_id, index)
        followed = self.partitions.get(key)
        if followed is None:
            followed = self.partitions[key] = FollowedPartition(topic_id, index)
        followed.refusal = None
        followed.arrival = None
        followed.is_answered = False
        # To the end: who was answered last stands behind the others in the next budget.
        self.news.pop(followed, None)
        self.news[followed] = None
        return followed

    def watch(self, followed: FollowedPartition, partition: Partition) -> None:
        """Look at `followed` whenever `partition` moves."""
        if followed.partition is not partition:
            if followed.partition is not None:
                self.watched.pop(followed.partition, None)
            followed.partition = partition
            self.watched[partition] = followed

    def forget(self, topic_id: bytes, index: int) -> None:
        """Forget a partition that the follower does not want any more, or was refused."""
        followed = self.partitions.pop((topic_id, index), None)
        if followed is not None:
            self.news.pop(followed, None)
            if followed.partition is not None:
                self.watched.pop(followed.partition, None)


class FollowerSessions:
    """All of them, by the id of the follower's broker: there are never more than brokers."""

    def __init__(self, chance: random.Random) -> None:
        self._sessions: dict[int, FollowerSession] = {}
        self._chance = chance

    def __len__(self) -> int:
        return len(self._sessions)

    def session_of(self, replica_id: int) -> FollowerSession | None:
        """Return the session of a broker that follows something here."""
        return self._sessions.get(replica_id)

    def begin(
        self,
        *,
        replica_id: int,
        broker_epoch: int,
        session_id: int,
        epoch: int,
        now_ms: int,
        registered_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> FollowerSession | ErrorCode:
        """Return the session of a fetch with these fields, or why another has to begin.

        `registered_epoch` is that of the broker in the image, whose start is never an earlier one.
        """
        session = self._sessions.get(replica_id)
        if epoch == INITIAL_EPOCH:
            if session is not None and session.broker_epoch > broker_epoch != registered_epoch:
                return ErrorCode.STALE_BROKER_EPOCH
            if session is not None and session.on_end is not None:
                session.on_end()
            session = FollowerSession(self._chance.randint(1, _INT32_MAX), replica_id, broker_epoch)
            self._sessions[replica_id] = session
        else:
            if session is None or session.session_id != session_id:
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            if session.epoch != epoch or session.broker_epoch != broker_epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH
            session.epoch = 1 if epoch == _INT32_MAX else epoch + 1
        session.last_fetch_ms = now_ms
        return session

    def advanced(self, partitions: Iterable[Partition]) -> None:
        """Answer the followers that wait for these partitions, which have moved."""
        sessions = self._sessions
        if not sessions:
            return
        touched: dict[FollowerSession, None] = {}
        for partition in partitions:
            for replica_id in partition.replicas:
                session = sessions.get(replica_id)
                if session is None:
                    continue
                followed = session.watched.get(partition)
                if followed is not None and not followed.is_answered:
                    session.news[followed] = None
                    touched[session] = None
        for session in touched:
            if session.on_news is not None:
                session.on_news()

    def note_alive(self) -> None:
        """Tell leaders of followers that ask on without naming their partitions (R12)."""
        for session in self._sessions.values():
            for partition in session.watched:
                if partition.leader is not None:
                    partition.leader.record_alive(session.replica_id, session.last_fetch_ms)
