"""The life of a candidate: watch, stand by, win the Lease, reign, end.

A process that has held the Lease never becomes a standby again: it ends, and something starts
another one. Losing the Lease, or being in doubt, ends it at once, whatever it has in hand. While
the API server is away metadata is frozen; the Lease cannot be renewed then either, so the process
ends before somebody else could hold the Lease, by its own clock, and brokers serve on.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, NoReturn

from aiohttp import web

from fairlead_controller.candidate.admin_api import AdminApi
from fairlead_controller.candidate.elector import Elector
from fairlead_controller.candidate.metrics import CandidateMetrics
from fairlead_controller.candidate.pages import Pages
from fairlead_controller.candidate.reign import Reign, Surroundings
from fairlead_controller.candidate.reigns import Reigns
from fairlead_controller.candidate.session_gate import ClusterKey, SessionGate
from fairlead_controller.candidate.settings import CandidateSettings
from fairlead_controller.candidate.watches import Watches
from fairlead_controller.kube.client import KubeClient
from fairlead_controller.kube.credentials import Credentials
from fairlead_controller.loop_lag import LoopLag

logger = logging.getLogger(__name__)

EXIT_DEPOSED: Final = 3
INFORMER_AGE_S_MAX: Final = 180.0
"""An informer that is older than this while the API server answers is wedged."""


def end_at_once(reason: str) -> NoReturn:
    """End the process here and now: nothing that is under way goes on, all sockets break."""
    logger.critical("this process must not act any more: %s", reason)
    for handler in logging.getLogger().handlers:
        with suppress(OSError, ValueError):
            handler.flush()
    os._exit(EXIT_DEPOSED)


class Candidate:
    """Made in a running loop."""

    def __init__(self, settings: CandidateSettings, credentials: Credentials) -> None:
        self._settings = settings
        self._client = KubeClient(credentials)
        # Of its own: renewals wait behind nothing.
        self._lease_client = KubeClient(credentials, request_timeout_s=1.0)
        self._elector = Elector(
            self._lease_client, settings.namespace, settings.lease, settings.identity
        )
        self._watches = Watches(
            self._client,
            settings.watch_namespace,
            on_clusters=self._on_clusters,
            on_machines=self._on_machines,
        )
        self._gate = SessionGate(self._watches.find_secret)
        self._reigns = Reigns(
            self._watches.clusters.objects,
            lambda: self._watches.clusters.is_synced,
            Surroundings(
                client=self._client,
                gate=self._gate,
                check_lease=self._check_lease,
                on_deposed=end_at_once,
                find_secret=self._watches.find_secret,
                locate=self._watches.locate,
                plan_drains=self._watches.drains_of,
                expected_brokers=self._watches.expected_brokers,
            ),
            namespace=settings.watch_namespace,
        )
        self._lag = LoopLag()
        self._metrics = CandidateMetrics(
            clients={"lease": self._lease_client, "main": self._client},
            informers=self._watches.by_kind,
            reigns=self._reigns.by_key,
            gate=self._gate,
            lag=self._lag,
        )
        self._api = AdminApi(self)
        self._runners: list[web.AppRunner] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._stopping = asyncio.Event()
        self._lost_because = ""

    @property
    def is_active(self) -> bool:
        """Whether this process may act at this moment."""
        return self._elector.is_held()

    def find_reign(self, key: ClusterKey) -> Reign | None:
        """Give the reign of a cluster, if there is one here."""
        return self._reigns.by_key.get(key)

    def describe(self) -> dict[str, Any]:
        """Give role, identity and reigns, for the pod's other process and for people."""
        return {
            "role": "active" if self.is_active else "standby",
            "identity": self._settings.identity,
            "leaseHolder": self._elector.holder,
            "clusters": {
                f"{namespace}/{name}": {
                    "controllerEpoch": reign.controller_epoch,
                    "storeAvailable": reign.is_store_available,
                    "problem": reign.problem or None,
                }
                for (namespace, name), reign in sorted(self._reigns.by_key.items())
            },
        }

    async def run(self) -> int:
        """Run until a signal; give the exit code. OSError if a port is taken."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        try:
            for informer in self._watches.by_kind.values():
                self._begin(informer.run())
            self._begin(self._lag.run())
            ports = await self._listen()
            print(f"ready candidate {ports} identity={self._settings.identity}", flush=True)
            if await self._unless_stopping(self._elector.acquire()):
                await self._reign()
        finally:
            await self._close()
        return 0

    async def _reign(self) -> None:
        logger.info("%s holds the Lease", self._settings.identity)
        reigning = asyncio.create_task(self._reigns.run())
        reigning.add_done_callback(_on_ended)
        if await self._unless_stopping(self._elector.keep()):
            end_at_once(self._lost_because)
        logger.info("stopping: the Lease is given back once nothing acts any more")
        reigning.cancel()
        with suppress(asyncio.CancelledError):
            await reigning
        await self._elector.release()

    async def _unless_stopping(self, work: Coroutine[Any, Any, object]) -> bool:
        """Wait for work or a signal to stop; tell whether the work is done."""
        working = self._begin(work)
        stopping = self._begin(self._stopping.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stopping.is_set():
            return False
        self._lost_because = str(await working)
        return True

    def _check_lease(self) -> None:
        if not self._elector.is_held():
            end_at_once("the Lease is over, by the clock of this process")

    def _on_clusters(self) -> None:
        self._reigns.look_again()

    def _on_machines(self) -> None:
        for reign in self._reigns.by_key.values():
            if reign.government is not None:
                reign.government.drains.look_again()

    def _problems(self) -> list[str]:
        """Give what only a restart can cure."""
        if self._client.counters.failing_since is not None:
            return []
        return [
            f"{kind}s have not been followed for {informer.age_s:.0f} s"
            for kind, informer in self._watches.required.items()
            if informer.is_synced and informer.age_s > INFORMER_AGE_S_MAX
        ]

    def _is_ready(self) -> bool:
        return all(informer.is_synced for informer in self._watches.required.values())

    async def _metrics_text(self) -> bytes:
        self._metrics.is_lease_held = self._elector.is_held()
        return await self._metrics.text()

    async def _listen(self) -> str:
        pages = Pages(
            describe=self.describe,
            problems=self._problems,
            is_ready=self._is_ready,
            find_reign=self.find_reign,
            metrics=self._metrics_text,
        )
        settings = self._settings
        session = await self._serve(self._gate.build_application(), settings.session_port)
        http = await self._serve(pages.build_application(), settings.http_port)
        await self._api.start(settings.socket)
        return f"session={session} http={http}"

    async def _serve(self, application: web.Application, port: int) -> str:
        runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=0.2
        )
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, self._settings.host, port).start()
        host, bound = runner.addresses[0][:2]
        return f"{host}:{bound}"

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for runner in self._runners:
            await runner.cleanup()
        await self._api.stop()
        await self._client.close()
        await self._lease_client.close()

    def _begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(_on_ended)
        return task


def _on_ended(task: "asyncio.Task[Any]") -> None:
    """Nothing here may end by an error: half a candidate is worse than none."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.error("a part of this process failed", exc_info=error)
        end_at_once(repr(error))


async def run_candidate(settings: CandidateSettings, credentials: Credentials) -> int:
    """Run one; give the exit code."""
    try:
        return await Candidate(settings, credentials).run()
    except OSError as error:
        print(f"fairlead-candidate: cannot listen: {error}", file=sys.stderr)
        return 1
