"""A consumer instance, which a client has created with `POST /consumers/{group}`.

Its requests are answered one at a time, in the order in which they came. A read that waits for
records ends when a request arrives that is not a read. Beside the requests one task, the keeper,
sends heartbeats, looks up positions, and commits the offsets of records that were received. An
instance that is idle for too long ends.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_broker.limits import (
    REST_AUTO_COMMIT_INTERVAL_S,
    REST_INSTANCE_CALL_S,
    REST_INSTANCE_REQUESTS_MAX,
)
from fairlead_broker.rest.instances.group_member import RETRY_S, GroupMember, Subscription
from fairlead_broker.rest.instances.group_offsets import (
    NO_EPOCH,
    NO_MEMBER,
    Committed,
    GroupOffsets,
)
from fairlead_broker.rest.instances.polling import Poll, ReadShape
from fairlead_broker.rest.instances.positions import Positions
from fairlead_broker.rest.offset_lookup import EARLIEST, LATEST, look_up_offset
from fairlead_broker.rest.problems import (
    ILLEGAL_STATE,
    RETRY_AFTER,
    UNKNOWN_INSTANCE,
    ProblemError,
    problem_of,
)
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from fairlead_broker.authorization import Principal
    from fairlead_broker.rest.calls import KafkaCalls
    from fairlead_broker.rest.instances.instance_request import InstanceRequest
    from fairlead_broker.rest.instances.positions import TopicPartition
    from fairlead_broker.rest.records.rendering import Form

logger = logging.getLogger(__name__)

RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}


class InstanceConfig(NamedTuple):
    """The settings with which the client created the instance."""

    form: Form
    auto_offset_reset: str
    auto_commit: bool
    isolation_level: int
    min_bytes: int
    timeout_ms: int | None
    """`consumer.request.timeout.ms`: how long a read may take at most, None if it is not set."""


class ConsumerInstance:
    """One instance. Each request that changes it or reads records waits for its turn first.

    It is the `PartitionOwner` of its own member: the keeper calls `take`, `give_up` and `lose`
    between and during requests.
    """

    def __init__(self, kafka: KafkaCalls, group_id: str, name: str, config: InstanceConfig) -> None:
        self.group_id = group_id
        self.name = name
        self.config = config
        self.is_closed = False
        self.subscription: Subscription | None = None
        self.positions = Positions()
        self._kafka = kafka
        self._loop = asyncio.get_running_loop()
        self._offsets = GroupOffsets(kafka, group_id)
        self._member: GroupMember | None = None
        self._is_assigned = False
        self._keeper: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] = self._loop.create_future()
        self._woken = asyncio.Event()
        self._failure: KafkaError | None = None
        self._lock = asyncio.Lock()
        self._requests = 0
        self._changes_waiting = 0
        self._used_s = self._loop.time()

    @property
    def principal(self) -> Principal:
        """The principal that created the instance; no other one may use it."""
        return self._kafka.principal

    @property
    def idle_since_s(self) -> float | None:
        """When the last request ended, on the loop's clock; None while there is a request."""
        return None if self._requests else self._used_s

    async def take_turn(
        self, request: InstanceRequest, deadline_s: float, *, is_read: bool = False
    ) -> None:
        """Wait until earlier requests are answered; later ones wait until this one is answered.

        TimeoutError if that takes until the deadline, ProblemError 404 or 429.
        """
        if self._requests >= REST_INSTANCE_REQUESTS_MAX:
            raise ProblemError(429, "too many requests wait for this instance", headers=RETRY_AFTER)
        self._requests += 1
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._acquire(is_read=is_read)
        except BaseException:
            self._note_answered()
            raise
        request.when_answered(self._end_turn)
        if self.is_closed:
            raise unknown_instance(self.name)

    def _end_turn(self) -> None:
        self._lock.release()
        self._note_answered()

    def _note_answered(self) -> None:
        self._requests -= 1
        self._used_s = self._loop.time()

    async def _acquire(self, *, is_read: bool) -> None:
        if is_read:
            await self._lock.acquire()
            return
        self._changes_waiting += 1
        self._note_change()
        try:
            await self._lock.acquire()
        finally:
            self._changes_waiting -= 1

    async def subscribe(self, subscription: Subscription) -> None:
        """Read topics as a member of the group; ProblemError 409."""
        if self._is_assigned:
            raise _exclusive("the instance has been assigned partitions by hand")
        before = self.subscription
        if before is not None and bool(before.pattern) != bool(subscription.pattern):
            raise _exclusive("the instance is subscribed to topics and patterns, not to both")
        if not subscription.pattern:
            left = {key for key in self.positions if key[0] not in subscription.topics}
            await self.give_up(left, confirm=True)
        self.subscription = subscription
        if self._member is None:
            self._member = GroupMember(self._kafka, self.group_id, self.name, self)
        self._member.subscribe(subscription)
        self._failure = None
        self._keep()

    async def unsubscribe(self) -> None:
        """Stop reading, and leave the group."""
        member, self._member = self._member, None
        await self._stop_keeper()
        await self.give_up(set(self.positions), member, confirm=True)
        self.subscription = None
        self._is_assigned = False
        self._failure = None
        if member is not None:
            await self._leave(member)

    async def assign(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Read these partitions and no others, whatever the group reads; ProblemError 409."""
        if self.subscription is not None:
            raise _exclusive("the instance is subscribed to topics")
        await self.give_up(set(self.positions) - partitions, confirm=True)
        self.positions.add(partitions)
        self._is_assigned = bool(partitions)
        self._failure = None
        self._note_change()
        self._keep()

    async def read(
        self, request: InstanceRequest, deadline_s: float, bytes_max: int
    ) -> list[bytes]:
        """Return records as JSON, an empty list if there are none until the deadline.

        ProblemError or KafkaError. The records of earlier reads count as received now.
        """
        if self.subscription is None and not self._is_assigned:
            raise ProblemError(409, "the instance is subscribed to nothing", code=ILLEGAL_STATE)
        self.positions.receive()
        config = self.config
        shape = ReadShape(config.form, config.isolation_level, config.min_bytes, bytes_max)
        poll = Poll(request, self.positions, shape, lambda: self._changed, self._woken.set)
        records = await poll.run(deadline_s, self._is_read_over)
        if not records:
            self._raise_failure()
        # If the answer cannot be written, the client has not seen these records.
        request.if_unwritten(poll.rewind)
        return records

    async def seek(self, offsets: Mapping[TopicPartition, int], deadline_s: float) -> None:
        """Read these partitions from these offsets on, or from EARLIEST or LATEST.

        ProblemError 409 if they are not assigned to the instance.
        """
        await self._until_assigned(offsets.keys(), deadline_s)
        for key, offset in offsets.items():
            found = offset
            if offset < 0:
                level = self.config.isolation_level
                found = await look_up_offset(self._kafka, key, offset, level, deadline_s=deadline_s)
            position = self.positions.get(key)
            if position is None:
                raise _not_assigned(key)
            position.start(found, committed=position.committed)
        self._note_change()

    async def commit(
        self, offsets: Mapping[TopicPartition, Committed] | None, deadline_s: float
    ) -> Mapping[TopicPartition, Committed]:
        """Commit `offsets`, with None those of all records that were read; KafkaError."""
        if offsets is None:
            self._forget_deleted(self._member)
            offsets = {key: Committed(offset) for key, offset in self.positions.read().items()}
        await self._offsets.commit(offsets, deadline_s, member=self._identity(self._member))
        self.positions.note_committed({key: each.offset for key, each in offsets.items()})
        return offsets

    async def committed(
        self, partitions: AbstractSet[TopicPartition], deadline_s: float
    ) -> dict[TopicPartition, Committed]:
        """Return the group's committed offsets, without `partitions` of all that it reads."""
        return await self._offsets.committed(partitions or set(self.positions), deadline_s)

    async def close(self, *, confirm: bool) -> None:
        """End the instance. With `confirm` all records that were read count as received."""
        if self.is_closed:
            return
        self.is_closed = True
        member, self._member = self._member, None
        await self._stop_keeper()
        await self.give_up(set(self.positions), member, confirm=confirm)
        if member is not None:
            await self._leave(member)
        self._note_change()

    def take(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Begin to read partitions of subscribed topics."""
        wanted = self.subscription
        self.positions.add(
            key
            for key in partitions
            if wanted is not None and (wanted.pattern or key[0] in wanted.topics)
        )
        self._note_change()

    async def give_up(
        self,
        partitions: AbstractSet[TopicPartition],
        member: GroupMember | None = None,
        *,
        confirm: bool = False,
    ) -> None:
        """Stop reading partitions, and commit what was received of them with `auto_commit`."""
        self._forget_deleted(member or self._member)
        if confirm:
            self.positions.receive()
        offsets = self.positions.uncommitted(partitions)
        self.positions.remove(partitions)
        if self.config.auto_commit:
            await self._commit_received(offsets, member or self._member)

    def forget(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Stop reading partitions without a commit: their topics have been deleted."""
        self.positions.remove(partitions)
        self._note_change()

    def _forget_deleted(self, member: GroupMember | None) -> None:
        if member is not None:
            member.forget_deleted()

    def lose(self) -> None:
        """Stop reading all partitions: the group has given them to other members."""
        self.positions.clear()
        self._note_change()

    def _keep(self) -> None:
        self._woken.set()
        if self._keeper is None:
            self._keeper = self._loop.create_task(self._keep_going())
            self._keeper.add_done_callback(self._on_keeper_end)

    async def _keep_going(self) -> None:
        commits_s = self._loop.time() + REST_AUTO_COMMIT_INTERVAL_S
        while True:
            self._woken.clear()
            pause_s = REST_AUTO_COMMIT_INTERVAL_S
            try:
                if self._member is not None:
                    pause_s = min(pause_s, await self._member.beat())
                if self.positions.unknown():
                    await self._look_up()
            except KafkaError as error:
                self._fail(error)
            if self.positions.unknown():
                pause_s = min(pause_s, RETRY_S)
            now_s = self._loop.time()
            if self.config.auto_commit and now_s >= commits_s:
                commits_s = now_s + REST_AUTO_COMMIT_INTERVAL_S
                self._forget_deleted(self._member)
                await self._commit_received(self.positions.uncommitted(), self._member)
            if pause_s > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._woken.wait()

    def _on_keeper_end(self, keeper: asyncio.Task[None]) -> None:
        if not keeper.cancelled() and keeper.exception() is not None:
            logger.error("the keeper of a consumer instance failed", exc_info=keeper.exception())
            # Without heartbeats the group goes on without this member. The client gets an error,
            # and can subscribe again.
            self._keeper = None
            self.lose()
            self._fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the instance has failed"))

    async def _stop_keeper(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait((keeper,))

    async def _look_up(self) -> None:
        """Find where to begin: at the committed offset, or else by `auto.offset.reset`."""
        deadline_s = self._loop.time() + REST_INSTANCE_CALL_S
        keys = self.positions.unknown()
        committed = await self._offsets.committed(
            [key for key in keys if not self._is_reset(key)], deadline_s
        )
        await asyncio.gather(*(self._begin(key, committed.get(key), deadline_s) for key in keys))
        self._note_change()

    async def _begin(
        self, key: TopicPartition, committed: Committed | None, deadline_s: float
    ) -> None:
        position = self.positions.get(key)
        if position is None:
            return
        if committed is not None:
            offset, known = committed.offset, committed.offset
        else:
            sought = RESETS[self.config.auto_offset_reset]
            if sought is None:
                where = f"{key[0]}-{key[1]}"
                message = f"{where} has no offset to begin with, and auto.offset.reset is none"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
            level = self.config.isolation_level
            try:
                offset = await look_up_offset(
                    self._kafka, key, sought, level, deadline_s=deadline_s
                )
            except KafkaError as error:
                if error.code.retriable:
                    return
                raise
            known = -1
        if position.offset is None and self.positions.get(key) is position:
            position.start(offset, committed=known)

    def _is_reset(self, key: TopicPartition) -> bool:
        position = self.positions.get(key)
        return position is not None and position.is_reset

    async def _commit_received(
        self, offsets: dict[TopicPartition, int], member: GroupMember | None
    ) -> None:
        """Commit automatically. If that fails, records may be read again."""
        if not offsets:
            return
        deadline_s = self._loop.time() + REST_INSTANCE_CALL_S
        try:
            await self._offsets.commit(
                {key: Committed(offset) for key, offset in offsets.items()},
                deadline_s,
                member=self._identity(member),
            )
        except KafkaError as error:
            logger.info("%s of group %s cannot commit: %s", self.name, self.group_id, error)
        else:
            self.positions.note_committed(offsets)

    async def _leave(self, member: GroupMember) -> None:
        try:
            async with asyncio.timeout(REST_INSTANCE_CALL_S):
                await member.leave()
        except (KafkaError, TimeoutError) as error:
            # The coordinator removes the member when its session times out, in some seconds.
            logger.info("%s cannot leave group %s: %s", self.name, self.group_id, error)

    def _identity(self, member: GroupMember | None) -> tuple[str, int]:
        return (NO_MEMBER, NO_EPOCH) if member is None else member.identity

    def _note_change(self) -> None:
        changed, self._changed = self._changed, self._loop.create_future()
        changed.set_result(None)

    def _is_read_over(self) -> bool:
        return self._changes_waiting > 0 or self._failure is not None or self.is_closed

    async def _until_assigned(self, keys: AbstractSet[TopicPartition], deadline_s: float) -> None:
        """Wait for the first assignment; ProblemError 409 if these partitions are not in it."""
        while self._member is not None and not self._member.is_joined:
            self._raise_failure()
            if self._loop.time() >= deadline_s:
                break
            await asyncio.wait((self._changed,), timeout=deadline_s - self._loop.time())
        for key in keys:
            if key not in self.positions:
                raise _not_assigned(key)

    def _fail(self, error: KafkaError) -> None:
        if not error.code.retriable:
            self._failure = error
            self._note_change()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise problem_of(failure)


def unknown_instance(name: str) -> ProblemError:
    """Return the problem for an instance that does not exist."""
    return ProblemError(
        404,
        f"there is no consumer instance {name}: it was idle for too long, or its broker stopped",
        code=UNKNOWN_INSTANCE,
    )


def _exclusive(why: str) -> ProblemError:
    message = f"{why}; DELETE its subscription first"
    return ProblemError(409, message, code=ILLEGAL_STATE)


def _not_assigned(key: TopicPartition) -> ProblemError:
    topic, index = key
    return ProblemError(
        409, f"partition {index} of {topic} is not assigned to this instance", code=ILLEGAL_STATE
    )
