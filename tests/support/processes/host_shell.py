"""A shell on a host of `plain_hosts`, for the commands on a page of the docs.

Each host has its own /etc, /opt, /var/lib and /usr/local/bin: overlays over this machine's, in a
mount namespace that a process of the host holds. A namespace has no systemd, so a small `systemctl`
starts, stops and restarts the units, and restarts what fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from plain_hosts import Host

OWN_FOLDERS: Final = ("etc", "opt", "var/lib", "usr/local/bin")
SYSTEMCTL: Final = r"""#!/bin/bash
# What the page needs of systemctl: enable --now, start, stop, restart, daemon-reload.
set -eu
verb=$1; shift
[ "${1:-}" != --now ] || shift
run=/var/lib/units; mkdir -p $run
stop() {
    [ -e $run/$1 ] || return 0
    local shell=$(cat $run/$1) child
    child=$(ps -o pid= --ppid $shell) || return 0
    kill -TERM $child
    while kill -0 $shell 2>/dev/null; do sleep 0.1; done
}
start() {
    local line=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/$1.service)
    mkdir -p /var/lib/fairlead
    setsid sh -c "until $line; do sleep 0.2; done" </dev/null >>$run/$1.log 2>&1 &
    echo $! > $run/$1
}
for unit in "$@"; do
    case $verb in
        enable | start) start $unit ;;
        stop) stop $unit ;;
        restart) stop $unit; start $unit ;;
    esac
done
"""


class HostShell:
    """Runs scripts on one host; `close` ends all processes that they have left."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.home = host.directory / "home"
        self.home.mkdir()
        mounts = [f"{self._overlay(folder)}" for folder in OWN_FOLDERS]
        script = " && ".join([*mounts, "echo mounted", "exec sleep infinity"])
        self._holder = subprocess.Popen(
            ["ip", "netns", "exec", host.namespace, "unshare", "--mount", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "mounted\n", "overlays cannot be mounted"
        self._write("/usr/local/bin/systemctl", SYSTEMCTL)

    def install(self, program: Path) -> None:
        """Put the installed program where step 1 of the page puts it."""
        self.run(
            "mkdir -p /opt/fairlead/bin /etc/systemd/system\n"
            f"printf '#!/bin/sh\\nexec {sys.executable} {program} \"$@\"\\n' "
            "> /opt/fairlead/bin/fairlead\n"
            "chmod +x /opt/fairlead/bin/fairlead\n"
            "groupadd --system fairlead\n"
            "ln -sf /opt/fairlead/bin/fairlead /usr/local/bin/fairlead\n"
        )

    def run(self, script: str, *, timeout_s: float = 120) -> str:
        """Run a script with bash, as root; return its output."""
        done = subprocess.run(
            [*self._enter(), "bash", "-euo", "pipefail", "-c", script],
            cwd=self.home,
            env=os.environ | {"PATH": f"/usr/local/bin:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{self.host.name}: {script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def read(self, path: str) -> str:
        return self.run(f"cat {path}")

    def close(self) -> None:
        """Kill what runs on the host."""
        pids = subprocess.run(
            ["ip", "netns", "pids", self.host.namespace],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
        subprocess.run(["kill", "-9", *pids], check=False, capture_output=True)
        self._holder.wait()
        wait_until(lambda: not self._is_populated())
        if self._holder.stdout is not None:
            self._holder.stdout.close()

    def _is_populated(self) -> bool:
        listed = subprocess.run(
            ["ip", "netns", "pids", self.host.namespace], capture_output=True, check=False
        )
        return bool(listed.stdout.strip())

    def _enter(self) -> list[str]:
        target = str(self._holder.pid)
        return ["nsenter", "--target", target, "--mount", "--net", f"--wd={self.home}"]

    def _overlay(self, folder: str) -> str:
        upper = self.host.directory / "upper" / folder
        work = self.host.directory / "work" / folder
        for path in (upper, work):
            path.mkdir(parents=True)
        options = f"lowerdir=/{folder},upperdir={upper},workdir={work}"
        return f"mount -t overlay overlay -o {options} /{folder}"

    def _write(self, path: str, text: str) -> None:
        (self.host.directory / "upper" / path.lstrip("/")).write_text(text)
        self.run(f"chmod +x {path}")
