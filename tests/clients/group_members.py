"""One small face for members of a consumer group, whichever client they are.

A member polls in a thread of its own, as an application does, and notes what it is told: partitions
that come and go, records, errors. Commands run in that thread, between two polls. Started as a
program it is a member in a process of its own, which a test can kill (see `member_processes`).
"""

import asyncio
import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Self, TypeVar

_Result = TypeVar("_Result")

Place = tuple[str, int]
"""Topic and partition."""
POLL_S = 0.05
COMMAND_TIMEOUT_S = 40
END_TIMEOUT_S = 30


@dataclass(frozen=True)
class Membership:
    """How to be in which group. `pattern` is a regular expression, given instead of topics."""

    group: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    reset: str = "earliest"
    assignor: str = "range"
    auto_commit_ms: int = 0
    """0: it commits what it is told to, when it is told to."""
    instance: str = ""
    session_ms: int = 6_000
    max_poll_ms: int = 30_000
    metadata_age_ms: int = 1_000
    heartbeat_ms: int = 200


@dataclass(frozen=True)
class Found:
    """A record as a member read it."""

    topic: str
    partition: int
    offset: int
    value: bytes

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True)
class Event:
    """What a member was told of its partitions: `kind` is assigned, revoked or lost."""

    kind: str
    places: frozenset[Place]


class GroupMember(ABC):
    """`start`, ask and watch, `close`; `assignors` are those that the client has."""

    name: str
    assignors: tuple[str, ...]

    def __init__(self, bootstrap: str, membership: Membership) -> None:
        self.bootstrap, self.membership = bootstrap, membership
        self.found: list[Found] = []
        self.events: list[Event] = []
        self.errors: list[str] = []
        self.retries: list[str] = []
        self._commands: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._closing, self._awake = threading.Event(), threading.Event()
        self._awake.set()
        self._thread = threading.Thread(target=self._run, name=f"{self.name} member")

    def start(self) -> Self:
        self._thread.start()
        return self

    @property
    def assigned(self) -> frozenset[Place]:
        """As the events tell it."""
        held: frozenset[Place] = frozenset()
        for event in tuple(self.events):
            held = held | event.places if event.kind == "assigned" else held - event.places
        return held

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in tuple(self.found)]

    @property
    def last_error(self) -> str:
        return self.errors[-1] if self.errors else ""

    def ask(self, command: Callable[[], _Result]) -> _Result:
        """Runs in the member's thread; raises what it raises."""
        answer: Future[_Result] = Future()
        self._commands.put((command, answer))
        return answer.result(COMMAND_TIMEOUT_S)

    def stall(self) -> None:
        """The application stops polling, until `wake`."""
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    def begin_close(self) -> None:
        self._closing.set()
        self._awake.set()

    def close(self) -> None:
        """Leaves the group as an application does that ends."""
        self.begin_close()
        if self._thread.ident is not None:
            self._thread.join(END_TIMEOUT_S)
            assert not self._thread.is_alive(), f"{self.name} does not come back from close()"

    def _run(self) -> None:
        try:
            self._open()
            try:
                while not self._closing.is_set():
                    self._answer_commands()
                    if self._awake.is_set():
                        self._poll_again()
                    else:
                        self._idle()
            finally:
                self._close()
        except Exception as error:
            self.errors.append(self.name_error(error))
        self._answer_commands()

    def _poll_again(self) -> None:
        """An error that the client itself calls retriable is no reason to stop polling."""
        try:
            self._poll()
        except Exception as error:
            if not getattr(error, "retriable", False):
                raise
            self.retries.append(self.name_error(error))

    def _answer_commands(self) -> None:
        while not self._commands.empty():
            command, answer = self._commands.get()
            try:
                answer.set_result(command())
            except Exception as error:
                answer.set_exception(error)

    def _idle(self) -> None:
        """A moment of doing something else than polling."""
        self._awake.wait(POLL_S)

    def note(self, kind: str, places: Sequence[Any]) -> None:
        self.events.append(Event(kind, frozenset((each.topic, each.partition) for each in places)))

    def name_error(self, error: Exception) -> str:
        return type(error).__name__

    @abstractmethod
    def _open(self) -> None: ...
    @abstractmethod
    def _poll(self) -> None: ...
    @abstractmethod
    def _close(self) -> None: ...
    @abstractmethod
    def commit(self, offsets: dict[Place, int], note: str = "") -> None:
        """Waits until it is done; raises the client's exception."""

    @abstractmethod
    def commit_later(self, offsets: dict[Place, int]) -> "Future[str]":
        """Returns at once; the future has the name of the error, or nothing."""

    @abstractmethod
    def committed(self, place: Place) -> tuple[int, str] | None:
        """Offset and metadata."""

    @abstractmethod
    def seek(self, place: Place, offset: int) -> None: ...
    @abstractmethod
    def seek_to_beginning(self, place: Place) -> None: ...
    @abstractmethod
    def offset_at(self, place: Place, timestamp_ms: int) -> int: ...


