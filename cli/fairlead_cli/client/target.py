"""The cluster of a verb: `--bootstrap HOST:PORT`, or the local one of `--data DIR`.

This module connects before librdkafka does, because librdkafka retries silently until its time-out,
and a user wants to read "nobody listens there" at once. librdkafka gets only addresses that have
answered: it would wait a whole time-out for a broker that hangs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import data_arguments
from fairlead_cli.client.access import (
    configured_bootstrap,
    configured_file,
    login_settings,
    note_local_cluster,
)
from fairlead_cli.client.answering import PATIENCE_S, Address, Answers, find_answering
from fairlead_cli.errors import CliError
from fairlead_cli.local.cluster_file import read_cluster_file
from fairlead_cli.local.control import state_of_entry
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.up_command import up_command
from fairlead_model.host_address import split_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_cli.local.cluster_file import ClusterFile

KAFKA_PORT = 9092


def resolve_bootstrap(bootstrap: str | None, data: Path, *, patience_s: float = PATIENCE_S) -> str:
    """Return addresses that answer, as `host:port,…`. CliError says what to do if none does."""
    bootstrap = bootstrap or configured_bootstrap()
    if bootstrap is None:
        return resolve_local(data, patience_s)
    found = find_answering(parse_addresses(bootstrap), patience_s=patience_s)
    if not found.answering:
        raise CliError(
            f"no broker answers at {bootstrap}: {found.reason}",
            hint="Check the address, and that the cluster runs there."
            if login_settings() is None
            else f"Check the address, and the login in {configured_file()}.",
        )
    return join_addresses(found.answering)


def resolve_local(data: Path, patience_s: float) -> str:
    """Return the target for the local cluster of a data directory."""
    cluster = read_cluster_file(Layout(data).cluster_file)
    if cluster is None:
        raise CliError(
            f"there is no local cluster in {data}",
            hint=f"Start one:\n  {up_command(data)}\n"
            "or name another with --data DIR or --bootstrap HOST:PORT.",
        )
    if not any(broker.is_alive for broker in cluster.brokers):
        if cluster.is_supervised:
            raise build_no_broker_error(data, cluster)
        raise CliError(
            f"the local cluster in {data} is not running",
            hint=f"Start it; its data is still there:\n  {up_command(data, cluster)}",
        )
    found = find_local(cluster, patience_s=patience_s)
    if not found.answering:
        raise CliError(
            f"the brokers of {data} run but do not answer: {found.reason}",
            hint=f"See what they do:\n  fairlead status{data_arguments(data)}",
        )
    return join_addresses(found.answering)


def build_no_broker_error(data: Path, cluster: ClusterFile) -> CliError:
    """Return the error for a supervisor that runs while its brokers have ended or not started."""
    names = ", ".join(f"{broker.name} is {state_of_entry(broker)}" for broker in cluster.brokers)
    output = Layout(data).output_file(cluster.brokers[0].name if cluster.brokers else "controller")
    return CliError(
        f"no broker of the local cluster in {data} runs now (it is {cluster.state}): {names}",
        hint=f"Try again in a moment. If that does not help, its last words are in\n  {output}",
    )


def find_local(cluster: ClusterFile, *, patience_s: float = PATIENCE_S) -> Answers:
    """Find the brokers of a local cluster that answer. Brokers known to be paused are not asked."""
    note_local_cluster(Path(cluster.data))
    asked, reasons = [], {}
    for broker in cluster.brokers:
        address = Address(broker.host, broker.port)
        if broker.process is not None and broker.process.is_paused:
            reasons[address] = f"broker {broker.id} is paused"
        elif broker.is_alive:
            asked.append(address)
    found = find_answering(asked, patience_s=patience_s)
    return Answers(found.answering, reasons | found.reasons)


def join_addresses(addresses: Iterable[Address]) -> str:
    """Join addresses as clients take them."""
    return ",".join(str(address) for address in addresses)


def parse_addresses(text: str) -> list[Address]:
    """Parse `host`, `host:port`, `[v6]:port`, separated by commas."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        has_port = ":" in part.rpartition("]")[2]
        try:
            host, port = split_address(part if has_port else f"{part}:{KAFKA_PORT}")
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bootstrap") from None
        if not host or not port:
            raise click.BadParameter(f"'{part}' is not HOST:PORT", param_hint="--bootstrap")
        addresses.append(Address(host, port))
    if not addresses:
        raise click.BadParameter("no address", param_hint="--bootstrap")
    return addresses
