"""Which cluster a verb talks to: `--bootstrap HOST:PORT`, or the local one of `--data DIR`.

The address is tried before librdkafka sees it, because librdkafka keeps trying quietly for as long
as its time-out allows, where a person wants to hear "nobody listens there" at once.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import click

from fairlead_cli.errors import CliError
from fairlead_cli.local.cluster_file import read_cluster_file
from fairlead_cli.local.layout import Layout
from fairlead_cli.options import DATA_DEFAULT

if TYPE_CHECKING:
    from pathlib import Path

KAFKA_PORT = 9092
PORT_MAX = 65535
CONNECT_TIMEOUT_S = 2.0
# A Service may for a moment still lead to a pod that has gone; a new connection is led elsewhere.
CONNECT_ROUNDS = 4


def resolve_bootstrap(bootstrap: str | None, data: Path) -> str:
    """Addresses that answer, as `host:port,…`. CliError says what to do when none does."""
    if bootstrap is not None:
        addresses = parse_addresses(bootstrap)
        reason = try_addresses(addresses)
        if reason is not None:
            raise CliError(
                f"no broker answers at {bootstrap}: {reason}",
                hint="Check the address, and that the cluster runs there.",
            )
        return ",".join(f"{host}:{port}" for host, port in addresses)
    return resolve_local(data)


def resolve_local(data: Path) -> str:
    """Addresses of the local cluster of a data directory."""
    option = "" if data == DATA_DEFAULT else f" --data {data}"
    cluster = read_cluster_file(Layout(data).cluster_file)
    if cluster is None:
        raise CliError(
            f"there is no local cluster in {data}",
            hint=f"Start one:\n  fairlead up{option}\n"
            "or name another with --data DIR or --bootstrap HOST:PORT.",
        )
    if not any(broker.is_alive for broker in cluster.brokers):
        raise CliError(
            f"the local cluster in {data} is not running",
            hint=f"Start it; its data is still there:\n  fairlead up{option}",
        )
    reason = try_addresses([(broker.host, broker.port) for broker in cluster.brokers])
    if reason is not None:
        raise CliError(
            f"the brokers of {data} run but do not answer: {reason}",
            hint=f"They may still be recovering:\n  fairlead status{option}",
        )
    return cluster.bootstrap


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """`host`, `host:port`, `[v6]:port`, separated by commas."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or part.endswith("]"):
            host, port = part, str(KAFKA_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
            raise click.BadParameter(f"'{part}' is not HOST:PORT", param_hint="--bootstrap")
        addresses.append((host, int(port)))
    if not addresses:
        raise click.BadParameter("no address", param_hint="--bootstrap")
    return addresses


def try_addresses(addresses: list[tuple[str, int]]) -> str | None:
    """None when one of them accepts a connection, else why the last did not.

    An address that refuses is believed at once; one that is silent is asked again.
    """
    reason = "no address"
    asked = addresses
    for _ in range(CONNECT_ROUNDS):
        silent = []
        for host, port in asked:
            try:
                with socket.create_connection((host.strip("[]"), port), timeout=CONNECT_TIMEOUT_S):
                    return None
            except TimeoutError:
                silent.append((host, port))
                reason = f"{host}:{port} did not answer within {CONNECT_TIMEOUT_S:.0f} s"
            except OSError as error:
                reason = f"{host}:{port}: {error.strerror or error}"
        if not silent:
            break
        asked = silent
    return reason
