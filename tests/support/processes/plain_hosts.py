"""Separate hosts on this machine: network namespaces at one switch, each with its processes.

    with Switch(hosts=3) as switch:
        host = switch.hosts[0]
        host.begin("fairlead", "broker", "--config", …)
        host.cut_off() ; host.join()          no packet passes, and no connection is closed
        host.power_off() ; host.power_on()    the same, and all its processes are killed
        host.slow_down() ; host.speed_up()    a narrow, slow line

The switch is a bridge in a separate namespace, where no firewall of this machine filters packets.
This machine is connected to the switch, too (`switch.gateway`), with clients and ZooKeeper.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from needed_tools import missing, need

if TYPE_CHECKING:
    from pathlib import Path

RANGE: Final = "198.18"
"""First two numbers of an address range for tests of networks (RFC 2544)."""
GATEWAY: Final = 254
SLOW_MS: Final = 50
SLOW_RATE: Final = "20mbit"
SLOW_BURST: Final = "32kbit"
SLOW_QUEUE: Final = "400ms"


def ip(*arguments: str) -> str:
    """Run `ip`; return its output."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def free_subnet() -> str:
    """Return the first three numbers of a subnet that this machine does not have yet."""
    taken = {
        address["local"]
        for link in json.loads(ip("-json", "-4", "address", "show"))
        for address in link["addr_info"]
    }
    numbers = ((os.getpid() + shift) % 256 for shift in range(256))
    subnets = (f"{RANGE}.{number}" for number in numbers)
    return next(each for each in subnets if not any(a.startswith(f"{each}.") for a in taken))


