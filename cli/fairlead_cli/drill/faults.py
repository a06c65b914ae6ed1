"""Causes faults in processes of a local cluster, and undoes them in any case.

kill     SIGKILL; the supervisor restarts the process
stop     SIGTERM: a clean stop; the supervisor restarts the process
pause    SIGSTOP, later SIGCONT: alive, but silent; for a controller, the supervisor does not wait
         but starts another after two seconds
slow     SIGSTOP and SIGCONT in turns (`stalls`)
roll     SIGTERM to one broker after another, each when all is well again: a rolling restart
isolate  the network around a process is cut, and later restored: alive, but without connections.
         Needs a cluster whose processes use its fault proxy (`fairlead up --fault-proxy`);
         no root, no firewall
disk-full  the file system of a broker's data, which must be its own, has no room for a while
"""

from __future__ import annotations

import signal
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead_cli.advice import data_arguments
from fairlead_cli.drill.full_disks import FullDisks, check_all, check_any
from fairlead_cli.drill.stalls import Stalls, StallThread
from fairlead_cli.errors import CliError
from fairlead_cli.local.control import require_process, require_supervisor, send_signal
from fairlead_cli.local.fault_proxy import ProxyControl
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.up_command import up_command

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry
    from fairlead_cli.local.process_table import ProcessId

DEFAULT_STALLS = Stalls()


class FaultKind(StrEnum):
    """The kinds of faults."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    ISOLATE = "isolate"
    SLOW = "slow"
    ROLL = "roll"
    DISK_FULL = "disk-full"

    @property
    def lasts(self) -> bool:
        """Whether the fault lasts until it is undone."""
        return self in _LASTING

    @property
    def ends_process(self) -> bool:
        """Whether another process replaces the target."""
        return not self.lasts


_LASTING = frozenset({FaultKind.PAUSE, FaultKind.ISOLATE, FaultKind.SLOW, FaultKind.DISK_FULL})


class FaultInjector:
    """A context: when it ends, also by an error or Ctrl-C, faults that last are undone."""

    def __init__(
        self, cluster: ClusterFile, kind: FaultKind, stalls: Stalls = DEFAULT_STALLS
    ) -> None:
        self.kind = kind
        self._stalls = stalls
        self._stalling: StallThread | None = None
        self._paused: list[ProcessId] = []
        self._layout = Layout(Path(cluster.data))
        self._full: FullDisks | None = None
        self._proxy: ProxyControl | None = None
        if kind is FaultKind.ISOLATE:
            if cluster.proxy is None or not cluster.proxy.is_alive:
                raise CliError(
                    "this cluster has no fault proxy, so its network cannot be cut",
                    hint="Start it with one:\n"
                    f"  fairlead down{data_arguments(Path(cluster.data))}\n"
                    f"  {up_command(Path(cluster.data), cluster)} --fault-proxy",
                )
            self._proxy = ProxyControl(cluster.proxy.host, cluster.proxy.http_port)
        else:
            require_supervisor(cluster)
        if kind is FaultKind.DISK_FULL:
            check_any(self._disks(cluster.brokers))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.heal()

    def inject(self, entries: list[ProcessEntry]) -> list[ProcessId]:
        """Inject the fault into all targets at nearly the same time; return their processes."""
        processes = [require_process(entry) for entry in entries]
        match self.kind:
            case FaultKind.ISOLATE:
                if self._proxy is not None:
                    self._proxy.cut([entry.name for entry in entries])
            case FaultKind.PAUSE:
                self._paused = processes
                for entry in entries:
                    send_signal(entry, signal.SIGSTOP)
            case FaultKind.SLOW:
                self._stalling = StallThread(processes, self._stalls)
                self._stalling.start()
            case FaultKind.DISK_FULL:
                check_all(disks := self._disks(entries))
                self._full = FullDisks(disks)
            case FaultKind.KILL:
                for entry in entries:
                    send_signal(entry, signal.SIGKILL)
            case FaultKind.STOP | FaultKind.ROLL:
                for entry in entries:
                    send_signal(entry, signal.SIGTERM)
        return processes

    def _disks(self, entries: list[ProcessEntry]) -> list[Path]:
        return [self._layout.broker_directory(each.id) for each in entries if each.id is not None]

    def heal(self) -> None:
        """Undo faults that last; do nothing if there are none."""
        paused, self._paused = self._paused, []
        for process in paused:
            with suppress(OSError):
                process.send(signal.SIGCONT)
        stalling, self._stalling = self._stalling, None
        if stalling is not None:
            stalling.stop()
        full, self._full = self._full, None
        if full is not None:
            full.empty()
        if self._proxy is not None:
            self._proxy.heal()
