"""Process 1 of a container, as a real process with real children."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from small_disks import small_disk
from waiting import DEADLINE_S, wait_until

from fairlead_cli.local.process_table import identify

PROGRAM = """
import sys
from fairlead_pod.child import Child
from fairlead_pod.supervision import Supervisor
def child(name, script, **options):
    return Child(name, [sys.executable, "-S", "-c", script], dict(PATH="/bin"), **options)
{children}
sys.exit(Supervisor(children, termination_log={termination_log!r}).run())
"""
STEADY = "import time; time.sleep(600)"


class Container:
    """A supervisor that runs in this test; its log is read while it runs."""

    def __init__(self, folder: Path, children: str) -> None:
        self.termination_log = folder / "termination-log"
        self.termination_log.touch()
        self._log = folder / "log"
        program = PROGRAM.format(children=children, termination_log=str(self.termination_log))
        with self._log.open("wb") as file:
            self.process = subprocess.Popen([sys.executable, "-c", program], stderr=file)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def until(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, lambda: self.log)

    def until_logged(self, text: str, times: int = 1) -> None:
        self.until(lambda: self.log.count(text) >= times)

    def pid(self, name: str) -> int:
        """The child's newest process, once it has become its program."""
        self.until_logged(f"{name} started, pid ")
        pid = int(self.log.rpartition(f"{name} started, pid ")[2].split()[0])
        self.until(lambda: "-S" in psutil.Process(pid).cmdline())
        return pid


@pytest.fixture
def contain(tmp_path: Path) -> Iterator[Callable[[str], Container]]:
    containers: list[Container] = []

    def start(children: str) -> Container:
        containers.append(Container(tmp_path, children))
        return containers[-1]

    yield start
    for container in containers:
        if container.process.poll() is not None:
            continue
        supervisor = psutil.Process(container.process.pid)
        supervisor.suspend()  # else it starts another child meanwhile
        for process in supervisor.children(recursive=True):
            process.kill()
        container.process.kill()
        container.process.wait()


def test_a_killed_child_is_started_again_at_once_and_a_stop_is_forwarded(
    contain: Callable[[str], Container],
) -> None:
    container = contain(f"children = [child('broker', {STEADY!r})]")
    first = container.pid("broker")
    os.kill(first, signal.SIGKILL)
    container.until_logged("was ended by SIGKILL; starting it again at once")
    container.until_logged("broker started", times=2)
    assert container.pid("broker") != first
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 128 + signal.SIGTERM
    assert "SIGTERM: stopping" in container.log


def test_the_exit_code_of_a_clean_stop_is_the_childs(contain: Callable[[str], Container]) -> None:
    script = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "import os; os.write(2, b'armed')\ntime.sleep(600)"
    )
    container = contain(f"children = [child('broker', {script!r})]")
    container.until_logged("armed")
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 0


def test_a_child_that_keeps_dying_is_started_ever_more_slowly(
    contain: Callable[[str], Container],
) -> None:
    container = contain("children = [child('broker', 'raise SystemExit(3)')]")
    container.until_logged("exited with code 3; starting it again in 0.5 s")
    assert "exited with code 3; starting it again at once" in container.log
    assert "in 0.25 s" in container.log


def test_bad_settings_end_the_container_with_the_reason(
    contain: Callable[[str], Container],
) -> None:
    script = (
        "import os; fd = int(os.environ['FAIRLEAD_SUPERVISOR_FD'])\n"
        "os.write(fd, b'fatal node.id must be set\\n'); os._exit(2)"
    )
    container = contain(f"children = [child('broker', {script!r})]")
    assert container.wait() == 2
    assert container.termination_log.read_text() == "node.id must be set\n"
    assert container.log.count("broker started") == 1


FAULTY = (
    "import os, time; fd = int(os.environ['FAIRLEAD_SUPERVISOR_FD'])\n"
    "os.write(fd, b'{line}\\n')\ntime.sleep(600)"
)


def test_a_kill_for_a_drill_is_carried_out_and_counts_as_no_failure(
    contain: Callable[[str], Container],
) -> None:
    script = FAULTY.format(line="kill")
    container = contain(f"children = [child('broker', {script!r}, allows_faults=True)]")
    # Were these failures, the third start would wait.
    container.until_logged("broker killed for a drill", times=4)
    assert " in 0." not in container.log


PAUSED_MS = 1_000
# It looks at the clock all the time, and says when it has missed much of it. Whoever waits for a
# processor only misses more.
WATCHING_THE_CLOCK = (
    "import os, time; fd = int(os.environ['FAIRLEAD_SUPERVISOR_FD'])\n"
    f"seen = time.monotonic(); os.write(fd, b'pause {PAUSED_MS}\\n')\n"
    "while True:\n"
    "    time.sleep(0.01); before, seen = seen, time.monotonic()\n"
    f"    if seen - before > {0.9 * PAUSED_MS / 1000}: os.write(2, b'stood still\\n')"
)