class HostProcess:
    """A process of a host, which is restarted whenever it fails, as by systemd."""

    def __init__(self, host: Host, command: list[str], log: Path) -> None:
        self.log = log
        script = 'until "$@"; do sleep 0.2; done'
        with log.open("ab") as output:
            self._shell = subprocess.Popen(
                ["ip", "netns", "exec", host.namespace, "sh", "-c", script, "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=host.directory,
                env=os.environ | {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"},
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and to the shell that restarts it."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, number)

    def kill(self) -> None:
        """Send SIGKILL; the process is not restarted."""
        self.signal(signal.SIGKILL)
        self._shell.wait()

    def stop(self, timeout_s: float) -> int:
        """Send SIGTERM to the process alone, as `systemctl stop`; return its exit code."""
        for child in children_of(self._shell.pid):
            os.kill(child, signal.SIGTERM)
        return self._shell.wait(timeout_s)


def children_of(pid: int) -> list[int]:
    text = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return [int(word) for word in text.split()]


class Host:
    """One host: a namespace, an address, a folder, and the processes that run there."""

    def __init__(self, switch: Switch, number: int, directory: Path) -> None:
        self.number = number
        self.name = f"host{number}"
        self.address = f"{switch.subnet}.{number}"
        self.namespace = f"{switch.name}-{number}"
        self.directory = directory
        self.processes: dict[str, HostProcess] = {}
        self._switch = switch
        self._commands: dict[str, list[str]] = {}
        self._line = f"{switch.name}h{number}"
        directory.mkdir(parents=True, exist_ok=True)

    def connect(self) -> None:
        """Create the namespace, and connect it to the switch."""
        ip("netns", "add", self.namespace)
        self._switch.plug(self._line, self.namespace, self.address)

    def begin(self, name: str, *command: str) -> HostProcess:
        """Start a process under a name; `power_on` starts it again."""
        self._commands[name] = list(command)
        self.processes[name] = HostProcess(self, list(command), self.directory / f"{name}.log")
        return self.processes[name]

    def restart(self, name: str) -> None:
        """Start a process again that has stopped."""
        self.begin(name, *self._commands[name])

    def cut_off(self) -> None:
        """Pull the cable at the switch."""
        ip("-n", self._switch.name, "link", "set", self._line, "nomaster")

    def join(self) -> None:
        """Put the cable back."""
        ip("-n", self._switch.name, "link", "set", self._line, "master", "bridge")

    def power_off(self) -> None:
        """Cut it off and kill everything: no connection is closed, because no packet passes."""
        self.cut_off()
        self.kill()

    def power_on(self) -> None:
        """Connect it again, and start its processes."""
        self.join()
        for name, command in self._commands.items():
            self.begin(name, *command)

    def kill(self) -> None:
        """Send SIGKILL to all processes."""
        for process in self.processes.values():
            process.signal(signal.SIGKILL)
        for process in self.processes.values():
            process.kill()
        self.processes.clear()

    def slow_down(self) -> None:
        """Make the line slow in both directions; without netem in the kernel limit its rate."""
        line = ("-n", self._switch.name, "qdisc", "replace", "dev", self._line, "root")
        netem = ("netem", "delay", f"{SLOW_MS}ms", "rate", SLOW_RATE)
        narrow = ("tbf", "rate", SLOW_RATE, "burst", SLOW_BURST, "latency", SLOW_QUEUE)
        inside = ("-n", self.namespace, "qdisc", "replace", "dev", "eth0", "root")
        kind = netem if has_netem() else narrow
        for where in (line, inside):
            subprocess.run(["tc", *where, *kind], check=True, capture_output=True)

    def speed_up(self) -> None:
        """Give the line its normal speed again."""
        for namespace, device in ((self._switch.name, self._line), (self.namespace, "eth0")):
            delete = ("qdisc", "del", "dev", device, "root")
            subprocess.run(["tc", "-n", namespace, *delete], check=True, capture_output=True)

    def run(self, *command: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command on the host to its end."""
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            cwd=self.directory,
        )

    def last_words(self) -> str:
        logs = sorted(self.directory.glob("*.log"))
        tails = ["\n".join(log.read_text(errors="replace").splitlines()[-25:]) for log in logs]
        return "\n".join(
            f"--- {self.name} {log.stem}\n{t}" for log, t in zip(logs, tails, strict=True)
        )


def has_netem() -> bool:
    """Tell whether the kernel can delay packets; some can only limit the rate of a line."""
    probe = ("qdisc", "replace", "dev", "lo", "root", "netem", "delay", "0ms")
    name = f"fl{os.getpid()}-probe"
    ip("netns", "add", name)
    try:
        done = subprocess.run(["tc", "-n", name, *probe], capture_output=True, check=False)
    finally:
        ip("netns", "delete", name)
    return done.returncode == 0


class Switch:
    """A bridge with hosts, created on entry and removed on exit."""

    def __init__(self, directory: Path, *, hosts: int) -> None:
        need("ip")
        if os.geteuid() != 0:
            missing("network namespaces need root: run as root, or in a container that is")
        self.name = f"fl{os.getpid()}"
        try:
            ip("netns", "add", self.name)
        except OSError as error:
            missing(f"network namespaces cannot be made here: {error}")
        self.subnet = free_subnet()
        self.gateway = f"{self.subnet}.{GATEWAY}"
        self.hosts = [
            Host(self, number, directory / f"host{number}") for number in range(1, hosts + 1)
        ]

    def __enter__(self) -> Self:
        try:
            ip("-n", self.name, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.name, "link", "set", "bridge", "up")
            self.plug(f"{self.name}gw", None, self.gateway)
            for host in self.hosts:
                host.connect()
        except OSError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.kill()
        with suppress(OSError):
            ip("link", "delete", f"{self.name}gw-in")
        names = ip("netns", "list").split()
        for namespace in (*(host.namespace for host in self.hosts), self.name):
            if namespace in names:
                ip("netns", "delete", namespace)

    def plug(self, line: str, namespace: str | None, address: str) -> None:
        """Connect the bridge with a namespace; None: with this machine."""
        inside = "eth0" if namespace else f"{line}-in"
        ip("link", "add", f"{line}-in", "type", "veth", "peer", "name", line, "netns", self.name)
        ip("-n", self.name, "link", "set", line, "master", "bridge", "up")
        there = ("-n", namespace) if namespace else ()
        if namespace:
            ip("link", "set", f"{line}-in", "netns", namespace, "name", inside)
            ip(*there, "link", "set", "lo", "up")
        ip(*there, "address", "add", f"{address}/24", "dev", inside)
        ip(*there, "link", "set", inside, "up")


def fairlead() -> str:
    """Return the path of the command that is installed beside this Python."""
    found = shutil.which("fairlead", path=os.path.dirname(sys.executable))  # noqa: PTH120
    if found is None:
        raise FileNotFoundError("fairlead is not installed beside this Python")
    return found
