"""Elects the controller: `/controller`, `/controller_epoch`, and the candidates' own znodes.

An election is one multi: it raises the epoch, deletes the znode of a deposed holder, and creates
this candidate's. After that commit no write of an older controller lands, so a candidate may take
over from a holder that only seems dead. A holder that loses the epoch ends.
"""

import asyncio
import logging
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from kazoo.exceptions import NoAuthError

from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoreError,
    StoreTooNewError,
)
from fairlead_controller.sessions.port_probe import is_refused
from fairlead_controller.stores.zookeeper_fence import (
    ElectionLostError,
    KnownEpoch,
    parse_epoch,
    raise_epoch,
)
from fairlead_controller.stores.zookeeper_multis import Fence
from fairlead_controller.stores.zookeeper_projections import CONTAINERS
from fairlead_controller.zookeeper.beats import HolderWatch, monotonic_ms
from fairlead_controller.zookeeper.kafka_part import read_kafka_part
from fairlead_controller.zookeeper.memory import CandidateMemory
from fairlead_controller.zookeeper.tree_check import check_tree
from fairlead_model.broker import Endpoint
from fairlead_model.host_address import join_address
from fairlead_tls.followed_certificate import FollowedPeer
from fairlead_zookeeper.client import (
    AccessDeniedError,
    ConnectionState,
    MultiError,
    SessionLostError,
    ZooKeeperClient,
    ZooKeeperError,
)
from fairlead_zookeeper.operations import Check, Create, Delete, Operation, Znode
from fairlead_zookeeper.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    FAIRLEAD,
    TABLES,
    CandidateRecord,
    candidate_path,
    candidate_value,
    controller_identity,
    controller_value,
    read_candidate,
)

logger = logging.getLogger(__name__)

JITTER_S: Final = 0.1
"""Random delay, so that not all candidates that see the same death act at the same time."""
RETRY_S: Final = 0.2
REFUSED_RETRY_S: Final = 5.0
"""Pause before a tree that may not be taken over is read again."""
JUDGE_S: Final = 0.05
NOBODY: Final = 0
"""Owner of a znode that is not ephemeral. No controller has made it: programs that copy trees make
such ones of those that were."""
POLL_S: Final = 5.0
"""The longest time between two reads, in case a watch is lost."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What one read of the tree has found."""

    controller: Znode | None
    epoch: KnownEpoch
    cluster_id: str


