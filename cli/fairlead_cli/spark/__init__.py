"""`fairlead spark`: PySpark jobs against a local cluster, as StreamJobs run them in Kubernetes."""

from __future__ import annotations

import click

from fairlead_cli.spark.run import run


@click.group(short_help="Run PySpark jobs against the cluster.")
def spark() -> None:
    """Run PySpark programs and StreamJob manifests on this machine.

    Needs Java 17 or later and `pip install 'fairlead[spark]'`.
    """


spark.add_command(run)
