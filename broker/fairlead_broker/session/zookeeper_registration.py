"""A broker's part in ZooKeeper: its znode `/brokers/ids/ID`, and where the controllers are.

The znode is a sign for people and tools, and a hint for the controller. It proves nothing: whether
a broker serves is settled by its session with the controller, which needs ZooKeeper only to be
found. While ZooKeeper is away the broker goes on with the controllers that it knows; when its
session with ZooKeeper ends it begins another one.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fairlead_model.broker import BrokerRegistration
from fairlead_zookeeper.address import ZooKeeperAccess
from fairlead_zookeeper.client import (
    AccessDeniedError,
    MultiError,
    SessionLostError,
    ZooKeeperClient,
    ZooKeeperError,
)
from fairlead_zookeeper.operations import Create, Delete, Operation
from fairlead_zookeeper.znodes import (
    BROKER_IDS,
    CANDIDATES,
    broker_directory,
    broker_path,
    broker_value,
    read_candidate,
)

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
HIDDEN_RETRY_S: Final = 5.0
"""Pause before a znode is read again whose ACL keeps this broker out: no watch tells of ACLs."""


class BrokerIdTakenError(Exception):
    """Another broker that is alive has this id; the text names it."""


class ZooKeeperRegistration:
    """Made in a running loop; lives as long as the broker's process.

    `start` returns at once. The owner waits for the first of `on_controllers`, and for `announced`
    before it serves.
    """

    def __init__(
        self,
        access: ZooKeeperAccess,
        registration: BrokerRegistration,
        *,
        on_controllers: Callable[[list[str]], None],
    ) -> None:
        """`on_controllers` is called with the URLs of all controllers, now and when they change.

        They fit `ControllerSession`; the list is never empty, because one that is says nothing.
        """
        self._access = access
        self._registration = registration
        self._on_controllers = on_controllers
        self._known: dict[str, str] = {}
        """The URL of each controller, by its znode."""
        self._hidden: set[str] = set()
        """Znodes of candidates that this broker may not read; the log names each once."""
        self._problem = ""
        """Why the broker is not registered, as the log has said it."""
        self._task: asyncio.Task[None] | None = None
        self.announced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once `/brokers/ids/ID` is this broker's; BrokerIdTakenError if it is another's."""

    def start(self) -> None:
        """Begin to follow the controllers and to keep the znode."""
        self._task = asyncio.create_task(self._run(), name="registration in ZooKeeper")

    async def stop(self) -> None:
        """Remove the znode and end the session with ZooKeeper."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self.announced.cancel()

    async def _run(self) -> None:
        while True:
            client = ZooKeeperClient(self._access)
            client.start()
            try:
                await self._serve(client)
            except SessionLostError as error:
                logger.warning("%s; beginning another one", error)
            finally:
                await client.stop()

    async def _serve(self, client: ZooKeeperClient) -> None:
        """Follow one session until it is lost."""
        changed = asyncio.Event()
        while True:
            changed.clear()
            await client.wait_connected()
            try:
                await self._announce(client, changed.set)
                await self._look(client, changed.set)
            except BrokerIdTakenError as error:
                self._refuse(error)
            except SessionLostError:
                raise
            except ZooKeeperError as error:
                if str(error) != self._problem:
                    logger.warning("the broker is not registered in ZooKeeper yet: %s", error)
                self._problem = str(error)
                await asyncio.sleep(RETRY_S)
                continue
            self._problem = ""
            await self._until_changed(client, changed)

    async def _until_changed(self, client: ZooKeeperClient, changed: asyncio.Event) -> None:
        """Wait for a watch, or for a new connection, which has no watches of the old one."""
        before = client.changed_at
        until = time.monotonic() + HIDDEN_RETRY_S
        while not changed.is_set() and client.changed_at == before:
            if self._hidden and time.monotonic() >= until:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await changed.wait()
            if client.ended.is_set():
                raise SessionLostError("the session with ZooKeeper has ended")

    async def _announce(self, client: ZooKeeperClient, on_change: Callable[[], None]) -> None:
        """Make the znode this session's; one of an earlier start of this broker is replaced.

        Its session may stand for seconds after its process has died. That it is of the same data
        directory, whose lock this process holds, says that the process is gone.
        """
        path = broker_path(self._registration.broker_id)
        found = await client.get(path, watch=on_change)
        if found is not None and found.stat.owner == client.session_id:
            self._note_announced()
            return
        operations: list[Operation] = []
        if found is not None:
            directory = broker_directory(found.data)
            if directory != self._registration.directory_id:
                raise BrokerIdTakenError(
                    f"{path} belongs to another broker that is alive: {found.data[:300]!r}"
                )
            operations.append(Delete(path, found.stat.version))
        else:
            await client.ensure_path(BROKER_IDS)
        value = broker_value(self._registration, time.time_ns() // 1_000_000)
        operations.append(Create(path, value, is_ephemeral=True))
        try:
            await client.multi(operations)
        except MultiError as error:
            raise ZooKeeperError(f"somebody else changes it: {error}") from error
        await client.exists(path, watch=on_change)
        self._note_announced()

    async def _look(self, client: ZooKeeperClient, on_change: Callable[[], None]) -> None:
        """Find the controllers; one whose znode this broker may not read hides no other."""
        await client.ensure_path(CANDIDATES, is_private=True)
        found: dict[str, str] = {}
        hidden: set[str] = set()
        for name in await client.children(CANDIDATES, watch=on_change) or []:
            path = f"{CANDIDATES}/{name}"
            try:
                znode = await client.get(path)
            except AccessDeniedError as error:
                hidden.add(path)
                if path not in self._hidden:
                    logger.warning("a controller's address cannot be read: %s", error)
                if path in self._known:
                    found[path] = self._known[path]
                continue
            candidate = read_candidate(znode.data) if znode is not None else None
            if candidate is not None:
                found[path] = candidate.session_url
        self._hidden = hidden
        if found and found != self._known:
            self._known = found
            self._on_controllers(list(found.values()))

    def _note_announced(self) -> None:
        if not self.announced.done():
            self.announced.set_result(None)

    def _refuse(self, error: BrokerIdTakenError) -> None:
        if not self.announced.done():
            self.announced.set_exception(error)
            # There may be no waiter yet.
            self.announced.exception()
        else:
            logger.error("%s", error)
