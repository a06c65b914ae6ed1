"""The partition of the offsets topic, on three brokers: a model of replication with leader epochs.

Another simulator runs the real replication; here it is only what a coordinator sees of it. Any
broker that believes itself leader appends to its log. Fetches copy the log, and a follower
truncates it where it diverges from the leader's. The high watermark is what all in-sync replicas
have; an election chooses one of them.
"""

from __future__ import annotations

from struct import pack_into
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_broker.log.producers.verification import VerificationGuard
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import (
    ControlType,
    EndOfTransaction,
    decode_batch,
    decode_end_of_transaction,
    encode_batch,
    encode_end_of_transaction,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from fairlead_broker.log.producers.end_marker import EndMarker

MIN_IN_SYNC: Final = 2


class Entry(NamedTuple):
    """A batch in a log. Two logs agree as far as base and epoch of their entries are equal."""

    base: int
    end: int
    leader_epoch: int
    data: bytes


def end_of_transaction(data: bytes) -> ControlType:
    """Return whether a marker commits or aborts."""
    (record,) = decode_batch(data)
    end = decode_end_of_transaction(record)
    assert end is not None
    return end.type


def open_transactions(entries: Iterable[Entry]) -> dict[int, tuple[int, int]]:
    """Return by producer the epoch of its open transaction, and where that begins."""
    found: dict[int, tuple[int, int]] = {}
    for entry in entries:
        header = decode_batch_header(entry.data, 0)
        if header.is_control:
            found.pop(header.producer_id, None)
        elif header.is_transactional:
            found.setdefault(header.producer_id, (header.producer_epoch, entry.base))
    return found


def compacted(entries: Sequence[Entry], to: int) -> list[Entry]:
    """Return entries without records below `to` that are aborted or have a newer one of their key.

    Markers stay. `to` is at most the stable offset, so everything below is decided (KIP-534).
    """
    aborted: set[int] = set()
    last: dict[bytes | None, int] = {}
    begun: dict[int, list[Entry]] = {}
    for entry in entries:
        header = decode_batch_header(entry.data, 0)
        if header.is_control:
            staged = begun.pop(header.producer_id, [])
            if end_of_transaction(entry.data) is ControlType.ABORT:
                aborted.update(each.base for each in staged)
        elif header.is_transactional:
            begun.setdefault(header.producer_id, []).append(entry)
    for entry in entries:
        header = decode_batch_header(entry.data, 0)
        if entry.end <= to and entry.base not in aborted and not header.is_control:
            last.update({each.key: each.offset for each in decode_batch(entry.data)})
    kept = []
    for entry in entries:
        header = decode_batch_header(entry.data, 0)
        if entry.end > to or header.is_control:
            kept.append(entry)
            continue
        if entry.base in aborted:
            continue
        records = [each for each in decode_batch(entry.data) if last[each.key] == each.offset]
        if records:
            data = encode_batch(
                records,
                partition_leader_epoch=header.partition_leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                is_transactional=header.is_transactional,
            )
            kept.append(entry._replace(data=data))
    return kept


class LogCopy:
    """The log on one broker's disk."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    def follow(self, leader: LogCopy) -> None:
        """Drop what the leader does not have, and copy what it has."""
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
        """Lose some of what was not fsynced, as in a power cut."""
        del self.entries[rng.randint(0, len(self.entries)) :]


class OffsetsPartition:
    """The partition in one broker process, in place of the broker's `Partition`."""

    index = 0
    topic = CONSUMER_OFFSETS
    log_start_offset = 0

    def __init__(self, copy: LogCopy, rng: random.Random) -> None:
        self.copy = copy
        self.compacted_to = 0
        """Reads return a compacted log below this offset."""
        self._rng = rng
        self._guards: dict[int, VerificationGuard] = {}
        self.leader: OffsetsPartition | None = None
        self.leader_epoch = 0
        self.high_watermark = 0
        self.epoch_start = 0
        self.in_sync: frozenset[int] = frozenset()
        self.log = SimpleNamespace(
            config=SimpleNamespace(max_message_bytes=1_000_000, segment_bytes=1_000_000),
            read=self._read,
            is_offline=False,
            lacks_room=False,
        )

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    @property
    def has_enough_in_sync_replicas(self) -> bool:
        return len(self.in_sync) >= MIN_IN_SYNC

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
        self._guards.clear()
        open_at = [begin for _, begin in open_transactions(self.copy.entries).values()]
        stable_offset = min([self.high_watermark, *open_at])
        self.compacted_to = self._rng.choice((0, stable_offset, stable_offset // 2))

    def follow(self, leader_epoch: int) -> None:
        self.leader = None
        self.leader_epoch = leader_epoch

    def begin_verification(
        self, producer_id: int, producer_epoch: int, _: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        assert supports_epoch_bump
        self._check_epoch(producer_id, producer_epoch)
        if producer_id in open_transactions(self.copy.entries):
            return None
        return self._guards.setdefault(producer_id, VerificationGuard())

    def _check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        known = max(
            (
                header.producer_epoch
                for header in (decode_batch_header(each.data, 0) for each in self.copy.entries)
                if header.producer_id == producer_id
            ),
            default=-1,
        )
        if producer_epoch < known:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"{known} is known")

    def _require_leader(self) -> None:
        if self.leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it follows")
        if not self.has_enough_in_sync_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few in sync")

    def append_end_marker(self, marker: EndMarker, *, now_ms: int) -> Any:
        """Append a marker; its epoch may be repeated. Pending verifications must be repeated."""
        self._require_leader()
        self._check_epoch(marker.producer_id, marker.producer_epoch)
        self._guards.pop(marker.producer_id, None)
        kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
        return self._append(
            encode_end_of_transaction(
                EndOfTransaction(kind, marker.coordinator_epoch),
                offset=0,
                timestamp=now_ms,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
            )
        )

    def append_as_leader(
        self,
        records: Any,
        *,
        required_acks: int,
        now_ms: int,
        has_keys: bool = False,
        guard: VerificationGuard | None = None,
        is_from_coordinator: bool = False,
    ) -> Any:
        """Append a batch to this broker's log, whether or not others still follow it."""
        self._require_leader()
        assert required_acks == -1
        assert has_keys
        assert now_ms > 0
        header = decode_batch_header(records, 0)
        assert header.is_transactional == is_from_coordinator
        if is_from_coordinator:
            producer_id = header.producer_id
            self._check_epoch(producer_id, header.producer_epoch)
            if producer_id not in open_transactions(self.copy.entries):
                if guard is None or self._guards.get(producer_id) is not guard:
                    raise KafkaError(ErrorCode.INVALID_TXN_STATE, "it is not verified")
                del self._guards[producer_id]
        return self._append(records)

    def _append(self, records: Any) -> Any:
        data = bytearray(records)
        base = self.copy.end
        pack_into(">q", data, 0, base)
        pack_into(">i", data, 12, self.leader_epoch)
        header = decode_batch_header(data, 0)
        self.copy.entries.append(Entry(base, header.next_offset, self.leader_epoch, bytes(data)))
        return SimpleNamespace(first_offset=base, last_offset=header.next_offset - 1)

    def _read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one_batch: bool
    ) -> Any:
        """Return few batches from `offset`, so that loading takes several reads."""
        assert max_bytes > 0
        assert minimum_one_batch
        entries = compacted(self.copy.entries, self.compacted_to)
        pieces = [each.data for each in entries if offset <= each.base < end_offset]
        return SimpleNamespace(records=b"".join(pieces[:10]) or None, arrival=None)
