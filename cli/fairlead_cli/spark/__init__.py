"""`fairlead spark`: PySpark jobs on a local cluster, as StreamJobs run them in Kubernetes."""

from __future__ import annotations

import click

from fairlead_cli.spark.run import run
from fairlead_cli.verb_group import VerbGroup


@click.group(cls=VerbGroup, short_help="Run PySpark jobs against the cluster.")
def spark() -> None:
    """Run PySpark programs and StreamJob manifests on this machine.

    Needs Java 17 or later and `pip install -e '.[spark]'`.

    \b
    Examples:
      fairlead spark run examples/spark/late_flights.yaml --available-now
      fairlead spark run job.py -- --my-option 1
    """


spark.add_command(run)
