"""`DIR/cluster.json`: the processes of a data directory's cluster, and their addresses.

The supervisor writes it on every change (tmp + rename, so that a reader never sees half a file),
and every verb reads it. It stays after `down`, with state `stopped`, with the ports and the number
of brokers of the last run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fairlead_cli.errors import CliError
from fairlead_cli.local.process_table import ProcessId
from fairlead_cli.whole_file import write_whole
from fairlead_model.host_address import join_address

if TYPE_CHECKING:
    from pathlib import Path

FORMAT_VERSION = 1


@dataclass(slots=True)
class ProcessEntry:
    """One child of the supervisor. `state` is the last one that the supervisor saw."""

    name: str
    host: str
    port: int
    http_port: int
    id: int | None = None
    pid: int | None = None
    start_time: int | None = None
    state: str = "stopped"
    restarts: int = 0
    rest: str | None = None
    """URL of a broker's HTTP API."""

    @property
    def process(self) -> ProcessId | None:
        """The process, to query it and to signal it."""
        if self.pid is None or self.start_time is None:
            return None
        return ProcessId(self.pid, self.start_time)

    @property
    def is_alive(self) -> bool:
        """Whether the process exists now, whatever the file says."""
        return self.process is not None and self.process.is_alive


@dataclass(slots=True)
class ClusterFile:
    """The whole file."""

    data: str
    port: int
    http_port: int
    supervisor_pid: int | None
    supervisor_start_time: int | None
    controller: ProcessEntry
    brokers: list[ProcessEntry] = field(default_factory=list)
    proxy: ProcessEntry | None = None
    state: str = "starting"
    version: int = FORMAT_VERSION

    @property
    def supervisor(self) -> ProcessId | None:
        """The supervisor, or None after a clean stop."""
        if self.supervisor_pid is None or self.supervisor_start_time is None:
            return None
        return ProcessId(self.supervisor_pid, self.supervisor_start_time)

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor runs now."""
        return self.supervisor is not None and self.supervisor.is_alive

    @property
    def entries(self) -> list[ProcessEntry]:
        """All children in the order in which they are stopped: brokers first."""
        last = [] if self.proxy is None else [self.proxy]
        return [*self.brokers, self.controller, *last]

    @property
    def bootstrap(self) -> str:
        """The value for a Kafka client's bootstrap.servers."""
        return ",".join(join_address(broker.host, broker.port) for broker in self.brokers)


def write_cluster_file(path: Path, cluster: ClusterFile) -> None:
    """Replace the file as a whole."""
    write_whole(path, json.dumps(asdict(cluster), indent=2) + "\n")


def read_cluster_file(path: Path) -> ClusterFile | None:
    """Return the file; None if this directory never had a cluster."""
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error
    try:
        return decode_cluster_file(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        raise CliError(
            f"{path} is not a cluster file: {error}",
            hint=f"Move it away and start again; the data beside it is kept.\n  mv {path} /tmp/",
        ) from error


def decode_cluster_file(document: dict[str, Any]) -> ClusterFile:
    """Read the file from JSON; ValueError, KeyError or TypeError if it is something else."""
    if document["version"] != FORMAT_VERSION:
        raise ValueError(f"version {document['version']}, this command knows {FORMAT_VERSION}")
    fields = dict(document)
    fields["controller"] = ProcessEntry(**fields["controller"])
    fields["brokers"] = [ProcessEntry(**entry) for entry in fields["brokers"]]
    if fields.get("proxy") is not None:
        fields["proxy"] = ProcessEntry(**fields["proxy"])
    return ClusterFile(**fields)
