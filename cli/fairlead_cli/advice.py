"""Commands that errors and notes give a user to paste: as printed, they reach the same cluster.

A path may hold spaces, and a cluster may have been started with ports of its own.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from fairlead_cli.data_directory import DATA_DEFAULT

if TYPE_CHECKING:
    from pathlib import Path


# Where the context of a command line keeps the file of --client-config.
CLIENT_CONFIG = "fairlead_cli.client_config"


def data_arguments(data: Path) -> str:
    """` --data DIR` for the end of a command, empty for the default."""
    return "" if data == DATA_DEFAULT else f" --data {shlex.quote(str(data))}"


def cluster_arguments() -> str:
    """` --bootstrap …` or ` --data DIR`, and ` --client-config FILE`, as of this command line.

    Empty outside of a command line: in another thread, and in verbs that have neither option.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return ""
    client_config = context.meta.get(CLIENT_CONFIG)
    login = "" if client_config is None else f" --client-config {shlex.quote(client_config)}"
    bootstrap = context.params.get("bootstrap")
    if bootstrap is not None:
        return f" --bootstrap {shlex.quote(bootstrap)}{login}"
    return data_arguments(context.params.get("data") or DATA_DEFAULT) + login


def data_directory() -> str:
    """Of the command line that runs now, quoted."""
    context = click.get_current_context(silent=True)
    data = None if context is None else context.params.get("data")
    return shlex.quote(str(data or DATA_DEFAULT))
