"""Commands about one partition and its replicas, on the product's own brokers.

Each broker has its request handlers, its purgatories, and logs on a disk in memory; requests and
replies are encoded and decoded as on the wire. What runs by itself in a process is a command here:
a follower fetches when it is told to, time passes when it is told to, and the controller is whoever
writes the transcript. The topic is `t`, its one partition 0. Records are words, batches one append.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulated_disk import SimulatedDisk

from fairlead_broker.api_registry import HANDLERS, PENDING, RequestContext, load_handlers
from fairlead_broker.authorization import ANONYMOUS
from fairlead_broker.broker import Broker
from fairlead_broker.clock import ManualClock
from fairlead_broker.listener import Listener
from fairlead_broker.log.directory.log_directories import LogDirectories
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.files.file_slice import FileSlice
from fairlead_broker.replication.follower_state import (
    Append,
    FetchedPartition,
    RestartAt,
    Retry,
    TruncateTo,
)
from fairlead_broker.settings import build_settings
from fairlead_broker.tasks.checkpoints import high_watermarks
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.cluster import empty_image
from fairlead_model.delta import BrokerChanged, ClusterDelta, PartitionChanged, TopicChanged
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.topic import TopicHeader
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import RESPONSES
from fairlead_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fairlead_wire.records import Record, decode_batch, encode_batch, iter_batches
from transcripts.transcript import CommandError, Duration, Ids, Interpreter, command

if TYPE_CHECKING:
    from collections.abc import Container, Coroutine

    from fairlead_broker.api_registry import ClientLogin, RequestQuotas
    from fairlead_broker.authorization import Authorizer
    from fairlead_broker.disk import Disk
    from fairlead_broker.peer_check import PeerCheck
    from fairlead_broker.replication.follower_state import Action
    from fairlead_broker.replication.isr import IsrProposal
    from fairlead_broker.replication.partition import Partition

NOW_MS = 1_700_000_000_000
TOPIC = "t"
TOPIC_ID = TopicId(b"the topic's id..")
FETCH_VERSION_OF_BROKERS = 17
FETCH_VERSION_OF_CLIENTS = 12
PRODUCE_TIMEOUT_MS = 30_000
TICK_MS = 1_000
ACKS = {"all": -1, "1": 1}
CLIENT = Listener("CLIENT", "127.0.0.1", 9092, "127.0.0.1", 9092)
INTERNAL = Listener("INTERNAL", "127.0.0.1", 9192, "127.0.0.1", 9192, is_internal=True)

load_handlers()


class Request:
    """A request to one broker and, as its channel, what is answered."""

    client_host = "127.0.0.1"
    principal = ANONYMOUS
    authorizer: Authorizer | None = None
    quotas: RequestQuotas | None = None
    replica_ids: Container[int] = range(2**31)
    peer_check: PeerCheck | None = None
    login: ClientLogin | None = None
    charged_ms = 0

    def __init__(self, broker: Broker, request: Any, version: int, listener: Listener) -> None:
        self.broker = broker
        self.listener = listener
        self.answer: Any = None
        self.used_topic_ids: set[bytes] = set()
        self._version = version
        self._kind = type(request)
        context = RequestContext(self, self._kind.API_KEY, version, 1, "transcript")
        frame = memoryview(bytearray(b"".join(request.encode(version))))
        decoded, _ = self._kind.decode(frame, 0, version)
        outcome = HANDLERS[self._kind.API_KEY].call(decoded, context)
        if outcome is not PENDING:
            self.on_response(context, outcome)

    def run_later(self, context: RequestContext, coroutine: Coroutine[Any, Any, Any]) -> None:
        raise NotImplementedError

    def close(self, reason: str) -> None:
        raise AssertionError(reason)

    def on_proved(self) -> None:
        raise NotImplementedError

    def charge(self, spent_ms: int) -> None:
        self.charged_ms += spent_ms

    def on_response(self, context: RequestContext, response: Any) -> None:
        if not isinstance(response, bytes):
            disk = self.broker.log_directories.directories[0].disk
            response = b"".join(_as_sent(each, disk) for each in response.encode(self._version))
        decode = RESPONSES[self._kind.API_KEY].decode
        self.answer, _ = decode(memoryview(response), 0, self._version)


def _as_sent(segment: Any, disk: Disk) -> bytes:
    if isinstance(segment, FileSlice):
        return disk.pread(segment.file.read_fd, segment.length, segment.position)
    return bytes(segment)


class Member:
    """One process of a broker; its disk outlives it."""

    def __init__(self, disk: SimulatedDisk, clock: ManualClock, broker_id: int, epoch: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = epoch
        settings = build_settings(
            file={
                "node.id": str(broker_id),
                "log.dirs": "/data",
                "fairlead.cluster.secret.file": "secret",
            },
            environment={},
            assignments={},
        )
        self.disk = disk
        self.directory = LogDirectory(
            settings.log_directories[0], node_id=broker_id, disk=disk, boot_id="boot"
        )
        self.directory.load(clock.now_ms(), config_for=lambda *_: settings.log_config({}))
        self.directory.confirm_start(epoch)
        directories = LogDirectories([self.directory])
        self.broker = Broker(settings=settings, clock=clock, log_directories=directories)
        self.broker.on_proposal = lambda _, proposal: self.proposed.append(proposal)
        self.proposed: list[IsrProposal] = []
        """That the transcript has not told yet."""

    @property
    def registration(self) -> BrokerRegistration:
        endpoints = (
            Endpoint("CLIENT", "127.0.0.1", 9092 + self.broker_id),
            Endpoint("INTERNAL", "127.0.0.1", 9192 + self.broker_id, is_internal=True),
        )
        return BrokerRegistration(self.broker_id, self.broker_epoch, endpoints, fenced=False)

    @property
    def partition(self) -> Partition:
        try:
            return self.broker.partitions[TOPIC, 0]
        except KeyError:
            raise CommandError(f"broker {self.broker_id} holds no replica") from None

    def checkpoint(self) -> None:
        """Write what a log that was cut waits for before it takes records again."""
        job = self.directory.begin_checkpoint(high_watermarks(self.broker, self.directory))
        if job is not None:
            job.run()
            self.directory.complete_checkpoint(job)

    def tick(self, now_ms: int) -> None:
        """Do what the broker's timers do."""
        broker = self.broker
        broker.wake_check.must_hold()
        broker.follower_sessions.note_alive()
        for partition in broker.partitions.values():
            partition.tick(now_ms, broker.settings.replica_lag_time_max_ms)
        broker.produce_purgatory.expire(now_ms)

    def stop(self) -> None:
        self.directory.close(clean=True, broker_epoch=self.broker_epoch)


