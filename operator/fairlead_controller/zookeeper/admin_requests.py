"""Carries out what tools write under `/admin`, as Kafka's old controller did.

| entry | what is done |
|---|---|
| delete_topics/TOPIC | the topic is deleted; the multi that makes that durable removes the entry |
| preferred_replica_election | preferred leaders are elected, then the entry is removed |
| reassign_partitions | its partitions move; the entry is removed when the last move has ended |

An entry that is refused, or that cannot be read, stays, is logged once and counted. It is not tried
again before somebody changes it. If some partitions of a reassignment are refused, the others move,
and the entry stays. An entry that was carried out but cannot be removed, because of an ACL or a
znode below it, is not carried out again, either. A new controller carries out entries that are
still there, as Kafka's did.
"""

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NoNodeError

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import (
    AlterReassignments,
    DeleteTopics,
    ElectOnRequest,
)
from fairlead_controller.stores.zookeeper import ZooKeeperStore
from fairlead_controller.stores.zookeeper_multis import Fence
from fairlead_model.ids import ZERO_TOPIC_ID
from fairlead_model.session.calls import (
    AlterReassignmentsCall,
    DeletableTopic,
    DeleteTopicsCall,
    ElectablePartition,
    ElectionType,
    ElectLeadersCall,
    ReassignablePartition,
)
from fairlead_model.session.refusals import RefusalCode, RefusedError
from fairlead_zookeeper.client import (
    AccessDeniedError,
    ConnectionState,
    MultiError,
    SessionLostError,
    ZooKeeperClient,
    ZooKeeperError,
)
from fairlead_zookeeper.operations import Delete, Stat, Znode
from fairlead_zookeeper.znodes import (
    DELETE_TOPICS,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    decode,
)

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
POLL_S: Final = 30.0
"""The longest time between two reads, in case a watch is lost."""
TOPICS_AT_ONCE: Final = 100
PARTITIONS_AT_ONCE: Final = 500
"""Partitions of an election or a reassignment in one decision; between two the loop runs."""
NOT_ELECTED_LOGGED_MAX: Final = 20
"""Partitions without an election that the log names."""
REFUSED_MAX: Final = 10_000
"""Entries that are remembered as refused, or as carried out."""


