"""TxnOffsetCommit (key 28), versions 0-5.

Behaviour: offsets of a group, which count once the producer's transaction is committed. Partitions
that do not exist, or that the client may not read, keep their errors whatever the result of the
others is; without others the coordinator is not asked and no transaction begins. Metadata that is
too large is refused only where nothing else refuses the commit. The leader of the
group's partition asks the transaction's coordinator first whether the partition is in it (KIP-890),
unless a batch of the transaction is there already. Then the group is asked, if member, generation
or instance are given (KIP-447): a zombie whose generation is over is refused. Answered when the
in-sync replicas have the offsets. Errors are per partition.
Versions:  2 leader epoch · 3 flexible, generation and member · 4 the client knows
           TRANSACTION_ABORTABLE, others get INVALID_TXN_STATE · 5 this request itself adds the
           partition to the transaction.
Missing:   6 with topic ids.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.group.group_types import NO_GENERATION
from fairlead_broker.group.transactional_writes import StagingProducer
from fairlead_broker.handlers.groups.commit_slots import CommitSlots
from fairlead_broker.handlers.groups.group_requests import check_group_id
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fairlead_wire.record_batch import NO_SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.coordinator.shard import Shard
    from fairlead_broker.group.shard_groups import ShardGroups
    from fairlead_broker.log.producers.verification import VerificationGuard
    from fairlead_broker.transaction.verification import Verdicts

_LOADING_SINCE: Final = 2
_ABORTABLE_SINCE: Final = 4
_ADDS_PARTITION_SINCE: Final = 5
_REFUSED_LAST: Final = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE})
"""What a slot has whose outcome any refusal of the whole commit is."""
_REFUSALS: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR}
"""The error of the partition's leader, as a coordinator sends it."""
_VERDICTS: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The error of the transaction's coordinator, as clients expect it of a commit (`KafkaApis`)."""


@handles(ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5), access=Access.BY_RESOURCE)
@once_awake
def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Pending:
    if count_named(topic.partitions for topic in request.topics) > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError("a commit of too many offsets")
    commit = _TransactionalCommit(request, context)
    broker = context.broker
    supports_epoch_bump = context.version >= _ADDS_PARTITION_SINCE
    try:
        context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.require(Operation.READ, ResourceType.GROUP, request.group_id)
        check_group_id(request.group_id)
        offsets = commit.make_out()
        if not commit.is_for_group:
            commit.finish(ErrorCode.NONE)
            return commit.park()
        shard = broker.group_coordinator.runtime.shard_of(request.group_id)
        guard = shard.partition.begin_verification(
            request.producer_id,
            request.producer_epoch,
            NO_SEQUENCE,
            supports_epoch_bump=supports_epoch_bump,
        )
    except KafkaError as error:
        commit.finish(_REFUSALS.get(error.code, error.code))
        return commit.park()
    if guard is None:
        commit.append(shard, None, offsets)
    else:
        broker.verification.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [(shard.partition.topic, shard.index)],
            supports_epoch_bump=supports_epoch_bump,
            answer=partial(commit.on_verdicts, shard, guard),
        )
    return commit.park()


class _TransactionalCommit:
    """A request on its way: its transaction is verified, then its offsets are appended.

    What is to be written is made out before, for what can be refused at once, and again after that:
    a topic may be deleted while the transaction's coordinator is asked, and a group may begin its
    next generation.
    """

    __slots__ = ("_codes", "_context", "_is_over", "_reply", "_request")

    def __init__(self, request: TxnOffsetCommitRequest, context: RequestContext) -> None:
        self._context = context
        self._request = request
        self._codes: Sequence[ErrorCode] = ()
        self._reply: TxnOffsetCommitResponse | None = None
        self._is_over = False

    def make_out(self) -> list[tuple[str, int, bytes]]:
        """Return what is to be written, and note what is refused."""
        slots = CommitSlots(self._request.topics, self._context)
        self._codes = slots.codes
        return slots.offsets

    @property
    def is_for_group(self) -> bool:
        """Whether transaction and group are asked: metadata is looked at behind what they say."""
        return not _REFUSED_LAST.isdisjoint(self._codes)

    def on_verdicts(
        self, shard: Shard[ShardGroups], guard: VerificationGuard, verdicts: Verdicts
    ) -> None:
        """Go on as the transaction's coordinator says."""
        code = verdicts[shard.partition.topic, shard.index]
        if code is ErrorCode.NONE:
            self.append(shard, guard, self.make_out())
        else:
            self.finish(_VERDICTS.get(code, code))

    def append(
        self,
        shard: Shard[ShardGroups],
        guard: VerificationGuard | None,
        offsets: list[tuple[str, int, bytes]],
    ) -> None:
        """Append what the group accepts, unless its client is gone."""
        if self._is_over:
            return
        context, request = self._context, self._request
        coordinator = context.broker.group_coordinator
        if not self.is_for_group:
            self.finish(ErrorCode.NONE)
            return
        try:
            is_standalone = request.generation_id <= NO_GENERATION
            if not offsets and is_standalone and coordinator.find(request.group_id) is None:
                # Nothing is written, and no group is made for that.
                self.finish(ErrorCode.NONE)
                return
            group = coordinator.check_commit_in_transaction(
                request.group_id,
                request.member_id,
                request.generation_id,
                request.group_instance_id,
                offsets,
            )
            if group.shard is not shard:
                # The guard is of another leadership.
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
        except KafkaError as error:
            self.finish(error.code)
            return
        if not offsets:
            self.finish(ErrorCode.NONE)
            return
        producer = StagingProducer(request.producer_id, request.producer_epoch, guard)
        coordinator.commit_in_transaction(group, producer, self, offsets)

    def park(self) -> TxnOffsetCommitResponse | Pending:
        """Return the answer, if there is nothing to wait for."""
        if self._reply is not None:
            return self._reply
        self._context.parked = self
        return PENDING

    def finish(self, code: ErrorCode) -> None:
        """Reply that the offsets are in the committed log, or not."""
        if self._is_over:
            return
        self._is_over = True
        context = self._context
        code = _as_known(code, context.version)
        if code is not ErrorCode.NONE:
            context.broker.metrics.errors[code.name] += 1
            own = self._codes
            self._codes = [ErrorCode.NONE if each in _REFUSED_LAST else each for each in own]
        self._reply = self._build_reply(code)
        if context.parked is self:
            context.respond(self._reply)

    def _build_reply(self, code: ErrorCode) -> TxnOffsetCommitResponse:
        codes = iter(self._codes)
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            each.partition_index, next(codes, ErrorCode.NONE) or code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in self._request.topics
            ]
        )

    def cancel(self) -> None:
        """Forget the connection, which is gone; what is in the log stays until the marker."""
        self._is_over = True


def _as_known(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code as a client of this version knows it."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
