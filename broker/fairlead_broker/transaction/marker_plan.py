"""Which markers are sent to which broker, and when, until each partition has its markers.

Pure. Kafka's `TransactionMarkerChannelManager` with its queues, as one plan: facts come in (a
transaction is decided, the image has changed, a broker has answered or has not, time), batches and
outcomes go out. The shell around it is `tasks/marker_writer`.

A partition's markers wait together, because anything that delays one delays all of them:

    ready       its leader gets them with its next batch; one batch a broker is under way
    put off     the leader has answered with an error, and is asked again after a delay
    leaderless  nobody leads the partition; the next image may say otherwise

So a partition that cannot be written holds up the transactions that need it, and no others.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from fairlead_model.delta import BrokerChanged, PartitionChanged, TopicChanged, TopicRemoved
from fairlead_model.ids import NO_LEADER
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead_broker.log.producers.end_marker import EndMarker
    from fairlead_broker.transaction.ending import EndingTransaction, TopicPartition
    from fairlead_model.cluster import ClusterImage
    from fairlead_model.delta import Change
    from fairlead_model.partition import PartitionRegistration

RETRY_DELAY_MIN_MS: Final = 10
RETRY_DELAY_MAX_MS: Final = 1_000

_DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        # A log that cannot have markers has no transaction that needs one.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        # The producer goes on in a newer epoch there. A coordinator that was replaced cannot
        # complete the transaction that it believes to be ended. The present coordinator has lost
        # decisions with the disks of `__transaction_state`; if it gave the end up, as Kafka's does,
        # the id would hang for ever.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_FENCED: Final = frozenset({ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A newer coordinator has the transaction. After any other error the marker is sent again."""


class Outcome(NamedTuple):
    """News for the coordinator of a transaction: ended partitions, or that it was replaced."""

    transaction: EndingTransaction
    partitions: tuple[TopicPartition, ...]
    is_fenced: bool


class _Ending:
    """A transaction and its partitions without a marker; `is_over` once nothing waits for it."""

    __slots__ = ("is_over", "remaining", "transaction")

    def __init__(self, transaction: EndingTransaction) -> None:
        self.transaction = transaction
        self.remaining = set(transaction.partitions)
        self.is_over = False


