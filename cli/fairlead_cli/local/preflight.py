"""Checks before any process is started.

Each refusal names the obstacle and how to remove it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead_cli.errors import CliError
from fairlead_cli.local.cluster_file import read_cluster_file
from fairlead_cli.local.layout import PORT_MAX, Layout, Ports
from fairlead_cli.local.process_table import (
    find_port_holder,
    is_own_address,
    is_port_free,
    read_command_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fairlead_cli.local.plan import LaunchPlan

COMMAND_SHOWN_MAX = 100
PRIVILEGED_PORT_MAX = 1023
# Distances from the requested ports at which free ports are searched.
PORT_SHIFTS = (10_000, 20_000, 30_000, 1_000, 2_000, 3_000, 5_000, -10_000, -20_000)
# `log.dirs` is a comma-separated list, and a settings file has lines.
UNUSABLE_IN_SETTINGS = frozenset(",\r\n")


@contextmanager
def hold_data_directory(layout: Layout) -> Iterator[None]:
    """Create the folder and lock it; the kernel unlocks it when this process ends in any way."""
    if UNUSABLE_IN_SETTINGS & set(str(layout.root)):
        raise CliError(
            f"the data directory {str(layout.root)!r} has a comma or a line break in its name",
            hint="Brokers could not be told about it. Choose another one with --data DIR.",
        )
    try:
        str(layout.root).encode()
    except UnicodeEncodeError as error:
        raise CliError(
            f"the name of the data directory is not UTF-8 text: {str(layout.root)!r}",
            hint="Brokers could not be told about it. Choose another one with --data DIR.",
        ) from error
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        layout.log_directory.mkdir(exist_ok=True)
        layout.config_directory.mkdir(exist_ok=True)
        descriptor = os.open(layout.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise build_unusable_error(layout, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise build_held_error(layout) from error
        yield
    finally:
        os.close(descriptor)


@contextmanager
def unusable_told(layout: Layout) -> Iterator[None]:
    """Raise the same error for a directory that cannot be read as for one without write access."""
    try:
        yield
    except OSError as error:
        raise build_unusable_error(layout, error) from error


def build_unusable_error(layout: Layout, error: OSError) -> CliError:
    """Return the error for a full or read-only disk, a foreign folder, a path through a file."""
    where = f" ({error.filename})" if error.filename else ""
    hint = "Choose another one with --data DIR."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"Make room there, then try again:\n  df -h {shlex.quote(str(layout.root))}"
    return CliError(
        f"cannot use the data directory {layout.root}: {error.strerror}{where}", hint=hint
    )


def build_held_error(layout: Layout) -> CliError:
    """Return an error that names the supervisor of the data directory."""
    cluster = read_cluster_file(layout.cluster_file)
    pid = cluster.supervisor_pid if cluster else None
    where = f", serving at {cluster.bootstrap}" if cluster else ""
    return CliError(
        f"the data directory {layout.root} is held by pid {pid or 'unknown'}{where}",
        hint=f"Stop that cluster:\n  {down_command(layout)}\n"
        "or start a second one beside it, with --data, --port and --http-port of its own.",
    )


def down_command(layout: Layout) -> str:
    """Return the command to paste."""
    return shlex.join(["fairlead", "down", "--data", str(layout.root)])


def refuse_orphans(layout: Layout) -> None:
    """Raise CliError if children of a killed supervisor still use files and ports."""
    cluster = read_cluster_file(layout.cluster_file)
    if cluster is None:
        return
    alive = [f"{entry.name} (pid {entry.pid})" for entry in cluster.entries if entry.is_alive]
    if alive:
        raise CliError(
            f"the data directory {layout.root} is held by {', '.join(alive)}, "
            "left over by a supervisor that was killed",
            hint=f"Stop them; the data stays:\n  {down_command(layout)}",
        )


def refuse_taken_ports(plan: LaunchPlan) -> None:
    """Raise CliError unless all ports are distinct, valid and free."""
    purposes: dict[int, str] = {}
    for port, purpose in plan.ports.purposes(plan.brokers, fault_proxy=plan.fault_proxy):
        if not 0 < port <= PORT_MAX:
            raise CliError(
                f"port {port} ({purpose}) does not exist",
                hint=advise_ports(plan),
            )
        if port in purposes:
            raise CliError(
                f"port {port} would be used twice: {purposes[port]}, and {purpose}",
                hint="--port P takes P to P+250, --http-port H takes H to H+139.\n"
                + advise_ports(plan),
            )
        purposes[port] = purpose
    if not is_own_address(plan.ports.host):
        raise CliError(
            f"this machine has no address {plan.ports.host}",
            hint="Name one that it has with --host:  ip address",
        )
    for port, purpose in purposes.items():
        if not is_port_free(plan.ports.host, port):
            raise build_port_error(plan, port, purpose)


def advise_ports(plan: LaunchPlan) -> str:
    """Return the same command with ports that are free now."""
    free = find_free_ports(plan)
    if free is None:
        return "Choose other ones with --port PORT and --http-port PORT."
    return f"Use other ports:\n  {plan.command(free)}"


def find_free_ports(plan: LaunchPlan) -> Ports | None:
    """Return free ports near the requested ones: another HTTP port, Kafka port, or both.

    They are tried in this order. None if there are no free ports nearby.
    """
    kafka, http = plan.ports.first_kafka, plan.ports.first_http
    for shift in PORT_SHIFTS:
        for ports in (
            replace(plan.ports, first_http=http + shift),
            replace(plan.ports, first_kafka=kafka + shift),
            replace(plan.ports, first_kafka=kafka + shift, first_http=http + shift),
        ):
            used = [port for port, _ in ports.purposes(plan.brokers, fault_proxy=plan.fault_proxy)]
            is_legal = min(used) > PRIVILEGED_PORT_MAX and max(used) <= PORT_MAX
            is_distinct = len(set(used)) == len(used)
            if is_legal and is_distinct and all(is_port_free(ports.host, port) for port in used):
                return ports
    return None


def build_port_error(plan: LaunchPlan, port: int, purpose: str) -> CliError:
    """Return an error that names the process on the port, if it is visible."""
    pid = find_port_holder(port)
    other = find_cluster_of(pid) if pid is not None else None
    elsewhere = advise_ports(plan)
    if pid is None:
        return CliError(f"port {port} ({purpose}) is taken", hint=elsewhere)
    command = " ".join(read_command_line(pid))
    if len(command) > COMMAND_SHOWN_MAX:
        command = command[:COMMAND_SHOWN_MAX] + "…"
    hint = elsewhere
    if other is not None:
        stop = shlex.join(["fairlead", "down", "--data", str(other)])
        hint = f"That is the cluster in {other}. Stop it:\n  {stop}\n{hint}"
    return CliError(f"port {port} ({purpose}) is taken by pid {pid}: {command}", hint=hint)


def find_cluster_of(pid: int) -> Path | None:
    """Return the data directory of the local cluster that a process belongs to."""
    from pathlib import Path

    for argument in read_command_line(pid):
        for parent in Path(argument).parents:
            if Layout(parent).cluster_file.is_file():
                return parent
    return None
