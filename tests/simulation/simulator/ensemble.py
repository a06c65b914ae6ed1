"""ZooKeeper as the metadata store: the real store and client, over a simulated ensemble.

kazoo is simulated. A `SimKazoo` is one controller process's connection: its requests arrive and are
answered in order. A multi is done completely or not at all, with ZooKeeper's own checks. Three
servers apply what was committed, each with its own delay: a client reads what its server has, and
newer data only after a sync. When a connection breaks, the outcome of the writes under way is
unknown: they are done now, late, or never. A session from which no server has heard for too long
has ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import (
    APIError,
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import KazooState
from simulator.store import HOST, StoreService, Tables
from simulator.virtual_loop import PROCESS

from fairlead_controller.decisions.tables.stored_table import StoredTable, StoreError
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_controller.stores.table_text import encode_line
from fairlead_controller.stores.zookeeper import ZooKeeperStore
from fairlead_controller.stores.zookeeper_fence import raise_epoch, read_epoch
from fairlead_controller.stores.zookeeper_projections import (
    CONTAINERS,
    Projections,
    is_same_value,
)
from fairlead_controller.stores.zookeeper_tables import KnownTable, read_table
from fairlead_zookeeper.address import ZooKeeperAccess
from fairlead_zookeeper.client import ZooKeeperClient, ZooKeeperError
from fairlead_zookeeper.operations import Stat, Znode
from fairlead_zookeeper.znodes import BROKER_TOPICS, CONTROLLER_EPOCH, TABLES, table_path

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from simulator.network import Network
    from simulator.virtual_loop import Process, VirtualLoop

ACCESS: Final = ZooKeeperAccess(("ensemble:2181",), session_timeout_ms=4000)
SESSION_S: Final = 4.0
NOTICE_S: Final = 1.3
"""How long a cut connection seems healthy: a third of a session without a pong."""
RECONNECT_S: Final = (0.1, 0.5)
LANDS: Final = 0.5
"""The chance that a write whose connection broke is done all the same."""
LATE_S: Final = 4.0
STALL_S: Final = 3.0
LAGS_S: Final = (0.0, 0.05, 1.5)
"""How much each server may lag."""
LOOK_S: Final = 0.1
THREAD_S: Final = 0.0003
SERVERS: Final = 3


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Ensemble(StoreService):
    """The tree as it was last committed, and servers that follow it."""

    def __init__(self, loop: VirtualLoop, network: Network, rng: random.Random) -> None:
        super().__init__(loop, network, rng)
        self.znodes: dict[str, Znode] = {"/": _new(0)}
        self.fail: Callable[..., None] = lambda *_: None
        """Called if a rule is broken here."""
        self.refusals = 0
        """Multis that were not done."""
        self.fates: Counter[str] = Counter()
        """The outcomes of writes whose connection broke."""
        self._is_by_hand = False
        self.zxid = 0
        self._history: list[tuple[float, dict[str, Znode | None]]] = []
        """The changes and the time of each commit; its index is its zxid minus one."""
        self._operators: dict[str, Callable[..., Any]] = {
            "check": self._check,
            "create": self._create,
            "set": self._set,
            "delete": self._delete,
        }
        self.servers = [Server(self, lag) for lag in LAGS_S]
        for path in CONTAINERS:
            self.carry_out([("create", path, b"")])

    def carry_out(self, operations: list[tuple[Any, ...]], by: SimKazoo | None = None) -> list[Any]:
        """Do a whole multi or nothing; return each operation's result, errors as values."""
        changed: dict[str, Znode | None] = {}
        answers: list[Any] = []
        for index, (kind, *arguments) in enumerate(operations):
            try:
                answers.append(self._operators[kind](changed, *arguments))
            except KazooException as error:
                self.refusals += 1
                after = len(operations) - index - 1
                before = [RolledBackError() for _ in range(index)]
                return [*before, error, *(RuntimeInconsistency() for _ in range(after))]
        self._commit(changed, by)
        return [self.stat(each) if isinstance(each, str) else each for each in answers]

    def stat(self, path: str) -> Any:
        return _kazoo_stat(self.znodes[path])

    def changes_since(self, applied: int, until_s: float) -> Iterator[dict[str, Znode | None]]:
        for at_s, changed in self._history[applied:]:
            if at_s > until_s:
                return
            yield changed

    def touch(self, table: str) -> None:
        """Set a table's data again, as a person may do."""
        path = table_path(table)
        self._by_hand(("set", path, self.znodes[path].data, -1))

    def put_back(self, copy: Tables, *names: str) -> None:
        """Delete and create znodes, as a person may do."""
        gone = set(self.tables) - set(copy) if not names else set()
        for name in sorted(gone):
            self._by_hand(("delete", table_path(name), -1))
        for name in names or sorted(copy):
            path, data = table_path(name), _data_of(name, copy[name])
            if path in self.znodes:
                self._by_hand(("delete", path, -1))
            self._by_hand(("create", path, data))

    def edit_by_hand(self) -> str | None:
        """Change or remove one of Kafka's znodes, as a person may do; return which."""
        states = [path for path in self.znodes if path.startswith(f"{BROKER_TOPICS}/")]
        leaves = sorted(path for path in states if path.endswith("/state"))
        if not leaves:
            return None
        path = self.rng.choice(leaves)
        if self.rng.random() < 0.5:
            self._by_hand(("delete", path, -1))
        else:
            self._by_hand(("set", path, b'{"leader": 77}', -1))
        return path

    def wrong_projection(self) -> str | None:
        """Return one of Kafka's znodes that does not match the tables; None if all do."""
        view = Projections()
        view.assume((each.controller_epoch, each.lines) for each in self.tables.values())
        wanted = {change.path: change.value for change in view.wanted()}
        for path, value in wanted.items():
            znode = self.znodes.get(path)
            if value is not None and (znode is None or not is_same_value(value, znode.data)):
                return f"{path} is {znode and znode.data!r}, the tables say {value!r}"
        below = {path for path in self.znodes if path.startswith(f"{BROKER_TOPICS}/")}
        return next((f"{path} has no topic" for path in sorted(below - wanted.keys())), None)

    def _commit(self, changed: dict[str, Znode | None], by: SimKazoo | None) -> None:
        if not changed:
            return
        self.zxid += 1
        for path, znode in changed.items():
            if znode is None:
                self.znodes.pop(path, None)
            else:
                czxid = znode.stat.czxid or self.zxid
                stat = replace(znode.stat, czxid=czxid, mzxid=self.zxid)
                changed[path] = self.znodes[path] = Znode(znode.data, stat)
        self._history.append((self.loop.time(), changed))
        for path in changed:
            if by is not None and path == CONTROLLER_EPOCH:
                by.epoch = int(self.znodes[path].data)
            elif by is not None and by.epoch != int(self.znodes[CONTROLLER_EPOCH].data):
                self.fail("I11: %s was written after its controller was deposed", path)
            if _parent(path) == TABLES:
                self._note_table(path.rpartition("/")[2], self.znodes.get(path))

    def _note_table(self, name: str, znode: Znode | None) -> None:
        """Store a table as the controller would read it; report a controller's to the observer."""
        before = self.tables.pop(name, None)
        if znode is None:
            return
        after = self.tables[name] = read_table(name, znode).stored()
        if self._is_by_hand:
            return
        known = {} if before is None else before.lines
        keys = sorted(known.keys() | after.lines.keys())
        lines = {
            key: after.lines.get(key) for key in keys if known.get(key) != after.lines.get(key)
        }
        version = None if before is None else before.version
        epoch, number = after.controller_epoch, after.write_number
        self.after_write(TableWrite(name, version, epoch, lines, number), before, after)

    def _by_hand(self, *operations: tuple[Any, ...]) -> None:
        """Do operations of a person, who is no controller; they succeed."""
        self._is_by_hand = True
        self.carry_out(list(operations))
        self._is_by_hand = False

    def _see(self, changed: dict[str, Znode | None], path: str) -> Znode:
        found = changed[path] if path in changed else self.znodes.get(path)
        if found is None:
            raise NoNodeError
        return found

    def _check(self, changed: dict[str, Znode | None], path: str, version: int) -> bool:
        if version not in (-1, self._see(changed, path).stat.version):
            raise BadVersionError
        return True

    def _create(self, changed: dict[str, Znode | None], path: str, data: bytes) -> bytes:
        self._see(changed, _parent(path))
        if (changed[path] if path in changed else self.znodes.get(path)) is not None:
            raise NodeExistsError
        changed[path] = _new(0, data)
        return path.encode()

    def _set(self, changed: dict[str, Znode | None], path: str, data: bytes, version: int) -> str:
        self._check(changed, path, version)
        known = self._see(changed, path)
        changed[path] = Znode(data, replace(known.stat, version=known.stat.version + 1))
        return path

    def _delete(self, changed: dict[str, Znode | None], path: str, version: int) -> bool:
        self._check(changed, path, version)
        below = f"{path}/"
        paths = {*self.znodes, *changed}
        if any(each.startswith(below) and changed.get(each, 1) is not None for each in paths):
            raise NotEmptyError
        changed[path] = None
        return True