def test_a_pause_ends_by_itself_and_a_stop_ends_it_too(contain: Callable[[str], Container]) -> None:
    script = WATCHING_THE_CLOCK
    container = contain(f"children = [child('broker', {script!r}, allows_faults=True)]")
    container.until_logged(f"broker paused for {PAUSED_MS} ms for a drill")
    container.until_logged("stood still")
    container.until_logged("broker resumed")
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 128 + signal.SIGTERM


def test_a_stop_wakes_a_paused_child(contain: Callable[[str], Container]) -> None:
    script = FAULTY.format(line="pause 600000")
    container = contain(f"children = [child('broker', {script!r}, allows_faults=True)]")
    container.until_logged("broker paused")
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("fault", ["pause 600000", "slow 600000 10000 1"])
def test_a_child_that_was_told_to_stop_is_held_up_by_no_fault(
    contain: Callable[[str], Container], tmp_path: Path, fault: str
) -> None:
    """What is asked for late would keep it from ending until the kubelet kills it."""
    seen = tmp_path / "seen"
    late = (
        "import os, signal, sys, time; pipe = int(os.environ['FAIRLEAD_SUPERVISOR_FD'])\n"
        "def stop(*_):\n"
        f"    os.write(pipe, b'{fault}\\n')\n"
        f"    while not os.path.exists({str(seen)!r}): time.sleep(0.01)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop); os.write(pipe, b'hello\\n'); time.sleep(600)"
    )
    container = contain(f"children = [child('broker', {late!r}, allows_faults=True)]")
    container.until_logged("'hello' ignored: no such fault")
    container.process.terminate()
    container.until_logged(f"broker {fault!r} ignored: it is stopping")
    seen.touch()
    assert container.wait() == 0


def test_a_slow_child_stalls_in_turns_and_runs_on_by_itself(
    contain: Callable[[str], Container],
) -> None:
    script = WATCHING_THE_CLOCK.replace(
        f"pause {PAUSED_MS}", f"slow {5 * PAUSED_MS} {PAUSED_MS} 100"
    )
    container = contain(f"children = [child('broker', {script!r}, allows_faults=True)]")
    container.until_logged(f"broker stalls {PAUSED_MS} ms after each 100 ms")
    # Where no processor is free for it in one of its turns it does not see that one.
    container.until_logged("stood still", times=2)
    container.until_logged("broker stalls no more")
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 128 + signal.SIGTERM


def test_a_stop_wakes_a_slow_child(contain: Callable[[str], Container]) -> None:
    script = FAULTY.format(line="slow 600000 10000 1")
    container = contain(f"children = [child('broker', {script!r}, allows_faults=True)]")
    container.until_logged("broker stalls")
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 128 + signal.SIGTERM


def test_a_full_disk_has_room_again_by_itself_after_a_stop_and_after_a_death(
    contain: Callable[[str], Container], tmp_path: Path
) -> None:
    """Each time a broker starts, its disk is filled; where nothing else can end it, it does."""
    with small_disk(tmp_path / "disk", 8) as disk:
        script = FAULTY.format(line=f"fill 1000 {disk.path}")
        container = contain(f"children = [child('broker', {script!r}, allows_faults=True)]")
        container.until_logged("broker has no room in")
        container.until_logged("broker has room again")
        assert not list(disk.path.iterdir())
        container.process.send_signal(signal.SIGTERM)
        container.wait()
        script = FAULTY.format(line=f"fill 600000 {disk.path}")
        container = contain(f"children = [child('broker', {script!r}, allows_faults=True)]")
        container.until_logged("broker has no room in")
        assert disk.free_bytes < 4096
        container.process.send_signal(signal.SIGTERM)
        assert container.wait() == 128 + signal.SIGTERM
        assert not list(disk.path.iterdir())
        script = script.replace("time.sleep(600)", "time.sleep(1)")
        container = contain(f"children = [child('broker', {script!r}, allows_faults=True)]")
        container.until_logged("broker has no room in", times=2)
        container.process.send_signal(signal.SIGTERM)
        container.wait()


def test_only_a_folder_can_be_filled_and_only_for_a_while(
    contain: Callable[[str], Container],
) -> None:
    for line in ("fill 1 data", "fill 0 /data", "fill 600001 /data", "fill /data"):
        container = contain(
            f"children = [child('broker', {FAULTY.format(line=line)!r}, allows_faults=True)]"
        )
        container.until_logged("ignored: no such disk to fill")
        container.process.send_signal(signal.SIGTERM)
        container.wait()


def test_faults_are_ignored_without_drills(contain: Callable[[str], Container]) -> None:
    script = FAULTY.format(line="kill")
    container = contain(f"children = [child('broker', {script!r})]")
    container.until_logged("'kill' ignored: drills are not enabled")
    assert "ended" not in container.log


