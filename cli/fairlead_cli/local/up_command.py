"""The command that starts a local cluster again, for errors and notes to give a user to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.advice import data_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.local.cluster_file import ClusterFile


def up_command(data: Path, cluster: ClusterFile | None = None) -> str:
    """`fairlead up …`, which serves the data at the addresses that the last run had."""
    from fairlead_cli.local.layout import HOST
    from fairlead_cli.local.plan import HTTP_PORT_DEFAULT, KAFKA_PORT_DEFAULT

    words = [f"fairlead up{data_arguments(data)}"]
    if cluster is not None:
        if cluster.port != KAFKA_PORT_DEFAULT:
            words.append(f"--port {cluster.port}")
        if cluster.http_port != HTTP_PORT_DEFAULT:
            words.append(f"--http-port {cluster.http_port}")
        if cluster.controller.host != HOST:
            words.append(f"--host {cluster.controller.host}")
        if cluster.proxy is not None:
            words.append("--fault-proxy")
    return " ".join(words)