class Server:
    """The changes that one server has applied."""

    def __init__(self, ensemble: Ensemble, lag_s: float) -> None:
        self.znodes: dict[str, Znode] = {}
        self.applied = 0
        self._ensemble = ensemble
        self._lag_s = lag_s

    def catch_up(self, *, to: int | None = None) -> None:
        """Apply changes that are old enough, and all up to a zxid."""
        loop = self._ensemble.loop
        until_s = loop.time() - self._lag_s
        if to is not None and to > self.applied:
            until_s = loop.time()
        for changed in self._ensemble.changes_since(self.applied, until_s):
            if to is not None and self.applied >= to:
                return
            self.applied += 1
            for path, znode in changed.items():
                if znode is None:
                    self.znodes.pop(path, None)
                else:
                    self.znodes[path] = znode

    def children(self, path: str) -> list[str]:
        if path not in self.znodes:
            raise NoNodeError
        below = path.rstrip("/") + "/"
        return [each[len(below) :] for each in self.znodes if _parent(each) == path and each != "/"]


@dataclass(eq=False)
class _Request:
    """`ask` returns the answer of this connection's server; for a write, it also does it."""

    answer: Answer
    ask: Callable[[Server], Any]
    is_write: bool = False
    is_sync: bool = False
    has_landed: bool = False


