"""A member of a group by kafka-python: pure Python."""

from concurrent.futures import Future
from typing import Any

from group_member import ANSWER_S, Found, GroupMember, Place


class KafkaPythonMember(GroupMember):
    name = "kafka-python"
    assignors = ("range", "roundrobin", "sticky", "cooperative-sticky")
    POLL_MS = 300
    # This client forgets the answer of a join that arrives between two polls, and joins again. On a
    # busy machine, with short polls, three members may do that to one another for a minute.
    JOINING_POLL_MS = 3_000
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
        from kafka.coordinator.base import MemberState

        state = self._consumer.group_metadata().state
        timeout_ms = self.POLL_MS if state is MemberState.STABLE else self.JOINING_POLL_MS
        if state is MemberState.REBALANCING:
            # A join for newer metadata, which this client makes soon after its first one, is not
            # ended by the next poll if its answer came after the last: the client would be in no
            # group for ever, without an error. It has no call of its own for what is due then.
            self._consumer._coordinator.request_rejoin()
        for messages in self._consumer.poll(timeout_ms=timeout_ms).values():
            self.found += [Found(m.topic, m.partition, m.offset, m.value) for m in messages]

    def _close(self) -> None:
        self._consumer.close()

    def commit(self, offsets: dict[Place, int], note: str = "") -> None:
        wanted = self._wanted(offsets, note)
        self.ask(lambda: self._consumer.commit(wanted, timeout_ms=1_000 * ANSWER_S))

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
