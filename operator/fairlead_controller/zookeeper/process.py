"""The life of a candidate on ZooKeeper: stand by, take over, reign, end.

A process that has reigned never becomes a standby again: it ends, and its supervisor starts another
process. It ends at once when another controller is elected, when its session is lost, or when it is
in doubt. While ZooKeeper is not reachable, metadata is frozen: the process stays, brokers serve,
and no leader changes.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, NoReturn

from aiohttp import web

from fairlead_controller.decisions.tables.loading import load_state
from fairlead_controller.decisions.tables.regressions import rolled_back_tables
from fairlead_controller.decisions.tables.stored_table import (
    StoredTable,
    StoreError,
    StoreRolledBackError,
)
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_controller.pages.controller_pages import ControllerPages, Reigning
from fairlead_controller.sessions.door import SessionDoor
from fairlead_controller.sessions.session_gate import SessionGate
from fairlead_controller.sessions.session_tls import OwnSessionTls
from fairlead_controller.stores.metadata_store import SealedError
from fairlead_controller.stores.zookeeper import load_tables
from fairlead_controller.zookeeper.beats import BEATS_PATH, Beats
from fairlead_controller.zookeeper.elector import Elector
from fairlead_controller.zookeeper.memory import CandidateMemory, MemoryFileError
from fairlead_controller.zookeeper.metrics import CandidateMetrics
from fairlead_controller.zookeeper.reign import Reign, TakeoverFailedError, run_reign
from fairlead_controller.zookeeper.settings import CandidateSettings
from fairlead_model.host_address import join_address
from fairlead_model.session.session_protocol import SESSION_PATH
from fairlead_sockets.http_site import HTTP_KEEPALIVE_S, BoundedSite
from fairlead_sockets.listening import bound_port, open_listening_socket
from fairlead_sockets.stop_signals import on_stop_signal
from fairlead_tls.followed_certificate import follow_files
from fairlead_zookeeper.client import ConnectionState, SessionLostError, ZooKeeperClient

logger = logging.getLogger(__name__)

EXIT_FAILED: Final = 1
EXIT_DEPOSED: Final = 3
SEALED_RETRY_S: Final = 0.2
MENDED_RETRY_S: Final = 5.0
"""Pause between two reads of tables that cannot be taken over."""

_CLUSTER: Final[tuple[str, ...]] = ()
"""The key of the only cluster in the gate."""


def end_at_once(reason: str) -> NoReturn:
    """End the process immediately: no work under way continues, and all sockets close."""
    logger.critical("this process must not act any more: %s", reason)
    for handler in logging.getLogger().handlers:
        with suppress(OSError, ValueError):
            handler.flush()
    os._exit(EXIT_DEPOSED)


class Candidate:
    """One candidate's process; made in a running loop."""

    def __init__(self, settings: CandidateSettings, memory: CandidateMemory) -> None:
        self._settings = settings
        self._memory = memory
        self._client = ZooKeeperClient(settings.access)
        self._client.listeners.append(self._on_state)
        self._gate: SessionGate[tuple[str, ...]] = SessionGate(
            lambda key: settings.secret, path=SESSION_PATH, key_of=lambda request: _CLUSTER
        )
        self._beats = Beats(settings.secret, is_holder=lambda: self._is_holder)
        self._lag = LoopLag()
        self._metrics = CandidateMetrics(
            find_reign=lambda: self._reign,
            is_connected=lambda: self._client.state is ConnectionState.CONNECTED,
            waiting_brokers=lambda: self._gate.waiting,
            lag=self._lag,
            certificate=settings.certificate,
        )
        self._elector: Elector | None = None
        self._reign: Reign | None = None
        self._problem = ""
        self._watchdog: asyncio.TimerHandle | None = None
        own = settings.certificate
        self._door = SessionDoor(None if own is None else OwnSessionTls(own))
        self._runners: list[web.AppRunner] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal; return the exit code. OSError if a port is taken."""
        on_stop_signal(self._stopping.set)
        try:
            self._begin(self._lag.run())
            if self._settings.certificate is not None:
                self._begin(follow_files([self._settings.certificate]))
            session_port, http_port = await self._listen()
            record = self._settings.record(session_port, http_port)
            self._client.start()
            self._elector = Elector(
                self._client,
                record,
                self._memory,
                self._settings.secret,
                self._settings.certificate,
            )
            print(
                f"ready candidate session={_shown(self._settings.host, session_port)} "
                f"http={_shown(self._settings.http_host, http_port)} identity={record.identity}",
                flush=True,
            )
            acting = self._begin(self._act(self._elector))
            stopping = self._begin(self._stopping.wait())
            await asyncio.wait({acting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if acting.done():
                acting.result()
            logger.info("stopping: the epoch is given back once nothing acts any more")
            acting.cancel()
            await asyncio.wait({acting})
            await self._elector.release()
        finally:
            await self._close()
        return 0

    @property
    def _is_holder(self) -> bool:
        return self._elector is not None and self._elector.fence is not None

    async def _act(self, elector: Elector) -> None:
        """Stand by and reign; return only by an error."""
        while True:
            try:
                fence = await elector.acquire()
            except SessionLostError:
                end_at_once("the session with ZooKeeper has ended while it stood by")
            keeping = asyncio.create_task(elector.keep())
            keeping.add_done_callback(_on_deposed)
            try:
                await run_reign(
                    self._client,
                    fence,
                    self._settings,
                    remember=self._memory.remember,
                    on_begun=self._open,
                )
            except TakeoverFailedError as error:
                failure = error.cause
            except BaseExceptionGroup as group:
                end_at_once("; ".join(sorted({str(error) for error in _leaves(group)})))
            else:
                end_at_once("the reign has ended")
            finally:
                keeping.remove_done_callback(_on_deposed)
                keeping.cancel()
            await elector.release()
            if isinstance(failure, SealedError):
                # Another candidate was elected, or a seal had no answer in time: no table is wrong.
                logger.warning("the tables are not taken over yet: %s", failure)
                await asyncio.sleep(SEALED_RETRY_S)
            else:
                await self._wait_mended(failure)

    def _open(self, reign: Reign) -> None:
        self._reign, self._problem = reign, ""
        self._gate.open(_CLUSTER, reign.parts.sessions)

    async def _wait_mended(self, error: StoreError) -> None:
        """Return once the tables can be taken over; other candidates may try meanwhile.

        Also return when the session has ended: no read would ever succeed again.
        """
        while True:
            if str(error) != self._problem:
                logger.error("the tables cannot be taken over: %s", error)
            self._problem = str(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(MENDED_RETRY_S):
                    await self._client.ended.wait()
                return
            try:
                tables = await load_tables(self._client)
                # In a thread: many tables take seconds, during which the pages have to answer.
                await asyncio.to_thread(_check_tables, tables)
            except StoreError as found:
                error = found
            else:
                # Another candidate may be faster now, and this process stand by for months.
                self._problem = ""
                return

    def _on_state(self, state: ConnectionState) -> None:
        """Refuse new brokers while this process cannot know whether it is still the controller."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if state is ConnectionState.LOST:
            return  # `keep`, or `acquire` after `_wait_mended`, ends the process.
        if state is ConnectionState.CONNECTED:
            if self._reign is not None:
                self._gate.open(_CLUSTER, self._reign.parts.sessions)
            return
        timeout_s = self._settings.access.session_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        self._watchdog = loop.call_later(timeout_s, self._gate.close, _CLUSTER)

    def _describe(self) -> dict[str, Any]:
        elector = self._elector
        reign = self._reign
        problem = self._problem or (elector.problem if elector is not None else "")
        return {
            "role": "standby" if reign is None else "active",
            "identity": self._settings.identity,
            "controller": "" if elector is None else elector.holder,
            "hearsController": elector is not None and elector.hears_holder,
            "problem": problem or (reign.store.problem if reign is not None else "") or None,
            "storeAvailable": self._client.state is ConnectionState.CONNECTED
            and (reign is None or reign.store.is_available),
        }

    def _find_parts(self) -> Reigning | None:
        return None if self._reign is None else self._reign.parts

    async def _listen(self) -> tuple[int, int]:
        settings = self._settings
        application = self._gate.build_application()
        application.router.add_get(BEATS_PATH, self._beats.serve)
        runner = await self._set_up(application)
        _, session_port = await self._door.listen(runner, settings.host, settings.session_port)
        pages = ControllerPages(
            find_reign=self._find_parts, metrics=self._metrics.text, describe=self._describe
        )
        runner = await self._set_up(pages.build_application())
        listening = open_listening_socket(settings.http_host, settings.http_port)
        await BoundedSite(runner, listening).start()
        return session_port, bound_port(listening)

    async def _set_up(self, application: web.Application) -> web.AppRunner:
        runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=0.2,
            keepalive_timeout=HTTP_KEEPALIVE_S,
        )
        await runner.setup()
        self._runners.append(runner)
        return runner

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._reign is not None:
            await self._reign.parts.sessions.close()
        await self._door.close()
        for runner in self._runners:
            await runner.cleanup()
        await self._client.stop()

    def _begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task


