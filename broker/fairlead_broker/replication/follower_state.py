"""What a follower fetches from its leader, and what it does about the answer.

Pure: it takes the log's offsets and epochs and the leader's answer, and returns an action that
`Partition` carries out. A state lives as long as its leader epoch.

A follower fetches from its log's end and names the epoch of its last record (R3). If the logs
diverge, the leader says where, instead of sending records; the follower truncates to that offset
and fetches again (I7). It never truncates to a high watermark (R1).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from fairlead_broker.replication.divergence import truncation_offset
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from fairlead_broker.replication.replica_log import EpochHistory

RETRY_DELAY_MIN_MS: Final = 20
RETRY_DELAY_MAX_MS: Final = 1_000


class FetchPosition(NamedTuple):
    """What a fetch of one partition says (R3)."""

    fetch_offset: int
    last_fetched_epoch: int
    """Epoch of the last record of the follower's log, -1 if it has none."""
    current_leader_epoch: int
    """Leader epoch that the follower knows (R5)."""


class FetchedPartition(NamedTuple):
    """A leader's answer about one partition, with what was asked. -1 stands for a missing value."""

    position: FetchPosition
    error_code: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: int = -1
    diverging_end_offset: int = -1
    records: memoryview | bytes = b""


@dataclass(frozen=True, slots=True)
class Append:
    """Append `records` (there may be none) and adopt the leader's marks."""

    records: memoryview | bytes
    leader_high_watermark: int
    leader_log_start_offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """The logs diverge at `offset`: drop everything from there on, then fetch again."""

    offset: int


@dataclass(frozen=True, slots=True)
class RestartAt:
    """The leader has no records that follow this log's end: drop everything, go on at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Retry:
    """The leader can't answer now: fetch again after `after_ms`."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """The answer is about a position that this follower has left: ignore it."""


Action: TypeAlias = Append | TruncateTo | RestartAt | Retry | Nothing

_NOTHING: Final = Nothing()


class FollowerState:
    """One follower of one leader in one leader epoch.

    `failures` counts useless answers in a row; each doubles the delay before the next fetch.
    `leader_high_watermark` is the leader's latest one, for metrics; -1 at the beginning.
    """

    __slots__ = ("failures", "leader_epoch", "leader_high_watermark")

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.failures = 0
        self.leader_high_watermark = -1

    def next_fetch(self, log: "EpochHistory") -> FetchPosition:
        """Return what to fetch now."""
        return FetchPosition(log.log_end_offset, log.last_leader_epoch, self.leader_epoch)

    def on_fetched(self, log: "EpochHistory", reply: FetchedPartition) -> Action:
        """Return what to do about an answer.

        An answer to a fetch of another epoch, or from another position, is discarded: the log or
        the leader has changed since (R5).
        """
        asked = reply.position
        if (
            asked.current_leader_epoch != self.leader_epoch
            or asked.fetch_offset != log.log_end_offset
        ):
            return _NOTHING
        if reply.error_code:
            return self._on_error(log, reply)
        if reply.diverging_epoch >= 0 or reply.diverging_end_offset >= 0:
            return self._on_divergence(log, reply)
        return Append(reply.records, reply.high_watermark, reply.log_start_offset)

    def taken_in(self) -> None:
        """Note that an answer was useful: its records are in the log."""
        self.failures = 0

    def retry(self) -> Retry:
        """Fetch again later: the answer could not be used."""
        after_ms = min(RETRY_DELAY_MIN_MS << min(self.failures, 10), RETRY_DELAY_MAX_MS)
        self.failures += 1
        return Retry(after_ms)

    def _on_error(self, log: "EpochHistory", reply: FetchedPartition) -> Action:
        leader_start = reply.log_start_offset
        if reply.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and leader_start >= 0:
            is_behind = log.log_end_offset <= leader_start
            is_blank = log.last_leader_epoch < 0 and log.log_end_offset != leader_start
            if is_behind or is_blank:
                return RestartAt(leader_start)
        return self.retry()

    def _on_divergence(self, log: "EpochHistory", reply: FetchedPartition) -> Action:
        offset = truncation_offset(log, reply.diverging_epoch, reply.diverging_end_offset)
        if offset < log.log_start_offset:
            return RestartAt(max(offset, reply.log_start_offset, 0))
        if offset == log.log_end_offset and log.last_leader_epoch <= reply.diverging_epoch:
            # Nothing to truncate and no epoch to drop: to fetch at once would get the same answer.
            return self.retry()
        return TruncateTo(offset)
