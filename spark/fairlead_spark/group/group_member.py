"""A query as a member of its consumer group: joins, stays, commits, detects that it was replaced.

Coordinators do the fencing: they accept offsets only from the member that took the query's
transactional id last (`group_transaction`). So a driver that another one has removed commits
nothing any more, however late it resumes. A driver that has lost its membership finds out why
(`_enter`). If another driver is there, or has committed or taken the id meanwhile, this driver is
the older one and ends (FencedError). If there was none, this driver was away for longer than its
session, and joins again.

Everything here blocks, and belongs to one thread.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import CONNECTION_ERRORS, Cluster, PassingError
from fairlead_spark.errors import FENCED, FencedError, SourceError, TakenOverError, error_of
from fairlead_spark.group.driver_identity import is_alive
from fairlead_spark.group.group_membership import (
    PROTOCOL_NAME,
    PROTOCOL_TYPE,
    Claim,
    Instance,
    MalformedError,
    assign,
    decode_assignment,
    decode_claim,
    encode_assignment,
    encode_claim,
    read_instance,
)
from fairlead_spark.group.group_transaction import GroupTransaction
from fairlead_spark.offsets import PartitionValues, TopicPartition
from fairlead_spark.options import Subscription
from fairlead_spark.prepared_transaction import PreparedTransaction
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_groups import DescribeGroupsRequest
from fairlead_wire.messages.find_coordinator import FindCoordinatorRequest
from fairlead_wire.messages.heartbeat import HeartbeatRequest
from fairlead_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fairlead_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fairlead_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fairlead_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fairlead_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

logger = logging.getLogger(__name__)

FIND_COORDINATOR_VERSION: Final = 3
DESCRIBE_GROUPS_VERSION: Final = 5
JOIN_GROUP_VERSION: Final = 7
SYNC_GROUP_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_GROUP_VERSION: Final = 4
OFFSET_FETCH_VERSION: Final = 7
TXN_OFFSET_COMMIT_VERSION: Final = 3
"""With member and generation (KIP-447); clients of version 4 know TRANSACTION_ABORTABLE."""
_NO_OFFSET: Final = -1
_NO_MEMBER: Final = ""
_LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
_JOIN_AGAIN: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


class UnstableCommitError(PassingError):
    """The end of a commit is decided, but its marker is not there yet."""


class Committed(NamedTuple):
    """The group's offset of a partition; -1: none. Earlier versions stored metadata with it."""

    offset: int
    has_text: bool = False