class ConfluentMember(GroupMember):
    """confluent-kafka: librdkafka."""

    name = "confluent-kafka"
    assignors = ("range", "roundrobin", "cooperative-sticky")
    _consumer: Any

    def _open(self) -> None:
        from confluent_kafka import Consumer

        wish = self.membership
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": wish.group,
            "auto.offset.reset": "error" if wish.reset == "none" else wish.reset,
            "partition.assignment.strategy": wish.assignor,
            "enable.auto.commit": bool(wish.auto_commit_ms),
            "auto.commit.interval.ms": wish.auto_commit_ms or 5_000,
            "session.timeout.ms": wish.session_ms,
            "max.poll.interval.ms": wish.max_poll_ms,
            "heartbeat.interval.ms": wish.heartbeat_ms,
            "topic.metadata.refresh.interval.ms": wish.metadata_age_ms,
            "fetch.wait.max.ms": 100,
            "on_commit": self._committed_later,
            "log_level": 0,
        }
        if wish.instance:
            settings["group.instance.id"] = wish.instance
        self._commits: SimpleQueue[Future[str]] = SimpleQueue()
        self._consumer = Consumer(settings)
        self._consumer.subscribe(
            [f"^{wish.pattern}"] if wish.pattern else list(wish.topics),
            on_assign=lambda _, places: self.note("assigned", places),
            on_revoke=lambda _, places: self.note("revoked", places),
            on_lost=lambda _, places: self.note("lost", places),
        )

    def _poll(self) -> None:
        for message in self._consumer.consume(500, timeout=POLL_S):
            if message.error() is not None:
                self.errors.append(message.error().name())
            else:
                self.found.append(
                    Found(message.topic(), message.partition(), message.offset(), message.value())
                )

    def _close(self) -> None:
        self._consumer.close()

    def name_error(self, error: Exception) -> str:
        from confluent_kafka import KafkaException

        return str(error.args[0].name()) if isinstance(error, KafkaException) else repr(error)

    def commit(self, offsets: dict[Place, int], note: str = "") -> None:
        from confluent_kafka import KafkaException, TopicPartition

        wanted = [TopicPartition(*place, offset, note) for place, offset in offsets.items()]
        answer = self.ask(lambda: self._consumer.commit(offsets=wanted, asynchronous=False))
        for place in answer:
            if place.error is not None:
                raise KafkaException(place.error)

    def commit_later(self, offsets: dict[Place, int]) -> "Future[str]":
        from confluent_kafka import TopicPartition

        done: Future[str] = Future()
        self._commits.put(done)
        wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        self.ask(lambda: self._consumer.commit(offsets=wanted, asynchronous=True))
        return done

    def _committed_later(self, error: Any, _: Any) -> None:
        """Called for every commit, in their order, automatic ones too."""
        if not self._commits.empty():
            self._commits.get().set_result("" if error is None else error.name())

    def committed(self, place: Place) -> tuple[int, str] | None:
        from confluent_kafka import TopicPartition

        found = self.ask(lambda: self._consumer.committed([TopicPartition(*place)], timeout=10))[0]
        assert found.error is None, found.error
        return (found.offset, found.metadata or "") if found.offset >= 0 else None

    def seek(self, place: Place, offset: int) -> None:
        from confluent_kafka import TopicPartition

        self.ask(lambda: self._consumer.seek(TopicPartition(*place, offset)))

    def seek_to_beginning(self, place: Place) -> None:
        from confluent_kafka import OFFSET_BEGINNING

        self.seek(place, OFFSET_BEGINNING)

    def offset_at(self, place: Place, timestamp_ms: int) -> int:
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(*place, timestamp_ms)]
        return int(self.ask(lambda: self._consumer.offsets_for_times(asked, 10))[0].offset)


