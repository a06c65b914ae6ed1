"""The command that restarts a local cluster, in errors and notes for a user to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.advice import data_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.local.cluster_file import ClusterFile


def up_command(data: Path, cluster: ClusterFile | None = None) -> str:
    """Return the `fairlead up …` that serves the data at the addresses of the last run."""
    proxy = " --fault-proxy" if cluster is not None and cluster.proxy is not None else ""
    return f"fairlead up{data_arguments(data)}{proxy}"
