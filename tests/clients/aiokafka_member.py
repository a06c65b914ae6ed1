"""A member of a group by aiokafka."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from group_member import POLL_S, Found, GroupMember, Place

_Result = TypeVar("_Result")


class AioKafkaMember(GroupMember):
    """Its heartbeats and fetches run on the loop that the application's thread runs."""

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
