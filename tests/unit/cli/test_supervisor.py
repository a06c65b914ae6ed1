"""The supervisor with stand-in processes: order, restarts, refusals, and nobody left behind."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest
from local_cluster import take_cluster_ports
from waiting import until

from fairlead_cli.errors import CliError
from fairlead_cli.local import cluster_supervisor as supervisor_module
from fairlead_cli.local.cluster_file import ClusterFile, read_cluster_file, write_cluster_file
from fairlead_cli.local.cluster_supervisor import ClusterSupervisor
from fairlead_cli.local.layout import Layout, Ports
from fairlead_cli.local.local_process import ChildSpec, restart_delay_s
from fairlead_cli.local.plan import LaunchPlan
from fairlead_cli.local.process_table import identify

FAKE = Path(__file__).with_name("fake_process.py")
DEADLINE_S = 60.0


class Audience:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.lines: list[tuple[str, str]] = []
        self.cluster: ClusterFile | None = None

    def progress(self, name: str, text: str) -> None:
        self.said.append((name, text))

    def warning(self, name: str, text: str) -> None:
        self.said.append((name, text))

    def ready(self, cluster: ClusterFile, seconds: float) -> None:
        self.cluster = cluster

    def output(self, lines: list[tuple[str, str]]) -> None:
        self.lines += lines

    def settle(self) -> None:
        pass


class FakeSupervisor(ClusterSupervisor):
    """Runs stand-ins instead of brokers; `flags` by process name."""

    flags: dict[str, str]

    def fake_spec(self, name: str, port: int) -> ChildSpec:
        notes = self.plan.data.parent / "notes"
        command = [sys.executable, str(FAKE), name, str(port), str(notes)]
        command += self.flags.get(name, "").split()
        return ChildSpec(tuple(command), self.plan.layout.output_file(name), "/")

    def build_controller_spec(self) -> ChildSpec:
        return self.fake_spec("controller", self.plan.ports.controller_http)

    def build_broker_spec(self, broker_id: int) -> ChildSpec:
        return self.fake_spec(f"broker-{broker_id}", self.plan.ports.of_broker(broker_id).http)


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    return LaunchPlan(tmp_path / "data", 2, Ports(*take_cluster_ports()), {}, ())


def build(plan: LaunchPlan, audience: Audience, **flags: str) -> FakeSupervisor:
    named = {name.replace("_", "-"): flag for name, flag in flags.items()}
    configured: type[FakeSupervisor] = type("Configured", (FakeSupervisor,), {"flags": named})
    return configured(plan, audience)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, DEADLINE_S))


def read_notes(plan: LaunchPlan) -> list[str]:
    return (plan.data.parent / "notes").read_text().splitlines()


def saved(plan: LaunchPlan) -> ClusterFile:
    cluster = read_cluster_file(plan.layout.cluster_file)
    assert cluster is not None
    return cluster


def test_it_starts_the_controller_first_and_stops_it_last(plan: LaunchPlan) -> None:
    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        cluster = saved(plan)
        assert cluster.state == "running"
        assert cluster.supervisor_pid == os.getpid()
        assert [entry.state for entry in cluster.entries] == ["running"] * 3
        assert all(entry.is_alive for entry in cluster.entries)
        supervisor.on_signal()
        await running
        assert not any(entry.is_alive for entry in cluster.entries)
        assert ("broker-0", "2026-01-01 00:00:00,000 INFO fake: broker-0 says hello") in (
            audience.lines
        )

    run(scenario())
    notes = read_notes(plan)
    assert notes[0] == "start controller"
    assert sorted(notes[1:3]) == ["start broker-0", "start broker-1"]
    assert sorted(notes[3:5]) == ["stop broker-0", "stop broker-1"]
    assert notes[5] == "stop controller"
    stopped = saved(plan)
    assert (stopped.state, stopped.supervisor_pid) == ("stopped", None)


def test_processes_that_answer_late_each_time_are_seen_to_serve(plan: LaunchPlan) -> None:
    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience, controller="--late", broker_0="--late")
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        assert [entry.state for entry in saved(plan).entries] == ["running"] * 3
        supervisor.on_signal()
        await running

    run(scenario())


def test_a_killed_broker_is_restarted_and_said(plan: LaunchPlan) -> None:
    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        before = saved(plan).brokers[1]
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        await until(lambda: saved(plan).brokers[1].restarts == 1)
        await until(lambda: saved(plan).brokers[1].state == "running")
        after = saved(plan).brokers[1]
        assert after.pid != before.pid
        assert after.is_alive
        assert ("broker-1", "killed by SIGKILL; restarting in 0.1 s") in audience.said
        supervisor.on_signal()
        await running

    run(scenario())


def test_a_frozen_controller_is_replaced_and_said(plan: LaunchPlan) -> None:
    plan.settings["fairlead.controller.freeze.timeout.ms"] = "1000"

    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        before = saved(plan).controller
        assert before.pid is not None
        os.kill(before.pid, signal.SIGSTOP)
        await until(lambda: saved(plan).controller.restarts == 1)
        await until(lambda: saved(plan).controller.state == "running")
        after = saved(plan).controller
        assert after.pid != before.pid
        assert after.is_alive
        assert not before.is_alive
        said = [text for name, text in audience.said if name == "controller"]
        assert "has not answered for 1." in said[1]
        assert "it was stopped by a signal: killing it" in said[1]
        assert said[2] == "killed by SIGKILL; restarting in 0.1 s"
        await until(lambda: ("controller", f"is back, pid {after.pid}") in audience.said)
        supervisor.on_signal()
        await running

    run(scenario())


def test_the_controller_is_told_the_settings_that_it_reads(
    plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan.settings["auto.leader.rebalance.enable"] = "false"
    plan.settings["broker.session.timeout.ms"] = "9000"
    monkeypatch.setenv("FAIRLEAD_BROKER_HEARTBEAT_INTERVAL_MS", "1000")
    command = ClusterSupervisor(plan, Audience()).build_controller_spec().command
    told = dict(pairwise(command))
    assert told["--auto-leader-rebalance-enable"] == "false"
    assert told["--broker-session-timeout-ms"] == "9000"
    assert told["--broker-heartbeat-interval-ms"] == "1000"
    assert "--leader-imbalance-check-interval-seconds" not in told


def test_nobody_is_watched_where_the_setting_says_so(
    plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build(plan, Audience()).freeze_timeout_s == 2.0
    monkeypatch.setenv("FAIRLEAD_CONTROLLER_FREEZE_TIMEOUT_MS", "0")
    assert build(plan, Audience()).freeze_timeout_s == 0.0
    monkeypatch.setenv("FAIRLEAD_CONTROLLER_FREEZE_TIMEOUT_MS", "10")
    with pytest.raises(CliError, match="at least 1000, or 0 to switch it off"):
        build(plan, Audience())


def test_a_broker_that_cannot_start_ends_everything_with_its_last_words(plan: LaunchPlan) -> None:
    async def scenario() -> None:
        supervisor = build(plan, Audience(), broker_1="--fail")
        output = plan.layout.output_file("broker-1")
        output.parent.mkdir(parents=True)
        output.write_text("the last run stopped cleanly\n")
        with pytest.raises(CliError, match="broker-1 stopped before it was ready") as raised:
            await supervisor.run()
        assert "exit code 3" in raised.value.message
        assert "something is wrong with my disk" in (raised.value.hint or "")
        assert "the last run" not in (raised.value.hint or "")
        assert all(child.entry.pid is None for child in supervisor.children)

    run(scenario())
    assert saved(plan).state == "stopped"


def test_a_broker_whose_output_cannot_be_written_ends_everything(plan: LaunchPlan) -> None:
    """Such as a file of another user, who has started the cluster before."""
    output = plan.layout.output_file("broker-1")

    async def scenario() -> None:
        output.mkdir(parents=True)
        with pytest.raises(CliError, match="broker-1 cannot be started: Is a directory") as raised:
            await build(plan, Audience()).run()
        assert str(output) in raised.value.message

    run(scenario())
    assert "stop controller" in read_notes(plan)


def test_a_controller_that_ends_while_brokers_start_ends_everything(plan: LaunchPlan) -> None:
    """What brokers tell it may be why; they would wait for it for ever."""

    async def scenario() -> None:
        supervisor = build(plan, Audience(), broker_1="--never-ready")
        running = asyncio.create_task(supervisor.run())
        await until((plan.data.parent / "notes").exists)
        await until(lambda: "start broker-1" in read_notes(plan))
        pid = supervisor.controller.entry.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(CliError, match="controller stopped before the cluster was ready"):
            await running
        assert all(child.entry.pid is None for child in supervisor.children)

    run(scenario())
    assert saved(plan).state == "stopped"


def test_a_stop_while_starting_leaves_nobody(plan: LaunchPlan) -> None:
    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: supervisor.controller.entry.pid is not None)
        pid = supervisor.controller.entry.pid
        assert pid is not None
        supervisor.on_signal()
        await running
        assert identify(pid) is None
        assert audience.cluster is None

    run(scenario())


def test_what_ignores_the_request_is_killed(
    plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "BROKER_STOP_TIMEOUT_S", 0.1)

    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience, broker_0="--ignore-term")
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        supervisor.on_signal()
        await running
        assert ("broker-0", "did not stop in 0 s and was killed; it will recover") in audience.said

    run(scenario())


@pytest.mark.usefixtures("counted_hangups")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_only_ctrl_c_is_in_a_hurry(plan: LaunchPlan, number: signal.Signals) -> None:
    """A terminal that closes sends SIGHUP twice, by its shell and by the kernel."""

    async def scenario() -> None:
        audience = Audience()
        running = asyncio.create_task(build(plan, audience).run())
        await until(lambda: audience.cluster is not None)
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        await running
        assert ("fairlead", "killing everything at once") not in audience.said

    run(scenario())
    assert sorted(read_notes(plan)[3:5]) == ["stop broker-0", "stop broker-1"]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_from_the_start_stops_nothing(
    plan: LaunchPlan, number: signal.Signals
) -> None:
    """As `nohup` has it, and `&` in a script."""

    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        # Handlers of a loop are called in the order of the signals.
        later = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, later.set)
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGUSR1)
        await later.wait()
        assert not supervisor.stop_asked.is_set()
        supervisor.on_signal()
        await running

    before = signal.signal(number, signal.SIG_IGN)
    try:
        run(scenario())
    finally:
        signal.signal(number, before)


def test_a_second_supervisor_is_told_who_holds_the_data(plan: LaunchPlan) -> None:
    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        with pytest.raises(CliError, match=f"held by pid {os.getpid()}") as raised:
            await build(plan, Audience()).run()
        assert f"fairlead down --data {plan.data}" in (raised.value.hint or "")
        assert saved(plan).state == "running"
        supervisor.on_signal()
        await running

    run(scenario())


def test_a_taken_port_names_its_holder_and_its_cluster(plan: LaunchPlan, tmp_path: Path) -> None:
    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        port = plan.ports.of_broker(0).http
        pid = saved(plan).brokers[0].pid
        other = LaunchPlan(tmp_path / "other", 1, Ports(plan.ports.first_kafka, port), {}, ())
        with pytest.raises(CliError, match=rf"port {port} .* is taken by pid {pid}"):
            await build(other, Audience()).run()
        supervisor.on_signal()
        await running

    run(scenario())


def test_orphans_of_a_killed_supervisor_are_named(plan: LaunchPlan) -> None:
    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        text = plan.layout.cluster_file.read_text()
        supervisor.on_signal()
        await running
        # As a kill -9 leaves it: the file says that they run. One of them does: this process.
        own = identify(os.getpid())
        assert own is not None
        cluster = saved(plan)
        plan.layout.cluster_file.write_text(text)
        first = saved(plan).brokers[0]
        text = text.replace(f'"pid": {first.pid}', f'"pid": {own.pid}')
        text = text.replace(f'"start_time": {first.start_time}', f'"start_time": {own.start_time}')
        plan.layout.cluster_file.write_text(text)
        with pytest.raises(CliError, match=rf"held by broker-0 \(pid {own.pid}\)"):
            await build(plan, Audience()).run()
        assert cluster.state == "stopped"

    run(scenario())


def test_ports_that_meet_are_refused(tmp_path: Path) -> None:
    plan = LaunchPlan(tmp_path / "data", 3, Ports(21_000, 21_100), {}, ())
    with pytest.raises(CliError, match="port 21100 would be used twice"):
        run(build(plan, Audience()).run())


def test_ports_above_the_last_are_refused(tmp_path: Path) -> None:
    plan = LaunchPlan(tmp_path / "data", 1, Ports(65_500, 21_000), {}, ())
    with pytest.raises(CliError, match=r"port 65600 .* does not exist"):
        run(build(plan, Audience()).run())


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    plan = LaunchPlan(tmp_path / "data", 1, Ports(*take_cluster_ports()), {}, ())
    with pytest.raises(CliError, match="cannot use the data directory"):
        run(build(plan, Audience()).run())


def test_a_name_that_is_no_text_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    """Settings are UTF-8, and a name of a folder may be any bytes."""
    folder = tmp_path / os.fsdecode(b"d\xff")
    plan = LaunchPlan(folder, 1, Ports(*take_cluster_ports()), {}, ())
    with pytest.raises(CliError, match=r"is not UTF-8 text: .*/d\\udcff'"):
        run(build(plan, Audience()).run())
    assert not folder.exists()


def refuse(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_before_the_start_is_refused(
    plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "write_cluster_file", refuse)
    with pytest.raises(CliError, match=r"cannot use the data directory .*: No space left"):
        run(build(plan, Audience()).run())


def test_a_disk_that_fills_up_does_not_end_the_supervisor(
    plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = write_cluster_file

    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        monkeypatch.setattr(supervisor_module, "write_cluster_file", refuse)
        pid = supervisor.brokers[0].entry.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        entry = supervisor.brokers[0].entry
        await until(lambda: entry.restarts == 1 and entry.state == "running")
        assert sum("No space left on device" in text for _, text in audience.said) == 1
        monkeypatch.setattr(supervisor_module, "write_cluster_file", write)
        supervisor.on_signal()
        await running

    run(scenario())
    assert saved(plan).state == "stopped"


def test_the_secret_is_private_and_stays(plan: LaunchPlan) -> None:
    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        supervisor.on_signal()
        await running

    run(scenario())
    secret = Layout(plan.data).secret_file
    assert secret.stat().st_mode & 0o777 == 0o600
    first = secret.read_text()
    assert len(first.strip()) == 64
    run(scenario())
    assert secret.read_text() == first


def test_restarts_slow_down_to_a_bound() -> None:
    delays = [restart_delay_s(crashes) for crashes in range(1, 40)]
    assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
    assert delays == sorted(delays)
    assert delays[-1] == 10.0


def test_settings_of_a_broker_follow_its_id(plan: LaunchPlan) -> None:
    settings = plan.broker_settings(1)
    ports = plan.ports.of_broker(1)
    assert settings["node.id"] == "1"
    assert settings["listeners"] == (
        f"CLIENT://127.0.0.1:{ports.kafka},INTERNAL://127.0.0.1:{ports.internal}"
    )
    assert settings["log.dirs"] == str(plan.data / "broker-1")


def test_a_restart_that_the_machine_refuses_is_tried_again(plan: LaunchPlan) -> None:
    async def scenario() -> None:
        audience = Audience()
        supervisor = build(plan, audience)
        running = asyncio.create_task(supervisor.run())
        await until(lambda: audience.cluster is not None)
        away = plan.data / "away"
        plan.layout.log_directory.rename(away)
        entry = supervisor.brokers[1].entry
        assert entry.pid is not None
        os.kill(entry.pid, signal.SIGKILL)
        refusal = "cannot be started: No such file or directory; trying again in 0.2 s"
        await until(lambda: ("broker-1", refusal) in audience.said or running.done())
        assert not running.done()
        assert supervisor.brokers[0].entry.is_alive
        away.rename(plan.layout.log_directory)
        await until(lambda: entry.restarts == 1 and entry.state == "running")
        supervisor.on_signal()
        await running

    run(scenario())