class ReplicationTranscript(Interpreter):
    """Brokers, one partition, and what has been asked and not been answered yet."""

    def __init__(self) -> None:
        super().__init__()
        self._disks: dict[int, SimulatedDisk] = {}
        self._runner = asyncio.Runner()
        self._clock = ManualClock(NOW_MS)
        self._image = empty_image("transcript")
        self._members: dict[int, Member] = {}
        self._parked: dict[str, Request] = {}
        self._fetched: dict[int, list[FetchedPartition]] = {}
        """Answers that are on their way to followers."""
        self._starts = 0

    def do(self, line: str) -> list[str]:
        return self._runner.run(self._do(line))

    async def _do(self, line: str) -> list[str]:
        said = super().do(line)
        for member in self._members.values():
            await member.broker.replicas.settled()
        # What a turn of the loop has moved completes what is parked, in the turns after it.
        for _ in range(3):
            await asyncio.sleep(0)
        self._say_consequences()
        self._said, later = [], self._said
        return said + later

    def close(self) -> None:
        for member in self._members.values():
            member.stop()
        self._runner.close()

    @command
    def brokers(self, ids: Ids) -> None:
        """Start brokers, or start them again with the disks that they have."""
        for broker_id in ids:
            if broker_id in self._members:
                raise CommandError(f"broker {broker_id} runs")
            self._starts += 1
            disk = self._disks.setdefault(broker_id, SimulatedDisk())
            member = Member(disk, self._clock, broker_id, self._starts)
            self._publish(BrokerChanged(member.registration))
            self._members[broker_id] = member
            self._tell_all(member)

    @command
    def stop(self, broker: int) -> None:
        """Stop a broker; what it has written stays."""
        member = self._members.pop(broker, None)
        if member is None:
            raise CommandError(f"broker {broker} does not run")
        self._fetched.pop(broker, None)
        member.stop()
        self._disks[broker] = member.disk.after_kill()

    @command
    def topic(self, *, replicas: Ids, leader: int, min_insync: int = 1) -> None:
        """Make the topic: all replicas are in sync."""
        record = PartitionRegistration(
            tuple(replicas), tuple(replicas), leader, min_insync_replicas=min_insync
        )
        self._publish(
            TopicChanged(TopicHeader(TOPIC, TOPIC_ID, 1)), PartitionChanged(TOPIC_ID, 0, record)
        )
        self._say_record()

    @command
    def controller(
        self, *, leader: int | None = None, isr: Ids | None = None, unheard_by: Ids | None = None
    ) -> None:
        """Decide as the controller who leads or is in sync; some brokers do not hear of it yet."""
        fields: dict[str, Any] = {}
        if leader is not None:
            fields["leader"] = leader
        if isr is not None:
            fields["isr"] = tuple(isr)
        record = self._record.changed(**fields)
        self._publish(PartitionChanged(TOPIC_ID, 0, record), without=unheard_by or ())
        self._say_record()

    @command
    def hear(self, broker: int) -> None:
        """Tell a broker the controller's present image."""
        self._tell_all(self._member(broker))

    @command
    def register(self, broker: int) -> None:
        """Register a newer start of a broker; the process here is the one before it."""
        self._starts += 1
        known = self._member(broker).registration
        self._publish(BrokerChanged(replace(known, broker_epoch=self._starts)))

    @command
    def fence(self, broker: int) -> None:
        """Take a broker out of service; the partition's record stays."""
        self._change_service(broker, is_fenced=True)

    @command
    def unfence(self, broker: int) -> None:
        """Put a broker into service."""
        self._change_service(broker, is_fenced=False)

    @command
    def accept(self, broker: int) -> None:
        """Answer a leader's proposal: the controller has written it."""
        member, proposal = self._proposal(broker)
        isr = tuple(replica for replica, _ in proposal.isr)
        record = self._record.changed(isr=isr)
        self._publish(PartitionChanged(TOPIC_ID, 0, record))
        member.partition.proposal_accepted(
            proposal,
            isr,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            now_ms=self._clock.monotonic_ms(),
        )
        self._say_record()

    @command
    def refuse(self, broker: int, error: str) -> None:
        """Answer a leader's proposal with an error."""
        member, proposal = self._proposal(broker)
        if error not in ErrorCode.__members__:
            raise CommandError(f"there is no error {error!r}")
        refusal = member.partition.proposal_refused(proposal, ErrorCode[error])
        self.say(f"broker {broker}: its proposal: {refusal.value}")

    @command
    def time(self, passes: Duration) -> None:
        """Let time pass: leaders look at their followers, and requests time out."""
        while passes:
            step_ms = min(passes, TICK_MS)
            passes = Duration(passes - step_ms)
            self._clock.advance(step_ms)
            for member in self._members.values():
                member.tick(self._clock.monotonic_ms())

    @command
    def append(self, broker: int, *values: str, acks: str = "all") -> None:
        """Produce one batch at a broker; a reply that has to wait is told when it comes."""
        if acks not in ACKS or not values:
            raise CommandError("append takes values, and acks=all or acks=1")
        now_ms = self._clock.now_ms()
        records = [Record(at, now_ms, None, value.encode()) for at, value in enumerate(values)]
        data = PartitionProduceData(0, bytearray(encode_batch(records)))
        topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
        request = ProduceRequest(None, ACKS[acks], PRODUCE_TIMEOUT_MS, topics)
        name = f"append of {' '.join(values)}"
        self._await(name, self._ask(broker, request, 9))

    @command
    def consume(self, broker: int, offset: int, *, leader_epoch: int = -1) -> None:
        """Fetch as a consumer does, without waiting."""
        position = FetchPartition(0, leader_epoch, offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=[FetchTopic(TOPIC, partitions=[position])],
        )
        answer = self._ask(broker, request, FETCH_VERSION_OF_CLIENTS).answer
        ((data,),) = (topic.partitions for topic in answer.responses)
        if data.error_code:
            self.say(f"consumer: {_name(data.error_code)}")
            return
        values = [value for at, _, value in _records(data.records) if at >= offset]
        self.say(f"consumer: {' '.join(values) or 'nothing'}, high watermark {data.high_watermark}")

    @command
    def latest(self, broker: int) -> None:
        """Ask for the end of what consumers may read."""
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [ListOffsetsTopic(name=TOPIC, partitions=[partition])]
        answer = self._ask(broker, ListOffsetsRequest(replica_id=-1, topics=topics), 5).answer
        ((found,),) = (topic.partitions for topic in answer.topics)
        self.say(
            f"latest: {_name(found.error_code) if found.error_code else f'offset {found.offset}'}"
        )

    @command
    def delete_records(self, broker: int, *, before: int) -> None:
        """Delete what lies below an offset; the reply waits for followers that are in service."""
        topics = [DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, before)])]
        request = DeleteRecordsRequest(topics, PRODUCE_TIMEOUT_MS)
        self._await(f"delete-records before {before}", self._ask(broker, request, 2))

    @command
    def replicate(self, *brokers: int) -> None:
        """Let followers fetch in turn until nothing moves any more, and say nothing of it."""
        said = list(self._said)
        moved = True
        while moved:
            before = [self._marks(broker) for broker in brokers]
            self.fetch(*brokers)
            moved = before != [self._marks(broker) for broker in brokers]
        self._said = said

    @command
    def fetch(self, *brokers: int) -> None:
        """Let followers fetch, one after the other: each asks, and takes that answer at once."""
        for broker in brokers:
            under_way = len(self._fetched.get(broker, ()))
            self.ask(broker)
            if len(self._fetched.get(broker, ())) > under_way:
                self._take(broker, self._fetched[broker].pop())

    @command
    def ask(self, broker: int) -> None:
        """Send a follower's fetch to its leader; the answer is on its way."""
        member = self._member(broker)
        position = member.partition.next_fetch()
        if position is None:
            self.say(f"broker {broker} follows nobody")
            return
        leader_id = member.partition.leader_id
        last = "none" if position.last_fetched_epoch < 0 else position.last_fetched_epoch
        self.say(
            f"{broker} asks {leader_id}: offset {position.fetch_offset}, last epoch {last}, "
            f"leader epoch {position.current_leader_epoch}"
        )
        if leader_id not in self._members:
            self.say(f"broker {leader_id} does not run")
            return
        asked = FetchPartition(
            0,
            position.current_leader_epoch,
            position.fetch_offset,
            position.last_fetched_epoch,
            member.partition.log_start_offset,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_state=ReplicaState(broker, member.broker_epoch),
            max_wait_ms=0,
            min_bytes=1,
            session_id=0,
            session_epoch=0,
            topics=[FetchTopic("", TOPIC_ID, [asked])],
        )
        answer = self._ask(leader_id, request, FETCH_VERSION_OF_BROKERS, listener=INTERNAL).answer
        if answer.error_code:
            self.say(f"{leader_id} answers: {_name(answer.error_code)}")
            return
        for topic in answer.responses:
            for data in topic.partitions:
                diverging = data.diverging_epoch
                reply = FetchedPartition(
                    position,
                    data.error_code,
                    data.high_watermark,
                    data.log_start_offset,
                    -1 if diverging is None else diverging.epoch,
                    -1 if diverging is None else diverging.end_offset,
                    bytes(data.records or b""),
                )
                self._fetched.setdefault(broker, []).append(reply)
                self.say(f"{leader_id} answers: {_answer(reply)}")

    @command
    def take(self, broker: int) -> None:
        """Let a follower take in the oldest answer that is on its way to it."""
        if not self._fetched.get(broker):
            raise CommandError(f"no answer is on its way to broker {broker}")
        self._take(broker, self._fetched[broker].pop(0))

    def _take(self, broker: int, reply: FetchedPartition) -> None:
        member = self._member(broker)
        partition = member.partition
        action = partition.take(reply, now_ms=self._clock.now_ms())
        self.say(f"{broker} {_action(action, partition)}")
        if partition.log.refusal is not None:
            member.checkpoint()

    @command
    def show(self, *brokers: int) -> None:
        """Print replicas: their marks, and the records of each leader epoch."""
        self._say_record()
        for broker_id in brokers or tuple(sorted(self._members)):
            partition = self._member(broker_id).partition
            leads = "leads  " if partition.is_leader else "follows" if partition.follower else "-"
            self.say(
                f"{broker_id} {leads} epoch {partition.leader_epoch}: {_log(partition)}"
                f" high watermark {partition.high_watermark}"
            )

    @property
    def _record(self) -> PartitionRegistration:
        record = self._image.partition(TOPIC, 0)
        if record is None:
            raise CommandError("there is no topic yet")
        return record

    def _marks(self, broker_id: int) -> tuple[int, int]:
        partition = self._member(broker_id).partition
        return partition.log_end_offset, partition.high_watermark

    def _member(self, broker_id: int) -> Member:
        if broker_id not in self._members:
            raise CommandError(f"broker {broker_id} does not run")
        return self._members[broker_id]

    def _ask(
        self, broker_id: int, request: Any, version: int, listener: Listener = CLIENT
    ) -> Request:
        return Request(self._member(broker_id).broker, request, version, listener)

    def _publish(self, change: Any, *more: Any, without: tuple[int, ...] = ()) -> None:
        delta = ClusterDelta((change, *more))
        self._image = self._image.apply(delta)
        for broker_id, member in self._members.items():
            if broker_id not in without:
                member.broker.publish(delta, self._image)

    def _tell_all(self, member: Member) -> None:
        changes = tuple(self._image.changes_from_nothing())
        member.broker.publish(ClusterDelta(changes), self._image)

    def _change_service(self, broker_id: int, *, is_fenced: bool) -> None:
        known = self._image.brokers.get(broker_id)
        if known is None:
            raise CommandError(f"there was never a broker {broker_id}")
        self._publish(BrokerChanged(replace(known, fenced=is_fenced)))

    def _proposal(self, broker_id: int) -> tuple[Member, IsrProposal]:
        member = self._member(broker_id)
        leader = member.partition.leader
        if leader is None or leader.proposal is None:
            raise CommandError(f"no proposal of broker {broker_id} awaits an answer")
        return member, leader.proposal

    def _say_record(self) -> None:
        record = self._record
        leader = f"leader {record.leader}" if record.has_leader else "no leader"
        isr = ",".join(map(str, record.isr))
        self.say(f"partition: {leader}, leader epoch {record.leader_epoch}, in sync {isr}")

    def _say_consequences(self) -> None:
        """Tell what the commands have set off: answers to clients, and proposals."""
        self._say_answers()
        for member in self._members.values():
            proposed, member.proposed[:] = list(member.proposed), []
            for proposal in proposed:
                isr = ",".join(str(replica) for replica, _ in proposal.isr)
                self.say(f"{member.broker_id} proposes: in sync {isr}")

    def _await(self, name: str, request: Request) -> None:
        self._parked[name] = request
        self._say_answers()
        if name in self._parked:
            self.say(f"{name}: waits")

    def _say_answers(self) -> None:
        for name, request in list(self._parked.items()):
            if request.answer is None:
                continue
            del self._parked[name]
            self.say(f"{name}: {_outcome(request.answer)}")


