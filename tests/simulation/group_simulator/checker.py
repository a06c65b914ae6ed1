"""The rules of groups and offsets, checked with every answer and every commit of the log.

`Ledger` is the committed log, replayed record by record; answers and states of coordinators are
compared with it. Only the partition's true leader must match it: a deposed leader that does not
know it yet may answer from an older state, but may acknowledge nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from group_protocols import classic_of

from fairlead_broker.coordinator.shard import ShardState
from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.classic.member import member_bytes
from fairlead_broker.group.group_types import GroupState
from fairlead_broker.group.records.classic_records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from fairlead_broker.limits import PENDING_MEMBER_BYTES
from fairlead_wire.errors import ErrorCode
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import ControlType, decode_batch

from .offsets_log import end_of_transaction

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fairlead_broker.log.producers.end_marker import EndMarker

    from .brokers import BrokerHost
    from .members import Answer, Member
    from .offsets_log import Entry
    from .world import World

GROUP = "g"
SOME_COMMITS = 3


class Violation(AssertionError):  # noqa: N818
    """A rule was broken."""


class CommitNote(NamedTuple):
    """Who committed, in which generation; stored as the metadata of the offset."""

    number: int
    member_id: str
    generation_id: int

    @classmethod
    def of_metadata(cls, metadata: str) -> CommitNote:
        return cls(*json.loads(metadata))

    @property
    def metadata(self) -> str:
        return json.dumps(self)


class OffsetRecord(NamedTuple):
    """A record of an offset; `is_committed` is None while its transaction is open."""

    producer: tuple[int, int] | None
    value: OffsetValue | None
    is_committed: bool | None


class Ledger:
    """The committed log so far, and the state that follows from it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.group: GroupValue | None = None
        self.group_bytes: bytes | None = None
        self.offsets: dict[tuple[str, int], OffsetValue] = {}
        self.unstable: set[tuple[str, int]] = set()
        self.assignments: dict[int, dict[str, bytes]] = {}
        """By generation: the assignments of its leader, by instance or member."""
        self.deletions = 0
        self.joined: set[tuple[str, int]] = set()
        """Members with the generations that a join returned to them."""
        self.commit_epochs: dict[int, int] = {}
        """By number of the commit: the leader epoch in which its record was appended."""
        self.ended: set[tuple[int, int]] = set()
        """Producer and epoch of each transaction whose marker is in the log."""
        self._records: dict[tuple[str, int], dict[int, OffsetRecord]] = {}
        """By partition: all records that were ever written for it, by offset."""

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    def take(self, entry: Entry) -> None:
        self.entries.append(entry)
        header = decode_batch_header(entry.data, 0)
        producer = (header.producer_id, header.producer_epoch)
        if header.is_control:
            self._take_marker(producer, end_of_transaction(entry.data))
            return
        for record in decode_batch(entry.data):
            assert record.key is not None
            key = decode_key(record.key)
            if isinstance(key, OffsetKey):
                staging = producer if header.is_transactional else None
                value = self._read_offset(record.value, entry, staging)
                records = self._records.setdefault((key.topic, key.partition), {})
                is_committed = None if header.is_transactional else True
                records[record.offset] = OffsetRecord(staging, value, is_committed)
                self._decide((key.topic, key.partition))
            elif isinstance(key, GroupKey):
                self._take_group(record.value)

    def _take_marker(self, producer: tuple[int, int], kind: ControlType) -> None:
        """Apply the oracle of transactions: by decisions about records, not by markers (G22)."""
        self.ended.add(producer)
        for place, records in self._records.items():
            for offset, each in records.items():
                if each.producer == producer and each.is_committed is None:
                    is_committed = kind is ControlType.COMMIT
                    records[offset] = each._replace(is_committed=is_committed)
            self._decide(place)

    def _decide(self, place: tuple[str, int]) -> None:
        """Use the last record of a partition that belongs to no open transaction."""
        records = self._records[place]
        committed = [offset for offset, each in records.items() if each.is_committed]
        value = records[max(committed)].value if committed else None
        if value is None:
            self.offsets.pop(place, None)
        else:
            self.offsets[place] = value
        removed_at = max((at for at in committed if records[at].value is None), default=-1)
        is_unstable = any(
            each.is_committed is None and offset > removed_at for offset, each in records.items()
        )
        (self.unstable.add if is_unstable else self.unstable.discard)(place)

    def _read_offset(
        self, data: bytes | None, entry: Entry, producer: tuple[int, int] | None
    ) -> OffsetValue | None:
        if data is None:
            return None
        value = decode_offset_value(data)
        note = CommitNote.of_metadata(value.metadata)
        members = {each.member_id for each in self.group.members} if self.group else set()
        if note.generation_id < 0 and producer is not None:
            pass  # Clients of TxnOffsetCommit before version 3 cannot identify themselves.
        elif note.generation_id < 0:
            expect(not members, "G5: {} was committed beside members {}", note, members)
        else:
            generation = -1 if self.group is None else self.group.generation_id
            is_valid = note.generation_id == generation and note.member_id in members
            # A rebalance may overtake another one whose assignments were never written: members of
            # that one may keep its partitions (KIP-429), and commit for them.
            is_unwritten = note.generation_id > generation
            is_valid |= is_unwritten and (note.member_id, note.generation_id) in self.joined
            expect(is_valid, "G5: {} in generation {} of {}", note, generation, members)
        self.commit_epochs[note.number] = entry.leader_epoch
        return value

    def _take_group(self, data: bytes | None) -> None:
        before = -1 if self.group is None else self.group.generation_id
        self.group_bytes = data
        if data is None:
            expect(not self.group or not self.group.members, "G7: a group with members was deleted")
            self.group = None
            self.deletions += 1
            self.assignments.clear()
            return
        self.group = value = decode_group_value(data)
        generation = value.generation_id
        expect(generation >= before, "G6: generation {} after {}", generation, before)
        named = {each.group_instance_id or each.member_id: each for each in value.members}
        expect(len(named) == len(value.members), "G6: a member or instance is there twice")
        if value.members:
            is_led = any(each.member_id == value.leader for each in value.members)
            expect(is_led, "G6: {} leads and is no member", value.leader)
        assigned = {name: each.assignment for name, each in named.items()}
        first = self.assignments.setdefault(generation, assigned)
        expect(first == assigned, "G1: generation {} has {} and {}", generation, first, assigned)
        owned = [one for each in assigned.values() for one in partitions_of(each)]
        expect(len(owned) == len(set(owned)), "G2: {} owned twice: {}", owned, assigned)


