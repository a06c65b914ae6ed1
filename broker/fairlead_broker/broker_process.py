"""One broker process: its parts in the order in which they start and stop.

The order makes a stop clean and a start safe, so it is written down here in one place. The parts
know nothing of each other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.api_registry import load_handlers
from fairlead_broker.broker import Broker
from fairlead_broker.clock import SystemClock
from fairlead_broker.http.readiness import Phase, Readiness
from fairlead_broker.limits import DISK_THREADS, REQUEST_MEMORY_BYTES
from fairlead_broker.log.directory.identity import ForeignDirectoryError
from fairlead_broker.log.directory.lock import DirectoryInUseError
from fairlead_broker.log.directory.log_directories import DuplicateLogError, LogDirectories
from fairlead_broker.log.files.text_files import NewerFormatError
from fairlead_broker.session.leaving import hand_over
from fairlead_broker.session.resumption import resumption_problem
from fairlead_broker.session.role_journal import RoleJournal, roles_in
from fairlead_broker.tasks.background import Background
from fairlead_broker.tasks.checkpoints import high_watermarks
from fairlead_model.broker import (
    REST_ENDPOINT,
    REST_TLS_ENDPOINT,
    BrokerRegistration,
    Endpoint,
)
from fairlead_model.configs.config_key import ConfigError
from fairlead_model.configs.config_values import BROKER_FENCE
from fairlead_model.configs.connection_overrides import (
    CONNECTIONS_PER_IP_OVERRIDES,
    connection_overrides,
)
from fairlead_model.host_address import join_address
from fairlead_model.ids import NO_BROKER_EPOCH
from fairlead_model.session.session_protocol import take_secret
from fairlead_sockets.stop_signals import on_stop_signal
from fairlead_zookeeper.access_settings import DIGEST_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairlead_broker.http.server import HttpServer
    from fairlead_broker.log.recovery.pool import RecoveryProgress
    from fairlead_broker.net.logins import Logins
    from fairlead_broker.net.server import Server
    from fairlead_broker.net.tls_listeners import TlsListeners
    from fairlead_broker.net.transport import OpenTransport
    from fairlead_broker.rest.server import RestServer
    from fairlead_broker.session.controller_session import ControllerSession
    from fairlead_broker.session.resumption import Roles
    from fairlead_broker.session.supervisor_pipe import SupervisorPipe
    from fairlead_broker.session.zookeeper_registration import ZooKeeperRegistration
    from fairlead_broker.settings import Settings
    from fairlead_model.cluster import ClusterDelta, ClusterImage
    from fairlead_model.configs.log_config import LogConfig
    from fairlead_zookeeper.access_settings import AccessSettings
    from fairlead_zookeeper.address import ZooKeeperAccess

logger = logging.getLogger(__name__)

GO_ON_AFTER_S: Final = 0.3
"""How long a broker that could go on for a killed process first waits for a controller."""
CONTROLLER_WAIT_S: Final = 10.0
"""How often a broker without a controller logs that it waits for one."""
REPLY_GRACE_S: Final = 1.0


class StartError(Exception):
    """The broker cannot start; the text is for the person who started it."""


class _StoppedWhileLoadingError(Exception):
    """Raised in the loading thread, so that a stop does not wait for a long recovery."""


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
        self._directories: LogDirectories
        self._broker: Broker
        self._server: Server
        self._tls: TlsListeners | None = None
        self._logins: Logins | None = None
        self._rest: RestServer | None = None
        self._rest_endpoint: tuple[Endpoint, ...] = ()
        self._session: ControllerSession
        self._background: Background
        self._secret: bytes
        self._zookeeper: ZooKeeperRegistration | None = None
        self._confirmed_epoch = NO_BROKER_EPOCH
        """Broker epoch that the log directories have as registered, once this process uses it."""
        self._journal: RoleJournal
        self._found: Roles | None = None
        """The roles of a killed process before this one."""
        self._registering: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. StartError if the broker can't serve at all."""
        on_stop_signal(self._stop.set)
        self._directories = self._open_directories()
        first = self._directories.directories[0]
        self._journal = RoleJournal(first.disk, first.path)
        # Before the logs are opened: the next start may not find what this one finds.
        try:
            taken = self._journal.take()
        except OSError as error:
            self._directories.close(clean=False)
            raise StartError(f"log.dirs={self._log_dirs}: {error}") from error
        try:
            await self._start_http()
            self._found = await asyncio.to_thread(roles_in, taken)
            if await self._load():
                await self._serve()
            else:
                self._directories.close(clean=False)
                logger.info("stopped before all logs were open")
        finally:
            if self._http is not None:
                await self._http.stop()
            self._executor.shutdown()

    def _open_directories(self) -> LogDirectories:
        try:
            return LogDirectories.open(
                self._settings.log_directories, node_id=self._settings.node_id
            )
        except (DirectoryInUseError, ForeignDirectoryError, NewerFormatError) as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(f"log.dirs={self._log_dirs}: {error}") from error

    @property
    def _log_dirs(self) -> str:
        return ",".join(self._settings.log_directories)

    async def _start_http(self) -> None:
        if self._settings.http is None:
            return
        from fairlead_broker.http.server import HttpServer

        self._http = HttpServer(self._readiness)
        try:
            self._http_port = await self._http.start(self._settings.http)
        except OSError as error:
            self._http = None
            raise StartError(f"HTTP at {error.strerror}") from error

    async def _load(self) -> bool:
        """Open all logs in a thread, so that probes are answered however long it takes.

        False if the stop signal came meanwhile: what was recovered is recovered again next time.
        """
        loading = asyncio.get_running_loop().run_in_executor(
            self._executor,
            partial(
                self._directories.load,
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
        except (NewerFormatError, DuplicateLogError) as error:
            raise StartError(f"log.dirs={self._log_dirs}: {error}") from error
        for (topic, index), reason in report.offline.items():
            logger.error("replica %s-%d is offline: %s", topic, index, reason)
        logger.info("%d logs are open, %d of them recovered", report.loaded, len(report.recovered))
        self._recovery_processes_lost = report.recovery_processes_lost
        return not self._stop.is_set()

    def _config_before_image(self) -> Callable[[str, int], LogConfig]:
        """Give every log the broker's defaults, until the image arrives."""
        config = self._settings.log_config({})
        return lambda topic, index: config

    def _note_recovery(self, progress: RecoveryProgress) -> None:
        """Note the progress, in the loading thread; replacing a dictionary is atomic."""
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
            log_directories=self._directories,
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
                await self._open_for_clients()
                await self._stop.wait()
            registering = self._registering
            if registering is not None and registering.done() and not registering.cancelled():
                # The registration may have been refused after this process went on for the one
                # before.
                registering.result()
        finally:
            await self._shut_down()

    def _bind(self) -> None:
        """Take the ports before registering, because the addresses are part of it."""
        from fairlead_broker.net.creation_allowance import creations_burst
        from fairlead_broker.net.server import Server, ServerLimits, idle_limit_s

        settings = self._settings
        request_memory = settings.queued_max_request_bytes
        limits = ServerLimits(
            connections_max=settings.max_connections,
            connections_per_ip_max=settings.max_connections_per_ip,
            connections_per_ip_overrides=self._connection_overrides(),
            connection_creations_per_s=settings.max_connection_creation_rate,
            connection_creations_burst=creations_burst(settings.max_connection_creation_rate),
            idle_s=idle_limit_s(settings.connections_max_idle_ms),
            frame_size_max=settings.socket_request_max_bytes,
            request_memory_bytes=request_memory if request_memory >= 0 else REQUEST_MEMORY_BYTES,
            listen_backlog=settings.socket_listen_backlog_size,
            send_buffer_bytes=settings.socket_send_buffer_bytes,
            receive_buffer_bytes=settings.socket_receive_buffer_bytes,
        )
        transports = self._open_transports()
        self._logins = self._open_logins()
        self._server = Server(
            self._broker,
            settings.listeners,
            limits,
            cluster_secret=self._secret,
            authorizer=self._broker.authorizer,
            client_quotas=self._broker.client_quotas,
            transports=transports,
            logins=self._logins,
        )
        try:
            self._server.bind()
        except OSError as error:
            raise StartError(f"cannot listen at {error.strerror}") from error
        self._broker.on_altered.append(self._limit_connections)
        self._bind_rest()

    def _connection_overrides(self) -> Mapping[str, int]:
        values = self._broker.running_values()
        return connection_overrides(str(values.value(CONNECTIONS_PER_IP_OVERRIDES)))

    def _limit_connections(self) -> None:
        number = self._broker.running_number
        self._server.set_connection_limits(
            total=number("max.connections"),
            per_ip=number("max.connections.per.ip"),
            per_ip_overrides=self._connection_overrides(),
            creations_per_s=number("max.connection.creation.rate"),
        )

    def _open_transports(self) -> Mapping[str, OpenTransport]:
        """Read certificates. Without TLS the TLS modules are not imported, which saves memory."""
        settings = self._settings
        security = settings.security
        if (settings.peer_tls, settings.controller_tls) == (None, None) and all(
            each.tls is None for each in security.values()
        ):
            return {}
        from fairlead_broker.net.tls_listeners import TlsListeners
        from fairlead_tls.certificates import CertificateError

        try:
            self._tls = TlsListeners(
                security,
                self._broker.metrics,
                peer_tls=settings.peer_tls,
                controller_tls=settings.controller_tls,
            )
        except CertificateError as error:
            raise StartError(str(error)) from error
        self._broker.peer_certificate = self._tls.peer
        return self._tls.transports

    def _open_logins(self) -> Logins | None:
        sasl = {
            name: each.sasl
            for name, each in self._settings.security.items()
            if each.sasl is not None
        }
        if not sasl:
            return None
        from fairlead_broker.net.logins import Logins

        return Logins(
            asyncio.get_running_loop(),
            sasl,
            self._broker.credentials,
            cluster_secret=self._secret,
            failure_delay_ms=self._settings.connection_failed_authentication_delay_ms,
        )

    def _bind_rest(self) -> None:
        address = self._settings.rest
        if address is None:
            return
        from fairlead_broker.rest.server import RestServer

        self._rest = RestServer(
            self._broker,
            address,
            self._secret,
            self._server.peer_log,
            logins=self._logins,
            tls=None if self._tls is None else self._tls.transports.get(REST_ENDPOINT),
        )
        try:
            host, port = self._rest.bind()
        except OSError as error:
            raise StartError(f"fairlead.rest.listener={error.strerror}") from error
        name = REST_TLS_ENDPOINT if address.is_tls else REST_ENDPOINT
        self._rest_endpoint = (Endpoint(name, host, port),)

    async def _join_cluster(self) -> None:
        from fairlead_broker.session.controller_session import ControllerSession
        from fairlead_broker.session.supervisor_pipe import DrillFaults

        self._session = ControllerSession(
            self._settings.controller_sessions,
            self._secret,
            self._registration(),
            self._publish,
            cluster_id=self._directories.cluster_id,
            is_ready=False,
            unclean=self._directories.start.unclean,
            replicas_seen=self._broker.replicas.epochs_seen,
            metadata_seen=self._directories.metadata_seen,
            faults=DrillFaults(
                self._supervisor,
                is_enabled=self._settings.drills_enable,
                directories=self._directories.paths,
            ),
            certificate=None if self._tls is None else self._tls.controller,
            journal=self._journal,
            is_cordoned=lambda: self._directories.is_cordoned,
        )
        self._broker.controller = self._session
        registering = asyncio.create_task(self._register(), name="registration")
        self._registering = registering
        roles = self._roles_before()
        if roles is not None:
            await self._unless_stopped(asyncio.wait((registering,), timeout=GO_ON_AFTER_S))
            if not self._stop.is_set() and self._session.broker_epoch == NO_BROKER_EPOCH:
                await self._go_on(roles)
                registering.add_done_callback(self._on_late_registration)
                return
        await self._unless_stopped(registering)
        await self._unless_stopped(self._wait_in_service())

    async def _register(self) -> None:
        """Have a controller register this start; StartError if it refuses."""
        from fairlead_broker.session.link import SessionRefusedError

        await self._announce()
        await self._session.start()
        while True:
            try:
                return await self._session.wait_registered(CONTROLLER_WAIT_S)
            except TimeoutError:
                where = ", ".join(self._session.candidates) or "an address that is not known yet"
                logger.warning("still waiting for a controller at %s", where)
            except SessionRefusedError as error:
                raise StartError(f"the controller refuses this broker: {error}") from error

    def _roles_before(self) -> Roles | None:
        """Return the roles of the process before this one, if this one may go on with them."""
        roles, self._found = self._found, None
        if roles is None:
            return None
        held = {(log.topic_id, log.partition) for log in self._directories.logs}
        problem = resumption_problem(roles, self._registration(), held)
        if problem is None and self._directories.start.unclean:
            problem = "a replica of it is not whole"
        if problem is None:
            try:
                self._journal.put_back()
            except OSError as error:
                problem = f"what it did cannot be kept: {error}"
        if problem is not None:
            logger.info("this start cannot go on where the process before it stood: %s", problem)
            return None
        return roles

    async def _go_on(self, roles: Roles) -> None:
        """Go on under the broker epoch of the process before (R33): no controller answers.

        Meanwhile this process goes on trying to register; its registration ends this state.
        """
        epoch = roles.broker_epoch(self._settings.node_id)
        logger.warning(
            "no controller answers; nothing is lost since the process before was killed: going on "
            "as broker epoch %d",
            epoch,
        )
        self._directories.go_on()
        self._confirmed_epoch = epoch
        self._broker.replicas.go_on(roles.image)
        self._session.go_on(roles)
        self._broker.wake_check.go_on()
        await self._broker.replicas.settled()
        self._start_replicating()

    def _on_late_registration(self, registering: asyncio.Task[None]) -> None:
        if not registering.cancelled() and registering.exception() is not None:
            # `_serve` reports the error to the person who started this process.
            self._stop.set()

    def _start_replicating(self) -> None:
        session = self._session
        self._background.start_replicating(
            lambda: session.metadata_seen, keep_journal=session.maybe_rewrite_journal
        )

    async def _announce(self) -> None:
        """Take the broker's id in ZooKeeper, if there is one, and find the controllers there.

        This happens before the broker registers, because a second broker with its id would fence
        it.
        """
        if self._settings.zookeeper is None:
            return None
        from fairlead_broker.session.zookeeper_registration import (
            BrokerIdTakenError,
            ZooKeeperRegistration,
        )

        self._zookeeper = ZooKeeperRegistration(
            self._open_access(self._settings.zookeeper),
            self._registration(),
            on_controllers=self._follow_controllers,
        )
        self._zookeeper.start()
        while True:
            try:
                async with asyncio.timeout(CONTROLLER_WAIT_S):
                    return await asyncio.shield(self._zookeeper.announced)
            except TimeoutError:
                where = self._settings.zookeeper.access.connect_string
                logger.warning("still waiting for ZooKeeper at %s", where)
            except BrokerIdTakenError as error:
                raise StartError(str(error)) from error

    def _follow_controllers(self, found: list[str]) -> None:
        self._session.follow_candidates([*self._settings.controller_sessions, *found])

    def _open_access(self, settings: AccessSettings) -> ZooKeeperAccess:
        path = settings.digest_file
        if path is None:
            return settings.access
        try:
            with Path(path).open("rb") as file:
                return settings.with_digest(file.read(), os.fstat(file.fileno()).st_mode)
        except OSError as error:
            raise StartError(f"{DIGEST_FILE}={path}: {error.strerror}") from error
        except ConfigError as error:
            raise StartError(error.message) from error

    def _publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if self._session.broker_epoch != self._confirmed_epoch:
            # Before the first append: after a crash from here on, no marker of a clean stop may be
            # there.
            self._directories.assign_cluster_id(image.cluster_id)
            self._directories.confirm_start(self._session.broker_epoch)
            self._confirmed_epoch = self._session.broker_epoch
        self._broker.publish(delta, image)
        if self._rest is not None:
            self._rest.publish()

    async def _wait_in_service(self) -> None:
        """Wait until the controller has elected this broker's leaders, before clients connect."""
        await self._broker.replicas.settled()
        self._start_replicating()
        self._session.set_ready()
        node_id, told = self._settings.node_id, ""
        while True:
            await self._broker.replicas.settled()
            if self._broker.image.is_live(node_id):
                return
            fence = self._broker.image.configs_of_broker(node_id).get(BROKER_FENCE, "")
            if fence and fence != told:
                logger.warning("out of service until it is unfenced; fenced by order: %s", fence)
                told = fence
            await self._broker.image_changed()

    async def _unless_stopped(self, coroutine: Any) -> None:
        """Wait for a coroutine, but not beyond the stop signal."""
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
        joint = self._directories.start
        start = joint.record
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
            )
            + self._rest_endpoint,
            host_name=self._settings.host_name or socket.gethostname(),
            rack=self._settings.rack,
            directory_id=start.directory_id,
            start_id=start.start_id,
            boot_id=start.boot_id,
            pod_uid=os.environ.get("POD_UID", ""),
            is_clean=start.was_clean,
            previous_broker_epoch=start.previous_broker_epoch,
            is_recovered_whole=joint.is_recovered_whole,
            min_insync_replicas=self._settings.log_config({}).min_insync_replicas,
            directory_ids=joint.directory_ids,
            is_cordoned=self._directories.is_cordoned,
            allows_unclean_election=self._settings.allows_unclean_election,
        )

    def _read_secret(self) -> bytes:
        path = self._settings.cluster_secret_file
        try:
            with Path(path).open("rb") as file:
                return take_secret(file.read(), os.fstat(file.fileno()).st_mode)
        except OSError as error:
            raise StartError(f"fairlead.cluster.secret.file={path}: {error.strerror}") from error
        except ValueError as error:
            raise StartError(f"fairlead.cluster.secret.file={path}: {error}") from error

    async def _open_for_clients(self) -> None:
        self._background.start()
        self._broker.producer_ids.maybe_refill()
        self._server.start()
        if self._tls is not None:
            self._tls.start()
        if self._rest is not None:
            await self._rest.start()
        self._readiness.phase = Phase.SERVING
        if self._http is not None:
            self._http.metrics.broker = self._broker
            self._http.metrics.session = self._session
            if self._tls is not None:
                self._http.certificates = self._tls.describe
                self._http.metrics.certificate_ends_s = self._tls.ends_s
        addresses = " ".join(
            f"{'internal' if each.is_internal else 'kafka'}="
            f"{join_address(each.advertised_host, each.advertised_port)}"
            for each in self._server.listeners
        )
        http = "" if self._http is None else f" http={self._http_port}"
        http += "".join(
            f" rest={join_address(each.host, each.port)}" for each in self._rest_endpoint
        )
        took_ms = int((time.monotonic() - self._started_s) * 1000)
        self._on_ready(
            f"ready node.id={self._settings.node_id} {addresses}{http} "
            f"partitions={len(self._broker.partitions)} after_ms={took_ms}"
        )

    async def _shut_down(self) -> None:
        self._readiness.phase = Phase.STOPPING
        logger.info("stopping")
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.gather(self._registering, return_exceptions=True)
        if hasattr(self, "_session"):
            await self._leave_cluster()
        if self._zookeeper is not None:
            await self._zookeeper.stop()
        if self._rest is not None:
            await self._rest.stop(grace_s=REPLY_GRACE_S)
        self._broker.replicas.stop()
        for coordinator in self._broker.coordinators.values():
            coordinator.stop()
        await self._server.stop(grace_s=REPLY_GRACE_S)
        if self._tls is not None:
            await self._tls.stop()
        await self._background.stop()
        self._broker.deletion_confirmer.stop()
        self._journal.close()
        if self._confirmed_epoch != NO_BROKER_EPOCH:
            await self._background.metadata_recorder.note(self._session.metadata_seen)
            await self._background.flusher.flush_all()
            for directory in self._directories.live:
                directory.high_watermarks = high_watermarks(self._broker, directory)
        is_clean = await asyncio.to_thread(
            self._directories.close,
            clean=self._confirmed_epoch != NO_BROKER_EPOCH,
            broker_epoch=self._confirmed_epoch,
            now_ms=self._clock.now_ms(),
        )
        logger.info("stopped %s", "cleanly" if is_clean else "without a clean-shutdown marker")

    async def _leave_cluster(self) -> None:
        """Move leaders away first, while clients can still be told of the new leaders."""
        await hand_over(self._session, leads=self._leads_for_others)
        await self._session.stop()

    def _leads_for_others(self) -> bool:
        """Tell whether this broker leads a partition that others hold, too."""
        image, node_id = self._session.image, self._settings.node_id
        return any(
            len(partition.replicas) > 1 and partition.leader == node_id
            for topic, index in image.replicas_of(node_id)
            for partition in (topic.partitions[index],)
        )