def _outcome(answer: ProduceResponse | DeleteRecordsResponse) -> str:
    """Return what became of the one partition."""
    if isinstance(answer, DeleteRecordsResponse):
        ((result,),) = (topic.partitions for topic in answer.topics)
        start = f"all replicas in service start at {result.low_watermark}"
        return _name(result.error_code) if result.error_code else start
    ((slot,),) = (topic.partition_responses for topic in answer.responses)
    return _name(slot.error_code) if slot.error_code else f"acknowledged at {slot.base_offset}"


def _name(code: int) -> str:
    return ErrorCode(code).name


def _records(data: bytes | None) -> list[tuple[int, int, str]]:
    """Return offset, leader epoch and value of each record."""
    if not data:
        return []
    found = []
    for position, header in iter_batches(data):
        for record in decode_batch(data, position):
            assert record.value is not None
            found.append((record.offset, header.partition_leader_epoch, record.value.decode()))
    return found


def _answer(reply: FetchedPartition) -> str:
    if reply.error_code:
        return _name(reply.error_code)
    if reply.diverging_end_offset >= 0:
        return f"the logs part: epoch {reply.diverging_epoch} ends at {reply.diverging_end_offset}"
    values = [value for _, _, value in _records(bytes(reply.records))]
    return f"{' '.join(values) or 'no records'}, high watermark {reply.high_watermark}"


