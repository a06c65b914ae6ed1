"""Commands in errors and notes that a user can paste: they address the same cluster.

A path may contain spaces, and a cluster may have been started with other ports.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from fairlead_cli.data_directory import DATA_DEFAULT

if TYPE_CHECKING:
    from pathlib import Path


# The key in the context of a command line for the file of --client-config.
CLIENT_CONFIG = "fairlead_cli.client_config"


def data_arguments(data: Path) -> str:
    """Return ` --data DIR` for the end of a command; empty for the default."""
    return "" if data == DATA_DEFAULT else f" --data {shlex.quote(str(data))}"


def cluster_arguments() -> str:
    """Return ` --bootstrap …` or ` --data DIR`, and ` --client-config FILE`, of this command line.

    Empty outside a command line, that is, in another thread, and for verbs without these options.
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
    """Return the data directory of the present command line, quoted."""
    context = click.get_current_context(silent=True)
    data = None if context is None else context.params.get("data")
    return shlex.quote(str(data or DATA_DEFAULT))