class Answer:
    """Replaces kazoo's AsyncResult."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self._listeners: list[Callable[[Answer], None]] = []

    def rawlink(self, listener: Callable[[Answer], None]) -> None:
        self._listeners.append(listener)

    def settle(self, value: Any, error: Exception | None = None) -> None:
        self.value, self.exception = value, error
        for listener in self._listeners:
            listener(self)


class SimKazoo:
    """Replaces `KazooClient`: one process's connection, and its session."""

    ensemble: Ensemble

    def __init__(self, **_: Any) -> None:
        process = PROCESS.get()
        assert process is not None
        self.client_id: tuple[int, bytes] | None = None
        self.epoch = -1
        """The controller epoch to which this session has raised the fence."""
        self._process: Process = process
        self._listeners: list[Callable[[str], None]] = []
        self._server: Server | None = None
        self._heard_s = 0.0
        """When a server last surely heard this session, as far as the ensemble was available."""
        self._is_lost = False
        self._seen = 0
        self._pending: list[_Request] = []
        """Sent over this connection, without an answer."""
        self._unsent: list[_Request] = []
        """Requested while there was no connection that this client knew to be broken."""
        self._busy_until_s = 0.0
        self._retry_at_s = 0.0

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start_async(self) -> None:
        self._heard_s = self.ensemble.loop.time()
        self._later(0.001, self._look)

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def get_async(self, path: str, watch: Any = None) -> Answer:
        def read(server: Server) -> tuple[bytes, Any]:
            znode = server.znodes.get(path)
            if znode is None:
                raise NoNodeError
            return znode.data, _kazoo_stat(znode)

        return self._ask(read)

    def exists_async(self, path: str, watch: Any = None) -> Answer:
        def read(server: Server) -> Any:
            znode = server.znodes.get(path)
            return None if znode is None else _kazoo_stat(znode)

        return self._ask(read)

    def get_children_async(self, path: str, watch: Any = None) -> Answer:
        return self._ask(lambda server: server.children(path))

    def sync_async(self, path: str) -> Answer:
        return self._ask(lambda server: path, is_sync=True)

    def commit_async(self, operations: list[tuple[Any, ...]]) -> Answer:
        return self._ask(lambda _: self.ensemble.carry_out(operations, self), is_write=True)

    def _later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call outside of the process."""
        network = self.ensemble.network
        self.ensemble.loop.call_later(seconds, call, *arguments, context=network.context)

    def _ask(self, ask: Callable[[Server], Any], **kind: bool) -> Answer:
        request = _Request(Answer(), ask, **kind)
        if self._server is None:
            self._unsent.append(request)
        else:
            self._send(request)
        return request.answer

    def _send(self, request: _Request) -> None:
        ensemble, rng = self.ensemble, self.ensemble.rng
        self._pending.append(request)
        now_s = ensemble.loop.time()
        arrives_s = max(now_s + ensemble.travel_s(), self._busy_until_s)
        if request.is_write and rng.random() < ensemble.unknown_chance:
            if rng.random() < 0.5:
                self._later(ensemble.travel_s(), self._break)
            else:
                arrives_s += STALL_S * rng.random()
        self._busy_until_s = arrives_s
        self._later(arrives_s - now_s, self._arrive, request)

    def _arrive(self, request: _Request) -> None:
        server, ensemble = self._server, self.ensemble
        if request not in self._pending or server is None:
            return
        before = self._pending[: self._pending.index(request)]
        if not self._is_reachable() or not all(each.has_landed for each in before):
            # It is sent again, in order, until it arrives or the connection is known as broken.
            self._later(LOOK_S, self._arrive, request)
            return
        value, error = self._carry_out(request, server)
        travel_s = ensemble.travel_s()
        now_s = ensemble.loop.time()
        self._busy_until_s = max(self._busy_until_s, now_s)
        self._later(travel_s, self._answer_in_order, request, value, error)

    def _carry_out(self, request: _Request, server: Server) -> tuple[Any, Exception | None]:
        ensemble = self.ensemble
        request.has_landed = True
        server.catch_up(to=ensemble.zxid if request.is_sync else None)
        is_read = not request.is_write and not request.is_sync
        if is_read and ensemble.rng.random() < ensemble.failure_chance:
            return None, APIError()
        try:
            value = request.ask(server)
        except NoNodeError as error:
            return None, error
        if request.is_write:
            server.catch_up(to=ensemble.zxid)
        self._seen = max(self._seen, server.applied)
        return value, None

    def _answer_in_order(self, request: _Request, value: Any, error: Exception | None) -> None:
        if request not in self._pending:
            return
        before = self._pending[: self._pending.index(request)]
        if any(each.has_landed for each in before):
            self._later(0.0005, self._answer_in_order, request, value, error)
            return
        self._pending.remove(request)
        self._heard_s = self.ensemble.loop.time()
        self._tell(request.answer.settle, value, error)

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call something in the process, if it lives."""
        if self._process.is_alive:
            self._process.call_soon(call, *arguments)

    def _is_reachable(self) -> bool:
        network, name = self.ensemble.network, self._process.name
        is_cut = network.is_cut(name, HOST) or network.is_cut(HOST, name)
        return not self.ensemble.is_away and not is_cut

    def _look(self) -> None:
        """Check the connection, a few times a second."""
        if not self._process.is_alive or self.ensemble.network.is_over:
            self._break()  # Requests that were sent may still arrive.
            return
        ensemble = self.ensemble
        now_s = ensemble.loop.time()
        if ensemble.is_away:
            # Without a leader no session expires; a new leader gives all of them a whole timeout.
            self._heard_s = now_s
        is_reachable = self._is_reachable()
        if self._server is not None:
            if is_reachable and not self._process.is_paused:
                self._heard_s = now_s
            elif ensemble.is_away or now_s - self._heard_s > self._patience_s:
                self._break()
        elif is_reachable and now_s >= self._retry_at_s and not self._process.is_paused:
            self._connect(now_s)
        if not self._is_lost:
            self._later(LOOK_S, self._look)

    @property
    def _patience_s(self) -> float:
        """Time until a cut is noticed: a whole session if the process is paused."""
        return SESSION_S if self._process.is_paused else NOTICE_S

    def _connect(self, now_s: float) -> None:
        if now_s - self._heard_s > SESSION_S:
            self._is_lost = True
            self._tell_state(KazooState.LOST)
            return
        rng = self.ensemble.rng
        server = rng.choice(self.ensemble.servers)
        server.catch_up(to=self._seen)
        self._server, self._heard_s = server, now_s
        self._busy_until_s = now_s
        if self.client_id is None:
            self.client_id = (rng.getrandbits(62), b"")
        self._tell_state(KazooState.CONNECTED)
        unsent, self._unsent = self._unsent, []
        for request in unsent:
            self._send(request)

    def _break(self) -> None:
        """Break the connection; the outcome of requests under way is random."""
        if self._server is None:
            return
        ensemble, rng = self.ensemble, self.ensemble.rng
        server, self._server = self._server, None
        low, high = RECONNECT_S
        self._retry_at_s = ensemble.loop.time() + low + (high - low) * rng.random()
        pending, self._pending = self._pending, []
        self._tell_state(KazooState.SUSPENDED)
        for request in pending:
            fate = rng.random()
            if request.is_write and not request.has_landed:
                ensemble.fates["late" if fate < LANDS else "lost"] += 1
                if fate < LANDS:
                    late_s = LATE_S * rng.random() ** 2
                    self._later(late_s, self._carry_out, request, server)
            self._tell(request.answer.settle, None, ConnectionLoss())

    def _tell_state(self, state: str) -> None:
        for listener in self._listeners:
            self._tell(listener, state)