class KafkaPythonMember(GroupMember):
    """kafka-python: pure Python."""

    name = "kafka-python"
    assignors = ("range", "roundrobin", "sticky", "cooperative-sticky")
    # A shorter poll ends before the answers that a rebalance is made of.
    POLL_MS = 300
    _consumer: Any

    def _open(self) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.note("assigned", list(assigned))

            def on_partitions_revoked(self, revoked: Any) -> None:
                member.note("revoked", list(revoked))

            def on_partitions_lost(self, lost: Any) -> None:
                member.note("lost", list(lost))

        makers = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        wish = self.membership
        self._consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","),
            group_id=wish.group,
            group_instance_id=wish.instance or None,
            auto_offset_reset=wish.reset,
            partition_assignment_strategy=[makers[wish.assignor]],
            enable_auto_commit=bool(wish.auto_commit_ms),
            auto_commit_interval_ms=wish.auto_commit_ms or 5_000,
            session_timeout_ms=wish.session_ms,
            max_poll_interval_ms=wish.max_poll_ms,
            heartbeat_interval_ms=wish.heartbeat_ms,
            metadata_max_age_ms=wish.metadata_age_ms,
            fetch_max_wait_ms=100,
        )
        if wish.pattern:
            self._consumer.subscribe(pattern=f"^{wish.pattern}", listener=Listener())
        else:
            # It joins whether it knows the topics or not, and a leader that does not know them yet
            # assigns nothing; when `poll` runs out of time just then, that may stay so.
            for topic in wish.topics:
                self._consumer.partitions_for_topic(topic)
            self._consumer.subscribe(wish.topics, listener=Listener())

    def _poll(self) -> None:
        for messages in self._consumer.poll(timeout_ms=self.POLL_MS).values():
            self.found += [Found(m.topic, m.partition, m.offset, m.value) for m in messages]

    def _close(self) -> None:
        self._consumer.close()

    def commit(self, offsets: dict[Place, int], note: str = "") -> None:
        wanted = self._wanted(offsets, note)
        self.ask(lambda: self._consumer.commit(wanted, timeout_ms=10_000))

    def commit_later(self, offsets: dict[Place, int]) -> "Future[str]":
        done: Future[str] = Future()

        def called_back(_: Any, answer: Any) -> None:
            done.set_result(type(answer).__name__ if isinstance(answer, Exception) else "")

        wanted = self._wanted(offsets, "")
        self.ask(lambda: self._consumer.commit_async(wanted, callback=called_back))
        return done

    def _wanted(self, offsets: dict[Place, int], note: str) -> dict[Any, Any]:
        from kafka import OffsetAndMetadata, TopicPartition

        return {
            TopicPartition(*place): OffsetAndMetadata(offset, note, -1)
            for place, offset in offsets.items()
        }

    def committed(self, place: Place) -> tuple[int, str] | None:
        from kafka import TopicPartition

        partition = TopicPartition(*place)
        found = self.ask(lambda: self._consumer.committed(partition, metadata=True))
        return None if found is None else (found.offset, found.metadata)

    def seek(self, place: Place, offset: int) -> None:
        from kafka import TopicPartition

        self.ask(lambda: self._consumer.seek(TopicPartition(*place), offset))

    def seek_to_beginning(self, place: Place) -> None:
        from kafka import TopicPartition

        self.ask(lambda: self._consumer.seek_to_beginning(TopicPartition(*place)))

    def offset_at(self, place: Place, timestamp_ms: int) -> int:
        from kafka import TopicPartition

        partition = TopicPartition(*place)
        answer = self.ask(lambda: self._consumer.offsets_for_times({partition: timestamp_ms}))
        return int(answer[partition].offset)


