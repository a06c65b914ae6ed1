"""The omniscient observer: knows what was committed, acknowledged or seen, and checks the rules.

It follows the store's tables, every replica's log, and the clients' views. One rule is central, and
the others follow from it: every replica that the durable record counts as in sync or eligible has
everything that was ever committed, unless it has lost data and has not reported since. The
invariants have numbers, also in the code (* means: with clean elections):

    I1   log start <= high watermark <= log end.
    I2*  The high watermark that a client saw never goes back.
    I3   A partition has at most one leader in a leader epoch, and the epoch never falls.
    I4*  What was acknowledged with acks=all is in the log of every later leader.
    I5   A leader, if there is one, is in the ISR, and the ISR within the replicas.
    I6   Each change of a record raises its partition epoch by one.
    I7*  Below the high watermark replicas agree on every offset that both still hold.
    I8   Offsets rise within a log; they are contiguous where nothing was compacted.
    I9   No reply before its condition holds.
    I10  Recovery gives a valid prefix that holds all that was fsynced.
    I11  Once a controller has sealed the tables, no write of an older one succeeds.
    R17  A log start passes only what is committed, and only because a leader has said so.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator.broker_host import Start
from simulator.compaction_watch import CompactionWatch
from simulator.disk_log import DiskLog, KeyedLog
from simulator.fence_watch import FenceWatch
from simulator.move_watch import MoveWatch
from simulator.topic_watch import TopicWatch
from simulator.transaction_watch import TransactionWatch

from fairlead_controller.decisions.tables.lines import PARTITION_PREFIX, parse_partition_key
from fairlead_model.cluster import PartitionChanged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simulator.broker_host import BrokerHost
    from simulator.clients import Consumer, Producer
    from simulator.disk_log import AnyLog
    from simulator.keyed_records import KeyedEntry
    from simulator.records import Entry
    from simulator.world import World

    from fairlead_broker.replication.partition import Partition
    from fairlead_controller.decisions.tables.stored_table import StoredTable
    from fairlead_controller.stores.metadata_store import TableWrite
    from fairlead_model.cluster import Change

PartitionKey = tuple[bytes, int]


class Violation(AssertionError):  # noqa: N818
    """The cluster broke a rule."""


@dataclass(slots=True)
class Record:
    """A partition's registration in the store."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    min_insync_replicas: int
    is_recovering: bool
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    unconfirmed: tuple[int, ...] = ()
    queued: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing or self.queued)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas without those that a reassignment adds."""
        return tuple(each for each in self.replicas if each not in self.adding)


@dataclass(slots=True)
class Truth:
    """Everything that is known of one partition."""

    record: Record | None = None
    committed: list[Entry] = field(default_factory=list)
    """Everything below the highest high watermark that any leader has had."""
    moved_s: float = 0.0
    """When the leader epoch last rose."""
    leaders: dict[int, int] = field(default_factory=dict)
    """Leader epoch → broker that led in it."""
    agreed: dict[AnyLog, int] = field(default_factory=dict)
    """Log → offset below which it was found to equal what was committed."""
    forgotten: int = 0
    """Records below may be gone: a leader has deleted them, as it may if they are committed."""
    is_forgiven: bool = False
    """More failed at once than is claimed: loss is possible, contradiction is not."""
    had_nothing: bool = False
    """It recovers, and nothing was committed when that began."""


class Checker:
    """Raises `Violation` in the step that breaks a rule."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.truths: defaultdict[PartitionKey, Truth] = defaultdict(Truth)
        self.topics = TopicWatch(self)
        self.moves = MoveWatch(self)
        self.fences = FenceWatch(self)
        self.compaction = CompactionWatch(self)
        self.transactions = TransactionWatch(self)
        self.suspects: dict[PartitionKey, None] = {}
        """Partitions that have changed in this step."""
        self.sent_elsewhere = 0
        """How often a leader told a consumer to read from a follower …"""
        self.read_elsewhere = 0
        """… and how often a follower answered with records."""
        self.acknowledged: dict[tuple[PartitionKey, int], int] = {}
        """(partition, value) → offset, of acks=all."""
        self.epochs_seen: dict[str, int] = {}
        self.checks = 0
        self.reigning_epoch = -1
        """Epoch of the newest controller that has sealed the store."""
        self.is_confirmed = False
        """Somebody has confirmed tables that were rolled back: no replica is known to be whole,
        though none has lost anything. What is committed has to stay all the same."""
        self._published: dict[tuple[int, PartitionKey], int] = {}

    def on_written(self, write: TableWrite, before: StoredTable | None, after: StoredTable) -> None:
        """Check a table's change in the store."""
        if write.controller_epoch < self.reigning_epoch:
            self.fail(
                "I11: a write of controller epoch %d landed on table %s in the reign of %d",
                write.controller_epoch,
                write.table,
                self.reigning_epoch,
            )
        self.topics.on_written(write)
        self.moves.on_written(write)
        self.fences.on_written(write)
        for key, line in write.lines.items():
            if key.startswith(PARTITION_PREFIX):
                self._on_partition_line(parse_partition_key(key), line)
            elif key.startswith("broker/") and line is not None:
                known = None if before is None else before.lines.get(key)
                self._on_broker_line(json.loads(line), None if known is None else json.loads(known))

    def on_reign(self, controller_epoch: int) -> None:
        """Note that a controller has sealed and loaded every table; another may have since."""
        self.reigning_epoch = max(controller_epoch, self.reigning_epoch)
        self.moves.on_reign(controller_epoch)
        self.fences.on_reign(controller_epoch)

    def _on_partition_line(self, key: PartitionKey, line: str | None) -> None:
        truth = self.truths[key]
        if line is None or key[0] in self.topics.gone:
            truth.record = None
            return
        fields = json.loads(line)
        record = Record(
            replicas=tuple(fields["replicas"]),
            isr=tuple(fields["isr"]),
            elr=tuple(fields["elr"]),
            leader=fields["leader"],
            leader_epoch=fields["leader_epoch"],
            partition_epoch=fields["partition_epoch"],
            min_insync_replicas=fields["min_insync_replicas"],
            is_recovering=bool(fields["recovery_state"]),
            adding=tuple(fields["adding"]),
            removing=tuple(fields["removing"]),
            unconfirmed=tuple(fields.get("unconfirmed_removals", ())),
            queued=tuple(fields.get("queued_target", ())),
        )
        old, truth.record = truth.record, record
        self.world.note("record %s", record)
        self.moves.on_record(key, old, record)
        if not set(record.isr) <= set(record.replicas):
            self.fail("I5: isr %s outside of %s", record.isr, record.replicas)
        if record.leader >= 0 and record.leader not in record.isr:
            self.fail("I5: leader %d outside of the isr %s", record.leader, record.isr)
        if record.min_insync_replicas < 2:
            # For all that the controller knows, it may acknowledge alone, and the others are
            # released, though it has lost data itself.
            lone = _lone_leaders(old, record)
            truth.is_forgiven |= any(self.world.brokers[each].is_wounded for each in lone)
        if old is None and all(self.world.brokers[each].is_wounded for each in record.isr):
            # From a controller that does not know yet what in-sync replicas have lost.
            truth.is_forgiven = True
        if old is not None and old.leader_epoch != record.leader_epoch:
            truth.moved_s = self.world.loop.time()
        if old is not None and old != record:
            if record.partition_epoch <= old.partition_epoch:
                self.fail("I6: the record changed, its partition epoch did not rise: %s", record)
            if record.leader_epoch < old.leader_epoch:
                self.fail("I3: the leader epoch fell: %s", record)
            if record.leader != old.leader and record.leader_epoch == old.leader_epoch:
                self.fail("I3: two leaders in epoch %d: %s", record.leader_epoch, record)
        # With several disks, a replica that was never created is taken for one that is gone; this
        # is only a false alarm if nothing was ever committed.
        is_empty = self.world.has_several_disks and not truth.committed
        truth.had_nothing = record.is_recovering and (truth.had_nothing or is_empty)
        if record.is_recovering and not (
            truth.is_forgiven or self.is_confirmed or truth.had_nothing
        ):
            self.fail("an unclean election, though enough replicas are left: %s", record)
        self.suspects[key] = None

    def _on_broker_line(self, broker: dict[str, Any], known: dict[str, Any] | None) -> None:
        """Check a registration: by then the old incarnation has lost all leadership and, if it lost
        data, its place in every set that promises data."""
        if known is not None and known["epoch"] == broker["epoch"]:
            return
        broker_id = broker["id"]
        host = self.world.brokers[broker_id]
        start = Start(broker["start_id"], broker["boot_id"], broker["recovered_whole"])
        is_unclean = host.owns_up(start)
        is_doubted = host.is_wounded or self.is_confirmed
        if known is not None and not broker["clean"] and not is_doubted:
            self.fail("%s has lost nothing, and is taken for one that has", host.name)
        for truth in self.truths.values():
            record = truth.record
            if record is None:
                continue
            if record.leader == broker_id:
                self.fail("broker %d registered anew and still leads %s", broker_id, record)
            if is_unclean and broker_id in (*record.isr, *record.elr):
                self.fail("broker %d lost data and still counts in %s", broker_id, record)
        host.on_registered_durably(start)

    def on_registered(self, host: BrokerHost) -> None:
        """Check an answered registration: by then it is written what the broker may lack."""
        if host.owns_up(host.last_start):
            self.fail("%s was registered, and nobody knows that it lost data", host.name)
        for key in host.disk.removed:
            record = self.truths[key].record
            if record is not None and host.broker_id in (*record.isr, *record.elr):
                self.fail("%s was registered without its folder, and counts: %s", host.name, record)

    def on_published(
        self, controller_epoch: int, changes: Iterable[Change], broken: Counter[str]
    ) -> None:
        """Check committed changes that a controller publishes (I6), and that no decision failed."""
        if broken:
            self.fail("wrong decisions were stopped: %s", dict(broken))
        changes = tuple(changes)
        self.moves.on_published(controller_epoch, changes)
        self.fences.on_published(controller_epoch, changes)
        for change in changes:
            if isinstance(change, PartitionChanged):
                at = (controller_epoch, (change.topic_id, change.index))
                epoch = change.partition.partition_epoch
                if at in self._published and epoch != self._published[at] + 1:
                    self.fail("I6: partition epoch %d after %d", epoch, self._published[at])
                self._published[at] = epoch
                stored = self.truths[at[1]].record
                if stored is not None and stored.partition_epoch < epoch:
                    self.fail("a change is told that the store does not have: %s", stored)
                problems = change.partition.problems()
                if problems:
                    self.fail("I5: %s", problems)

    def on_controller_epoch(self, host: str, epoch: int) -> None:
        """Check that a broker never follows an older controller than before."""
        if epoch < self.epochs_seen.get(host, -1):
            self.fail("%s went back to controller epoch %d", host, epoch)
        self.epochs_seen[host] = epoch

    def on_leading(self, broker_id: int, partition: Partition) -> None:
        """Check a broker that begins to lead (I3)."""
        truth = self.truths[(partition.topic_id, partition.index)]
        known = truth.leaders.setdefault(partition.leader_epoch, broker_id)
        if known != broker_id:
            self.fail("I3: %d and %d lead in epoch %d", known, broker_id, partition.leader_epoch)
        self.on_high_watermark(broker_id, partition)

    def on_high_watermark(self, broker_id: int, partition: Partition) -> None:
        """Follow a leader's high watermark: everything below is committed from now on."""
        key = (partition.topic_id, partition.index)
        truth = self.truths[key]
        log: Any = partition.log
        high_watermark = partition.high_watermark
        committed = truth.committed
        if high_watermark > log.log_end_offset:
            self.fail("I1: high watermark %d beyond the end %d", high_watermark, log.log_end_offset)
        if log.log_start_offset > high_watermark:
            self.fail("I1: start %d above high watermark %d", log.log_start_offset, high_watermark)
        if partition.is_leader and high_watermark > len(committed):
            if log.base_offset > len(committed):
                self.fail("I7: a leader's log begins beyond what was committed")
            for offset in range(len(committed), high_watermark):
                entry = log.entry(offset)
                if self.world.partition_of.get(entry.value, key) != key:
                    self.fail("%s holds %s, which was sent elsewhere", partition, entry)
                committed.append(entry)
                if isinstance(log, KeyedLog):
                    self.compaction.on_committed(key, offset, entry)
                elif isinstance(log, DiskLog):
                    self.transactions.on_committed(key, offset, entry)
            self.world.trace("%s committed to %d by %d", partition, high_watermark, broker_id)
            self.suspects[key] = None
        if partition.is_leader:
            # A follower's mark may be from the checkpoint, above a log that lost its end: a hint.
            self._agree(key, log, min(high_watermark, log.log_end_offset))

    def on_log_changed(self, key: PartitionKey, log: AnyLog, end: int) -> None:
        """Note that a log was truncated to `end`."""
        truth = self.truths[key]
        if truth.agreed.get(log, 0) > end:
            # If records were compacted away, the newer ones that allowed this may be truncated.
            truth.agreed[log] = 0 if isinstance(log, KeyedLog) else end
        self.suspects[key] = None

    def on_forgetting(self, partition: Partition, offset: int) -> None:
        """Check that everything below an offset that a leader deletes is committed."""
        truth = self.truths[(partition.topic_id, partition.index)]
        if offset > len(truth.committed) and not truth.is_forgiven:
            self.fail("R17: %s forgets up to %d, which is not committed", partition, offset)
        truth.forgotten = max(truth.forgotten, offset)

    def on_log_start(self, broker_id: int, key: PartitionKey, log: AnyLog) -> None:
        """Check that a log start is not above what a leader has announced."""
        truth = self.truths[key]
        if log.log_start_offset > truth.forgotten and not truth.is_forgiven:
            self.fail(
                "R17: the log of %d starts at %d, no leader has forgotten more than %d",
                broker_id,
                log.log_start_offset,
                truth.forgotten,
            )
        self.suspects[key] = None

    def on_acknowledged(
        self, broker_id: int, partition: Partition, value: int, offset: int
    ) -> None:
        """Check a record that a leader acknowledges with acks=all (I9)."""
        key = (partition.topic_id, partition.index)
        committed = self.truths[key].committed
        if self.truths[key].is_forgiven:
            return
        if offset >= len(committed) or committed[offset].value != value:
            self.fail(
                "I9: %d acknowledged %d at %d of %s before it held, committed is %s of %d",
                broker_id,
                value,
                offset,
                partition,
                committed[offset] if offset < len(committed) else None,
                len(committed),
            )
        self.acknowledged[(key, value)] = offset

    def on_seen(self, key: PartitionKey, offset: int, entry: Entry | KeyedEntry) -> None:
        """Check a consumer's record: it is committed, and equal for all consumers."""
        committed = self.truths[key].committed
        if offset >= len(committed):
            self.fail("a consumer saw offset %d beyond what is committed", offset)
        elif committed[offset] != entry and not self.truths[key].is_forgiven:
            self.fail("a consumer saw %s at %d, committed is %s", entry, offset, committed[offset])

    def after_step(self) -> None:
        """Check every partition that has changed."""
        if self.suspects:
            suspects, self.suspects = self.suspects, {}
            for key in suspects:
                self.checks += 1
                self._check_holders(key, self.truths[key])

    def _check_holders(self, key: PartitionKey, truth: Truth) -> None:
        """Check that every possible leader has all that was committed (I4)."""
        record = truth.record
        if record is None or truth.is_forgiven:
            return
        for broker_id in (*record.isr, *record.elr):
            host = self.world.brokers[broker_id]
            if host.is_lossy or key in host.disk.removed:
                continue
            log = host.log(key)
            if log is None:
                if truth.committed:
                    self.fail("I4: %d counts in %s and has no log", broker_id, record)
                continue
            self._agree(key, log, len(truth.committed))
            if isinstance(log, KeyedLog):
                self.compaction.check_holder(key, truth, log)
            if log.log_start_offset > truth.forgotten:
                self.fail(
                    "I4: %d counts in %s and starts at %d, nobody has forgotten more than %d",
                    broker_id,
                    record,
                    log.log_start_offset,
                    truth.forgotten,
                )
            if log.log_end_offset < len(truth.committed):
                self.fail(
                    "I4: %d counts in %s and ends at %d, committed is %d",
                    broker_id,
                    record,
                    log.log_end_offset,
                    len(truth.committed),
                )

    def _agree(self, key: PartitionKey, log: AnyLog, end: int) -> None:
        """Compare a log with what was committed, from where it was last found equal (I7)."""
        truth = self.truths[key]
        # Records below the start are deleted, though a power cut may restore their segment.
        at = max(truth.agreed.get(log, 0), log.log_start_offset)
        end = min(end, log.log_end_offset, len(truth.committed))
        if isinstance(log, KeyedLog):
            if not truth.is_forgiven:
                self.compaction.check(key, truth, log, at, end)
                truth.agreed[log] = max(at, end)
            return
        while at < end:
            if log.entry(at) != truth.committed[at]:
                if truth.is_forgiven:
                    return
                self.fail(
                    "I7: offset %d holds %s, committed is %s",
                    at,
                    log.entry(at),
                    truth.committed[at],
                )
            at += 1
        truth.agreed[log] = at

    def fail(self, sentence: str, *arguments: object) -> None:
        raise Violation(sentence % arguments)

    def on_sequence_gap(self, producer: Producer, item: object) -> None:
        if not self.truths[producer.key].is_forgiven:
            self.fail("%s: records before %s are gone", producer.name, item)

    def on_out_of_range(self, consumer: Consumer) -> None:
        truth = self.truths[consumer.key]
        if consumer.offset >= truth.forgotten and not truth.is_forgiven:
            self.fail("%s: offset %d is out of range", consumer.name, consumer.offset)

    def on_high_watermark_back(self, consumer: Consumer, latest: int) -> None:
        """Report a broken I2."""
        if not self.truths[consumer.key].is_forgiven:
            self.fail("I2: %s saw the end at %d, then %d", consumer.name, consumer.latest, latest)


def _lone_leaders(old: Record | None, record: Record) -> tuple[int, ...]:
    """Return who leads, or may have led between two registrations: brokers that are fenced one
    after the other in the same moment give one write, in which the second one led for a moment."""
    if record.leader >= 0:
        return (record.leader,)
    if old is None or record.leader_epoch <= old.leader_epoch + 1:
        return ()
    return record.isr[:1] or tuple(each for each in old.isr if each != old.leader)