class _Partition:
    """A partition that needs markers: `waiting` are not sent yet, `sent` counts those under way.

    `topic_id` is the topic's id while any of them waits: a new topic of the same name is another
    topic, which has no part in these transactions.
    """

    __slots__ = (
        "due_ms",
        "failures",
        "key",
        "leader",
        "leader_epoch",
        "sent",
        "topic_id",
        "waiting",
    )

    def __init__(
        self, key: TopicPartition, topic_id: bytes, registration: PartitionRegistration
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.leader = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.waiting: dict[_Ending, None] = {}
        self.sent = 0
        self.failures = 0
        self.due_ms = 0


class _Destination:
    """A broker that leads some of the partitions."""

    __slots__ = ("batch", "broker_id", "due_ms", "failures", "ready")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.ready: dict[_Partition, None] = {}
        self.batch: MarkerBatch | None = None
        self.failures = 0
        self.due_ms = 0


class MarkerBatch:
    """The content of one request to a broker: markers, each with its partitions."""

    __slots__ = ("broker_id", "sent")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.sent: dict[_Ending, list[_Partition]] = {}

    def markers(self) -> list[tuple[EndMarker, dict[TopicPartition, int]]]:
        """Return the markers, with the leader epoch of each partition; each producer once."""
        return [
            (
                ending.transaction.marker,
                {partition.key: partition.leader_epoch for partition in partitions},
            )
            for ending, partitions in self.sent.items()
        ]


Answers: TypeAlias = "Mapping[int, Mapping[TopicPartition, ErrorCode]]"
"""A broker's answer to a batch, by producer id and partition."""


class MarkerPlan:
    """All markers that are not yet known to be written. Times are monotonic milliseconds.

    The transactional ids of the shards that are coordinated here limit its size: each has at most
    one ending.
    """

    def __init__(self, image: ClusterImage, *, markers_per_batch: int) -> None:
        self._image = image
        self._markers_per_batch = markers_per_batch
        self._shards: dict[int, dict[str, _Ending]] = {}
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._destinations: dict[int, _Destination] = {}
        self._leaderless: dict[_Partition, None] = {}
        self._put_off: list[tuple[int, int, _Partition]] = []
        self._sequence = 0
        self._outcomes: list[Outcome] = []

    def __len__(self) -> int:
        """Return how many transactions wait for markers."""
        return sum(map(len, self._shards.values()))

    @property
    def leaderless_count(self) -> int:
        """Markers for partitions without a leader."""
        return sum(len(partition.waiting) for partition in self._leaderless)

    def begin(self, transaction: EndingTransaction, now_ms: int) -> None:
        """Have a marker written to each partition of a transaction.

        An ending of the same transactional id that is there already is given up: its coordinator
        has loaded its log again.
        """
        shard_index, transactional_id = transaction.shard_index, transaction.transactional_id
        before = self._shards.get(shard_index, {}).get(transactional_id)
        if before is not None:
            self._give_up(before)
        ending = _Ending(transaction)
        self._shards.setdefault(shard_index, {})[transactional_id] = ending
        gone = []
        # Sorted, so that equal transactions send equal requests, whatever the order of hashes is.
        for key in sorted(transaction.partitions):
            partition = self._ensure(key)
            if partition is None:
                gone.append(key)
                continue
            partition.waiting[ending] = None
            self._place(partition, now_ms)
        self._end(ending, gone)

    def forget_shard(self, shard_index: int) -> None:
        """Give up the endings of a shard; markers under way to a broker may still be written."""
        for ending in list(self._shards.get(shard_index, {}).values()):
            self._give_up(ending)

    def publish(self, image: ClusterImage, changes: Iterable[Change], now_ms: int) -> None:
        """Apply a new image: markers go to the new leaders at once."""
        self._image = image
        topics = set()
        for change in changes:
            if isinstance(change, PartitionChanged):
                name = image.topic_name(change.topic_id)
                partition = None if name is None else self._partitions.get((name, change.index))
                if partition is not None:
                    self._look_again(partition, now_ms)
            elif isinstance(change, TopicChanged | TopicRemoved):
                topics.add(
                    change.header.topic_id if isinstance(change, TopicChanged) else change.topic_id
                )
            elif isinstance(change, BrokerChanged):
                destination = self._destinations.get(change.registration.broker_id)
                if destination is not None:
                    destination.due_ms = now_ms
        if topics:
            for partition in list(self._partitions.values()):
                if partition.topic_id in topics:
                    self._look_again(partition, now_ms)

    def take(self, now_ms: int) -> list[MarkerBatch]:
        """Return a batch for each broker that may be sent one now; each must be settled."""
        while self._put_off and self._put_off[0][0] <= now_ms:
            _, _, partition = heapq.heappop(self._put_off)
            if self._partitions.get(partition.key) is partition:
                self._place(partition, now_ms)
        batches = []
        for destination in list(self._destinations.values()):
            if destination.batch is not None or destination.due_ms > now_ms:
                continue
            if destination.ready:
                destination.batch = self._fill(destination)
                batches.append(destination.batch)
            else:
                del self._destinations[destination.broker_id]
        return batches

    def next_due_ms(self) -> int | None:
        """Return when `take` has more batches if nothing else happens; None if never."""
        due = [self._put_off[0][0]] if self._put_off else []
        due += [
            destination.due_ms
            for destination in self._destinations.values()
            if destination.ready and destination.batch is None
        ]
        return min(due, default=None)

    def failed(self, batch: MarkerBatch, now_ms: int) -> None:
        """Note that a broker did not answer: the whole batch is sent again, to the leaders then."""
        destination = self._destinations[batch.broker_id]
        destination.batch = None
        destination.due_ms = now_ms + _delay_ms(destination.failures)
        destination.failures += 1
        for ending, partitions in batch.sent.items():
            gone = []
            for partition in partitions:
                partition.sent -= 1
                if self._is_gone(partition):
                    gone.append(partition.key)
                elif not ending.is_over:
                    partition.waiting[ending] = None
                self._place(partition, now_ms)
            self._end(ending, gone)

    def answered(self, batch: MarkerBatch, answers: Answers, now_ms: int) -> None:
        """Apply a broker's answer; markers that it does not mention are sent again."""
        destination = self._destinations[batch.broker_id]
        destination.batch = None
        destination.failures = 0
        for ending, partitions in batch.sent.items():
            codes = answers.get(ending.transaction.marker.producer_id, {})
            done = []
            is_fenced = False
            for partition in partitions:
                partition.sent -= 1
                code = codes.get(partition.key, ErrorCode.UNKNOWN_SERVER_ERROR)
                if code in _DONE or self._is_gone(partition):
                    partition.failures = 0
                    done.append(partition.key)
                elif code in _FENCED:
                    is_fenced = True
                elif not ending.is_over:
                    partition.waiting[ending] = None
                    self._delay(partition, batch.broker_id, now_ms)
                self._place(partition, now_ms)
            self._end(ending, done)
            if is_fenced and not ending.is_over:
                self._give_up(ending)
                self._outcomes.append(Outcome(ending.transaction, (), is_fenced=True))

    def take_outcomes(self) -> list[Outcome]:
        """Return the outcomes since the last call."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _ensure(self, key: TopicPartition) -> _Partition | None:
        """Return the record of a partition; None if there is no such partition (any more)."""
        name, index = key
        topic = self._image.topic(name)
        if topic is None or index >= len(topic.partitions):
            return None
        partition = self._partitions.get(key)
        if partition is None or partition.topic_id != topic.topic_id:
            partition = _Partition(key, topic.topic_id, topic.partitions[index])
            self._partitions[key] = partition
        return partition

    def _is_gone(self, partition: _Partition) -> bool:
        name, index = partition.key
        topic = self._image.topic(name)
        return (
            topic is None or topic.topic_id != partition.topic_id or index >= len(topic.partitions)
        )

    def _look_again(self, partition: _Partition, now_ms: int) -> None:
        """Compare a partition with the image: it may be deleted, or have another leader."""
        if self._is_gone(partition):
            self._displace(partition)
            waiting, partition.waiting = partition.waiting, {}
            for ending in waiting:
                self._end(ending, [partition.key])
            self._place(partition, now_ms)
            return
        registration = self._image.partition(*partition.key)
        leader = NO_LEADER
        if registration is not None:
            leader, partition.leader_epoch = registration.leader, registration.leader_epoch
        if leader != partition.leader:
            self._displace(partition)
            partition.leader = leader
            partition.failures = 0
        # The leader or the in-sync replicas have changed: the last answer may not be true any more.
        partition.due_ms = min(partition.due_ms, now_ms)
        self._place(partition, now_ms)

    def _displace(self, partition: _Partition) -> None:
        self._leaderless.pop(partition, None)
        destination = self._destinations.get(partition.leader)
        if destination is not None:
            destination.ready.pop(partition, None)

    def _place(self, partition: _Partition, now_ms: int) -> None:
        """Put a partition into the queue of its leader, or forget it if nothing waits in it."""
        if not partition.waiting:
            self._leave(partition)
        elif partition.leader == NO_LEADER:
            self._leaderless[partition] = None
        elif partition.due_ms <= now_ms:
            destination = self._destinations.get(partition.leader)
            if destination is None:
                destination = self._destinations[partition.leader] = _Destination(partition.leader)
            destination.ready[partition] = None

    def _leave(self, partition: _Partition) -> None:
        """Forget a partition in which nothing waits, once no marker of it is under way."""
        self._displace(partition)
        if not partition.sent and self._partitions.get(partition.key) is partition:
            del self._partitions[partition.key]

    def _delay(self, partition: _Partition, broker_id: int, now_ms: int) -> None:
        """Delay a partition whose leader does not accept markers, once for each answer."""
        if partition.leader != broker_id or partition.due_ms > now_ms:
            return
        self._displace(partition)
        partition.due_ms = now_ms + _delay_ms(partition.failures)
        partition.failures += 1
        self._sequence += 1
        heapq.heappush(self._put_off, (partition.due_ms, self._sequence, partition))

    def _fill(self, destination: _Destination) -> MarkerBatch:
        """Fill a batch.

        A partition with markers left is queued again, last, when the batch is settled.
        """
        batch = MarkerBatch(destination.broker_id)
        room = self._markers_per_batch
        # Looked for once a batch: whoever asks a dictionary for its first key again and again walks
        # over all that were taken from its front before. Each of these partitions has a marker.
        for partition in list(islice(destination.ready, room)):
            if not room:
                break
            del destination.ready[partition]
            endings = list(islice(partition.waiting, room))
            for ending in endings:
                del partition.waiting[ending]
                batch.sent.setdefault(ending, []).append(partition)
            partition.sent += len(endings)
            room -= len(endings)
        return batch

    def _end(self, ending: _Ending, keys: list[TopicPartition]) -> None:
        """Note that partitions need no marker of this transaction any more."""
        if ending.is_over or (not keys and ending.remaining):
            return
        ending.remaining.difference_update(keys)
        self._outcomes.append(Outcome(ending.transaction, tuple(keys), is_fenced=False))
        if not ending.remaining:
            self._close(ending)

    def _give_up(self, ending: _Ending) -> None:
        self._close(ending)
        for key in ending.remaining:
            partition = self._partitions.get(key)
            if partition is not None and ending in partition.waiting:
                del partition.waiting[ending]
                if not partition.waiting:
                    self._leave(partition)

    def _close(self, ending: _Ending) -> None:
        ending.is_over = True
        transaction = ending.transaction
        shard = self._shards[transaction.shard_index]
        del shard[transaction.transactional_id]
        if not shard:
            del self._shards[transaction.shard_index]


def _delay_ms(failures: int) -> int:
    return min(RETRY_DELAY_MIN_MS << min(failures, 10), RETRY_DELAY_MAX_MS)
