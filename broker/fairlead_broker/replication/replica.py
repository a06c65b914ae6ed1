"""A replica of a partition on this broker: its log, its marks, and following a leader.

`Partition` adds leading; everybody else knows replicas as partitions. It does no I/O of its own
but through its log (`replica_log.ReplicaLog` says what it needs of one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.invariants import require
from fairlead_broker.replication.broker_epochs import AnyBrokers
from fairlead_broker.replication.follower_state import (
    Append,
    FollowerState,
    RestartAt,
    TruncateTo,
)
from fairlead_broker.traffic import TopicTraffic
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fairlead_broker.log.log import Log
    from fairlead_broker.replication.broker_epochs import BrokerEpochs
    from fairlead_broker.replication.follower_state import Action, FetchedPartition, FetchPosition
    from fairlead_broker.replication.isr import IsrProposal
    from fairlead_broker.replication.leader_state import LeaderState
    from fairlead_model.partition import PartitionRegistration


class Replica:
    """A partition this broker holds a replica of.

    `leader_id`, `leader_epoch`, `partition_epoch`, `replicas` and `isr` are the controller's and
    change in `lead`, `follow` and `proposal_accepted` only. `high_watermark` is moved by
    `LeaderState` while leading, by `take` while following. At most one of `leader` and `follower`
    is there. Order, asserted at each set (I1):
    `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`.
    """

    __slots__ = (
        "_broker_id",
        "_brokers",
        "_follower_high_watermark",
        "_on_advanced",
        "_on_offline",
        "_on_proposal",
        "follower",
        "index",
        "is_advance_noted",
        "isr",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "replicas",
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
        on_advanced: Callable[[Any], None],
        on_proposal: Callable[[Any, IsrProposal], None] | None = None,
        on_offline: Callable[[Any], None] | None = None,
        brokers: BrokerEpochs | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """`high_watermark` is the checkpoint's hint; it is clamped into the log.

        `on_advanced` hears of everything that a parked request may wait for, `on_proposal` of
        changes of the ISR to ask the controller for, `on_offline` that the disk failed the log.
        """
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.traffic = TopicTraffic() if traffic is None else traffic
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.leader: LeaderState | None = None
        self.follower: FollowerState | None = None
        self.is_advance_noted = False
        self._broker_id = broker_id
        self._brokers: BrokerEpochs = AnyBrokers() if brokers is None else brokers
        self._on_advanced = on_advanced
        self._on_proposal = on_proposal
        self._on_offline = on_offline
        self._follower_high_watermark = min(
            max(high_watermark, log.log_start_offset), log.log_end_offset
        )

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    @property
    def high_watermark(self) -> int:
        """Exclusive: everything below is committed."""
        leader = self.leader
        return self._follower_high_watermark if leader is None else leader.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive: what read_committed consumers may see; no transaction is ever open here."""
        return self.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def is_high_watermark_valid(self) -> bool:
        """False between an election and the moment when the high watermark is known (R7)."""
        return self.leader is not None and self.leader.is_high_watermark_valid

    def follow(self, registration: PartitionRegistration) -> bool:
        """Stop leading, if this broker did; returns whether it did.

        Whoever waits on this partition is told, so that parked requests answer
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
        """The replica is deleted or its disk has failed: nothing is served from here any more."""
        self._follower_high_watermark = self.high_watermark
        self.leader = None
        self.follower = None
        self.leader_id = -1
        self._note_advance()

    # Following.

    def next_fetch(self) -> FetchPosition | None:
        """What to ask the leader; None while this replica follows nobody or can't append."""
        if self.follower is None or self.log.refusal is not None:
            return None
        return self.follower.next_fetch(self.log)

    def take(self, reply: FetchedPartition, *, now_ms: int) -> Action | None:
        """Carry out what the leader's answer asks for; answers what that was.

        None: there is nobody to follow any more. `now_ms` is wall time, for the log.
        """
        follower = self.follower
        if follower is None or self.log.refusal is not None:
            return None
        action = follower.on_fetched(self.log, reply)
        try:
            if isinstance(action, Append):
                self._append_as_follower(action, now_ms)
            elif isinstance(action, TruncateTo):
                self.log.truncate_to(action.offset)
                self._end_at_log()
            elif isinstance(action, RestartAt):
                self.log.restart_at(action.offset)
                self._end_at_log()
        except KafkaError:
            # Damaged on the way, or the disk: in either case nothing of it counts.
            self._maybe_report_offline()
            return follower.retry()
        return action

    def check_order(self) -> None:
        """Assert the order of this partition's marks (I1)."""
        require(
            self.log.log_start_offset <= self.last_stable_offset,
            "log_start_offset {} > last_stable_offset {} in {}",
            self.log.log_start_offset,
            self.last_stable_offset,
            self,
        )
        require(
            self.high_watermark <= self.log.log_end_offset,
            "high_watermark {} > log_end_offset {} in {}",
            self.high_watermark,
            self.log.log_end_offset,
            self,
        )

    def start_moved(self) -> None:
        """The log starts later now: followers hear of it with their next answer."""
        self.check_order()
        self._note_advance()

    def _append_as_follower(self, action: Append, now_ms: int) -> None:
        log = self.log
        if self.follower is not None:
            self.follower.leader_high_watermark = action.leader_high_watermark
        if len(action.records):
            log.append_as_follower(
                memoryview(action.records), now_ms=now_ms, leader_epoch=self.leader_epoch
            )
        before = self._follower_high_watermark
        high_watermark = max(before, min(action.leader_high_watermark, log.log_end_offset))
        if action.leader_log_start_offset > log.log_start_offset:
            # What the leader has forgotten was committed, and this log may end before it (R17).
            start = min(action.leader_log_start_offset, log.log_end_offset)
            high_watermark = max(high_watermark, start)
            log.advance_log_start_offset(start)
        self._follower_high_watermark = high_watermark
        if len(action.records) or high_watermark != before:
            self.check_order()
            self._note_advance()

    def _end_at_log(self) -> None:
        """The log was cut: the marks must lie within it (I1)."""
        log = self.log
        self._follower_high_watermark = min(
            max(self._follower_high_watermark, log.log_start_offset), log.log_end_offset
        )
        self.check_order()
        self._note_advance()

    def _take_over(self, registration: PartitionRegistration) -> None:
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.replicas = tuple(registration.replicas)
        self.isr = tuple(registration.isr)

    def _maybe_report_offline(self) -> None:
        if self.log.is_offline and self._on_offline is not None:
            self._on_offline(self)

    def _note_advance(self) -> None:
        if not self.is_advance_noted:
            self.is_advance_noted = True
            self._on_advanced(self)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"
