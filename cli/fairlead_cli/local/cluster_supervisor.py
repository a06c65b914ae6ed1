"""Runs a local cluster: starts controller and brokers, restarts what crashes, stops in order.

One event loop, with a task for each child. `run` ends when it is told to stop, or when the cluster
cannot be started; in either case no child is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import signal
import sys
import time
from typing import TYPE_CHECKING

from fairlead_cli.errors import CliError
from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry, write_cluster_file
from fairlead_cli.local.declared_topics import wait_for_declared_topics
from fairlead_cli.local.fault_proxy import build_routes
from fairlead_cli.local.freeze_watch import FREEZE_TIMEOUT_SETTING, FreezeWatch
from fairlead_cli.local.local_process import (
    STABLE_AFTER_S,
    ChildSpec,
    LocalProcess,
    explain_exit,
    restart_delay_s,
    stopped_early,
)
from fairlead_cli.local.output_tail import OutputTail, merge_lines
from fairlead_cli.local.plan import LaunchPlan, encode_properties
from fairlead_cli.local.preflight import (
    build_unusable_error,
    hold_data_directory,
    refuse_orphans,
    refuse_taken_ports,
)
from fairlead_cli.local.process_table import identify
from fairlead_cli.local.secure_files import find_password, keep_access, prepare_secure_files
from fairlead_cli.whole_file import OWNER_ONLY, write_whole
from fairlead_model.configs.broker_configs import BROKER_CONFIGS
from fairlead_model.configs.config_key import ConfigError
from fairlead_model.configs.controller_configs import CONTROLLER_CONFIGS
from fairlead_model.configs.setting_sources import environment_name
from fairlead_model.session.session_protocol import parse_secret

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fairlead_cli.local.client_files import ClientAccess
    from fairlead_cli.local.reporter import Reporter

# A broker fsyncs all its data before it ends, which takes its time on a slow disk.
BROKER_STOP_TIMEOUT_S = 60.0
CONTROLLER_STOP_TIMEOUT_S = 10.0
TAIL_POLL_S = 0.1
STILL_WAITING_S = 10.0
OPEN_FILES_WANTED = 1 << 20
# Settings that the controller reads: those for topics in manifests, and its own.
CONTROLLER_OPTIONS = {
    "--default-partitions": "num.partitions",
    "--default-replication-factor": "default.replication.factor",
    **{f"--{name.replace('.', '-')}": name for name in CONTROLLER_CONFIGS},
}


class ClusterSupervisor:
    """One run of a cluster. `children` are in the order of starting; they stop in reverse."""

    def __init__(self, plan: LaunchPlan, reporter: Reporter) -> None:
        self.plan = plan
        self.reporter = reporter
        self.freeze_timeout_s = self.find_freeze_timeout_s()
        self.cluster = build_cluster(plan)
        self.controller = LocalProcess(self.build_controller_spec(), self.cluster.controller)
        self.brokers = [
            LocalProcess(self.build_broker_spec(broker_id), entry)
            for broker_id, entry in enumerate(self.cluster.brokers)
        ]
        self.proxies = (
            [LocalProcess(self.build_proxy_spec(), self.cluster.proxy)]
            if self.cluster.proxy
            else []
        )
        self.tails = [OutputTail(child.name, child.spec.output) for child in self.children]
        self.stop_asked = asyncio.Event()
        self.is_saved = True
        self.client: ClientAccess | None = None
        """How the super user connects to a secure cluster."""
        self.is_new_admin = False

    @property
    def children(self) -> list[LocalProcess]:
        return [*self.proxies, self.controller, *self.brokers]

    async def run(self) -> None:
        """Run until a signal. CliError if the cluster cannot be started."""
        with hold_data_directory(self.plan.layout):
            refuse_orphans(self.plan.layout)
            refuse_taken_ports(self.plan)
            try:
                self.prepare_files()
            except OSError as error:
                raise build_unusable_error(self.plan.layout, error) from error
            self.watch_signals()
            for tail in self.tails:
                tail.skip_to_end()
            following = asyncio.create_task(self.follow_outputs())
            try:
                await self.run_children()
            finally:
                await self.stop_children()
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following

    async def run_children(self) -> None:
        """Start all children, and keep them running until the stop."""
        started = time.monotonic()
        if not await self.unless_stopped(self.start_all()):
            return
        self.cluster.state = "running"
        self.save()
        self.report_outputs()
        self.reporter.ready(self.cluster, time.monotonic() - started)
        keepers = [asyncio.create_task(self.keep_running(child)) for child in self.children]
        if self.freeze_timeout_s > 0:
            watch = FreezeWatch(self.controller, self.freeze_timeout_s, self.warn)
            keepers.append(asyncio.create_task(watch.run()))
        stop = asyncio.create_task(self.stop_asked.wait())
        try:
            # A keeper does not end by itself: if it does, it has failed, and its error is raised.
            done, _ = await asyncio.wait([stop, *keepers], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (stop, *keepers):
                task.cancel()
            await asyncio.gather(stop, *keepers, return_exceptions=True)

    async def unless_stopped(self, work: Coroutine[object, object, None]) -> bool:
        """Do the work, or cancel it if a stop is requested; tell whether it was done."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self.stop_asked.wait())
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return False
        task.result()
        return True

    async def start_all(self) -> None:
        """Start the controller, because brokers register with it, and then all brokers at once."""
        for proxy in self.proxies:
            await self.start_first_time(proxy)
        await self.start_first_time(self.controller)
        starts = [asyncio.create_task(self.start_first_time(broker)) for broker in self.brokers]
        # A broker's report may end the controller; without it the brokers would wait forever.
        ending: asyncio.Task[object] = asyncio.create_task(self.controller.wait())
        all_started: asyncio.Task[object] = asyncio.create_task(_all(starts))
        try:
            await asyncio.wait([ending, all_started], return_when=asyncio.FIRST_COMPLETED)
            if not all_started.done():
                raise stopped_early(self.controller, "the cluster")
            all_started.result()
        finally:
            for task in (ending, all_started, *starts):
                task.cancel()
        if self.client is not None:
            await asyncio.to_thread(self.ensure_admin, self.client)
        if self.plan.manifests:
            await wait_for_declared_topics(self.cluster.controller, self.reporter)

    def ensure_admin(self, client: ClientAccess) -> None:
        """Create the super user's credential, past any fault proxy; for a thread."""
        from fairlead_cli.local.admin_credential import build_peer_context, ensure_admin

        ports = self.plan.ports
        find = ports.hidden if self.plan.fault_proxy else ports.of_broker
        ensure_admin(
            [(ports.host, find(broker_id).internal) for broker_id in range(self.plan.brokers)],
            parse_secret(self.plan.layout.secret_file.read_bytes()),
            client,
            context=build_peer_context(self.plan.layout),
            is_new=self.is_new_admin,
        )
        if self.is_new_admin:
            try:
                keep_access(self.plan.layout, client)
            except OSError as error:
                raise build_unusable_error(self.plan.layout, error) from error

    async def start_first_time(self, child: LocalProcess) -> None:
        """Start a process; if it ends before it is ready, print the end of its output.

        It is not restarted then, because it would fail again.
        """
        started = time.monotonic()
        try:
            await child.start()
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise CliError(
                f"{child.name} cannot be started: {error.strerror}{where}",
                hint=f"Its output goes to {child.spec.output}, and it runs as the user of this "
                "command.",
            ) from error
        self.save()
        waiting = asyncio.create_task(child.wait_until_ready())
        try:
            while not (await asyncio.wait([waiting], timeout=STILL_WAITING_S))[0]:
                self.say(child.name, "still starting")
        finally:
            waiting.cancel()
        if not waiting.result():
            raise stopped_early(child)
        self.save()
        self.say(child.name, f"ready after {time.monotonic() - started:.1f} s")

    async def keep_running(self, child: LocalProcess) -> None:
        """Restart a process whenever it ends.

        It restarts at once if it was asked to stop (`broker restart`), and with growing delays if
        it crashes repeatedly. If a signal kills a process that was ready, that is not a crash of
        its own.
        """
        crashes = 0
        has_served = True
        while True:
            started = time.monotonic()
            returncode = await child.wait()
            child.entry.state = "restarting"
            self.save()
            if returncode == 0:
                crashes = 0
                self.say(child.name, "stopped on request; starting it again")
            else:
                was_killed = has_served and returncode == -signal.SIGKILL
                is_stable = time.monotonic() - started > STABLE_AFTER_S
                crashes = 1 if was_killed or is_stable else crashes + 1
                delay_s = restart_delay_s(crashes)
                self.warn(child.name, f"{explain_exit(returncode)}; restarting in {delay_s:.1f} s")
                await asyncio.sleep(delay_s)
            crashes = await self.start_again(child, crashes)
            child.entry.restarts += 1
            self.save()
            has_served = await child.wait_until_ready()
            if has_served:
                self.save()
                self.say(child.name, f"is back, pid {child.entry.pid}")

    async def start_again(self, child: LocalProcess, crashes: int) -> int:
        """Start a process, with retries if the machine refuses; return the crashes in a row.

        For a while there may be no process, memory or file for it. The others go on meanwhile.
        """
        while True:
            try:
                await child.start()
            except OSError as error:
                crashes += 1
                delay_s = restart_delay_s(crashes)
                self.warn(
                    child.name,
                    f"cannot be started: {error.strerror}; trying again in {delay_s:.1f} s",
                )
                await asyncio.sleep(delay_s)
            else:
                return crashes

    async def stop_children(self) -> None:
        """Stop brokers first: they hand over their leaders while the controller still runs."""
        running = [child for child in self.children if child.entry.pid is not None]
        if running:
            self.cluster.state = "stopping"
            self.save()
            self.say("fairlead", "stopping, brokers first")
        await asyncio.gather(*(self.stop(child, BROKER_STOP_TIMEOUT_S) for child in self.brokers))
        await self.stop(self.controller, CONTROLLER_STOP_TIMEOUT_S)
        for proxy in self.proxies:
            await self.stop(proxy, CONTROLLER_STOP_TIMEOUT_S)
        self.cluster.state = "stopped"
        self.cluster.supervisor_pid = self.cluster.supervisor_start_time = None
        self.save()

    async def stop(self, child: LocalProcess, timeout_s: float) -> None:
        """Stop one child, and report if it had to be killed."""
        if not await child.stop(timeout_s=timeout_s):
            self.warn(
                child.name, f"did not stop in {timeout_s:.0f} s and was killed; it will recover"
            )
        self.save()

    def watch_signals(self) -> None:
        """Stop on the first signal; kill everything on a Ctrl-C after it.

        Other signals come twice although the user is in no hurry: SIGHUP from a terminal that
        closes, by its shell and by the kernel, and SIGTERM from two `fairlead down`. A signal that
        this process was started to ignore stays ignored: SIGHUP by `nohup`, SIGINT by `&` in a
        script.
        """
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGINT: self.on_signal,
            signal.SIGTERM: self.stop_asked.set,
            signal.SIGHUP: self.stop_asked.set,
        }
        for number, handler in handlers.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, handler)

    def on_signal(self) -> None:
        if self.stop_asked.is_set():
            self.warn("fairlead", "killing everything at once")
            for child in self.children:
                child.kill()
        self.stop_asked.set()

    async def follow_outputs(self) -> None:
        """Report what the children print, and the rest when they have ended."""
        try:
            while True:
                self.report_outputs()
                await asyncio.sleep(TAIL_POLL_S)
        finally:
            self.report_outputs()
            self.reporter.settle()

    def report_outputs(self) -> None:
        """Report what the children have printed since the last time."""
        self.reporter.output(merge_lines(self.tails))

    def say(self, name: str, text: str) -> None:
        """Print a message of the supervisor, after the output of the children."""
        self.report_outputs()
        self.reporter.settle()
        self.reporter.progress(name, text)

    def warn(self, name: str, text: str) -> None:
        """Report a warning."""
        self.report_outputs()
        self.reporter.settle()
        self.reporter.warning(name, text)

    def prepare_files(self) -> None:
        """Write the secret, the settings, and the cluster file with this process."""
        layout = self.plan.layout
        if not layout.secret_file.exists():
            write_whole(layout.secret_file, secrets.token_hex(32) + "\n", mode=OWNER_ONLY)
        layout.controller_directory.mkdir(exist_ok=True)
        if self.plan.ports.is_secure:
            self.is_new_admin = find_password(layout) is None
            self.client = prepare_secure_files(
                layout, self.plan.brokers, self.plan.bootstrap, host=self.plan.ports.host
            )
        for broker_id in range(self.plan.brokers):
            layout.broker_directory(broker_id).mkdir(exist_ok=True)
            text = encode_properties(self.plan.broker_settings(broker_id))
            write_whole(layout.broker_config(broker_id), text)
        if self.plan.store is not None:
            write_whole(layout.store_file, f"{self.plan.store}\n")
            text = encode_properties(self.plan.controller_settings())
            write_whole(layout.controller_config, text)
        raise_open_files_limit()
        write_cluster_file(layout.cluster_file, self.cluster)

    def save(self) -> None:
        """Write the cluster file for other commands.

        If the disk is full, the supervisor goes on: brokers still serve readers, and free room
        again.
        """
        try:
            write_cluster_file(self.plan.layout.cluster_file, self.cluster)
        except OSError as error:
            if self.is_saved:
                self.warn(
                    "fairlead",
                    f"cannot write {self.plan.layout.cluster_file}: {error.strerror}; "
                    "other commands see an old state until it can be written",
                )
            self.is_saved = False
        else:
            self.is_saved = True

    def build_controller_spec(self) -> ChildSpec:
        if self.plan.store is not None:
            return self.build_candidate_spec()
        layout, ports = self.plan.layout, self.plan.ports
        command = [sys.executable, "-m", "fairlead_controller"]
        command += ["--data", str(layout.controller_directory), "--host", ports.host]
        session = ports.hidden_session if self.plan.fault_proxy else ports.session
        command += ["--port", str(session), "--http-port", str(ports.controller_http)]
        command += ["--cluster-secret-file", str(layout.secret_file)]
        command += ["--expected-brokers", str(self.plan.brokers)]
        for option, setting in CONTROLLER_OPTIONS.items():
            value = self.find_setting(setting)
            if value is not None:
                command += [option, value]
        for name, value in self.plan.controller_tls_settings().items():
            command += ["--set", f"{name}={value}"]
        for manifest in self.plan.manifests:
            command += ["--topics", str(manifest)]
        return ChildSpec(tuple(command), layout.output_file("controller"), "/healthz")

    def build_candidate_spec(self) -> ChildSpec:
        """Return the spec of a controller with its metadata in ZooKeeper."""
        layout = self.plan.layout
        command = [sys.executable, "-m", "fairlead_controller.zookeeper"]
        command += ["--config", str(layout.controller_config)]
        command += ["--expected-brokers", str(self.plan.brokers)]
        found = {name: self.find_setting(name) for name in CONTROLLER_OPTIONS.values()}
        for name, value in {**self.plan.settings, **found}.items():
            if value is not None:
                command += ["--set", f"{name}={value}"]
        for manifest in self.plan.manifests:
            command += ["--topics", str(manifest)]
        return ChildSpec(tuple(command), layout.output_file("controller"), "/healthz")

    def find_setting(self, name: str) -> str | None:
        """Return a setting as brokers read it: arguments, environment, then the default of `up`."""
        given = self.plan.settings.get(name) or os.environ.get(environment_name(name))
        return given or self.plan.broker_settings(0).get(name)

    def find_freeze_timeout_s(self) -> float:
        """Return how long the controller may be silent; 0: forever. CliError if it is invalid."""
        key = BROKER_CONFIGS[FREEZE_TIMEOUT_SETTING]
        text = self.find_setting(key.name) or key.default or "0"
        try:
            key.parse(text)
        except ConfigError as error:
            raise CliError(error.message, hint="See:  fairlead config list") from error
        return int(text) / 1000

    def build_proxy_spec(self) -> ChildSpec:
        layout = self.plan.layout
        command = [sys.executable, "-m", "fairlead_cli.local.fault_proxy"]
        command += ["--cluster-file", str(layout.cluster_file)]
        command += ["--host", self.plan.ports.host]
        command += ["--http-port", str(self.plan.ports.proxy_http)]
        for route in build_routes(self.cluster):
            command += ["--route", str(route)]
        return ChildSpec(tuple(command), layout.output_file("proxy"), "/healthz")

    def build_broker_spec(self, broker_id: int) -> ChildSpec:
        layout = self.plan.layout
        config = str(layout.broker_config(broker_id))
        command = [sys.executable, "-m", "fairlead_broker", "--config", config]
        for name, value in self.plan.settings.items():
            command += ["--set", f"{name}={value}"]
        return ChildSpec(tuple(command), layout.output_file(f"broker-{broker_id}"), "/readyz")


