"""`--zookeeper HOST:PORT[,…][/CHROOT]`: the ensemble of a cluster to migrate from or back to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fairlead_zookeeper.address import (
    ZooKeeperAccess,
    ZooKeeperAddressError,
    parse_connect_string,
)

Command = TypeVar("Command", bound=Callable[..., Any])


def read_option(_ctx: click.Context, _parameter: click.Parameter, text: str) -> ZooKeeperAccess:
    """Turn the option's text into an address (an option's callback)."""
    try:
        return parse_connect_string(text)
    except ZooKeeperAddressError as error:
        raise click.BadParameter(str(error)) from error


def zookeeper_option(command: Command) -> Command:
    """Add `--zookeeper`, in the format of Kafka's `zookeeper.connect`."""
    return click.option(
        "--zookeeper",
        "ensemble",
        required=True,
        metavar="HOST:PORT[,...][/CHROOT]",
        callback=read_option,
        help=(
            "ZooKeeper of the old cluster: its servers, and the chroot of its zookeeper.connect."
        ),
    )(command)