def _action(action: Action | None, partition: Partition) -> str:
    if isinstance(action, Append):
        end, high_watermark = partition.log_end_offset, partition.high_watermark
        return f"takes it: log end {end}, high watermark {high_watermark}"
    if isinstance(action, TruncateTo):
        return f"cuts its log to end at {partition.log_end_offset}"
    if isinstance(action, RestartAt):
        return f"drops its log and begins at {partition.log_end_offset}"
    if isinstance(action, Retry):
        return "asks again later"
    return "discards it"


def _log(partition: Partition) -> str:
    """Return the offsets, and the records of each leader epoch, also of epochs without any."""
    log = partition.log
    start, end = log.log_start_offset, log.log_end_offset
    epochs: dict[int, list[str]] = {epoch: [] for epoch, _ in log.epochs.entries()}
    at = start
    while at < end:
        piece = partition.read(
            at, 1 << 20, isolation_level=0, replica_id=partition.leader_id, minimum_one_batch=True
        ).records
        for offset, epoch, value in _records(_as_sent(piece, log.disk)):
            if offset >= start:
                epochs.setdefault(epoch, []).append(value)
            at = offset + 1
    runs = [f"[{' '.join([f'{epoch}:', *values])}]" for epoch, values in sorted(epochs.items())]
    return f"{start} to {end} {' '.join(runs) or 'empty'}"
