"""The partition of the offsets topic, on three brokers: a model of replication with leader epochs.

The existing simulator plays the real replication; here it is only what a coordinator sees of it.
A log is appended to by whoever thinks that it leads, is copied by fetches, and is cut where it
parts from the leader's. The high watermark is what all in sync have; an election takes one of them.
"""

from __future__ import annotations

from struct import pack_into
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import decode_batch_header

if TYPE_CHECKING:
    import random

MIN_IN_SYNC: Final = 2


class Entry(NamedTuple):
    """A batch in a log. Two logs agree up to where base and epoch of their entries do."""

    base: int
    end: int
    leader_epoch: int
    data: bytes


class LogCopy:
    """What one broker's disk has."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    def follow(self, leader: LogCopy) -> None:
        """Drop what the leader has not, take what it has."""
        common = len(self.entries)
        if self.entries == leader.entries[:common]:
            self.entries += leader.entries[common:]
            return
        common = 0
        for mine, theirs in zip(self.entries, leader.entries, strict=False):
            if mine.base != theirs.base or mine.leader_epoch != theirs.leader_epoch:
                break
            common += 1
        del self.entries[common:]
        self.entries += leader.entries[common:]

    def lose_tail(self, rng: random.Random) -> None:
        """Power was lost, and with it what had not been fsynced."""
        del self.entries[rng.randint(0, len(self.entries)) :]


class OffsetsPartition:
    """The partition as one broker process sees it: what the coordinator calls a partition."""

    index = 0
    topic = CONSUMER_OFFSETS
    log_start_offset = 0

    def __init__(self, copy: LogCopy) -> None:
        self.copy = copy
        self.leader: object | None = None
        self.leader_epoch = 0
        self.high_watermark = 0
        self.epoch_start = 0
        self.in_sync: frozenset[int] = frozenset()
        self.log = SimpleNamespace(
            config=SimpleNamespace(max_message_bytes=1_000_000, segment_bytes=1_000_000),
            read=self._read,
        )

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    @property
    def is_high_watermark_valid(self) -> bool:
        return self.high_watermark >= self.epoch_start

    @property
    def log_end_offset(self) -> int:
        return self.copy.end

    def lead(self, leader_epoch: int, in_sync: frozenset[int]) -> None:
        self.leader = self
        self.leader_epoch = leader_epoch
        self.epoch_start = self.copy.end
        self.in_sync = in_sync

    def follow(self, leader_epoch: int) -> None:
        self.leader = None
        self.leader_epoch = leader_epoch

    def append_as_leader(
        self, records: Any, *, required_acks: int, now_ms: int, has_keys: bool = False
    ) -> Any:
        """A batch at the end of this broker's log, whether or not others still follow it."""
        if self.leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it follows")
        if len(self.in_sync) < MIN_IN_SYNC:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few in sync")
        assert required_acks == -1
        assert has_keys
        assert now_ms > 0
        data = bytearray(records)
        base = self.copy.end
        pack_into(">q", data, 0, base)
        pack_into(">i", data, 12, self.leader_epoch)
        header = decode_batch_header(data, 0)
        self.copy.entries.append(Entry(base, header.next_offset, self.leader_epoch, bytes(data)))
        return SimpleNamespace(base_offset=base, last_offset=header.next_offset - 1)

    def _read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one_batch: bool
    ) -> Any:
        """A few batches from `offset`: small pieces, so that loading takes several."""
        assert max_bytes > 0
        assert minimum_one_batch
        pieces = [each.data for each in self.copy.entries if offset <= each.base < end_offset]
        return SimpleNamespace(records=b"".join(pieces[:10]) or None)