class AdminRequests:
    """The requests of one reign."""

    def __init__(
        self, client: ZooKeeperClient, store: ZooKeeperStore, controller: Controller, fence: Fence
    ) -> None:
        self.refused: Counter[str] = Counter()
        """Entries that were refused, by the name of the znode under `/admin`."""
        self._client = client
        self._store = store
        self._controller = controller
        self._fence = fence
        self._changed = asyncio.Event()
        self._settled: dict[str, Stat] = {}
        """Refused entries that stay, with their Stat when they were refused."""
        self._done: dict[str, Stat] = {}
        """Entries that are carried out and may still be there, with their Stat: a later topic of
        the same name is not meant."""
        self._named: set[str] = set()
        """Entries that cannot be read or removed; the log names each once."""
        self._moving: tuple[Stat, list[tuple[str, int]]] | None = None
        """The reassignment under way: the Stat of its entry, and the partitions that move."""

    async def run(self) -> None:
        """Carry out requests until cancelled; return if the session ends."""
        self._client.listeners.append(self._on_state)
        try:
            while True:
                await self._client.wait_connected()
                self._changed.clear()
                pause_s = POLL_S
                try:
                    await self._look()
                    if self._moving is not None:
                        pause_s = RETRY_S
                except SessionLostError:
                    raise
                except (ZooKeeperError, RefusedError) as error:
                    logger.warning("requests under /admin wait: %s", error)
                    pause_s = RETRY_S
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._changed.wait()
        except SessionLostError:
            return
        finally:
            self._client.listeners.remove(self._on_state)

    async def _look(self) -> None:
        await self._delete_topics(await self._deletions())
        election = await self._read(PREFERRED_ELECTION)
        if election is not None:
            await self._elect(election)
        reassignment = await self._read(REASSIGN_PARTITIONS)
        if reassignment is None:
            self._moving = None  # Deleting the entry cancels nothing, as with Kafka.
        else:
            await self._reassign(reassignment)

    async def _read(self, path: str) -> Znode | None:
        """Return an entry; None if there is none, or if nothing is to be done for it."""
        watch = self._changed.set
        try:
            znode = await self._client.get(path, watch=watch)
        except AccessDeniedError as error:
            self._note_hidden(path, error)
            return None
        if znode is not None and self._done.get(path) == znode.stat:
            await self._remove(path, znode.stat)
            return None
        self._named.discard(path)
        if znode is None or self._settled.get(path) == znode.stat:
            return None
        return znode

    async def _deletions(self) -> list[str]:
        try:
            return await self._client.children(DELETE_TOPICS, watch=self._changed.set) or []
        except AccessDeniedError as error:
            self._note_hidden(DELETE_TOPICS, error)
            return []

    async def _delete_topics(self, names: list[str]) -> None:
        stats: dict[str, Stat] = {}
        for name in names:
            path = f"{DELETE_TOPICS}/{name}"
            try:
                stat = await self._client.exists(path)
            except AccessDeniedError as error:
                self._note_hidden(path, error)
                continue
            if stat is None or self._settled.get(path) == stat:
                continue
            if self._done.get(path) == stat:
                await self._remove(path, stat)
            else:
                self._named.discard(path)
                stats[name] = stat
        waiting = list(stats)
        for start in range(0, len(waiting), TOPICS_AT_ONCE):
            chunk = waiting[start : start + TOPICS_AT_ONCE]
            for name in chunk:
                await self._store.expect(f"{DELETE_TOPICS}/{name}")
            topics = [DeletableTopic(name=name, topic_id=ZERO_TOPIC_ID) for name in chunk]
            answer = await self._controller.submit(DeleteTopics(DeleteTopicsCall(topics=topics)))
            answers = list(zip(chunk, answer["topics"], strict=True))
            # Before anything that may fail.
            for name, deleted in answers:
                if not deleted["error_code"]:
                    self._note_done(f"{DELETE_TOPICS}/{name}", stats[name])
            for name, deleted in answers:
                await self._on_deleted(name, stats[name], deleted)

    async def _on_deleted(self, name: str, stat: Stat, answer: Any) -> None:
        path = f"{DELETE_TOPICS}/{name}"
        code = answer["error_code"]
        if code == RefusalCode.UNKNOWN_TOPIC_OR_PARTITION:
            logger.info("%s names no topic and goes, as with Kafka", path)
            await self._remove(path, stat)
        elif code:
            self._refuse(path, stat, str(answer["error_message"]))
        else:
            logger.info("deleted topic %s as %s asks for", name, path)
            if await self._client.exists(path) == stat:
                # The table had to be written without Kafka's znodes.
                await self._remove(path, stat)
            else:
                self._done.pop(path, None)

    async def _elect(self, znode: Znode) -> None:
        partitions = _read_partitions(znode.data)
        if partitions is None:
            reason = 'it is not {"version":1,"partitions":[{"topic":…,"partition":…}]}'
            self._refuse(PREFERRED_ELECTION, znode.stat, reason)
            return
        not_elected = 0
        for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
            part = partitions[start : start + PARTITIONS_AT_ONCE]
            call = ElectLeadersCall(partitions=part, election_type=ElectionType.PREFERRED)
            answer = await self._controller.submit(ElectOnRequest(call))
            for each in answer["partitions"]:
                if each["error_code"] in (0, RefusalCode.ELECTION_NOT_NEEDED):
                    continue
                not_elected += 1
                if not_elected <= NOT_ELECTED_LOGGED_MAX:
                    place = f"{each['topic']}-{each['index']}"
                    logger.warning("%s: %s: %s", PREFERRED_ELECTION, place, each["error_message"])
        if not_elected > NOT_ELECTED_LOGGED_MAX:
            more = not_elected - NOT_ELECTED_LOGGED_MAX
            logger.warning("%s: and %d more partitions", PREFERRED_ELECTION, more)
        await self._remove(PREFERRED_ELECTION, znode.stat)

    async def _reassign(self, znode: Znode) -> None:
        if self._moving is None or self._moving[0] != znode.stat:
            self._moving = None
            targets = _read_targets(znode.data)
            if targets is None:
                partition = '{"topic":…,"partition":…,"replicas":[…]}'
                reason = f'it is not {{"version":1,"partitions":[{partition}]}}'
                self._refuse(REASSIGN_PARTITIONS, znode.stat, reason)
                return
            taken, problem = await self._begin_moves(targets)
            if problem:
                self._refuse(REASSIGN_PARTITIONS, znode.stat, problem)
                return
            self._moving = (znode.stat, taken)
        if any(self._is_moving(topic, index) for topic, index in self._moving[1]):
            return
        self._moving = None
        logger.info("%s is carried out", REASSIGN_PARTITIONS)
        await self._remove(REASSIGN_PARTITIONS, znode.stat)

    async def _begin_moves(
        self, targets: list[ReassignablePartition]
    ) -> tuple[list[tuple[str, int]], str]:
        """Begin the moves of an entry; return those not refused, and why the others are."""
        taken: list[tuple[str, int]] = []
        refused: list[str] = []
        for start in range(0, len(targets), PARTITIONS_AT_ONCE):
            call = AlterReassignmentsCall(
                partitions=targets[start : start + PARTITIONS_AT_ONCE],
                allow_replication_factor_change=True,
            )
            answer = await self._controller.submit(AlterReassignments(call))
            for each in answer["partitions"]:
                if each["error_code"]:
                    place = f"{each['topic']}-{each['index']}"
                    refused.append(f"{place}: {each['error_message']}")
                else:
                    taken.append((each["topic"], each["index"]))
        more = f"; and {len(refused) - 1} more" * (len(refused) > 1)
        return taken, f"{refused[0]}{more}" if refused else ""

    def _is_moving(self, topic: str, index: int) -> bool:
        record = self._controller.committed.image.partition(topic, index)
        return record is not None and (record.is_being_reassigned or bool(record.queued_target))

    async def _remove(self, path: str, stat: Stat) -> None:
        """Remove a finished entry, unless somebody has changed it meanwhile.

        One that cannot be removed stays, and is not carried out again.
        """
        self._note_done(path, stat)
        try:
            await self._client.multi([self._fence.check, Delete(path, stat.version)])
        except MultiError as error:
            if error.index == 0:
                raise
            if not isinstance(error.cause, BadVersionError | NoNodeError):
                cause = type(error.cause).__name__
                self._name(path, f"is carried out, but cannot be removed ({cause}): delete it")
                return
            self._changed.set()
        self._done.pop(path, None)
        self._named.discard(path)

    def _note_done(self, path: str, stat: Stat) -> None:
        if len(self._done) >= REFUSED_MAX:
            del self._done[next(iter(self._done))]
        self._done[path] = stat

    def _note_hidden(self, path: str, error: AccessDeniedError) -> None:
        if self._name(path, f"is not carried out, because it cannot be read: {error}"):
            self.refused[path.split("/")[2]] += 1

    def _name(self, path: str, problem: str) -> bool:
        """Log a problem of an entry; tell whether it is new."""
        if path in self._named:
            return False
        if len(self._named) >= REFUSED_MAX:
            self._named.clear()
        self._named.add(path)
        logger.error("%s %s", path, problem)
        return True

    def _refuse(self, path: str, stat: Stat, reason: str) -> None:
        if self._settled.get(path) == stat:
            return
        if len(self._settled) >= REFUSED_MAX:
            self._settled.clear()
        self._settled[path] = stat
        self.refused[path.split("/")[2]] += 1
        logger.error("%s is not carried out: %s", path, reason)

    def _on_state(self, state: ConnectionState) -> None:
        self._changed.set()


def _read_partitions(data: bytes) -> list[ElectablePartition] | None:
    """Read the partitions of a preferred election; None if they cannot be read."""
    record = decode(data) or {}
    try:
        return [
            ElectablePartition(topic=str(each["topic"]), index=int(each["partition"]))
            for each in record["partitions"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _read_targets(data: bytes) -> list[ReassignablePartition] | None:
    """Read the partitions of a reassignment; None if they cannot be read."""
    record = decode(data) or {}
    try:
        return [
            ReassignablePartition(
                topic=str(each["topic"]),
                index=int(each["partition"]),
                replicas=[int(broker_id) for broker_id in each["replicas"]],
            )
            for each in record["partitions"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