class Checker:
    """The world calls it at every step that matters."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = Ledger()
        self.fenced: dict[str, float] = {}
        """Member ids of static instances that another member has taken over, and since when."""
        self._holders: dict[str, str] = {}
        self.acknowledged = 0
        self.steps_to_commits = 0
        self.generations = 0
        self.comparisons = 0

    def on_elected(self, leader: BrokerHost) -> None:
        """Check the model itself: every log that may lead has what is committed."""
        ledger = self.ledger.entries
        has_all = leader.copy.entries[: len(ledger)] == ledger
        expect(has_all, "I4: {} was elected without what is committed", leader.name)

    def on_committed(self, leader: BrokerHost) -> None:
        ledger, high_watermark = self.ledger, leader.partition.high_watermark
        for entry in leader.copy.entries[len(ledger.entries) :]:
            if entry.end > high_watermark:
                break
            ledger.take(entry)

    def on_joined(self, host: BrokerHost, member: Member, answer: Answer) -> None:
        """Check that the log has the new id of a static member that joins a stable group."""
        result = answer.result
        if result.error is not ErrorCode.NONE:
            return
        self.ledger.joined.add((result.member_id, result.generation_id))
        if not self._holds(host):
            return
        group = host.coordinator.groups.get(GROUP)
        if group is None or member.instance is None:
            return
        if classic_of(group).state is GroupState.STABLE and answer.is_new:
            ids = {each.member_id for each in self._group().members}
            known = result.member_id in ids
            expect(known, "G3: {} took over and is not in the log: {}", result.member_id, ids)
            before = self._holders.get(member.instance)
            if before is not None and before != result.member_id:
                self.fenced[before] = self.world.loop.time()
            self._holders[member.instance] = result.member_id

    def on_synced(self, host: BrokerHost, member: Member, answer: Answer) -> None:
        if answer.result.error is not ErrorCode.NONE or not self._holds(host):
            return
        self._check_not_fenced(answer)
        generation = answer.generation_id
        assigned = self.ledger.assignments.get(generation)
        known = assigned is not None
        expect(known, "G1: generation {} was answered before it was written", generation)
        assert assigned is not None
        name = member.instance or answer.member_id
        sent, written = answer.result.assignment, assigned.get(name)
        expect(sent == written, "G1: {} got {}, the log has {}", name, sent, written)
        self.generations = max(self.generations, generation)

    def on_heartbeat(self, host: BrokerHost, answer: Answer) -> None:
        if answer.result is ErrorCode.NONE and self._holds(host):
            self._check_not_fenced(answer)

    def on_commit_answered(self, host: BrokerHost, answer: Answer, note: CommitNote) -> None:
        if answer.result is ErrorCode.NONE:
            self.on_staged_answered(host, answer, note)
            self.acknowledged += 1
            if self.acknowledged == SOME_COMMITS:
                self.steps_to_commits = self.world.loop.steps

    def on_staged_answered(self, host: BrokerHost, answer: Answer, note: CommitNote) -> None:
        """Check an acknowledgement: from the leader, below its high watermark, of its epoch."""
        if answer.result is not ErrorCode.NONE:
            return
        epoch = self.ledger.commit_epochs.get(note.number)
        expect(epoch is not None, "G4: {} was acknowledged and is not committed", note)
        partition = host.partition
        expect(partition.is_leader, "G8: {} acknowledged by a follower", note)
        is_own = partition.leader_epoch == epoch
        expect(is_own, "G8: {} of epoch {} in {}", note, epoch, partition.leader_epoch)
        self._check_not_fenced(answer)

    def on_marker_answered(self, host: BrokerHost, code: ErrorCode, marker: EndMarker) -> None:
        """Check an acknowledged marker: the staged offsets are visible, or dropped."""
        if code is not ErrorCode.NONE:
            return
        transaction = (marker.producer_id, marker.producer_epoch)
        is_known = transaction in self.ledger.ended
        expect(is_known, "G21: {} was acknowledged and is not committed", marker)
        group = host.coordinator.groups.get(GROUP)
        open_here = None if group is None else group.offsets.open_transactions
        is_over = open_here is None or marker.producer_id not in open_here.producer_ids
        expect(is_over, "G21: {} was acknowledged and is not applied", marker)

    def on_fetched(
        self,
        host: BrokerHost,
        found: Mapping[int, OffsetValue | None],
        unstable: Collection[int],
    ) -> None:
        if not self._holds(host):
            return
        staged = {index for _, index in self.ledger.unstable}
        expect(set(unstable) == staged, "G21: unstable are {}, staged are {}", unstable, staged)
        for index, value in found.items():
            committed = self.ledger.offsets.get(("t", index))
            expect(value == committed, "G4: fetched {}, committed {}", value, committed)

    def _check_not_fenced(self, answer: Answer) -> None:
        since_s = self.fenced.get(answer.member_id)
        is_fine = since_s is None or answer.sent_s <= since_s
        expect(is_fine, "G3: {} was fenced and goes on", answer.member_id)

    def _group(self) -> GroupValue:
        group = self.ledger.group
        expect(group is not None, "G1: a group that is not in the log")
        assert group is not None
        return group

    def _holds(self, host: BrokerHost) -> bool:
        return self.world.replication.is_true_leader(host)

    def compare(self) -> None:
        """Compare the true leader's memory with the committed log."""
        for each in self.world.brokers.values():
            count = each.coordinator.metrics.broken_decisions
            expect(count == 0, "{} wrong records of {} were stopped", count, each.name)
        host = self.world.replication.leader
        if host is None or not self._holds(host):
            return
        shard = host.coordinator.runtime.shards.get(0)
        if shard is None or not shard.is_current or shard.state is not ShardState.ACTIVE:
            return
        if any(True for _ in shard.uncommitted()):
            return
        self._compare_offsets(host)
        group = host.coordinator.groups.get(GROUP)
        self.comparisons += 1
        self._compare_memory(host)
        if group is None:
            return
        live = classic_of(group)
        if live.rebalance.is_logged and live.state in {GroupState.STABLE, GroupState.EMPTY}:
            self._compare_group(live)

    def _compare_offsets(self, host: BrokerHost) -> None:
        ledger = self.ledger
        group = host.coordinator.groups.get(GROUP)
        live: dict[tuple[str, int], Any] = {}
        unstable: set[tuple[str, int]] = set()
        if group is not None:
            live = {each: group.offsets.find(*each) for each in group.offsets.partitions()}
            unstable = set(group.offsets.unstable())
        expect(live == ledger.offsets, "G4: in memory {}, in the log {}", live, ledger.offsets)
        staged = ledger.unstable
        expect(unstable == staged, "G21: unstable in memory {}, in the log {}", unstable, staged)

    def _compare_memory(self, host: BrokerHost) -> None:
        """Check that running counts equal what they count."""
        counted = host.coordinator.memory.total_bytes
        there = 0
        for group in host.coordinator.groups.values():
            classic = classic_of(group)
            there += PENDING_MEMBER_BYTES * len(classic.pending)
            for each in classic.members:
                there += member_bytes(each.protocols) + len(each.assignment)
        expect(counted == there, "G10: {} bytes are counted, {} are there", counted, there)

    def _compare_group(self, live: ClassicGroup) -> None:
        if self.ledger.group_bytes is None:
            expect(live.generation_id == 0, "G9: generation {} unlogged", live.generation_id)
            return
        replayed = ClassicGroup.from_record(
            GROUP,
            self.ledger.group_bytes,
            initial_rebalance_delay_ms=0,
            size_max=100,
            now_ms=0,
        )
        same = (live.describe(), live.generation_id, live.leader) == (
            replayed.describe(),
            replayed.generation_id,
            replayed.leader,
        )
        expect(same, "G9: in memory {}, in the log {}", live.describe(), replayed.describe())

    def check_ownership(self) -> None:
        """Check that no two members of one generation own the same partition."""
        held: dict[tuple[int, int, int], Member] = {}
        for member in self.world.members:
            if not member.is_running or member.holds is None:
                continue
            life, generation_id, partitions = member.holds
            for index in partitions:
                other = held.setdefault((life, generation_id, index), member)
                is_fine = other is member or (
                    member.instance is not None and member.instance == other.instance
                )
                expect(is_fine, "G2: {} and {} own {}", member.name, other.name, index)


def partitions_of(assignment: bytes) -> list[int]:
    """Return the partitions in a simulated leader's assignment."""
    if not assignment:
        return []
    return list(json.loads(assignment)["partitions"])


def expect(condition: bool, claim: str, *values: object) -> None:
    if not condition:
        raise Violation(claim.format(*values))