class AioKafkaMember(GroupMember):
    """aiokafka: its heartbeats and fetches run on the loop that the application's thread runs."""

    name = "aiokafka"
    assignors = ("range", "roundrobin", "sticky")
    _consumer: Any

    def _open(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._on_loop(self._open_on_loop())

    def _on_loop(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self._loop.run_until_complete(work)

    async def _open_on_loop(self) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                member.note("assigned", list(assigned))

            async def on_partitions_revoked(self, revoked: Any) -> None:
                member.note("revoked", list(revoked))

        makers = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
        }
        wish = self.membership
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=wish.group,
            group_instance_id=wish.instance or None,
            auto_offset_reset=wish.reset,
            partition_assignment_strategy=[makers[wish.assignor]],
            enable_auto_commit=bool(wish.auto_commit_ms),
            auto_commit_interval_ms=wish.auto_commit_ms or 5_000,
            session_timeout_ms=wish.session_ms,
            max_poll_interval_ms=wish.max_poll_ms,
            heartbeat_interval_ms=wish.heartbeat_ms,
            metadata_max_age_ms=wish.metadata_age_ms,
            fetch_max_wait_ms=100,
        )
        if wish.pattern:
            self._consumer.subscribe(pattern=f"^{wish.pattern}", listener=Listener())
        else:
            self._consumer.subscribe(wish.topics, listener=Listener())
        await self._consumer.start()

    def _poll(self) -> None:
        answer = self._on_loop(self._consumer.getmany(timeout_ms=POLL_S * 1000))
        for messages in answer.values():
            self.found += [Found(m.topic, m.partition, m.offset, m.value) for m in messages]

    def _idle(self) -> None:
        self._on_loop(asyncio.sleep(POLL_S))

    def _close(self) -> None:
        try:
            self._on_loop(self._consumer.stop())
        finally:
            self._loop.close()

    def commit(self, offsets: dict[Place, int], note: str = "") -> None:
        self.ask(lambda: self._on_loop(self._commit(offsets, note)))

    async def _commit(self, offsets: dict[Place, int], note: str) -> None:
        from aiokafka import TopicPartition

        wanted = {TopicPartition(*place): (offset, note) for place, offset in offsets.items()}
        await self._consumer.commit(wanted)

    def commit_later(self, offsets: dict[Place, int]) -> "Future[str]":
        """As a task: what this client calls asynchronous."""
        done: Future[str] = Future()

        async def commit() -> None:
            try:
                await self._commit(offsets, "")
                done.set_result("")
            except Exception as error:
                done.set_result(type(error).__name__)

        def begin() -> None:
            self._task = self._loop.create_task(commit())

        self.ask(begin)
        return done

    def committed(self, place: Place) -> tuple[int, str] | None:
        """It gives the offset alone."""
        from aiokafka import TopicPartition

        work = self._consumer.committed
        offset = self.ask(lambda: self._on_loop(work(TopicPartition(*place))))
        return None if offset is None else (offset, "")

    def seek(self, place: Place, offset: int) -> None:
        from aiokafka import TopicPartition

        self.ask(lambda: self._consumer.seek(TopicPartition(*place), offset))

    def seek_to_beginning(self, place: Place) -> None:
        from aiokafka import TopicPartition

        work = self._consumer.seek_to_beginning
        self.ask(lambda: self._on_loop(work(TopicPartition(*place))))

    def offset_at(self, place: Place, timestamp_ms: int) -> int:
        from aiokafka import TopicPartition

        partition, work = TopicPartition(*place), self._consumer.offsets_for_times
        answer = self.ask(lambda: self._on_loop(work({partition: timestamp_ms})))
        return int(answer[partition].offset)


MEMBERS: dict[str, type[GroupMember]] = {
    each.name: each for each in (ConfluentMember, KafkaPythonMember, AioKafkaMember)
}


class PrintingList(list[Any]):
    """What is added is also said on standard output, a line of JSON each."""

    def __init__(self, say: Callable[[Any], dict[str, Any]]) -> None:
        super().__init__()
        self._say = say

    def append(self, item: Any) -> None:
        super().append(item)
        print(json.dumps(self._say(item)), flush=True)

    def __iadd__(self, items: Any) -> Self:
        for item in items:
            self.append(item)
        return self


def main(name: str, bootstrap: str, membership: str) -> None:
    """A member in a process of its own, until its standard input ends."""
    wish = json.loads(membership)
    member = MEMBERS[name](bootstrap, Membership(**wish | {"topics": tuple(wish["topics"])}))
    member.found = PrintingList(
        lambda each: {"found": [each.topic, each.partition, each.offset, each.value.decode()]}
    )
    member.events = PrintingList(lambda event: {"event": event.kind, "places": [*event.places]})
    member.errors = PrintingList(lambda error: {"error": error})
    member.start()
    sys.stdin.read()
    member.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
