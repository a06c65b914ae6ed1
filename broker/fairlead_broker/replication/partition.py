"""One replica of a partition on this broker: its log, and its state as leader or as follower.

Handlers append and read through it, `Broker.publish` makes it lead or follow, the fetcher of its
leader feeds it. It does no I/O of its own and knows no clients; the callbacks it is given tell the
broker what somebody must act on. Following is `Replica`'s part, leading is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.replication.leader_state import CommittedIsr, LeaderState, Refusal
from fairlead_broker.replication.replica import Replica
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.log.log import AppendResult
    from fairlead_broker.log.lookup import ReadResult
    from fairlead_broker.replication.isr import IsrProposal
    from fairlead_model.partition import PartitionRegistration

ALL_IN_SYNC: Final = -1
"""`acks` of a producer that waits for the whole ISR."""
READ_COMMITTED: Final = 1
NO_REPLICA: Final = -1
LATEST_KNOWN_EPOCH: Final = -1
"""`current_leader_epoch` of a client that doesn't know one: not checked."""


class Partition(Replica):
    """A partition this broker holds a replica of; see `Replica` for its fields."""

    __slots__ = ()

    # What the controller says.

    def lead(self, registration: PartitionRegistration, *, now_ms: int = 0) -> bool:
        """Lead as the controller says; returns whether that began a new leader epoch.

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
                min_insync_replicas=registration.min_insync_replicas,
                now_ms=now_ms,
            )
            # Producers that wait look again also where nothing moved: the ISR may be too small.
            if moved or not leader.has_enough_in_sync_replicas:
                self._note_advance()
        self._take_over(registration)
        self.check_order()
        self._propose_joining()
        return is_new_epoch

    def append_as_leader(
        self, batch: memoryview, *, required_acks: int, now_ms: int, has_keys: bool = False
    ) -> AppendResult:
        """Append one batch; raises KafkaError where it is refused.

        A batch that `required_acks` cannot be met for is refused before it is in the log (R13).
        `has_keys`: the caller has made the batch and gave each record a key, so compacted logs
        need not look.
        """
        leader = self.leader
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not the leader of {self}")
        if required_acks == ALL_IN_SYNC and not leader.has_enough_in_sync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {len(self.isr)} in-sync replicas, "
                f"min.insync.replicas is {leader.effective_min_insync_replicas}",
            )
        log = self.log
        try:
            result = log.append_as_leader(
                batch, leader_epoch=self.leader_epoch, now_ms=now_ms, has_keys=has_keys
            )
        except KafkaError:
            if log.is_offline:
                # Whoever waits for this log waits in vain; somebody has to look at the disk.
                self._maybe_report_offline()
                self._note_advance()
            raise
        leader.record_append(self._committable_offset())
        self._note_advance()
        return result

    @property
    def awaits_flush(self) -> bool:
        """True while `flush.messages` holds acknowledgements back until the log is fsynced."""
        log = self.log
        return log.unflushed_messages >= log.config.flush_messages

    def flushed(self) -> None:
        """The log's recovery point has moved, or its disk has failed: whoever waits looks again."""
        if self.leader is not None:
            self.leader.record_append(self._committable_offset())
        self._maybe_report_offline()
        self._note_advance()

    # Leading others.

    def record_fetch(
        self, replica_id: int, broker_epoch: int, fetch_offset: int, now_ms: int
    ) -> None:
        """A follower asks from `fetch_offset` on: it has what lies below. KafkaError if it may not.

        Only after its log was found not to part from ours (R3).
        """
        leader = self.leader
        if leader is None or replica_id not in leader.followers:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica_id} does not follow {self} here"
            )
        if leader.is_stale(replica_id, broker_epoch):
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {replica_id} fetches {self} with the epoch {broker_epoch} of an earlier"
                " start",
            )
        moved, proposal = leader.record_fetch(replica_id, broker_epoch, fetch_offset, now_ms)
        if moved:
            self._note_advance()
        if proposal is not None:
            self._propose(proposal)

    def tick(self, now_ms: int, max_lag_ms: int) -> None:
        """Time has passed: propose what it changes about the ISR (R12)."""
        leader = self.leader
        if leader is None:
            return
        before = leader.high_watermark
        proposal = leader.tick(now_ms, max_lag_ms)
        if leader.high_watermark != before:
            self._note_advance()
        if proposal is not None:
            self._propose(proposal)

    def brokers_changed(self) -> None:
        """A broker that holds a replica registered anew, was fenced or came back into service."""
        if self.leader is not None:
            if self.leader.brokers_changed():
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
        """The controller has written the record that `proposal` asked for (R8)."""
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
        self._propose_joining()

    def proposal_refused(self, proposal: IsrProposal, code: ErrorCode) -> Refusal:
        """What becomes of a proposal that was not accepted; RETRIED is the caller's to do (R8)."""
        leader = self.leader
        if leader is None:
            return Refusal.OBSOLETE
        refusal = leader.proposal_refused(proposal, code)
        if refusal is Refusal.REVERTED and leader.maybe_advance_high_watermark():
            self._note_advance()
        return refusal

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compare the epoch that a client believes in with ours (R5)."""
        if current_leader_epoch in (LATEST_KNOWN_EPOCH, self.leader_epoch):
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def has_forgotten_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> bool:
        """True where a follower ends at this log's start, in an epoch that is gone from here.

        Whether its last records ever were the leader's cannot be told any more: it may count only
        once it holds nothing below the start (R17).
        """
        log = self.log
        return (
            0 < fetch_offset <= log.log_start_offset
            and last_fetched_epoch < log.last_leader_epoch
            and log.end_offset_for_epoch(last_fetched_epoch).end_offset <= log.log_start_offset
        )

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
        """Whole batches from the one that holds `offset`; KafkaError(OFFSET_OUT_OF_RANGE) outside.

        Between the reader's end and the end of the log the answer is empty, never out of range:
        that would make consumers reset their position (R18).
        """
        end_offset = self.end_offset_for_reader(
            isolation_level=isolation_level, replica_id=replica_id
        )
        return self.log.read(
            offset, max_bytes, end_offset=end_offset, minimum_one_batch=minimum_one_batch
        )

    def delete_records(self, before_offset: int) -> int:
        """Forget everything below `before_offset` (-1: the high watermark); the new log start."""
        target = self.high_watermark if before_offset == -1 else before_offset
        if not self.log.log_start_offset <= target <= self.high_watermark:
            if 0 <= target < self.log.log_start_offset:
                return self.log.log_start_offset
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {before_offset} is beyond the high watermark {self.high_watermark}"
                f" of {self}",
            )
        self.log.advance_log_start_offset(target)
        self.start_moved()
        return self.log.log_start_offset

    def _committable_offset(self) -> int:
        """What this replica adds to the high watermark: its end, or with `flush.messages` due,
        only what is on the disk. A lower offset than before moves nothing."""
        return self.log.recovery_point if self.awaits_flush else self.log.log_end_offset

    def _begin_reign(self, registration: PartitionRegistration, now_ms: int) -> None:
        log = self.log
        self.follower = None
        log.assign_leader_epoch(registration.leader_epoch)
        before = self.leader if registration.leader_epoch == self.leader_epoch else None
        leader = LeaderState(
            broker_id=self._broker_id,
            replicas=tuple(registration.replicas),
            leader_epoch=registration.leader_epoch,
            epoch_start_offset=log.log_end_offset if before is None else before.epoch_start_offset,
            isr_state=CommittedIsr(frozenset(registration.isr)),
            min_insync_replicas=registration.min_insync_replicas,
            log_end_offset=self._committable_offset(),
            high_watermark=max(self.high_watermark, log.log_start_offset),
            partition_epoch=registration.partition_epoch,
            brokers=self._brokers,
            began_ms=now_ms,
        )
        if before is not None:
            # Other replicas in the same epoch: those that stay need not say again what they have.
            leader.take_over(before)
        leader.maybe_advance_high_watermark()
        self.leader = leader
        self._note_advance()

    def _propose_joining(self) -> None:
        leader = self.leader
        proposal = None if leader is None else leader.propose_joining()
        if proposal is not None:
            self._propose(proposal)

    def _propose(self, proposal: IsrProposal) -> None:
        if self._on_proposal is not None:
            self._on_proposal(self, proposal)
