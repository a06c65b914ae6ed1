"""What the leader of a partition knows of its replicas, and the high watermark that follows.

Pure: it takes offsets, epochs and the time, and returns what advanced and what to propose.
`Partition` has a state while this broker leads. A new leader epoch gets a new state, so nothing
that a follower reported to an older leader counts (R12).

Times are milliseconds of any clock that never steps back, always the same one.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from fairlead_broker.replication.broker_epochs import (
    UNKNOWN_BROKER_EPOCH,
    AnyBrokers,
    BrokerEpochs,
)
from fairlead_broker.replication.isr import (
    CommittedIsr,
    IsrProposal,
    IsrState,
    PendingExpandIsr,
    PendingShrinkIsr,
    ResumedIsr,
)
from fairlead_wire.errors import ErrorCode

__all__ = [
    "CommittedIsr",
    "IsrProposal",
    "IsrState",
    "LeaderState",
    "PendingExpandIsr",
    "PendingShrinkIsr",
    "ResumedIsr",
]

UNKNOWN_END_OFFSET: Final = -1
"""Of a replica that has not fetched in this leader epoch yet: the high watermark waits for it."""
UNKNOWN_LOG_START: Final = -1
"""Of a replica that has not fetched yet, or runs an earlier release, which does not send it."""

_REVERTING: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_OUTDATED: Final = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NEW_LEADER_ELECTED,
)


class Progress(NamedTuple):
    """What a fetch changed: whether the high watermark advanced, and the proposal, if any."""

    high_watermark_moved: bool
    proposal: IsrProposal | None = None


class Refusal(Enum):
    """What becomes of a proposal that the controller did not accept (R8)."""

    REVERTED = "reverted"
    """The set is the committed one again; another proposal may follow."""
    AWAITS_METADATA = "awaits metadata"
    """The controller's record has changed: nothing is proposed until the image has it."""
    RETRIED = "retried"
    """The outcome is unknown or the controller was busy: send the same proposal again."""
    OBSOLETE = "obsolete"
    """This proposal is no longer pending; nothing has changed."""


_NOTHING_MOVED: Final = Progress(False)
_MOVED: Final = Progress(True)


@dataclass(slots=True)
class FollowerProgress:
    """What one follower has reported in this leader epoch. `record_fetch` changes all fields."""

    end_offset: int = UNKNOWN_END_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    log_start_offset: int = UNKNOWN_LOG_START
    """Changed by `record_log_start`."""
    last_caught_up_ms: int = 0
    last_fetch_ms: int = 0
    last_fetch_log_end: int = UNKNOWN_END_OFFSET
    """The leader's log end when the follower fetched last."""
    is_close: bool = False
    """Its last fetch began at or above the log end of its fetch before."""
    left_isr_ms: int = -1
    """When it last left the ISR. Fetches before that do not bring it back: it may be dead."""


