"""The life of a candidate: watch, stand by, win the Lease, reign, end.

A process that has held the Lease never becomes a standby again: it ends, and its supervisor starts
another process. It ends at once when it loses the Lease or is in doubt, whatever it is doing. While
the API server is not reachable, metadata is frozen and the Lease cannot be renewed. Then the
process ends, by its own clock, before another process can hold the Lease, and brokers go on
serving.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, NoReturn

from aiohttp import web

from fairlead_controller.kubernetes.acting_lock import lock_path, wait_until_idle
from fairlead_controller.kubernetes.admin_api import AdminApi
from fairlead_controller.kubernetes.cluster_tls import ClusterTls
from fairlead_controller.kubernetes.elector import Elector
from fairlead_controller.kubernetes.metrics import CandidateMetrics
from fairlead_controller.kubernetes.pages import Pages
from fairlead_controller.kubernetes.reign import Reign, Surroundings
from fairlead_controller.kubernetes.reigns import Reigns
from fairlead_controller.kubernetes.session_gate import ClusterKey, build_gate
from fairlead_controller.kubernetes.settings import CandidateSettings
from fairlead_controller.kubernetes.supervisor_pipe import find_supervisor
from fairlead_controller.kubernetes.watches import Watches
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_controller.sessions.door import SessionDoor
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_model.host_address import join_address
from fairlead_sockets.http_site import HTTP_KEEPALIVE_S, BoundedSite
from fairlead_sockets.listening import open_listening_socket
from fairlead_sockets.stop_signals import on_stop_signal

logger = logging.getLogger(__name__)

EXIT_DEPOSED: Final = 3
INFORMER_AGE_S_MAX: Final = 180.0
"""If an informer is older than this although the API server answers, something is stuck."""
ACTING_S_MAX: Final = 5.0
"""How long the pod's kopf process may take to end; its supervisor allows it less."""


def end_at_once(reason: str) -> NoReturn:
    """End the process immediately: no work under way continues, and all sockets close."""
    logger.critical("this process must not act any more: %s", reason)
    for handler in logging.getLogger().handlers:
        with suppress(OSError, ValueError):
            handler.flush()
    os._exit(EXIT_DEPOSED)


class Candidate:
    """One candidate's process; made in a running loop."""

    def __init__(self, settings: CandidateSettings, credentials: Credentials) -> None:
        self._settings = settings
        self._client = KubeClient(credentials)
        # A separate client, so that renewals never wait for other requests.
        self._lease_client = KubeClient(credentials, request_timeout_s=1.0)
        self._elector = Elector(
            self._lease_client, settings.namespace, settings.lease, settings.identity
        )
        self._watches = Watches(
            self._client,
            settings.watch_namespaces,
            on_clusters=self._on_clusters,
            on_machines=self._on_machines,
        )
        self._tls = ClusterTls(self._watches.find_tls, self._watches.wants_tls)
        self._gate = build_gate(self._watches.find_secret, self._tls.problem_of)
        self._reigns = Reigns(
            self._watches.clusters.objects,
            lambda: self._watches.clusters.is_synced,
            Surroundings(
                client=self._client,
                gate=self._gate,
                check_lease=self._check_lease,
                confirm_lease=self._elector.confirm,
                find_secret=self._watches.find_secret,
                locate=self._watches.locate,
                plan_drains=self._watches.drains_of,
                expected_brokers=self._watches.expected_brokers,
            ),
            namespaces=settings.watch_namespaces,
        )
        self._lag = LoopLag()
        self._metrics = CandidateMetrics(
            clients={"lease": self._lease_client, "main": self._client},
            find_informers=lambda: self._watches.expected,
            reigns=self._reigns.by_key,
            gate=self._gate,
            find_certificate_end=self._tls.find_end,
            lag=self._lag,
        )
        self._api = AdminApi(
            self,
            supervisor=find_supervisor(os.environ),
            allows_drills=settings.allows_drills,
        )
        self._door: SessionDoor | None = None
        self._runners: list[web.AppRunner] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._stopping = asyncio.Event()
        self._lost_because = ""

    @property
    def is_active(self) -> bool:
        """Whether this process may act at this moment."""
        return self._elector.is_held()

    @property
    def role(self) -> str:
        """The role of the process: standby, active or stopping."""
        if not self.is_active:
            return "standby"
        # While this process stops, the kopf process ends, and may still ask meanwhile.
        return "stopping" if self._stopping.is_set() else "active"

    def find_reign(self, key: ClusterKey) -> Reign | None:
        """Return the reign of a cluster, if there is one here."""
        return self._reigns.by_key.get(key)

    def describe(self) -> dict[str, Any]:
        """Return role, identity and reigns, for processes and people in this pod."""
        return {
            "role": self.role,
            "identity": self._settings.identity,
            "leaseHolder": self._elector.holder,
            "clusters": {
                f"{namespace}/{name}": {
                    "controllerEpoch": reign.controller_epoch,
                    "storeAvailable": reign.is_store_available,
                    "problem": reign.problem or None,
                    "isRolledBack": reign.is_rolled_back,
                    "interruptions": reign.interruptions,
                    "lastInterruption": reign.last_interruption or None,
                }
                for (namespace, name), reign in sorted(self._reigns.by_key.items())
            },
        }

    async def run(self) -> int:
        """Run until a signal; return the exit code. OSError if a port is taken."""
        on_stop_signal(self._stopping.set)
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
        is_idle = await wait_until_idle(lock_path(self._settings.socket), timeout_s=ACTING_S_MAX)
        reigning.cancel()
        with suppress(asyncio.CancelledError):
            await reigning
        if is_idle:
            await self._elector.release()
        else:
            logger.warning("the kopf process of this pod still acts: the Lease has to run out")

    async def _unless_stopping(self, work: Coroutine[Any, Any, object]) -> bool:
        """Wait for work or a signal to stop; tell whether the work has finished."""
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
            if reign.parts is not None:
                reign.parts.drains.look_again()

    def _problems(self) -> list[str]:
        """Return the problems that only a restart of the process can fix."""
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
            role=lambda: self.role,
            problems=self._problems,
            is_ready=self._is_ready,
            metrics=self._metrics_text,
        )
        settings = self._settings
        self._door = SessionDoor(self._tls)
        runner = await self._set_up(self._gate.build_application())
        where, port = await self._door.listen(runner, settings.host, settings.session_port)
        session = join_address(where, port)
        http = await self._serve(pages.build_application(), settings.http_port)
        await self._api.start(settings.socket)
        return f"session={session} http={http}"

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

    async def _serve(self, application: web.Application, port: int) -> str:
        runner = await self._set_up(application)
        listening = open_listening_socket(self._settings.host, port)
        await BoundedSite(runner, listening).start()
        host, bound = runner.addresses[0][:2]
        return join_address(host, bound)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._door is not None:
            await self._door.close()
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
    """End the process if one of its tasks has failed, because it would do only half its work."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.error("a part of this process failed", exc_info=error)
        end_at_once(repr(error))


async def run_candidate(settings: CandidateSettings, credentials: Credentials) -> int:
    """Run a candidate; return the exit code."""
    try:
        return await Candidate(settings, credentials).run()
    except OSError as error:
        print(f"fairlead-candidate: cannot listen: {error}", file=sys.stderr)
        return 1