class GroupMember:
    """Member of group `settings.group_id`, for process `instance` that reads `subscription`."""

    def __init__(
        self,
        settings: ClientSettings,
        instance: Instance,
        subscription: Subscription,
        *,
        since_ms: int,
    ) -> None:
        self._group = settings.group_id or ""
        self._instance = instance
        self._since_ms = since_ms
        # Separate connections, with a shorter time-out than those for reading.
        self._cluster = Cluster(replace(settings, request_timeout_s=limits.GROUP_TIMEOUT_S))
        self._transaction = GroupTransaction(self._cluster, self._group, subscription)
        self._coordinator: tuple[str, int] | None = None
        self._member_id = _NO_MEMBER
        self._generation = -1
        self._claim: frozenset[TopicPartition] = frozenset()
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._is_current = False
        """Joined with this claim, and not told of a rebalance since."""
        self._is_newcomer = True
        """True until it was once the only driver in the group: others are older."""
        self._is_alone = False
        """No other driver was there after this one had joined."""
        self._seen: dict[TopicPartition, set[int]] = {}
        """Offsets that the group may have if nobody else commits: read, written, or in doubt."""
        self._written: set[TopicPartition] = set()
        self._has_warned = False

    def stay(self) -> None:
        """Send a heartbeat, or join again if the membership is lost."""
        if not self._is_current or not self._is_alone:
            self._join(self._claim)
            return
        self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=str(self._instance),
        )
        self._check(self._ask(request, HEARTBEAT_VERSION).error_code)

    def commit(
        self, positions: PartitionValues, set_back: frozenset[TopicPartition] = frozenset()
    ) -> None:
        """Commit ends of batches, as a member that has these partitions.

        Those of `set_back` may be lower than what this driver has committed.
        """
        claim = frozenset(positions)
        if claim != self._claim or not self._is_current or not self._is_alone:
            self._join(claim)
        own = {each: at for each, at in positions.items() if each in self._assigned}
        if len(own) < len(positions) and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "another query of this program shows its progress of %s in group %s, too: give "
                "each query a kafka.group.id of its own",
                next(iter(positions.keys() - own.keys())),
                self._group,
            )
        if not own:
            return
        # Before it reads offsets, so that another driver's open transaction is aborted.
        self._transaction.take()
        stored = self._read(own)
        due = choose_offsets(own, stored, self._written - set_back)
        if due:
            self._write(due)

    def leave(self) -> None:
        """Leave the group; a member that does not is removed when its session ends."""
        try:
            if self._member_id != _NO_MEMBER:
                self._remove([MemberIdentity(self._member_id, str(self._instance))])
        except (SourceError, PassingError, *CONNECTION_ERRORS) as error:
            logger.debug("group %s: left without a word: %s", self._group, error)
        finally:
            self._member_id = _NO_MEMBER
            self._cluster.close()

    def _join(self, claim: frozenset[TopicPartition]) -> None:
        self._claim, self._is_current = claim, False
        if self._member_id == _NO_MEMBER:
            self._is_alone = False
            self._enter()
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=round(limits.GROUP_SESSION_S * 1000),
            rebalance_timeout_ms=round(limits.GROUP_SESSION_S * 1000),
            member_id=self._member_id,
            group_instance_id=str(self._instance),
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(PROTOCOL_NAME, encode_claim(Claim(claim, self._since_ms)))
            ],
        )
        # The reply comes when all members have joined, or have timed out.
        joined = self._ask(request, JOIN_GROUP_VERSION, timeout_s=limits.GROUP_JOIN_S)
        self._check(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        claims = {each.member_id: _read_claim(each.metadata) for each in joined.members}
        self._sync(assign(claims))
        self._is_current = True
        if not self._is_alone:
            self._look_again()

    def _sync(self, assignments: Mapping[str, frozenset[TopicPartition]]) -> None:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=str(self._instance),
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL_NAME,
            assignments=[
                SyncGroupRequestAssignment(member_id, encode_assignment(partitions))
                for member_id, partitions in assignments.items()
            ],
        )
        reply = self._ask(request, SYNC_GROUP_VERSION, timeout_s=limits.GROUP_JOIN_S)
        self._check(reply.error_code)
        assigned = decode_assignment(bytes(reply.assignment))
        for gained in assigned - self._assigned:
            # Another query of this driver may have committed there.
            self._seen.pop(gained, None)
            self._written.discard(gained)
        if self._assigned - assigned:
            self._transaction.forget()
        self._assigned = assigned

    def _enter(self) -> None:
        """Join the group if there is room; FencedError if another driver has the place."""
        others, gone = self._find_others()
        if self._is_newcomer:
            gone += others
        elif others or self._has_foreign_offsets():
            raise self._fenced()
        if gone:
            self._remove(gone)

    def _look_again(self) -> None:
        """Check after a join: another driver may have joined in the meantime."""
        others, _ = self._find_others()
        if not others:
            self._is_alone, self._is_newcomer = True, False
        elif self._is_newcomer:
            self._remove(others)
            raise PassingError(f"group {self._group}: members of an older driver are removed")
        else:
            raise self._fenced()

    def _find_others(self) -> tuple[list[MemberIdentity], list[MemberIdentity]]:
        """Return members of other drivers, and those of this one whose process is gone."""
        request = DescribeGroupsRequest(groups=[self._group])
        (group,) = self._ask(request, DESCRIBE_GROUPS_VERSION).groups
        self._check(group.error_code)
        others, gone = [], []
        since_ms = self._since_ms
        for member in group.members:
            instance = read_instance(member.group_instance_id)
            identity = MemberIdentity(member.member_id, member.group_instance_id)
            if instance is None:
                raise self._shared()
            if instance.driver != self._instance.driver:
                if self._is_newcomer and _read_claim(member.member_metadata).since_ms > since_ms:
                    # This driver was suspended before it came here for the first time.
                    raise self._fenced()
                others.append(identity)
            elif instance == self._instance:
                # From an earlier join of this process whose answer was lost.
                if member.member_id != self._member_id:
                    gone.append(identity)
            elif not is_alive(instance.process):
                gone.append(identity)
        return others, gone

    def _remove(self, members: list[MemberIdentity]) -> None:
        reply = self._ask(
            LeaveGroupRequest(group_id=self._group, members=members), LEAVE_GROUP_VERSION
        )
        self._check(reply.error_code)
        for each in reply.members:
            if each.error_code not in _LOST:
                self._check(each.error_code)

    def _has_foreign_offsets(self) -> bool:
        """Tell whether another member has committed since this one last did."""
        known = {each: self._seen[each] for each in self._assigned & self._seen.keys()}
        stored = self._read_offsets(known)
        return any(each.offset not in (*known[where], _NO_OFFSET) for where, each in stored.items())

    def _read(self, positions: PartitionValues) -> dict[TopicPartition, Committed]:
        stored = self._read_offsets(positions)
        for where, each in stored.items():
            # While it is a member, only its own commits change offsets that it knows.
            self._seen.setdefault(where, {each.offset})
        return stored

    def _read_offsets(
        self, partitions: Mapping[TopicPartition, Any], *, is_stable: bool = False
    ) -> dict[TopicPartition, Committed]:
        """Return the group's offsets.

        `is_stable`: UnstableCommitError while the marker of a commit is missing.
        """
        topics: dict[str, OffsetFetchRequestTopic] = {}
        for each in partitions:
            topic = topics.setdefault(each.topic, OffsetFetchRequestTopic(each.topic))
            topic.partition_indexes.append(each.partition)
        request = OffsetFetchRequest(
            group_id=self._group, topics=list(topics.values()), require_stable=is_stable
        )
        reply = self._ask(request, OFFSET_FETCH_VERSION)
        self._check(reply.error_code)
        found = {}
        for topic in reply.topics:
            for part in topic.partitions:
                if part.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise UnstableCommitError(f"group {self._group}: a commit is not complete")
                self._check(part.error_code)
                where = TopicPartition(topic.name, part.partition_index)
                found[where] = Committed(part.committed_offset, bool(part.metadata))
        return found

    def _write(self, positions: PartitionValues) -> None:
        for each, offset in positions.items():
            # In doubt if the answer is lost.
            self._seen.setdefault(each, set()).add(offset)
        try:
            self._transaction.commit(lambda producer: self._send(positions, producer))
        except TakenOverError as error:
            self._take_back()
            raise PassingError(str(error)) from error
        self._wait_for_markers(positions)
        self._seen.update({each: {offset} for each, offset in positions.items()})
        self._written |= positions.keys()

    def _take_back(self) -> None:
        """Take the id back from another driver; FencedError if this driver is the older."""
        # Only the coordinator of the group knows whether this driver is still a member.
        self._send_heartbeat()
        try:
            self._transaction.take_back()
        except TakenOverError as error:
            raise self._fenced() from error

    def _send(self, positions: PartitionValues, producer: PreparedTransaction) -> None:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for each, offset in positions.items():
            topic = topics.setdefault(each.topic, TxnOffsetCommitRequestTopic(name=each.topic))
            topic.partitions.append(
                # Without metadata: librdkafka's Python binding fails with any.
                TxnOffsetCommitRequestPartition(
                    partition_index=each.partition, committed_offset=offset, committed_metadata=""
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=self._group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=str(self._instance),
            topics=list(topics.values()),
        )
        reply = self._ask(request, TXN_OFFSET_COMMIT_VERSION)
        for topic in reply.topics:
            for part in topic.partitions:
                error = error_of(part.error_code)
                if error in FENCED:
                    raise TakenOverError(f"group {self._group}: {error.name}: {error.description}")
                self._check(part.error_code)

    def _wait_for_markers(self, positions: PartitionValues) -> None:
        """Return when the group shows the commit; PassingError if that takes long."""
        deadline = time.monotonic() + limits.GROUP_TIMEOUT_S
        while True:
            try:
                self._read_offsets(positions, is_stable=True)
            except UnstableCommitError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(limits.GROUP_MARKER_S)
            else:
                return

    def _ask(self, request: Any, version: int, *, timeout_s: float | None = None) -> Any:
        if self._coordinator is None:
            found = self._cluster.call_any(
                FindCoordinatorRequest(key=self._group), FIND_COORDINATOR_VERSION
            )
            self._check(found.error_code)
            self._coordinator = (found.host, found.port)
        try:
            return self._cluster.call_address(
                *self._coordinator, request, version, timeout_s=timeout_s
            )
        except CONNECTION_ERRORS:
            self._coordinator = None
            raise

    def _check(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        error = error_of(code)
        text = f"group {self._group}: {error.name}: {error.description}"
        if error in _LOST:
            self._member_id, self._is_newcomer = _NO_MEMBER, False
            self._is_current = False
            self._transaction.note_lost_place()
            raise PassingError(text)
        if error in _JOIN_AGAIN:
            self._is_current = False
            raise PassingError(text)
        if error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise self._shared()
        self._coordinator = None
        if error.retriable:
            raise PassingError(text)
        raise SourceError(text)

    def _shared(self) -> SourceError:
        return SourceError(
            f"group {self._group}: consumers use this group: name another one in kafka.group.id"
        )

    def _fenced(self) -> FencedError:
        return FencedError(
            f"group {self._group}: another driver has started with this group since this one did, "
            "and shows its progress there now: this query ends. If it was not replaced by that "
            "driver, give it a kafka.group.id of its own"
        )


def choose_offsets(
    positions: PartitionValues,
    stored: Mapping[TopicPartition, Committed],
    written: set[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return the offsets to commit: at first all that differ, then only those that are ahead.

    The latter holds for partitions that this driver has written. A new run may set a group back:
    its query was started over, and lag means what is left to read. A text of an earlier version is
    overwritten, even if its offset is right.
    """
    due = {}
    for each, offset in positions.items():
        held = stored.get(each, Committed(_NO_OFFSET))
        is_due = held.offset < offset if each in written else held.offset != offset
        if is_due or held.has_text:
            due[each] = offset
    return due


def _read_claim(metadata: Any) -> Claim:
    """Return the claim of a member that uses the query's protocol; none if it is malformed."""
    try:
        return decode_claim(bytes(metadata))
    except MalformedError:
        return Claim(frozenset(), 0)