def build_cluster(plan: LaunchPlan) -> ClusterFile:
    """Return the first cluster file, with this process as the supervisor."""
    ports = plan.ports
    own = identify(os.getpid())
    scheme = "https" if ports.is_secure else "http"
    brokers = [
        ProcessEntry(
            name=f"broker-{broker_id}",
            id=broker_id,
            host=ports.host,
            port=ports.of_broker(broker_id).kafka,
            http_port=ports.of_broker(broker_id).http,
            rest=f"{scheme}://{ports.at(ports.of_broker(broker_id).rest)}",
        )
        for broker_id in range(plan.brokers)
    ]
    return ClusterFile(
        data=str(plan.data),
        port=ports.first_kafka,
        http_port=ports.first_http,
        supervisor_pid=os.getpid(),
        supervisor_start_time=own.start_time if own else None,
        controller=ProcessEntry(
            name="controller", host=ports.host, port=ports.session, http_port=ports.controller_http
        ),
        brokers=brokers,
        proxy=ProcessEntry(
            name="proxy", host=ports.host, port=ports.first_kafka, http_port=ports.proxy_http
        )
        if plan.fault_proxy
        else None,
    )


def raise_open_files_limit() -> None:
    """Raise the limit: segments and connections need descriptors. Children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_WANTED)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _all(starts: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*starts)
