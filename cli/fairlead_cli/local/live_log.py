"""The terminal of a foreground `fairlead up`: a table of addresses, then a line for each event.

Children log `<time> <who> <LEVEL> <logger>: <message>`. Here the process name and a colour replace
the time and the logger; a line in another form is shown unchanged.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlead_cli.local.client_files import ClientPaths, format_clients
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.partition_digest import LogLine, PartitionDigest
from fairlead_cli.local.secure_files import ADMIN, admin_file
from fairlead_model.host_address import join_address

if TYPE_CHECKING:
    from fairlead_cli.local.cluster_file import ClusterFile

LOG_LINE = re.compile(
    r"^\d{4}-\d\d-\d\d[T ][\d:.,]+Z? (?:broker \d+ |controller (?:\d+ )?)?"
    r"(?P<level>[A-Z]+) (?P<logger>[\w.]+): (?P<message>.*)$"
)
COLOURS = ("cyan", "magenta", "yellow", "blue", "green", "bright_cyan", "bright_magenta")
LEVEL_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
NAME_COLUMNS = 10
# Messages of a process that the supervisor reports in better words.
REPEATED = re.compile(r"^ready (node\.id=\d+|controller|candidate) ")


def colour_of(name: str) -> str:
    """Return the same colour for a process in every run."""
    if name.startswith("broker-"):
        return COLOURS[int(name.removeprefix("broker-")) % len(COLOURS)]
    return "white"


def format_line(name: str, text: str, *, level: str = "INFO") -> str:
    """Return a line with time, process and text."""
    label = click.style(f"{name:<{NAME_COLUMNS}}", fg=colour_of(name))
    colour = LEVEL_COLOURS.get(level)
    return f"{time.strftime('%H:%M:%S')} {label} {click.style(text, fg=colour) if colour else text}"


def read_child_line(name: str, line: str) -> LogLine | None:
    """Return a child's line in the form of the live log; None if it is omitted."""
    if REPEATED.match(line):
        return None
    match = LOG_LINE.match(line)
    if match is None:
        return LogLine(name, "", line)
    if match["level"] == "DEBUG":
        return None
    return LogLine(name, match["level"], match["message"])


def format_addresses(cluster: ClusterFile) -> str:
    """Return the addresses, and what to try first, in plain text, because a log shows it, too."""
    rows = [("process", "pid", "Kafka", "health, metrics")]
    for broker in cluster.brokers:
        rows.append(
            (
                broker.name,
                str(broker.pid),
                join_address(broker.host, broker.port),
                f"http://{join_address(broker.host, broker.http_port)}",
            )
        )
    controller = cluster.controller
    rows.append(
        (
            controller.name,
            str(controller.pid),
            "-",
            f"http://{join_address(controller.host, controller.http_port)}",
        )
    )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines[0] = click.style(lines[0], bold=True)
    return "\n".join(lines)


def is_secure(cluster: ClusterFile) -> bool:
    """Tell whether clients of a cluster have to log in."""
    return admin_file(Layout(Path(cluster.data))).exists()


def client_lines(cluster: ClusterFile) -> str:
    """Return the lines to paste into five clients and curl."""
    layout = Layout(Path(cluster.data))
    return format_clients(
        ADMIN,
        cluster.bootstrap,
        ca=layout.ca_certificate,
        paths=ClientPaths.of(layout.clients_directory, ADMIN),
        rest=cluster.brokers[0].rest,
    )


def format_first_steps(cluster: ClusterFile, data_option: str) -> str:
    """Return lines to paste into another terminal."""
    address = join_address(cluster.brokers[0].host, cluster.brokers[0].port)
    steps = [
        (f"fairlead status{data_option}", "brokers, leaders, topics"),
        (f"fairlead topic create hello{data_option}", "a topic of your own"),
        (f"echo world | fairlead produce hello{data_option}", "write to it"),
        (f"fairlead consume hello{data_option}", "read it back"),
    ]
    if not is_secure(cluster):
        steps.append((f"kcat -b {address} -L", "or any Kafka client"))
        rest = cluster.brokers[0].rest
        if rest is not None:
            steps.append((f"curl -s {rest}/v3/clusters", "or HTTP"))
    width = max(len(command) for command, _ in steps)
    lines = [f"  {command:<{width}}  {click.style('# ' + why, dim=True)}" for command, why in steps]
    return "\n".join(["Try this:", *lines])


def format_ready(cluster: ClusterFile, seconds: float, data_option: str) -> str:
    """Return the block that `up` prints once everything serves."""
    count = len(cluster.brokers)
    brokers = f"{count} broker" if count == 1 else f"{count} brokers"
    head = f"Fairlead is up: {brokers} and a controller, ready in {seconds:.1f} s."
    clients = []
    if is_secure(cluster):
        clients = [client_lines(cluster), ""]
    return "\n".join(
        [
            "",
            click.style(head, fg="green", bold=True),
            f"Data in {cluster.data}",
            "",
            format_addresses(cluster),
            "",
            format_first_steps(cluster, data_option),
            "",
            *clients,
        ]
    )


class TerminalReporter:
    """Writes to stdout at once; if the terminal is gone, the cluster goes on."""

    def __init__(self, data_option: str, *, every_partition: bool = False) -> None:
        self.data_option = data_option
        self.digest = None if every_partition else PartitionDigest()
        self.is_listening = True

    def progress(self, name: str, text: str) -> None:
        self.write(format_line(name, text))

    def warning(self, name: str, text: str) -> None:
        self.write(format_line(name, text, level="WARNING"))

    def ready(self, cluster: ClusterFile, seconds: float) -> None:
        self.write(format_ready(cluster, seconds, self.data_option))
        self.write("Live log; Ctrl-C stops the cluster and keeps its data.")

    def output(self, lines: list[tuple[str, str]]) -> None:
        read = [each for name, line in lines if (each := read_child_line(name, line)) is not None]
        self.show(read if self.digest is None else self.digest.take(read))

    def settle(self) -> None:
        if self.digest is not None:
            self.show(self.digest.settle())

    def show(self, lines: list[LogLine]) -> None:
        for name, level, message in lines:
            self.write(format_line(name, message, level=level))

    def write(self, text: str) -> None:
        if not self.is_listening:
            return
        try:
            click.echo(text)
        except OSError:
            self.is_listening = False
