"""`fairlead topic list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.options import bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

EPILOG = """\b
Examples:
  fairlead topic list
  fairlead topic list -o json --bootstrap localhost:9092
"""


@click.command("list", epilog=EPILOG)
@data_option
@bootstrap_option
@table_or_json
def command(data: Path, bootstrap: str | None, output: str) -> None:
    """List topics, with partitions that are under-replicated or have no leader."""
    from fairlead_cli.client.connection import build_admin, fetch_metadata
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note, print_json
    from fairlead_cli.topic.health import print_topics, summarize_topics

    rows = summarize_topics(fetch_metadata(build_admin(resolve_bootstrap(bootstrap, data))))
    if output == "json":
        print_json(rows)
    elif rows:
        print_topics(rows)
    else:
        note(f"No topics yet. Create one:  fairlead topic create hello{cluster_arguments()}")