class SimTransaction:
    """Replaces kazoo's `TransactionRequest`."""

    def __init__(self, kazoo: SimKazoo) -> None:
        self._kazoo = kazoo
        self._operations: list[tuple[Any, ...]] = []

    def create(self, path: str, value: bytes, acl: Any, ephemeral: bool) -> None:
        self._operations.append(("create", path, value))

    def set_data(self, path: str, value: bytes, version: int) -> None:
        self._operations.append(("set", path, value, version))

    def delete(self, path: str, version: int) -> None:
        self._operations.append(("delete", path, version))

    def check(self, path: str, version: int) -> None:
        self._operations.append(("check", path, version))

    def commit_async(self) -> Answer:
        return self._kazoo.commit_async(self._operations)


class SimThread:
    """Replaces the store's thread: its calls run one after another."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def delay_s(self) -> float:
        return THREAD_S

    def submit(self, call: Callable[..., Any], *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(THREAD_S, call, *arguments)

    def shutdown(self, **_: Any) -> None: ...


async def open_elected_store() -> ZooKeeperStore:
    """Win an election like a candidate that sees no controller; StoreError if it is lost."""
    client = ZooKeeperClient(ACCESS)
    client.start()
    try:
        await client.wait_connected()
        await client.sync()
        known = await read_epoch(client)
        fence = await raise_epoch(client, known, known.epoch + 1)
    except ZooKeeperError as error:
        raise StoreError(f"nobody was elected: {error}") from error
    return ZooKeeperStore(client, fence)


def _new(version: int, data: bytes = b"") -> Znode:
    return Znode(data, Stat(version, 0, 0, 0))


def _kazoo_stat(znode: Znode) -> Any:
    stat = znode.stat
    return SimpleNamespace(
        version=stat.version, czxid=stat.czxid, mzxid=stat.mzxid, ephemeralOwner=stat.owner
    )


def _data_of(name: str, table: StoredTable) -> bytes:
    records = {key: encode_line(key, line).encode() for key, line in table.lines.items()}
    epoch, count, number = table.controller_epoch, table.write_count, table.write_number
    return KnownTable(name, -1, -1, epoch, count, number, records).data