def _check_tables(tables: dict[str, StoredTable]) -> None:
    """Raise the StoreError that prevents a takeover of these tables."""
    if CLUSTER_TABLE not in tables:
        return
    if finding := rolled_back_tables(tables):
        raise StoreRolledBackError(finding)
    load_state(tables, controller_epoch=0)


def _shown(host: str, port: int) -> str:
    return join_address(host or "0.0.0.0", port)  # noqa: S104


def _on_deposed(keeping: "asyncio.Task[str]") -> None:
    if not keeping.cancelled():
        error = keeping.exception()
        end_at_once(repr(error) if error is not None else keeping.result())


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


async def run_candidate(settings: CandidateSettings) -> int:
    """Run a candidate until SIGTERM or SIGINT; return the exit code.

    Prints `ready candidate session=HOST:PORT http=HOST:PORT identity=…` once it listens, whether it
    stands by or reigns. A process that has reigned never stands by again: it ends with the code 3
    when it is deposed or in doubt, and its supervisor starts another process. 1: it cannot listen,
    or its folder is not available.
    """
    try:
        memory = CandidateMemory(settings.data)
    except MemoryFileError as error:
        print(f"fairlead-controller: {error}", file=sys.stderr)
        return EXIT_FAILED
    try:
        return await Candidate(settings, memory).run()
    except OSError as error:
        print(f"fairlead-controller: cannot listen: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        memory.close()