class Elector:
    """One process's part in elections."""

    def __init__(
        self,
        client: ZooKeeperClient,
        record: CandidateRecord,
        memory: CandidateMemory,
        secret: bytes,
        certificate: FollowedPeer | None = None,
    ) -> None:
        self.fence: Fence | None = None
        """Set while this process is the holder, as far as it knows."""
        self.holder = ""
        """The identity of the last holder that was seen; empty if there was none."""
        self.hears_holder = False
        """Whether beats of the holder arrive: then its death is noticed without ZooKeeper."""
        self.problem = ""
        """Why this process may not compete; empty while it may."""
        self._said = ""
        """The last problem that the log has named, until this candidate stands by."""
        self._client = client
        self._record = record
        self._memory = memory
        self._secret = secret
        self._certificate = certificate
        self._changed = asyncio.Event()
        self._has_entry = False
        """Whether this session has made this candidate's znode."""
        self._hidden: set[str] = set()
        """Znodes that an ACL hides from this user; the log names each once."""
        client.listeners.append(self._on_state)

    async def acquire(self) -> Fence:
        """Return once this process is the controller; SessionLostError if the session has ended."""
        while True:
            await self._client.wait_connected()
            self._changed.clear()
            try:
                sight = await self._look()
                # Clear the problem first: after an election this loop does not run again.
                self._note_problem("")
                reason = await self._reason_to_contend(sight)
                if reason:
                    fence = await self._take_over(sight, reason)
                    if fence is not None:
                        self.fence, self.holder = fence, self._record.identity
                        return fence
                else:
                    self._said = ""
            except SessionLostError:
                raise
            except StoreError as error:
                self._note_problem(str(error))
                await self._pause(REFUSED_RETRY_S)
            except ZooKeeperError as error:
                if _is_denied(error):
                    self._note_problem(
                        f"ZooKeeper does not let this user do what an election needs: {error}; see "
                        "its ACL, and the user that the settings name"
                    )
                    await self._pause(REFUSED_RETRY_S)
                    continue
                logger.warning("standing by, but: %s", error)
                await self._pause(RETRY_S)

    async def keep(self) -> str:
        """Keep the epoch as long as possible; return why it is lost."""
        doubt = ""
        while True:
            try:
                await self._client.wait_connected()
                self._changed.clear()
                if reason := await self._reason_to_end():
                    return reason
            except SessionLostError:
                return "the session with ZooKeeper has ended"
            except (StoreCorruptError, StoreTooNewError) as error:
                return str(error)
            except ZooKeeperError as error:
                if str(error) != doubt:
                    logger.warning("whether this process is still the controller: %s", error)
                doubt = str(error)
                await self._pause(RETRY_S)
                continue
            doubt = ""
            await self._pause(POLL_S)

    async def release(self) -> None:
        """Delete `/controller`, so that others need not wait. A failure only costs time."""
        fence, self.fence = self.fence, None
        if fence is None:
            return
        with suppress(ZooKeeperError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._client.multi([fence.check, Delete(CONTROLLER)])

    async def _look(self) -> Sight:
        """Read what elections depend on, and keep this candidate's entry.

        StoreError if no candidate, or not this candidate, may take over the tree.
        """
        watch, client = self._changed.set, self._client
        await client.sync()
        controller, epoch, root, tables, kafka = await asyncio.gather(
            client.get(CONTROLLER, watch=watch),
            client.get(CONTROLLER_EPOCH, watch=watch),
            client.get(FAIRLEAD),
            client.children(TABLES),
            read_kafka_part(client),
        )
        known = KnownEpoch()
        if epoch is not None:
            known = KnownEpoch(parse_epoch(epoch.data), epoch.stat.version)
        tree = replace(
            kafka,
            root=None if root is None else root.data,
            controller=None if controller is None else controller.data,
            has_tables=bool(tables),
            epoch=known.epoch,
        )
        remembered = self._memory.remembered
        cluster_id = check_tree(
            tree,
            known_cluster=remembered.cluster_id,
            known_epoch=remembered.controller_epoch,
        )
        self._note_hidden(tree.hidden)
        if cluster_id:
            await asyncio.to_thread(self._memory.remember, cluster_id, known.epoch)
        await self._require_number()
        await self._ensure_entry()
        return Sight(controller, known, cluster_id)

    async def _require_number(self) -> None:
        """Raise StoreError if another live controller has this one's number.

        The lock that shows that a predecessor has ended covers one folder of this host. A
        controller of this host with another port therefore has another folder, unless its port is
        closed.
        """
        path = candidate_path(self._record.identity)
        try:
            found = await self._client.get(path)
        except AccessDeniedError:
            if self._has_entry:
                return  # It is this candidate's own.
            raise
        other = None if found is None else read_candidate(found.data)
        if found is None or other is None:
            return
        if found.stat.owner in (NOBODY, self._client.session_id):
            return
        is_elsewhere = other.host != self._record.host
        if not is_elsewhere and other.session_port != self._record.session_port:
            is_elsewhere = not await is_refused([Endpoint("", other.host, other.session_port)])
        if is_elsewhere:
            raise StoreError(
                f"node.id={self._record.node_id} is in use by the controller at "
                f"{join_address(other.host, other.session_port)}, which is alive; give this one "
                "another node.id"
            )

    async def _ensure_entry(self) -> None:
        """Keep this candidate's znode; replace that of a predecessor, whose lock it now holds."""
        path = candidate_path(self._record.identity)
        try:
            found = await self._client.get(path, watch=self._changed.set)
        except AccessDeniedError:
            if not self._has_entry:
                raise
            self._note_hidden([path])
            return
        if found is not None and found.stat.owner == self._client.session_id:
            return
        operations: list[Operation] = []
        if found is None:
            for container in CONTAINERS:
                is_private = container.startswith(FAIRLEAD)
                await self._client.ensure_path(container, is_private=is_private)
        else:
            operations.append(Delete(path, found.stat.version))
        entry = candidate_value(self._record)
        operations.append(Create(path, entry, is_ephemeral=True, is_private=True))
        await self._client.multi(operations)
        self._has_entry = True
        await self._client.exists(path, watch=self._changed.set)

    async def _reason_to_contend(self, sight: Sight) -> str:
        """Return why this process should take over; empty once the tree has changed."""
        found = sight.controller
        if found is None:
            self.holder = ""
            return "there is no controller"
        self.holder = controller_identity(found.data) or ""
        if found.stat.owner == NOBODY:
            return f"{CONTROLLER} is of no session"
        if self.holder == self._record.identity:
            return "the controller was this process's predecessor"
        path = candidate_path(self.holder)
        try:
            entry = await self._client.get(path)
        except AccessDeniedError:
            self._note_hidden([path])
            entry = None
        holder = None if entry is None else read_candidate(entry.data)
        if holder is None:
            await self._pause(POLL_S)
            return ""
        return await self._watch_holder(holder)

    async def _watch_holder(self, holder: CandidateRecord) -> str:
        watch = HolderWatch(holder, self._secret, self._certificate)
        listening = asyncio.create_task(watch.run())
        until = time.monotonic() + POLL_S
        try:
            while not self._changed.is_set() and time.monotonic() < until:
                if reason := watch.sight.judge(monotonic_ms()):
                    return f"{holder.identity} is gone: {reason}"
                if watch.sight.heard_ms is not None:
                    self.hears_holder = True
                    until = time.monotonic() + POLL_S
                await self._pause(JUDGE_S)
            return ""
        finally:
            self.hears_holder = False
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    async def _take_over(self, seen: Sight, reason: str) -> Fence | None:
        """Hold the election; return None if another candidate was faster."""
        await asyncio.sleep(random.uniform(0, JITTER_S))  # noqa: S311
        now = await self._look()
        if (now.controller, now.epoch) != (seen.controller, seen.epoch):
            return None
        epoch = 1 + max(now.epoch.epoch, self._memory.remembered.controller_epoch)
        operations: list[Operation] = []
        if now.controller is not None:
            operations.append(Delete(CONTROLLER, now.controller.stat.version))
        value = controller_value(self._record, time.time_ns() // 1_000_000)
        operations.append(Create(CONTROLLER, value, is_ephemeral=True))
        logger.info("contending for controller epoch %d: %s", epoch, reason)
        try:
            return await raise_epoch(self._client, now.epoch, epoch, operations)
        except ElectionLostError as error:
            logger.info("%s", error)
            return None
        except (SessionLostError, MultiError):
            raise
        except ZooKeeperError as error:
            logger.warning("the outcome of the election is not known: %s", error)
            return await self._find_outcome(epoch)

    async def _find_outcome(self, epoch: int) -> Fence | None:
        """Return the fence if an election without an answer was carried out."""
        await self._client.wait_connected()
        await self._client.sync()
        controller = await self._client.get(CONTROLLER)
        found = await self._client.get(CONTROLLER_EPOCH)
        is_ours = controller is not None and controller.stat.owner == self._client.session_id
        if found is None or not is_ours or parse_epoch(found.data) != epoch:
            return None
        return Fence(epoch, found.stat.version)

    async def _reason_to_end(self) -> str:
        """Return why a holder has to end; empty while it need not end."""
        fence = self.fence
        if fence is None:
            return "the epoch was given back"
        await self._client.sync()
        epoch = await self._client.get(CONTROLLER_EPOCH, watch=self._changed.set)
        if epoch is None or epoch.stat.version != fence.version:
            text = "gone" if epoch is None else repr(epoch.data[:40])
            return f"{CONTROLLER_EPOCH} has moved on from {fence.controller_epoch}: it is {text}"
        controller = await self._client.get(CONTROLLER, watch=self._changed.set)
        if controller is None:
            await self._create_again(fence)
        elif controller.stat.owner != self._client.session_id:
            return f"{CONTROLLER} is of somebody else: {controller.data[:200]!r}"
        await self._ensure_entry()
        return ""

    async def _create_again(self, fence: Fence) -> None:
        """Create `/controller` again, which somebody deleted while this process has the epoch."""
        logger.warning("%s was deleted by hand; creating it again", CONTROLLER)
        value = controller_value(self._record, time.time_ns() // 1_000_000)
        check = Check(CONTROLLER_EPOCH, fence.version)
        with suppress(MultiError):  # The next read shows who was faster.
            await self._client.multi([check, Create(CONTROLLER, value, is_ephemeral=True)])
        self._changed.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _on_state(self, state: ConnectionState) -> None:
        # The watches of an old connection are gone: read again.
        self._changed.set()

    def _note_hidden(self, paths: Iterable[str]) -> None:
        for path in sorted(set(paths) - self._hidden):
            logger.warning("%s is passed over: its ACL does not let this user read it", path)
            self._hidden.add(path)

    def _note_problem(self, problem: str) -> None:
        # What an ACL prevents only shows when an election is held, after the tree was found good.
        if problem and problem != self._said:
            logger.error("this controller may not take over: %s", problem)
            self._said = problem
        self.problem = problem


def _is_denied(error: ZooKeeperError) -> bool:
    """Tell whether an ACL is the reason: it stays until somebody changes it."""
    cause = error.cause if isinstance(error, MultiError) else None
    return isinstance(error, AccessDeniedError) or isinstance(cause, NoAuthError)
