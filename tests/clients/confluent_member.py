"""A member of a group by confluent-kafka: librdkafka."""

from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from group_member import ANSWER_S, CHOSEN_BY_THE_BROKER, POLL_S, Found, GroupMember, Place


class ConfluentMember(GroupMember):
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
        if wish.protocol == "consumer":
            settings["group.protocol"] = wish.protocol
            settings["group.remote.assignor"] = wish.assignor
            for name in CHOSEN_BY_THE_BROKER:
                del settings[name]
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
        from confluent_kafka import KafkaException

        # librdkafka's close can wait for itself for ever where the member is given partitions
        # meanwhile, because another one has just left. Who was fenced has no subscription.
        with suppress(KafkaException):
            self._consumer.unsubscribe()
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

        found = self.ask(
            lambda: self._consumer.committed([TopicPartition(*place)], timeout=ANSWER_S)
        )[0]
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
        return int(self.ask(lambda: self._consumer.offsets_for_times(asked, ANSWER_S))[0].offset)
