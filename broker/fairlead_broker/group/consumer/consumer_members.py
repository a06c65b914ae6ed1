"""The members of a group of KIP-848, their subscriptions and their assignments.

Pure. Every method changes the `latest` state by records, which its caller has to write. It follows
Kafka's `GroupMetadataManager.consumerGroupHeartbeat`, step by step: the member is admitted, its
subscription noted, a target assignment made if one is due, and the member moved towards it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from fairlead_broker.group.consumer.member_timers import MemberTimers, TimerKind
from fairlead_broker.group.consumer.reconciliation import Reconciliation
from fairlead_broker.group.consumer.speculative_state import SpeculativeState
from fairlead_broker.group.consumer.target_assignment import (
    build_targets,
    metadata_hash,
    subscribed_topic_ids,
)
from fairlead_broker.group.records.consumer_records import (
    GroupEpoch,
    MemberMetadata,
    MemberState,
    RecordKey,
    RecordType,
    TargetMetadata,
)
from fairlead_broker.group.records.consumer_state import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    NEW_MEMBER,
    NO_EPOCH,
    ConsumerGroupState,
)
from fairlead_broker.limits import KIB
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairlead_broker.group.consumer.migration_policy import MigrationPolicy
    from fairlead_broker.group.group_types import ConsumerHeartbeat
    from fairlead_broker.group.records.consumer_records import CurrentAssignment
    from fairlead_model.cluster import ClusterImage

RETRY_MS: Final = 1_000
"""After this long, who should be gone and could not be written out is looked at again."""
FENCING_BYTES_MAX: Final = 128 * KIB
"""Tombstones of members in one write, far below what the offsets topic takes by default."""
_RECORD_BYTES: Final = 24
"""What a tombstone takes beyond the names in its key, at most."""
UNCHANGED: Final = -1
_NOBODY: Final = MemberMetadata(None, None, "", "", (), "", UNCHANGED, None)


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The settings of a group, from the broker and from its own configs."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    size_max: int
    assignors: tuple[str, ...]
    """By name; the first is the default."""
    regex_refresh_interval_ms: int
    migration_policy: MigrationPolicy
    classic_size_max: int
    """Members that a group of the classic protocol may have."""


class ConsumerGroupHost(Protocol):
    """What a group can ask of the broker; the answers cost nothing."""

    @property
    def image(self) -> ClusterImage:
        """The topics that there are."""

    @property
    def image_number(self) -> int:
        """Another number with each image."""

    @property
    def topics_number(self) -> int:
        """Another number whenever topics are made or deleted."""

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """Return what holds for a group now."""

    def check_regular_expression(self, pattern: str) -> None:
        """KafkaError INVALID_REGULAR_EXPRESSION for a pattern that makes no sense."""


@dataclass(frozen=True, slots=True)
class Now:
    """When a request is answered: monotonic, and wall clock."""

    ms: int
    wall_ms: int


class ConsumerMembers:
    """The members of one group; `timers` are no part of what its log says."""

    __slots__ = ("_image_number", "_targeted_ms", "host", "speculative", "timers")

    def __init__(self, state: ConsumerGroupState, host: ConsumerGroupHost) -> None:
        self.host = host
        self.speculative = SpeculativeState(state)
        self.timers = MemberTimers()
        self._targeted_ms: int | None = None
        """When the last target was made; None if that is not known to be recent."""
        self._image_number = -1

    @property
    def latest(self) -> ConsumerGroupState:
        """The group with all that is on its way to the log."""
        return self.speculative.latest

    @property
    def settings(self) -> ConsumerGroupSettings:
        """The present settings of the group."""
        return self.host.settings_of(self.latest.group_id)

    def fall_back(self, now_ms: int) -> None:
        """Take note that the latest state is an older one again: what was forgotten is due soon."""
        self._image_number = -1
        self.expect_target()
        for member_id in self.latest.members:
            if (TimerKind.SESSION, member_id) not in self.timers:
                self.timers.set(TimerKind.SESSION, member_id, now_ms + RETRY_MS)
            self._watch_revocation(member_id, now_ms)

    def expect_target(self) -> None:
        """Have the next target made at once, whenever the last one was."""
        self._targeted_ms = None

    def begin_sessions(self, now_ms: int) -> None:
        """Restart the timers of every member: this broker coordinates the group from now on."""
        for member_id in self.latest.members:
            self.keep_alive(member_id, now_ms)
            self._watch_revocation(member_id, now_ms)

    def keep_alive(self, member_id: str, now_ms: int) -> None:
        """Take a sign of life."""
        member = self.latest.members[member_id]
        session_ms = self.settings.session_timeout_ms
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        self.timers.set(TimerKind.SESSION, member_id, now_ms + session_ms)

    def check_member(
        self, member_id: str, instance_id: str | None, *, fences_instance: bool = True
    ) -> MemberMetadata:
        """Return a member; KafkaError if there is none, or another one has its instance id."""
        state = self.latest
        if instance_id is not None:
            holder = state.instances.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"nobody is instance {instance_id}")
            if holder != member_id and fences_instance:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID, f"another member is instance {instance_id}"
                )
            member_id = holder
        member = state.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no member {member_id}")
        return member

    def advance(self, asked: ConsumerHeartbeat, now: Now) -> CurrentAssignment:
        """Take a heartbeat, or a join of the classic protocol; what the member has then.

        KafkaError where it is refused; the state may then be half changed.
        """
        self._check_wishes(asked)
        known = self._admit(asked)
        has_changed = self._subscribe(asked, known)
        self.retarget(now)
        member_id = asked.member_id
        self._reconcile(asked, now, has_changed_subscription=has_changed)
        self.keep_alive(member_id, now.ms)
        return self.latest.current(member_id)

    def _check_wishes(self, asked: ConsumerHeartbeat) -> None:
        """Raise KafkaError for an assignor that there is not, or a pattern that makes no sense."""
        assignor, pattern, offered = (
            asked.server_assignor,
            asked.topic_regex,
            self.settings.assignors,
        )
        if assignor is not None and assignor not in offered:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {assignor} is not supported. "
                f"Supported assignors: {', '.join(offered)}.",
            )
        if pattern and pattern not in self.latest.patterns():
            self.host.check_regular_expression(pattern)

    def _admit(self, asked: ConsumerHeartbeat) -> MemberMetadata | None:
        """Return what the member said before, None for a new one."""
        state, member_id, instance_id = self.latest, asked.member_id, asked.instance_id
        is_join = asked.member_epoch == JOINING_EPOCH
        if not is_join:
            member = self.check_member(member_id, instance_id)
            self._check_epoch(asked)
            return member
        holder = None if instance_id is None else state.instances.get(instance_id)
        if holder is not None and (
            holder != member_id or state.current(holder).member_epoch == AWAY_EPOCH
        ):
            self._take_over(holder, asked)
        known = state.members.get(member_id)
        if known is None and len(state.members) >= self.settings.size_max:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(state.members)} members"
            )
        return known

    def _check_epoch(self, asked: ConsumerHeartbeat) -> None:
        current = self.latest.current(asked.member_id)
        if asked.member_epoch == current.member_epoch:
            return
        if (
            asked.member_epoch == current.previous_member_epoch
            and asked.owned is not None
            and asked.owned <= current.assigned.keys()
        ):
            # The reply with its epoch was lost.
            return
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member is at epoch {current.member_epoch}, not {asked.member_epoch}; "
            "it must give up its partitions and join again",
        )

    def _take_over(self, old_id: str, asked: ConsumerHeartbeat) -> None:
        """Give a static member's place to its next process (KIP-345)."""
        state, speculative = self.latest, self.speculative
        old, current, target = state.members[old_id], state.current(old_id), state.target(old_id)
        if asked.classic is None and old.classic is None and current.member_epoch != AWAY_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"member {old_id} is instance {asked.instance_id}, and has not said that it goes",
            )
        if old_id != asked.member_id:
            for key in list(state.tombstones_of(old_id)):
                speculative.remove(key)
            self.timers.forget(old_id)
        moved = current._replace(
            member_epoch=JOINING_EPOCH, previous_member_epoch=NO_EPOCH, pending_revocation={}
        )
        speculative.put(RecordType.MEMBER_METADATA, old, asked.member_id)
        speculative.put(RecordType.TARGET_MEMBER, target, asked.member_id)
        speculative.put(RecordType.CURRENT_ASSIGNMENT, moved, asked.member_id)

    def _subscribe(self, asked: ConsumerHeartbeat, known: MemberMetadata | None) -> bool:
        """Note what the member says of itself, with a new epoch where that asks for one.

        Whether its subscription is another one than before.
        """
        before = _NOBODY if known is None else known
        wanted = _updated(before, asked)
        state, speculative = self.latest, self.speculative
        pattern, old_pattern = wanted.topic_regex, before.topic_regex
        has_new_pattern = pattern != old_pattern
        if wanted != known:
            speculative.put(RecordType.MEMBER_METADATA, wanted, asked.member_id)
        resolved = state.regular_expressions
        is_pattern_known = has_new_pattern and (pattern in resolved or old_pattern in resolved)
        if has_new_pattern:
            self._forget_patterns()
        has_new_names = wanted.topic_names != before.topic_names
        # What a pattern stands for is yet to be found: an assignment now would be one in vain, and
        # put off the one that counts.
        self.refresh_epoch(is_new=has_new_names or is_pattern_known)
        return has_new_names or has_new_pattern

    def _forget_patterns(self) -> None:
        """Remove the topics of patterns to which no member subscribes any more."""
        state = self.latest
        for pattern in state.regular_expressions.keys() - state.patterns():
            key = RecordKey(RecordType.REGULAR_EXPRESSION, state.group_id, pattern)
            self.speculative.remove(key)

    def refresh_epoch(self, *, is_new: bool) -> None:
        """Raise the group epoch if a subscription or the topics have changed."""
        number = self.host.image_number
        if not is_new and number == self._image_number:
            return
        self._image_number = number
        state, speculative = self.latest, self.speculative
        if state.has_partition_metadata:
            speculative.remove(RecordKey(RecordType.PARTITION_METADATA, state.group_id))
        now_hash = metadata_hash(state.subscriptions(), self.host.image)
        if is_new or now_hash != state.metadata_hash:
            speculative.put(RecordType.EPOCH, GroupEpoch(state.epoch + 1, now_hash))
        elif not state.is_logged:
            speculative.put(RecordType.EPOCH, GroupEpoch(state.epoch, now_hash))

    def has_other_topics(self) -> bool:
        """Whether topics were made, deleted or grown that the group has yet to take note of."""
        number, state = self.host.image_number, self.latest
        if number == self._image_number:
            return False
        if metadata_hash(state.subscriptions(), self.host.image) != state.metadata_hash:
            return True
        self._image_number = number
        return False

    def is_target_due(self, now_ms: int) -> bool:
        """Whether the target assignment is an old one, and the last one made long enough ago."""
        state = self.latest
        if state.epoch <= state.assignment_epoch:
            return False
        made_ms = self._targeted_ms
        return made_ms is None or now_ms - made_ms >= self.settings.assignment_interval_ms

    def retarget(self, now: Now) -> None:
        """Make a target assignment for the present group epoch, if one is due."""
        if not self.is_target_due(now.ms):
            return
        state, speculative = self.latest, self.speculative
        try:
            targets = build_targets(state, self.host.image, self.settings.assignors)
        except InvariantViolation as violation:
            speculative.violation = str(violation)
            return
        for member_id, target in targets.items():
            if target != state.targets.get(member_id):
                speculative.put(RecordType.TARGET_MEMBER, target, member_id)
        speculative.put(RecordType.TARGET_METADATA, TargetMetadata(state.epoch, now.wall_ms))
        if state.subscriptions():
            self._targeted_ms = now.ms

    def _reconcile(
        self, asked: ConsumerHeartbeat, now: Now, *, has_changed_subscription: bool
    ) -> None:
        state, member_id = self.latest, asked.member_id
        current = state.current(member_id)
        if (
            current.state is MemberState.STABLE
            and current.member_epoch == state.assignment_epoch
            and not has_changed_subscription
        ):
            return
        names = state.topic_names(state.members[member_id])
        moved = Reconciliation(
            member_id,
            current,
            state.assignment_epoch,
            state.target(member_id),
            subscribed_topic_ids(names, self.host.image),
            state.holders,
            asked.owned,
            has_changed_subscription,
        ).result()
        if moved is not current:
            self.speculative.put(RecordType.CURRENT_ASSIGNMENT, moved, member_id)
            self.timers.cancel(TimerKind.REBALANCE, member_id)
            self._watch_revocation(member_id, now.ms)

    def _watch_revocation(self, member_id: str, now_ms: int) -> None:
        """Expect a member to give up what it must; one of the classic protocol joins for that."""
        member, current = self.latest.members[member_id], self.latest.current(member_id)
        if (
            current.state is MemberState.UNREVOKED_PARTITIONS
            and member.classic is None
            and (TimerKind.REBALANCE, member_id) not in self.timers
        ):
            self.timers.set(
                TimerKind.REBALANCE,
                member_id,
                now_ms + max(0, member.rebalance_timeout_ms),
                member_epoch=current.member_epoch,
            )

    def put_away(self, member_id: str) -> None:
        """Keep everything of a static member that will be back before its session is over."""
        current = self.latest.current(member_id)
        away = current._replace(
            member_epoch=AWAY_EPOCH,
            assigned=dict.fromkeys(current.assigned, 0),
            pending_revocation={},
        )
        self.speculative.put(RecordType.CURRENT_ASSIGNMENT, away, member_id)
        self.timers.cancel(TimerKind.REBALANCE, member_id)

    def remove(self, member_ids: Collection[str]) -> None:
        """Fence members: others may have what they had."""
        state, speculative = self.latest, self.speculative
        for member_id in member_ids:
            for key in list(state.tombstones_of(member_id)):
                speculative.remove(key)
            self.timers.forget(member_id)
        self._forget_patterns()
        self.refresh_epoch(is_new=True)
        if not state.members:
            # No heartbeat would make a target for an empty group (KAFKA-20442).
            made = state.target_metadata._replace(assignment_epoch=state.epoch)
            speculative.put(RecordType.TARGET_METADATA, made)

    def overdue(self, now_ms: int) -> dict[str, TimerKind]:
        """Return members that were silent, or slow, for too long, as many as one write may end.

        The others are due again at once: all of a large group may die at the same time.
        """
        state = self.latest
        found: dict[str, TimerKind] = {}
        for kind, member_id, member_epoch in self.timers.due(now_ms):
            current = state.currents.get(member_id, NEW_MEMBER)
            is_over = member_id in state.members and (
                kind is not TimerKind.REBALANCE
                or (
                    current.member_epoch == member_epoch
                    and current.state is MemberState.UNREVOKED_PARTITIONS
                )
            )
            if is_over:
                found.setdefault(member_id, kind)
        size = 0
        for member_id, kind in tuple(found.items()):
            size += self._fencing_bytes(member_id)
            if size > FENCING_BYTES_MAX and len(found) > 1:
                del found[member_id]
                is_slow = kind is TimerKind.REBALANCE
                epoch = state.current(member_id).member_epoch if is_slow else None
                self.timers.set(kind, member_id, now_ms, member_epoch=epoch)
        return found

    def _fencing_bytes(self, member_id: str) -> int:
        """Return the most bytes that the tombstones of a member take in a batch."""
        state = self.latest
        name = _RECORD_BYTES + len(state.group_id.encode())
        pattern = state.members[member_id].topic_regex
        return 3 * (name + len(member_id.encode())) + name + len(pattern.encode())


def _updated(known: MemberMetadata, asked: ConsumerHeartbeat) -> MemberMetadata:
    """Return what a member says of itself now; what it leaves out is as before."""
    timeout_ms = asked.rebalance_timeout_ms
    return MemberMetadata(
        known.instance_id if asked.instance_id is None else asked.instance_id,
        known.rack_id if asked.rack_id is None else asked.rack_id,
        asked.client_id,
        asked.client_host,
        known.topic_names if asked.topic_names is None else asked.topic_names,
        known.topic_regex if asked.topic_regex is None else asked.topic_regex,
        known.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        known.server_assignor if asked.server_assignor is None else asked.server_assignor,
        asked.classic,
    )