@dataclass(slots=True)
class LeaderState:
    """One reign over one partition.

    Invariant: `high_watermark` never falls and never passes `log_end_offset` (I1, I2). Proposals
    and `isr_committed` change `isr_state`; `record_fetch` changes `followers`; `record_append` and
    everything that may advance them change `log_end_offset` and `high_watermark`.
    """

    broker_id: int
    replicas: tuple[int, ...]
    leader_epoch: int
    epoch_start_offset: int
    isr_state: IsrState
    min_insync_replicas: int
    log_end_offset: int
    high_watermark: int
    partition_epoch: int = 0
    brokers: BrokerEpochs = field(default_factory=AnyBrokers)
    began_ms: int = 0
    """When the reign began: members of the ISR count as caught up at that time."""
    proposal: IsrProposal | None = field(default=None, init=False)
    """The one proposal that awaits its answer."""
    awaits_metadata: bool = field(default=False, init=False)
    followers: dict[int, FollowerProgress] = field(init=False)
    _counted: tuple[FollowerProgress, ...] = field(default=(), init=False)
    _is_below_minimum: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        isr = self.isr_state.isr
        self.followers = {
            replica: FollowerProgress(
                last_caught_up_ms=self.began_ms if replica in isr else 0,
                last_fetch_ms=self.began_ms if replica in isr else 0,
            )
            for replica in self.replicas
            if replica != self.broker_id
        }
        self._note_isr()

    @property
    def effective_min_insync_replicas(self) -> int:
        """The smallest ISR that may commit: at most the number of replicas, as in Kafka."""
        return min(self.min_insync_replicas, max(len(self.replicas), 1))

    @property
    def has_enough_in_sync_replicas(self) -> bool:
        """True if acks=all may be accepted: the committed ISR is large enough (R13)."""
        return not self._is_below_minimum

    @property
    def is_high_watermark_valid(self) -> bool:
        """True once all that earlier leaders committed is known to be committed (R7).

        If a reign goes on after its process was killed, that process counts as an earlier leader:
        `epoch_start_offset` is the end of the log that it left (R34).
        """
        return self.high_watermark >= self.epoch_start_offset

    def record_append(self, log_end_offset: int) -> bool:
        """Note the end of the leader's own log; return whether the high watermark advanced."""
        self.log_end_offset = log_end_offset
        return self.maybe_advance_high_watermark()

    def is_stale(self, replica_id: int, broker_epoch: int) -> bool:
        """Return True if a fetch comes from an older start of its broker than one known (R11)."""
        follower = self.followers.get(replica_id)
        known = UNKNOWN_BROKER_EPOCH if follower is None else follower.broker_epoch
        return broker_epoch < known or broker_epoch < self.brokers.broker_epoch(replica_id)

    def record_fetch(
        self, replica_id: int, broker_epoch: int, fetch_offset: int, now_ms: int
    ) -> Progress:
        """Note that a follower has everything below `fetch_offset`, in a log that matches this one.

        Fetches of brokers without a replica and of earlier starts of a broker (R11) change nothing.
        """
        follower = self.followers.get(replica_id)
        if follower is None or self.is_stale(replica_id, broker_epoch):
            return _NOTHING_MOVED
        log_end_offset = self.log_end_offset
        is_close = True
        if fetch_offset >= log_end_offset:
            follower.last_caught_up_ms = now_ms
        elif fetch_offset >= follower.last_fetch_log_end > UNKNOWN_END_OFFSET:
            # It had caught up with the log end of that time when it fetched from there on (R12).
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
        else:
            is_close = False
        follower.last_fetch_ms = now_ms
        follower.last_fetch_log_end = log_end_offset
        follower.end_offset = fetch_offset
        follower.broker_epoch = broker_epoch
        if replica_id in self.isr_state.isr:
            return _MOVED if self.maybe_advance_high_watermark() else _NOTHING_MOVED
        if is_close != follower.is_close:
            follower.is_close = is_close
            self._note_isr()
        moved = self.maybe_advance_high_watermark()
        return Progress(moved, self._propose_joining(replica_id))

    def record_log_start(self, replica_id: int, log_start_offset: int) -> bool:
        """Note where a follower's log starts, after its fetch; return whether that changed."""
        follower = self.followers[replica_id]
        if follower.log_start_offset == log_start_offset:
            return False
        follower.log_start_offset = log_start_offset
        return True

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the lowest log start of all replicas in service; the leader's is given.

        No new leader brings records below it back. -1 while one of the replicas has not fetched in
        this leader epoch. A replica that fetches without sending its log start is left out.
        """
        lowest = log_start_offset
        for replica, follower in self.followers.items():
            start = follower.log_start_offset
            is_silent = start < 0 and follower.end_offset != UNKNOWN_END_OFFSET
            if start < lowest and not is_silent and self.brokers.may_join(replica):
                lowest = start
        return lowest

    def record_alive(self, replica_id: int, at_ms: int) -> None:
        """Note that a follower fetched at `at_ms`, in a session that omits this partition."""
        follower = self.followers.get(replica_id)
        if follower is None or follower.end_offset == UNKNOWN_END_OFFSET:
            return
        if follower.end_offset >= self.log_end_offset:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, at_ms)
        follower.last_fetch_ms = max(follower.last_fetch_ms, at_ms)

    def maybe_advance_high_watermark(self) -> bool:
        """High watermark = lowest log end offset of the maximal ISR (R6).

        A replica that is about to join counts, too: otherwise it could never reach the high
        watermark while producers write.
        """
        if self._is_below_minimum:
            return False
        candidate = self.log_end_offset
        for follower in self._counted:
            candidate = min(candidate, follower.end_offset)
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def tick(self, now_ms: int, max_lag_ms: int) -> IsrProposal | None:
        """Let time pass: propose that lagging replicas leave, or that a fit one joins (R12)."""
        is_changed = False
        for replica, follower in self.followers.items():
            if follower.is_close and now_ms - follower.last_fetch_ms > max_lag_ms:
                follower.is_close = False
                is_changed |= replica not in self.isr_state.isr
        if is_changed:
            self._note_isr()
            self.maybe_advance_high_watermark()
        if not self._may_propose:
            return None
        leaving = frozenset(
            replica
            for replica in self.isr_state.isr
            if replica in self.followers
            and now_ms - self.followers[replica].last_caught_up_ms > max_lag_ms
        )
        if leaving:
            isr = self.isr_state.isr
            self.isr_state = PendingShrinkIsr(isr, leaving)
            self._note_isr()
            return self._propose(isr - leaving)
        return self.propose_joining()

    def propose_joining(self) -> IsrProposal | None:
        """Return the first replica in assignment order that is fit to join, if there is one (R10).

        Call this when the image has changed brokers or this partition; a fetch does it for its own
        replica. Only replicas that have fetched since they left the ISR are fit.
        """
        for replica, follower in self.followers.items():
            if follower.last_fetch_ms <= follower.left_isr_ms:
                continue
            proposal = self._propose_joining(replica)
            if proposal is not None:
                return proposal
        return None

    def brokers_changed(self) -> bool:
        """Apply a new image of the brokers; return whether the high watermark advanced.

        The high watermark no longer waits for a fenced broker that is not in the ISR.
        """
        self._note_isr()
        return self.maybe_advance_high_watermark()

    def isr_committed(
        self, isr: frozenset[int], *, partition_epoch: int, min_insync_replicas: int, now_ms: int
    ) -> bool:
        """Adopt the controller's new record; return whether the high watermark advanced.

        A pending proposal is settled: the controller can no longer accept a proposal for the older
        record, because it checks the partition epoch (R9).
        """
        if partition_epoch < self.partition_epoch:
            return False
        if partition_epoch > self.partition_epoch or isr != self.isr_state.isr:
            self._settle(isr, now_ms)
        self.partition_epoch = partition_epoch
        self.min_insync_replicas = min_insync_replicas
        self._note_isr()
        return self.maybe_advance_high_watermark()

    def proposal_accepted(
        self,
        proposal: IsrProposal,
        isr: frozenset[int],
        *,
        leader_epoch: int,
        partition_epoch: int,
        now_ms: int,
    ) -> bool:
        """Take the answer to `proposal`; adopt it only in this reign, and only if it is newer (R8).

        Mostly the image has had it before. Return whether the high watermark advanced.
        """
        if proposal is not self.proposal or leader_epoch != self.leader_epoch:
            return False
        if partition_epoch < self.partition_epoch:
            return False
        self._settle(isr, now_ms)
        self.partition_epoch = partition_epoch
        self._note_isr()
        return self.maybe_advance_high_watermark()

    def proposal_refused(self, proposal: IsrProposal, code: ErrorCode) -> Refusal:
        """Decide about a `proposal` that the controller refused or did not answer (R8)."""
        if proposal is not self.proposal:
            return Refusal.OBSOLETE
        if code in _REVERTING:
            self.proposal = None
            self.isr_state = CommittedIsr(self.isr_state.isr)
            self._note_isr()
            return Refusal.REVERTED
        if code in _OUTDATED:
            # The record has changed; the pending replicas count until the image has the new one.
            self.awaits_metadata = True
            return Refusal.AWAITS_METADATA
        return Refusal.RETRIED

    def take_over(self, before: "LeaderState") -> None:
        """Adopt what an earlier state of the same leader epoch knew of the same followers."""
        for replica, progress in before.followers.items():
            if replica in self.followers:
                self.followers[replica] = progress
        self._note_isr()

    def _settle(self, isr: frozenset[int], now_ms: int) -> None:
        for replica in self.isr_state.isr - isr:
            if replica in self.followers:
                self.followers[replica].left_isr_ms = now_ms
                # It may never fetch again, as with a failed disk: the high watermark would then
                # wait at its last offset for the whole `max_lag_ms`.
                self.followers[replica].is_close = False
        self.proposal = None
        self.awaits_metadata = False
        self.isr_state = CommittedIsr(isr)

    @property
    def _may_propose(self) -> bool:
        """One proposal at a time (R8)."""
        return self.proposal is None and isinstance(self.isr_state, CommittedIsr)

    def _propose_joining(self, replica: int) -> IsrProposal | None:
        if not self._may_propose or not self._is_fit(replica):
            return None
        isr = self.isr_state.isr
        self.isr_state = PendingExpandIsr(isr, replica)
        self._note_isr()
        return self._propose(isr | {replica})

    def _is_fit(self, replica: int) -> bool:
        """R10: it has all committed records and the start of this epoch, and may join."""
        follower = self.followers[replica]
        return (
            replica not in self.isr_state.isr
            and follower.end_offset >= self.high_watermark
            and follower.end_offset >= self.epoch_start_offset
            and follower.broker_epoch == self.brokers.broker_epoch(replica)
            and self.brokers.may_join(replica)
        )

    def _propose(self, isr: frozenset[int]) -> IsrProposal:
        members = []
        for replica in self.replicas:
            if replica in isr:
                follower = self.followers.get(replica)
                # For members it is the registered epoch: the controller itself removes a broker
                # from the ISR after an unclean start, and after a clean one it may not have fetched
                # yet.
                epoch = self.brokers.broker_epoch(replica)
                if epoch == UNKNOWN_BROKER_EPOCH and follower is not None:
                    epoch = follower.broker_epoch
                members.append((replica, epoch))
        self.proposal = IsrProposal(
            self.leader_epoch,
            self.partition_epoch,
            tuple(members),
            is_shrink=isinstance(self.isr_state, PendingShrinkIsr),
        )
        return self.proposal

    def _note_isr(self) -> None:
        """Compute which replicas count, so that appends and fetches need not do it."""
        maximal_isr = self.isr_state.maximal_isr
        self._is_below_minimum = len(self.isr_state.isr) < self.effective_min_insync_replicas
        self._counted = tuple(
            follower
            for replica, follower in self.followers.items()
            if replica in maximal_isr
            or (
                follower.is_close
                and follower.broker_epoch == self.brokers.broker_epoch(replica)
                and self.brokers.may_join(replica)
            )
        )