def test_a_closed_pipe_does_not_spin(contain: Callable[[str], Container]) -> None:
    script = (
        "import os, time; os.close(int(os.environ['FAIRLEAD_SUPERVISOR_FD']))\n"
        "os.write(2, b'closed')\ntime.sleep(600)"
    )
    container = contain(f"children = [child('broker', {script!r})]")
    container.until_logged("closed")
    process = psutil.Process(container.process.pid)

    def is_waiting() -> bool:
        before = process.cpu_times()
        return process.status() == psutil.STATUS_SLEEPING and process.cpu_times() == before

    container.until(is_waiting)


PAIR = "children = [child('controller', {first!r}), child('operator', {second!r}, stop_grace_s=10)]"
STUBBORN = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "os.write(2, b'armed'); time.sleep(600)"
)


def test_a_stop_ends_the_last_one_first(contain: Callable[[str], Container]) -> None:
    container = contain(PAIR.format(first=STEADY, second=STEADY))
    container.pid("operator")
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 128 + signal.SIGTERM
    assert container.log.index("operator was ended") < container.log.index("controller was ended")


def test_a_child_that_crashes_leaves_the_other_alone(contain: Callable[[str], Container]) -> None:
    container = contain(PAIR.format(first=STEADY, second="raise SystemExit(1)"))
    container.until_logged("operator exited with code 1; starting it again in 0.25 s")
    assert container.log.count("controller started") == 1


def test_a_child_that_is_not_vital_never_ends_the_container(
    contain: Callable[[str], Container],
) -> None:
    second = "child('operator', 'raise SystemExit(2)', is_vital=False)"
    container = contain(f"children = [child('controller', {STEADY!r}), {second}]")
    container.until_logged("operator exited with code 2; starting it again in 0.25 s")
    assert container.process.poll() is None


def test_a_child_that_is_not_vital_does_not_spoil_a_clean_stop(
    contain: Callable[[str], Container],
) -> None:
    clean = "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
    first = clean + "os.write(2, b'armed'); time.sleep(600)"
    second = f"child('operator', {STUBBORN!r}, is_vital=False, stop_grace_s=0.1)"
    container = contain(f"children = [child('controller', {first!r}), {second}]")
    container.until_logged("armed", times=2)
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 0
    assert "operator was ended by SIGKILL" in container.log


def test_orphans_are_ended_with_the_child_that_made_them(
    contain: Callable[[str], Container], tmp_path: Path
) -> None:
    forked = str(tmp_path / "forked")
    # The one that is started anew makes none, which would outlive the test.
    script = (
        f"import os, time\nif not os.path.exists({forked!r}) and os.fork() == 0:\n"
        f"    time.sleep(600)\nopen({forked!r}, 'w').close()\ntime.sleep(600)"
    )
    container = contain(f"children = [child('broker', {script!r})]")
    pid = container.pid("broker")
    container.until((tmp_path / "forked").exists)
    (orphan,) = (identify(child.pid) for child in psutil.Process(pid).children())
    assert orphan is not None
    os.kill(pid, signal.SIGKILL)
    container.until(lambda: not orphan.is_alive)


def test_what_an_earlier_run_said_is_not_why_a_later_one_ended(
    contain: Callable[[str], Container], tmp_path: Path
) -> None:
    script = (
        "import os, sys; fd = int(os.environ['FAIRLEAD_SUPERVISOR_FD'])\n"
        f"if os.path.exists({str(tmp_path / 'again')!r}): os._exit(2)\n"
        f"os.mknod({str(tmp_path / 'again')!r})\n"
        "os.write(fd, b'fatal the disk is away\\n'); os._exit(1)"
    )
    container = contain(f"children = [child('broker', {script!r})]")
    assert container.wait() == 2
    assert container.termination_log.read_text() == "broker exited with code 2\n"


def test_a_start_that_the_machine_refuses_is_tried_again(
    contain: Callable[[str], Container], tmp_path: Path
) -> None:
    program = tmp_path / "python"
    arguments = [str(program), "-S", "-c", STEADY]
    container = contain(f"children = [Child('broker', {arguments!r}, dict(PATH='/bin'))]")
    container.until_logged("broker cannot be started: No such file or directory", times=2)
    program.symlink_to(sys.executable)
    container.pid("broker")
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 128 + signal.SIGTERM


def test_a_log_that_nobody_reads_any_more_ends_nothing(tmp_path: Path) -> None:
    """A child writes where its own log handler copes with that; process 1 has to, too."""
    program = PROGRAM.format(
        children=f"children = [child('broker', {STEADY!r})]", termination_log=str(tmp_path / "none")
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            first = int(process.stderr.readline().split()[-1])
            process.stderr.close()
            supervisor = psutil.Process(process.pid)
            psutil.Process(first).kill()
            wait_until(
                lambda: (
                    process.poll() is not None
                    or [each.pid for each in supervisor.children()] not in ([], [first])
                )
            )
            assert process.poll() is None
            process.terminate()
            assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
        finally:
            process.kill()
