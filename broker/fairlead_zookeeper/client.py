"""ZooKeeper for asyncio: a session, requests as coroutines, multis whose results are all checked.

kazoo has its own threads, one of which talks to the server. Every answer and every change of the
connection is passed to the event loop; nothing here blocks the loop.

This class prevents some behaviour of kazoo:

* A request without a connection waits in kazoo, without a limit, and is sent once there is a
  connection. So this class issues no request without a connection: a write fails
  (`NotConnectedError`), and a read may wait for `connected`. If the connection breaks at that
  moment, a request may still be sent late: every write has to be harmless then.
* `commit` of a transaction returns errors as values. `multi` raises `MultiError`, which names the
  operation.
* Between two attempts to connect, kazoo waits up to an hour; here, half a second.
* The client never connects to read-only servers: an old tree is worse than no tree.

A broken connection does not end the session. The session ends (`ConnectionState.LOST`) when a
server says so, or when it is closed. A client without a server does not learn of the end, so its
user needs a clock.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.states import KazooState
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Permissions, make_acl

from fairlead_zookeeper.address import ZooKeeperAccess
from fairlead_zookeeper.operations import (
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    Stat,
    Znode,
)

logger = logging.getLogger(__name__)

CONNECT_RETRY: Final = {
    "max_tries": -1,
    "delay": 0.1,
    "backoff": 1,
    "max_delay": 0.5,
    "max_jitter": 0.4,
}
REQUEST_BYTES_MAX: Final = 1_000_000
"""Below `jute.maxbuffer` of 1,048,575 bytes; a server closes a connection that exceeds that."""
STOP_S_MAX: Final = 5.0
"""How long `stop` waits for the end of the session; kazoo may wait forever."""

_LOST: Final = (SessionExpiredError, ConnectionClosedError, AuthFailedError)
_IN_DOUBT: Final = (ConnectionLoss, OperationTimeoutError)
_NOT_THE_CULPRIT: Final = (RolledBackError, RuntimeInconsistency)


class ZooKeeperError(Exception):
    """A request failed; the text names the path."""


class NotConnectedError(ZooKeeperError):
    """There is no connection: the request was not sent."""


class InDoubtError(ZooKeeperError):
    """The connection broke, or no answer came in time: the server may still do the request."""


class SessionLostError(ZooKeeperError):
    """The session has ended: no further request of this client is done."""


class AccessDeniedError(ZooKeeperError):
    """The ACL of a znode does not let this user read it."""


class MultiError(ZooKeeperError):
    """A multi failed; none of its operations was done."""

    def __init__(self, operation: Operation, index: int, cause: KazooException) -> None:
        super().__init__(f"{operation.path}: {type(cause).__name__}")
        self.operation = operation
        self.index = index
        """Index of the refused operation."""
        self.cause = cause


class ConnectionState(Enum):
    """State of the session, as far as this client knows."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """There is no connection (yet); the session may be alive."""
    LOST = "lost"
    """The session has ended, and its ephemeral znodes are deleted."""


class ZooKeeperClient:
    """One session. Create it in a running loop; `start` begins to connect and returns at once."""

    def __init__(self, access: ZooKeeperAccess) -> None:
        self.access = access
        self.listeners: list[Callable[[ConnectionState], None]] = []
        """Called on the loop when the state changes."""
        self.state = ConnectionState.SUSPENDED
        self.connected = asyncio.Event()
        """Set while there is a connection."""
        self.ended = asyncio.Event()
        """Set once the session is lost; then this client cannot be used any more."""
        self.changed_at = time.monotonic()
        """Time of the last change of the state."""
        self._loop = asyncio.get_running_loop()
        self._public, self._private = _acls(access)
        self._kazoo = KazooClient(
            hosts=",".join(access.hosts),
            timeout=access.session_timeout_ms / 1000,
            connection_retry=dict(CONNECT_RETRY),
            auth_data=[("digest", access.digest)] if access.digest else None,
            randomize_hosts=True,
            logger=_kazoo_logger(),
        )
        self._kazoo.add_listener(self._on_kazoo_state)
        self._is_stopping = False

    @property
    def session_id(self) -> int:
        """The session's id, as in the owner of an ephemeral znode; 0 before there is one."""
        known = self._kazoo.client_id
        return int(known[0]) if known else 0

    def start(self) -> None:
        """Begin to connect; failed attempts are repeated forever."""
        self._kazoo.start_async()

    async def wait_connected(self) -> None:
        """Return once there is a connection; SessionLostError if there will never be one."""
        waiting = [
            asyncio.ensure_future(self.connected.wait()),
            asyncio.ensure_future(self.ended.wait()),
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        if self.ended.is_set():
            raise SessionLostError("the session with ZooKeeper has ended")

    async def stop(self) -> None:
        """End the session; a server that receives this deletes its ephemeral znodes at once."""
        self._is_stopping = True
        stopped = asyncio.Event()
        # A daemon thread of its own: kazoo may wait forever, and the process's end must not.
        work = threading.Thread(target=self._stop, args=(stopped.set,), daemon=True)
        work.start()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await stopped.wait()
        except TimeoutError:
            logger.warning("the session with ZooKeeper could not be ended in time")

    async def get(self, path: str, *, watch: Callable[[], None] | None = None) -> Znode | None:
        """Read a znode; None if it does not exist. `watch` is called once when it changes.

        A watch of a znode that does not exist is called when it is created.
        """
        full, watcher = self._full(path), self._watcher(watch)
        try:
            data, stat = await self._ask(path, self._kazoo.get_async, full, watcher)
        except _NoNodeError:
            if watch is not None and await self.exists(path, watch=watch):
                return await self.get(path, watch=watch)
            return None
        return Znode(data or b"", _stat(stat))

    async def is_there(self, path: str) -> bool:
        """Tell whether a znode exists, also if this user may not read it.

        Newer servers let only those ask who may read it, and refuse only what exists.
        """
        return await self._is_there(path, self._full(path))

    async def exists(self, path: str, *, watch: Callable[[], None] | None = None) -> Stat | None:
        """Return a znode's statistics; None if it does not exist."""
        call = self._kazoo.exists_async
        found = await self._ask(path, call, self._full(path), self._watcher(watch))
        return None if found is None else _stat(found)

    async def children(
        self, path: str, *, watch: Callable[[], None] | None = None
    ) -> list[str] | None:
        """Return the names below a znode, sorted; None if it does not exist."""
        call = self._kazoo.get_children_async
        try:
            found = await self._ask(path, call, self._full(path), self._watcher(watch))
        except _NoNodeError:
            return None
        return sorted(found)

    async def is_public(self, path: str) -> bool:
        """Tell whether everybody may read a znode; no if it does not exist."""
        try:
            acls, _ = await self._ask(path, self._kazoo.get_acls_async, self._full(path))
        except _NoNodeError:
            return False
        return any(each.id.scheme == "world" and each.perms & Permissions.READ for each in acls)

    async def sync(self, path: str = "/") -> None:
        """Ensure that the next read sees everything that was committed before this call."""
        await self._ask(path, self._kazoo.sync_async, self._full(path) or "/")

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        """Do all operations or none; return the result of each.

        MultiError if one was refused; NotConnectedError, InDoubtError, SessionLostError.
        """
        return await self.commit(operations, self.prepare(operations))

    def prepare(self, operations: Sequence[Operation]) -> TransactionRequest:
        """Build a multi for `commit`. It takes long for a large one: use another thread then."""
        transaction = TransactionRequest(self._kazoo)
        for operation in operations:
            path = self._full(operation.path)
            match operation:
                case Create():
                    acl = self._private if operation.is_private else self._public
                    transaction.create(path, operation.value, acl, operation.is_ephemeral)
                case SetData():
                    transaction.set_data(path, operation.value, operation.version)
                case Delete():
                    transaction.delete(path, operation.version)
                case Check():
                    transaction.check(path, operation.version)
        return transaction

    async def commit(
        self, operations: Sequence[Operation], prepared: TransactionRequest
    ) -> list[Any]:
        """Send a multi that `prepare` has built; results and errors are those of `multi`."""
        results = await self._ask(operations[0].path, prepared.commit_async)
        errors = [
            (index, result)
            for index, result in enumerate(results)
            if isinstance(result, KazooException)
        ]
        if not errors:
            return [_stat(each) if hasattr(each, "mzxid") else each for each in results]
        for index, error in errors:
            if not isinstance(error, _NOT_THE_CULPRIT):
                raise MultiError(operations[index], index, error)
        raise ZooKeeperError(f"a multi failed: {errors[0][1]!r}")

    async def ensure_path(self, path: str, *, is_private: bool = False) -> None:
        """Create a znode, its parents and the chroot, as far as they are missing."""
        parts = self._full(path).strip("/").split("/")
        for count in range(1, len(parts) + 1):
            full = "/" + "/".join(parts[:count])
            if not await self._is_there(full, full):
                is_ours = len(full) > len(self.access.chroot)
                ours = self._private if is_private else self._public
                acl = ours if is_ours else OPEN_ACL_UNSAFE
                try:
                    await self._ask(full, self._kazoo.create_async, full, b"", acl)
                except _NodeExistsError:
                    continue

    async def _is_there(self, path: str, full: str) -> bool:
        try:
            return await self._ask(path, self._kazoo.exists_async, full) is not None
        except AccessDeniedError:
            return True

    def _full(self, path: str) -> str:
        return self.access.chroot + path if path != "/" else self.access.chroot or "/"

    def _watcher(self, watch: Callable[[], None] | None) -> Callable[[Any], None] | None:
        if watch is None:
            return None
        return _Watcher(self._hand_over, watch)

    async def _ask(self, path: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Issue a request with kazoo, and wait for its answer."""
        if self.state is ConnectionState.LOST:
            raise SessionLostError(f"{path}: the session with ZooKeeper has ended")
        if self.state is not ConnectionState.CONNECTED:
            raise NotConnectedError(f"{path}: there is no connection to ZooKeeper")
        future: asyncio.Future[Any] = self._loop.create_future()
        answer = call(*arguments)
        answer.rawlink(lambda done: self._hand_over(_settle, future, done))
        try:
            return await future
        except _LOST as error:
            raise SessionLostError(f"{path}: {type(error).__name__}") from error
        except _IN_DOUBT as error:
            raise InDoubtError(f"{path}: {type(error).__name__}") from error
        except NoNodeError as error:
            raise _NoNodeError(path) from error
        except NodeExistsError as error:
            raise _NodeExistsError(path) from error
        except NoAuthError as error:
            raise AccessDeniedError(f"{path}: {type(error).__name__}") from error
        except KazooException as error:
            raise ZooKeeperError(f"{path}: {type(error).__name__}") from error

    def _on_kazoo_state(self, state: str) -> None:
        # Called in kazoo's thread.
        self._hand_over(self._note_state, state)

    def _note_state(self, state: str) -> None:
        if self.state is ConnectionState.LOST:
            return
        self.state = {
            KazooState.CONNECTED: ConnectionState.CONNECTED,
            KazooState.SUSPENDED: ConnectionState.SUSPENDED,
        }.get(state, ConnectionState.LOST)
        self.changed_at = time.monotonic()
        if self.state is ConnectionState.CONNECTED:
            self.connected.set()
        else:
            self.connected.clear()
        if self.state is ConnectionState.LOST:
            self.ended.set()
        if not self._is_stopping:
            logger.info("ZooKeeper at %s: %s", self.access.connect_string, self.state.value)
        for listener in list(self.listeners):
            listener(self.state)

    def _hand_over(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the loop, from any thread; do nothing if the loop is closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _stop(self, on_stopped: Callable[[], None]) -> None:
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except KazooException as error:
            logger.warning("the session with ZooKeeper could not be ended: %r", error)
        self._hand_over(on_stopped)


@dataclass(frozen=True, slots=True)
class _Watcher:
    """A watch in the form for kazoo.

    Two with the same callable are equal. kazoo keeps each watch until its znode changes, which may
    be never, while a controller sets the watch again every few seconds.
    """

    hand_over: Callable[..., None]
    watch: Callable[[], None]

    def __call__(self, event: object) -> None:
        self.hand_over(self.watch)


class _NoNodeError(ZooKeeperError):
    """The znode does not exist."""


class _NodeExistsError(ZooKeeperError):
    """The znode exists already."""


def _settle(future: "asyncio.Future[Any]", done: Any) -> None:
    if future.done():
        return  # The caller has given up.
    if done.exception is not None:
        future.set_exception(done.exception)
    else:
        future.set_result(done.value)


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def _acls(access: ZooKeeperAccess) -> tuple[list[ACL], list[ACL]]:
    """Return the ACLs of Kafka's znodes and of Fairlead's."""
    if not access.sets_acl:
        return OPEN_ACL_UNSAFE, OPEN_ACL_UNSAFE
    creator = make_acl("auth", "", all=True)
    return [creator, make_acl("world", "anyone", read=True)], [creator]


def _kazoo_logger() -> logging.Logger:
    """Return a logger for kazoo, which logs each attempt to connect at the level WARNING."""
    quiet = logging.getLogger("fairlead_zookeeper.kazoo")
    quiet.setLevel(logging.ERROR)
    return quiet
