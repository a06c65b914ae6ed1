"""One replica of a partition on this broker: its log, and its state as leader or as follower.

Handlers append and read through it, `Broker.publish` makes it lead or follow, and the replica
fetcher passes the leader's answers to it. `LeaderState` decides what a leader does and
`FollowerState` what a follower does; this module carries out their decisions on the log and the
marks. Its parts are in modules beside it: `reign` begins to lead, `follower_log` appends and cuts,
`refusals` are the errors, `committable` and `mark_order` are the rules of the marks. It does I/O
only through its log (`replica_log.ReplicaLog` is the interface) and knows no clients. Its callbacks
tell the broker what to act on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.measures.traffic import PartitionFlow, TopicTraffic
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_broker.replication.awaited_arrivals import AwaitedArrivals
from fairlead_broker.replication.broker_epochs import AnyBrokers
from fairlead_broker.replication.committable import committable_offset
from fairlead_broker.replication.follower_log import (
    append_from_leader,
    bring_into_log,
    restart_at,
    truncate_to,
)
from fairlead_broker.replication.follower_state import (
    Append,
    FollowerState,
    RestartAt,
    TruncateTo,
)
from fairlead_broker.replication.leader_state import UNKNOWN_LOG_START, LeaderState, Refusal
from fairlead_broker.replication.mark_order import check_mark_order
from fairlead_broker.replication.refusals import (
    PassingRefusal,
    append_refusal,
    beyond_last_stable_offset,
    fetch_of_earlier_start,
    not_followed_by,
    not_leading,
)
from fairlead_broker.replication.reign import begin_reign
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairlead_broker.log.log import AppendResult, Log
    from fairlead_broker.log.lookup import ReadResult
    from fairlead_broker.log.producers.end_marker import EndMarker
    from fairlead_broker.log.producers.verification import VerificationGuard
    from fairlead_broker.replication.broker_epochs import BrokerEpochs
    from fairlead_broker.replication.follower_state import Action, FetchedPartition, FetchPosition
    from fairlead_broker.replication.isr import IsrProposal
    from fairlead_model.partition import PartitionRegistration
    from fairlead_wire.errors import ErrorCode

READ_COMMITTED: Final = 1
NO_REPLICA: Final = -1
HASTENED_MS: Final = 600_000
"""Consumers ask the leader again after `metadata.max.age.ms`, which is five minutes."""


class Partition:
    """A partition of which this broker has a replica.

    `leader_id`, `leader_epoch`, `partition_epoch`, `replicas` and `isr` are the controller's, and
    change only in `lead`, `follow` and `proposal_accepted`. `LeaderState` advances `high_watermark`
    while this broker leads, `take` while it follows. At most one of `leader` and `follower` is set.
    Order, asserted at each change (I1): `log_start_offset <= last_stable_offset <= high_watermark
    <= log_end_offset`.
    """

    __slots__ = (
        "_arrivals",
        "_broker_id",
        "_brokers",
        "_follower_high_watermark",
        "_hastened_ms",
        "_on_advanced",
        "_on_offline",
        "_on_proposal",
        "adding",
        "flow",
        "follower",
        "has_outsiders",
        "hastens_followers",
        "index",
        "is_advance_noted",
        "isr",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "passing_refusal",
        "replicas",
        "resumed_epoch",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        *,
        topic: str,
        index: int,
        topic_id: bytes,
        log: Log,
        broker_id: int,
        high_watermark: int,
        on_advanced: Callable[[Partition], None],
        on_proposal: Callable[[Partition, IsrProposal], None] | None = None,
        on_offline: Callable[[Partition], None] | None = None,
        brokers: BrokerEpochs | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """`high_watermark` is that of the checkpoint; it is brought into the log.

        `on_advanced` is called for everything that a parked request may wait for, `on_proposal` for
        changes of the ISR to propose, `on_offline` for a disk that has failed or is full.
        """
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.traffic = TopicTraffic() if traffic is None else traffic
        self.flow = PartitionFlow()
        self.passing_refusal: PassingRefusal | None = None
        """The last temporary refusal of a batch; its client's next batch has a gap before it."""
        self.leader_id = self.leader_epoch = self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.has_outsiders = False
        """Whether a replica is not in sync: only such replicas are throttled."""
        self.hastens_followers = False
        """Whether followers get each high watermark at once, because consumers read there."""
        self._hastened_ms = 0
        self.leader: LeaderState | None = None
        self.follower: FollowerState | None = None
        self.resumed_epoch = -1  # Leader epoch of the process before, if this one goes on (R34).
        self.is_advance_noted = False
        self._arrivals = AwaitedArrivals()
        self._broker_id = broker_id
        self._brokers: BrokerEpochs = AnyBrokers() if brokers is None else brokers
        self._on_advanced = on_advanced
        self._on_proposal = on_proposal
        self._on_offline = on_offline
        self._follower_high_watermark = bring_into_log(log, high_watermark)
        log.recall_unreplicated(self._follower_high_watermark)

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    @property
    def is_in_sync_follower(self) -> bool:
        """Whether consumers may read here although another broker leads (KIP-392)."""
        return self.follower is not None and self._broker_id in self.isr

    def awaits(self, offset: int) -> bool:
        """Tell whether the leader has committed records that this follower does not have yet."""
        follower = self.follower
        return follower is not None and (
            self.log.log_end_offset < offset <= follower.leader_high_watermark
        )

    def hasten_followers(self, now_ms: int) -> None:
        """Send each high watermark to followers at once, because a consumer was sent to one."""
        self.hastens_followers = True
        self._hastened_ms = now_ms

    @property
    def high_watermark(self) -> int:
        """Exclusive: everything below is committed."""
        leader = self.leader
        return self._follower_high_watermark if leader is None else leader.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what read_committed consumers may see.

        It is the high watermark if no transaction is open or has ended above that. Everything that
        read_committed consumers get, wait for or are told depends on this property. Code that
        changes it other than by the high watermark has to note an advance, for waiting fetches.
        """
        log = self.log
        if log.producers.first_unstable_offset is None:
            return self.high_watermark
        # A leader may have deleted what a follower still considers the beginning of a transaction.
        return max(log.producers.last_stable_offset(self.high_watermark), log.log_start_offset)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """The lowest log start of all replicas in service, as far as the leader knows."""
        leader, log_start_offset = self.leader, self.log.log_start_offset
        return log_start_offset if leader is None else leader.low_watermark(log_start_offset)

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def is_high_watermark_valid(self) -> bool:
        """False between an election and the moment when the high watermark is known (R7)."""
        return self.leader is not None and self.leader.is_high_watermark_valid

    def lead(self, registration: PartitionRegistration, *, now_ms: int = 0) -> bool:
        """Lead by the controller's record; return whether that began a new leader epoch.

        The epoch's start is written to the epoch cache before any append, so that followers find
        even an epoch that stays without records (R4). `now_ms` is monotonic time, as in `tick`.
        """
        leader = self.leader
        is_new_epoch = (
            leader is None
            or registration.leader_epoch != self.leader_epoch
            or tuple(registration.replicas) != self.replicas
        )
        if leader is None or is_new_epoch:
            self._begin_reign(registration, now_ms)
        else:
            moved = leader.isr_committed(
                frozenset(registration.isr),
                partition_epoch=registration.partition_epoch,
                min_insync_replicas=registration.effective_min_isr,
                now_ms=now_ms,
            )
            # Waiting producers check again even if nothing advanced: the ISR may be too small.
            if moved or not leader.has_enough_in_sync_replicas:
                self._note_advance()
        self._take_over(registration)
        check_mark_order(self)
        self._propose_joining()
        return is_new_epoch

    def follow(self, registration: PartitionRegistration) -> bool:
        """Stop leading, if this broker led; return whether it did.

        Requests that are parked on this partition are checked, so that they answer
        NOT_LEADER_OR_FOLLOWER and never success (R13).
        """
        was_leading = self.leader is not None
        self._follower_high_watermark = self.high_watermark
        self.leader = None
        follower = self.follower
        if registration.leader < 0:
            self.follower = None
        elif follower is None or follower.leader_epoch != registration.leader_epoch:
            self.follower = FollowerState(registration.leader_epoch)
        self._take_over(registration)
        self._note_advance()
        return was_leading

    def retire(self) -> None:
        """Serve nothing any more: the replica is deleted, or its disk has failed."""
        self._follower_high_watermark = self.high_watermark
        self.leader = None
        self.follower = None
        self.leader_id = -1
        self._note_advance()

    def next_fetch(self) -> FetchPosition | None:
        """Return what to fetch; None while this replica does not follow or can't append."""
        if self.follower is None or self.log.refusal is not None:
            return None
        if self.log.start_before_cut is not None:
            self._begin_anew(self.log.start_before_cut)
            return None
        return self.follower.next_fetch(self.log)

    def _begin_anew(self, offset: int) -> None:
        """Drop a log that may lack its beginning (I4); a replica that has to lead keeps it."""
        try:
            self._end_at(restart_at(self.log, offset, self._follower_high_watermark))
        except KafkaError:
            self._maybe_report_offline()

    def take(self, reply: FetchedPartition, *, now_ms: int) -> Action | None:
        """Carry out what the leader's answer asks for; return that action.

        None: this replica no longer follows. `now_ms` is wall time, for the log.
        """
        follower, log = self.follower, self.log
        if follower is None or log.refusal is not None:
            return None
        action = follower.on_fetched(log, reply)
        before = self._follower_high_watermark
        try:
            if isinstance(action, Append):
                follower.leader_high_watermark = action.leader_high_watermark
                high_watermark = append_from_leader(
                    log, action, before, leader_epoch=self.leader_epoch, now_ms=now_ms
                )
                follower.taken_in()
                if len(action.records) or high_watermark != before:
                    self._end_at(high_watermark)
            elif isinstance(action, TruncateTo):
                self._end_at(truncate_to(log, action.offset, before))
            elif isinstance(action, RestartAt):
                self._end_at(restart_at(log, action.offset, before))
        except KafkaError:
            # The records were damaged on the way, or the disk failed: nothing of them counts.
            action = follower.retry()
        self._maybe_report_offline()
        return action

    def _end_at(self, high_watermark: int) -> None:
        """Go on with a log that has other records than before."""
        self._follower_high_watermark = high_watermark
        check_mark_order(self)
        self._note_advance()

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        *,
        supports_epoch_bump: bool,
    ) -> VerificationGuard | None:
        """Return the guard for asking a transaction's coordinator before its first batch.

        None: a transaction of this producer and epoch is open here, so there is nothing to ask.
        `supports_epoch_bump`: the client has an epoch for each transaction (KIP-890, version 2).
        KafkaError NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH.
        """
        if self.leader is None:
            raise not_leading(self)
        return self.log.producers.begin_verification(
            producer_id, producer_epoch, first_sequence, supports_epoch_bump=supports_epoch_bump
        )

    def append_as_leader(
        self,
        batch: memoryview,
        *,
        required_acks: int,
        now_ms: int,
        has_keys: bool = False,
        guard: VerificationGuard | None = None,
        is_from_coordinator: bool = False,
    ) -> AppendResult:
        """Append one batch; KafkaError if it is refused.

        A batch whose `required_acks` cannot be met is refused before it is in the log (R13).
        `has_keys`: the caller made the batch with a key in each record, so compacted logs need not
        check. `guard` is that of `begin_verification` for this batch, once the transaction's
        coordinator has agreed. Without it a batch that would open a transaction is refused with
        INVALID_TXN_STATE. `is_from_coordinator`: offsets that a group coordinator writes in a
        producer's transaction, which have no sequences.
        """
        leader = self.leader
        if leader is None or (
            required_acks == ALL_IN_SYNC and not leader.has_enough_in_sync_replicas
        ):
            raise append_refusal(self, leader, len(self.isr))
        log = self.log
        try:
            result = log.append_as_leader(
                batch,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                has_keys=has_keys,
                guard=guard,
                is_from_coordinator=is_from_coordinator,
            )
        except KafkaError:
            self._append_failed()
            raise
        leader.record_append(committable_offset(log))
        self._note_advance()
        return result

    def append_end_marker(self, marker: EndMarker, *, now_ms: int) -> AppendResult:
        """Append the marker that ends a producer's transaction here; KafkaError if it is refused.

        The caller then waits until it is committed, as after any append with acks=all. A repeated
        marker is written again and changes nothing. NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
        KAFKA_STORAGE_ERROR: the caller has to try again. INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED: a newer producer or coordinator has taken over.
        """
        leader = self.leader
        if leader is None or not leader.has_enough_in_sync_replicas:
            raise append_refusal(self, leader, len(self.isr))
        try:
            result = self.log.append_end_marker(
                marker, leader_epoch=self.leader_epoch, now_ms=now_ms
            )
        except KafkaError:
            self._append_failed()
            raise
        leader.record_append(committable_offset(self.log))
        # This also forgets ended transactions that are committed, even if no consumer asks.
        check_mark_order(self)
        self._note_advance()
        return result

    def _append_failed(self) -> None:
        # If the disk has failed, requests wait for this log in vain and have to be checked.
        self._maybe_report_offline()
        if self.log.is_offline:
            self._note_advance()

    def flushed(self) -> None:
        """Have parked requests checked: the recovery point has advanced, or the disk has failed."""
        if self.leader is not None:
            self.leader.record_append(committable_offset(self.log))
        self._maybe_report_offline()
        self._note_advance()

    def record_fetch(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        now_ms: int,
        *,
        log_start_offset: int = UNKNOWN_LOG_START,
    ) -> None:
        """Note that a follower has all below `fetch_offset`; KafkaError if it may not fetch.

        Call this only after its log was found not to diverge (R3). `log_start_offset` is its own.
        """
        leader = self.leader
        if leader is None or replica_id not in leader.followers:
            raise not_followed_by(self, replica_id)
        if leader.is_stale(replica_id, broker_epoch):
            raise fetch_of_earlier_start(self, replica_id, broker_epoch)
        moved, proposal = leader.record_fetch(replica_id, broker_epoch, fetch_offset, now_ms)
        if leader.record_log_start(replica_id, log_start_offset) or moved:
            self._note_advance()
        if proposal is not None:
            self._propose(proposal)

    def tick(self, now_ms: int, max_lag_ms: int) -> None:
        """Propose what the passing of time changes about the ISR (R12)."""
        leader = self.leader
        if leader is None:
            return
        if self.hastens_followers and now_ms - self._hastened_ms > HASTENED_MS:
            self.hastens_followers = False
        before = leader.high_watermark
        proposal = leader.tick(now_ms, max_lag_ms)
        if leader.high_watermark != before:
            self._note_advance()
        if proposal is not None:
            self._propose(proposal)

    def brokers_changed(self) -> None:
        """Check the ISR again: a broker registered, was fenced or came back into service."""
        leader = self.leader
        if leader is not None:
            start = self.log_start_offset
            # DeleteRecords does not wait for a follower that is fenced now.
            is_behind = any(each.log_start_offset < start for each in leader.followers.values())
            if leader.brokers_changed() or is_behind:
                self._note_advance()
            self._propose_joining()

    def proposal_accepted(
        self,
        proposal: IsrProposal,
        isr: Iterable[int],
        *,
        leader_epoch: int,
        partition_epoch: int,
        now_ms: int,
    ) -> None:
        """Adopt the record that `proposal` asked for: the controller has written it (R8)."""
        leader = self.leader
        if leader is None or leader_epoch != self.leader_epoch:
            return
        members = frozenset(isr)
        is_newer = partition_epoch > self.partition_epoch
        if leader.proposal_accepted(
            proposal,
            members,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            now_ms=now_ms,
        ):
            self._note_advance()
        if is_newer and leader.partition_epoch == partition_epoch:
            self.partition_epoch = partition_epoch
            self.isr = tuple(replica for replica in self.replicas if replica in members)
            self.has_outsiders = len(self.isr) < len(self.replicas)
        self._propose_joining()

    def proposal_refused(self, proposal: IsrProposal, code: ErrorCode) -> Refusal:
        """Return what becomes of a refused proposal; for RETRIED the caller sends it again (R8)."""
        leader = self.leader
        if leader is None:
            return Refusal.OBSOLETE
        refusal = leader.proposal_refused(proposal, code)
        if refusal is Refusal.REVERTED and leader.maybe_advance_high_watermark():
            self._note_advance()
        return refusal

    def end_offset_for_reader(self, *, isolation_level: int, replica_id: int = NO_REPLICA) -> int:
        """Exclusive end of what this reader may see."""
        if replica_id >= 0:
            return self.log.log_end_offset
        if isolation_level == READ_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation_level: int,
        replica_id: int = NO_REPLICA,
        minimum_one_batch: bool,
    ) -> ReadResult:
        """Return whole batches from the one with `offset`; KafkaError(OFFSET_OUT_OF_RANGE) outside.

        Between the reader's end and the end of the log the answer is empty, never out of range:
        that would make consumers reset their position (R18). For records that are stored elsewhere
        the answer is empty, too, and parked requests are checked again when they are here.
        """
        end_offset = self.end_offset_for_reader(
            isolation_level=isolation_level, replica_id=replica_id
        )
        result = self.log.read(
            offset, max_bytes, end_offset=end_offset, minimum_one_batch=minimum_one_batch
        )
        if result.arrival is not None:
            self._arrivals.wait_for(result.arrival, self._note_advance)
        return result

    def delete_records(self, before_offset: int) -> int:
        """Delete everything below `before_offset` (-1: all that may be deleted); the new log start.

        Records of an open transaction stay (I1).
        """
        last_stable_offset = self.last_stable_offset
        target = last_stable_offset if before_offset == -1 else before_offset
        if not self.log.log_start_offset <= target <= last_stable_offset:
            if 0 <= target < self.log.log_start_offset:
                return self.log.log_start_offset
            raise beyond_last_stable_offset(
                self, before_offset, last_stable_offset, self.high_watermark
            )
        self.log.advance_log_start_offset(target)
        self.start_moved()
        return self.log.log_start_offset

    def start_moved(self) -> None:
        """Tell followers, with their next answer, that the log now starts later."""
        check_mark_order(self)
        self._note_advance()

    def _begin_reign(self, registration: PartitionRegistration, now_ms: int) -> None:
        self.follower = None
        self.log.assign_leader_epoch(registration.leader_epoch)
        self.leader = begin_reign(
            registration,
            self.log,
            before=self.leader if registration.leader_epoch == self.leader_epoch else None,
            broker_id=self._broker_id,
            resumed_epoch=self.resumed_epoch,
            high_watermark=self.high_watermark,
            brokers=self._brokers,
            now_ms=now_ms,
        )
        self._note_advance()

    def _propose_joining(self) -> None:
        leader = self.leader
        proposal = None if leader is None else leader.propose_joining()
        if proposal is not None:
            self._propose(proposal)

    def _propose(self, proposal: IsrProposal) -> None:
        if self._on_proposal is not None:
            self._on_proposal(self, proposal)

    def _take_over(self, registration: PartitionRegistration) -> None:
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.replicas = tuple(registration.replicas)
        self.isr = tuple(registration.isr)
        self.adding = tuple(registration.adding_replicas)
        self.has_outsiders = len(self.isr) < len(self.replicas)

    def _maybe_report_offline(self) -> None:
        if self._on_offline is not None and (self.log.is_offline or self.log.lacks_room):
            self._on_offline(self)

    def _note_advance(self) -> None:
        if not self.is_advance_noted:
            self.is_advance_noted = True
            self._on_advanced(self)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"
