"""One broker process: its parts in the order in which they start and stop.

The order is what makes a stop clean and a start safe, so it stands here in one piece and nowhere
else; each part knows nothing of the others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.broker import Broker
from fairlead_broker.clock import SystemClock
from fairlead_broker.handlers.registry import load_handlers
from fairlead_broker.http.readiness import Phase, Readiness
from fairlead_broker.limits import DISK_THREADS, REQUEST_MEMORY_BYTES
from fairlead_broker.log.directory_identity import ForeignDirectoryError
from fairlead_broker.log.directory_lock import DirectoryInUseError
from fairlead_broker.log.log_directory import LogDirectory
from fairlead_broker.tasks.background import Background
from fairlead_broker.tasks.checkpoints import high_watermarks
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.calls import Method
from fairlead_model.ids import NO_BROKER_EPOCH
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.http.server import HttpServer
    from fairlead_broker.log.recovery_pool import RecoveryProgress
    from fairlead_broker.net.server import Server
    from fairlead_broker.session.controller_session import ControllerSession
    from fairlead_broker.settings import Settings
    from fairlead_broker.supervisor_pipe import SupervisorPipe
    from fairlead_model.cluster import ClusterDelta, ClusterImage
    from fairlead_model.log_config import LogConfig

logger = logging.getLogger(__name__)

CONTROLLER_WAIT_S: Final = 10.0
"""How often a broker without controller says that it waits for one."""
SHUTDOWN_CALL_TIMEOUT_MS: Final = 2_000
LEADERS_LEAVE_S: Final = 5.0
"""How long a stopping broker waits for its leaders to be moved."""
REPLY_GRACE_S: Final = 1.0


class StartError(Exception):
    """The broker cannot start; the text is for whoever started it."""


class _StoppedWhileLoadingError(Exception):
    """Raised in the loading thread, so that a stop need not wait for a long recovery."""


class BrokerProcess:
    """`run` starts everything, waits for a signal, and stops everything."""

    def __init__(
        self,
        settings: Settings,
        *,
        on_ready: Callable[[str], None],
        supervisor: SupervisorPipe | None = None,
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._on_ready = on_ready
        self._started_s = time.monotonic()
        self._clock = SystemClock()
        self._readiness = Readiness()
        self._stop = asyncio.Event()
        self._executor = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="disk")
        self._http: HttpServer | None = None
        self._http_port = 0
        self._directory: LogDirectory
        self._broker: Broker
        self._server: Server
        self._session: ControllerSession
        self._background: Background
        self._secret: bytes
        self._has_image = False
        self._unclean: list[tuple[str, int]] = []
        self._is_recovered_whole = False

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. StartError if it can't serve at all."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._directory = self._open_directory()
        try:
            await self._start_http()
            if await self._load():
                await self._serve()
            else:
                self._directory.close(clean=False)
                logger.info("stopped before all logs were open")
        finally:
            if self._http is not None:
                await self._http.stop()
            self._executor.shutdown()

    # Starting.

    def _open_directory(self) -> LogDirectory:
        try:
            return LogDirectory.open(self._settings.log_directory, node_id=self._settings.node_id)
        except (DirectoryInUseError, ForeignDirectoryError) as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(f"log.dirs={self._settings.log_directory}: {error}") from error

    async def _start_http(self) -> None:
        if self._settings.http is None:
            return
        from fairlead_broker.http.server import HttpServer

        self._http = HttpServer(self._readiness)
        try:
            self._http_port = await self._http.start(self._settings.http)
        except OSError as error:
            self._http = None
            address = self._settings.http
            raise StartError(f"HTTP at {address.host}:{address.port}: {error.strerror}") from error

    async def _load(self) -> bool:
        """Open all logs in a thread, so that probes are answered however long it takes.

        False if the stop signal came meanwhile: what was recovered is recovered again next time.
        """
        loading = asyncio.get_running_loop().run_in_executor(
            self._executor,
            partial(
                self._directory.load,
                self._clock.now_ms(),
                config_for=self._config_before_image(),
                recovery_workers=self._settings.recovery_processes,
                on_progress=self._note_recovery,
            ),
        )
        load_handlers()
        try:
            report = await loading
        except _StoppedWhileLoadingError:
            return False
        for (topic, index), reason in report.offline.items():
            logger.error("replica %s-%d is offline: %s", topic, index, reason)
        logger.info("%d logs are open, %d of them recovered", report.loaded, len(report.recovered))
        self._unclean = report.unclean
        self._recovery_processes_lost = report.recovery_processes_lost
        # Without the marker of a clean stop: did the process before lose anything it had written?
        # The controller compares the rest: same disk, same boot, same pod, same broker epoch.
        self._is_recovered_whole = not self._directory.start.was_clean and report.is_whole
        return not self._stop.is_set()

    def _config_before_image(self) -> Callable[[str, int], LogConfig]:
        """Until the image is here, every log has the broker's defaults."""
        config = self._settings.log_config({})
        return lambda topic, index: config

    def _note_recovery(self, progress: RecoveryProgress) -> None:
        """Called in the loading thread; replacing a dictionary is atomic."""
        if self._stop.is_set():
            raise _StoppedWhileLoadingError
        self._readiness.progress = {
            "logs": progress.logs_total,
            "logs_done": progress.logs_done,
            "bytes": progress.bytes_total,
            "bytes_done": progress.bytes_done,
        }

    async def _serve(self) -> None:
        self._broker = Broker(
            settings=self._settings,
            clock=self._clock,
            log_directory=self._directory,
        )
        self._broker.metrics.recovery_processes_lost = self._recovery_processes_lost
        self._secret = self._read_secret()
        self._bind()
        self._background = Background(self._broker, self._executor, self._secret)
        self._readiness.progress = {}
        self._readiness.phase = Phase.REGISTERING
        try:
            await self._join_cluster()
            if not self._stop.is_set():
                self._open_for_clients()
                await self._stop.wait()
        finally:
            await self._shut_down()

    def _bind(self) -> None:
        """Take the ports before registering, because the addresses are part of it."""
        from fairlead_broker.net.server import Server, ServerLimits

        settings = self._settings
        request_memory = settings.queued_max_request_bytes
        limits = ServerLimits(
            connections_max=settings.max_connections,
            connections_per_ip_max=settings.max_connections_per_ip,
            connection_creations_per_s=settings.max_connection_creation_rate,
            idle_s=max(settings.connections_max_idle_ms // 1000, 1),
            frame_size_max=settings.socket_request_max_bytes,
            request_memory_bytes=request_memory if request_memory >= 0 else REQUEST_MEMORY_BYTES,
            listen_backlog=settings.socket_listen_backlog_size,
            send_buffer_bytes=settings.socket_send_buffer_bytes,
            receive_buffer_bytes=settings.socket_receive_buffer_bytes,
        )
        self._server = Server(self._broker, settings.listeners, limits, cluster_secret=self._secret)
        try:
            self._server.bind()
        except OSError as error:
            wanted = ", ".join(f"{each.host}:{each.port}" for each in settings.listeners)
            raise StartError(f"cannot listen on {wanted}: {error.strerror}") from error

    async def _join_cluster(self) -> None:
        from fairlead_broker.session.controller_session import ControllerSession
        from fairlead_broker.session.link import SessionRefusedError
        from fairlead_broker.supervisor_pipe import DrillFaults

        self._session = ControllerSession(
            self._settings.controller_sessions,
            self._secret,
            self._registration(),
            self._publish,
            cluster_id=self._directory.cluster_id,
            is_ready=False,
            unclean=self._unclean,
            faults=DrillFaults(self._supervisor, is_enabled=self._settings.drills_enable),
        )
        self._broker.controller = self._session
        await self._session.start()
        while not self._stop.is_set():
            try:
                await self._unless_stopped(self._session.wait_registered(CONTROLLER_WAIT_S))
                break
            except TimeoutError:
                where = ", ".join(self._settings.controller_sessions)
                logger.warning("still waiting for a controller at %s", where)
            except SessionRefusedError as error:
                raise StartError(f"the controller refuses this broker: {error}") from error
        await self._unless_stopped(self._wait_in_service())

    def _publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if not self._has_image:
            # Before the first append: from here on a crash must find no marker of a clean stop.
            self._directory.assign_cluster_id(image.cluster_id)
            self._directory.confirm_start(self._session.broker_epoch)
            self._has_image = True
        self._broker.publish(delta, image)

    async def _wait_in_service(self) -> None:
        """Have the controller elect leaders here, and be one before clients hear of it."""
        await self._broker.replicas.settled()
        self._background.start_replicating()
        self._session.set_ready()
        while True:
            await self._broker.replicas.settled()
            if self._broker.image.is_live(self._settings.node_id):
                return
            await self._broker.image_changed()

    async def _unless_stopped(self, coroutine: Any) -> None:
        """Wait for something, but no longer than until the stop signal."""
        task = asyncio.ensure_future(coroutine)
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()

    def _registration(self) -> BrokerRegistration:
        start = self._directory.start
        return BrokerRegistration(
            broker_id=self._settings.node_id,
            endpoints=tuple(
                Endpoint(
                    name=listener.name,
                    host=listener.advertised_host,
                    port=listener.advertised_port,
                    is_internal=listener.is_internal,
                )
                for listener in self._server.listeners
            ),
            host_name=self._settings.host_name or socket.gethostname(),
            rack=self._settings.rack,
            directory_id=start.directory_id,
            start_id=start.start_id,
            boot_id=start.boot_id,
            pod_uid=os.environ.get("POD_UID", ""),
            is_clean=start.was_clean,
            previous_broker_epoch=start.previous_broker_epoch,
            is_recovered_whole=self._is_recovered_whole,
            min_insync_replicas=self._settings.log_config({}).min_insync_replicas,
        )

    def _read_secret(self) -> bytes:
        path = self._settings.cluster_secret_file
        try:
            return Path(path).read_bytes().strip()
        except OSError as error:
            raise StartError(f"fairlead.cluster.secret.file={path}: {error.strerror}") from error

    def _open_for_clients(self) -> None:
        self._background.start()
        self._broker.producer_ids.maybe_refill()
        self._server.start()
        self._readiness.phase = Phase.SERVING
        if self._http is not None:
            self._http.metrics.broker = self._broker
            self._http.metrics.session = self._session
        addresses = " ".join(
            f"{'internal' if each.is_internal else 'kafka'}="
            f"{each.advertised_host}:{each.advertised_port}"
            for each in self._server.listeners
        )
        http = "" if self._http is None else f" http={self._http_port}"
        took_ms = int((time.monotonic() - self._started_s) * 1000)
        self._on_ready(
            f"ready node.id={self._settings.node_id} {addresses}{http} "
            f"partitions={len(self._broker.partitions)} after_ms={took_ms}"
        )

    # Stopping.

    async def _shut_down(self) -> None:
        self._readiness.phase = Phase.STOPPING
        logger.info("stopping")
        if hasattr(self, "_session"):
            await self._leave_cluster()
        self._broker.replicas.stop()
        self._broker.group_coordinator.stop()
        await self._server.stop(grace_s=REPLY_GRACE_S)
        await self._background.stop()
        self._broker.deletion_confirmer.stop()
        if self._has_image:
            await self._background.flusher.flush_all()
            self._directory.high_watermarks = high_watermarks(self._broker)
        is_clean = await asyncio.to_thread(
            self._directory.close,
            clean=self._has_image,
            broker_epoch=self._session.broker_epoch if self._has_image else NO_BROKER_EPOCH,
            now_ms=self._clock.now_ms(),
        )
        logger.info("stopped %s", "cleanly" if is_clean else "without a clean-shutdown marker")

    async def _leave_cluster(self) -> None:
        """Leaders leave first, while clients can still be told where they went."""
        deadline_s = time.monotonic() + LEADERS_LEAVE_S
        try:
            while self._session.is_connected and time.monotonic() < deadline_s:
                reply = await self._session.call(
                    Method.CONTROLLED_SHUTDOWN, {}, timeout_ms=SHUTDOWN_CALL_TIMEOUT_MS
                )
                if not reply["remaining_leaders"]:
                    break
                await asyncio.sleep(0.05)
        except KafkaError as error:
            logger.warning("stopping without a controlled shutdown: %s", error)
        await self._session.stop()
