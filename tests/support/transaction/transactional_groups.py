"""Offsets committed in transactions, on brokers of a `ReplicaCluster`, and who decides of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_cluster import Call, GroupCluster

from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_1, EndMarker
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fairlead_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fairlead_broker.broker import Broker
    from fairlead_broker.transaction.ending import TopicPartition
    from fairlead_broker.transaction.verification import OnVerdicts


class Verification:
    """Says `code` of every partition; while it is held, only when it is told to `answer`."""

    def __init__(self, broker: Broker) -> None:
        self.code = ErrorCode.NONE
        self.is_held = False
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self._waiting: list[Callable[[], None]] = []
        broker.verification = self

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        supports_epoch_bump: bool,
        answer: OnVerdicts,
    ) -> None:
        places = list(partitions)
        self.asked.append(
            (transactional_id, producer_id, producer_epoch, places, supports_epoch_bump)
        )
        self._waiting.append(lambda: answer(dict.fromkeys(places, self.code)))
        if not self.is_held:
            self.answer()

    def answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()


class Marker:
    """A marker that is being written: `code` is None until the answer."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    @property
    def code(self) -> ErrorCode | None:
        return self.codes[0] if self.codes else None


class TransactionalGroups(GroupCluster):
    """A `GroupCluster` whose clients have transactions."""

    def __init__(self, cluster: Any, **options: Any) -> None:
        super().__init__(cluster, **options)
        self.verification = {
            broker_id: Verification(member.broker) for broker_id, member in cluster.members.items()
        }

    def restarted(self, broker_id: int = 1) -> None:
        """Give the stand-in to a broker that was restarted."""
        broker = self.cluster.members[broker_id].broker
        self.verification[broker_id] = Verification(broker)

    def stage(
        self,
        group: str,
        offset: int,
        *,
        partition: int = 0,
        topic: str = "t",
        producer: tuple[int, int] = (9, 0),
        member: tuple[str, int] = ("", -1),
        instance: str | None = None,
        version: int = 4,
        broker_id: int = 1,
    ) -> Call:
        slot = TxnOffsetCommitRequestPartition(partition, offset, 7, "note")
        request = TxnOffsetCommitRequest(
            transactional_id=f"id-{producer[0]}",
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            member_id=member[0],
            generation_id=member[1],
            group_instance_id=instance,
            topics=[TxnOffsetCommitRequestTopic(topic, [slot])],
        )
        return self.call(request, version, broker_id=broker_id)

    async def staged(self, group: str, offset: int, **options: Any) -> ErrorCode:
        """Commit in a transaction and wait for the answer."""
        call = self.stage(group, offset, **options)
        await self.cluster.until(lambda: call.reply is not None)
        return ErrorCode(call.reply.topics[0].partitions[0].error_code)

    def end(
        self,
        *,
        is_commit: bool,
        producer: tuple[int, int] = (9, 0),
        coordinator_epoch: int = 1,
        broker_id: int = 1,
        partition: int = 0,
    ) -> Marker:
        marker = Marker()
        self.coordinator(broker_id).end_transaction(
            partition,
            EndMarker(*producer, coordinator_epoch, is_commit, TRANSACTION_VERSION_1),
            marker.codes.append,
        )
        return marker

    async def ended(self, *, is_commit: bool, **options: Any) -> ErrorCode:
        """End a producer's transaction and wait for the answer."""
        marker = self.end(is_commit=is_commit, **options)
        await self.cluster.until(lambda: marker.code is not None)
        assert len(marker.codes) == 1
        return marker.codes[0]

    def stable_offset(
        self, group: str, *, partition: int = 0, broker_id: int = 1, version: int = 8
    ) -> int | ErrorCode:
        """Return the answer to a consumer that asks for stable offsets: an offset or an error."""
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=True
        )
        found = self.call(request, version, broker_id=broker_id).reply.groups[0]
        if found.error_code:
            return ErrorCode(found.error_code)
        slot = found.topics[0].partitions[0]
        if slot.error_code:
            assert (slot.committed_offset, slot.committed_leader_epoch) == (-1, -1)
            return ErrorCode(slot.error_code)
        return int(slot.committed_offset)

    def log_end(self, broker_id: int = 1) -> int:
        return self.cluster.partition(broker_id, CONSUMER_OFFSETS).log_end_offset
