"""`fairlead topic delete`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fairlead_cli.name_completion import complete_topics
from fairlead_cli.options import bootstrap_option, data_option
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EPILOG = """\b
Examples:
  fairlead topic delete orders
  fairlead topic delete orders payments --if-exists
  fairlead topic delete orders --yes

In a terminal it asks before it deletes. With --yes, and where its input or its errors are no
terminal, as in most scripts, it does not ask.
"""
DECLARED = (
    "Leave the manifest out at the next `fairlead up`, and the topic may be deleted. On Kubernetes "
    "delete the Topic; with reclaimPolicy Delete the records go, too."
)


@click.command("delete", epilog=EPILOG)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topics)
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no error.")
@click.option("--yes", is_flag=True, help="Do not ask, in a terminal either.")
@data_option
@bootstrap_option
def command(
    *, names: tuple[str, ...], if_exists: bool, yes: bool, data: Path, bootstrap: str | None
) -> int:
    """Delete topics and all of their records. There is no way back."""
    from confluent_kafka import KafkaException

    from fairlead_cli.client.connection import (
        UNKNOWN_TOPIC_NAMES,
        build_admin,
        build_error,
        build_unknown_topic_error,
        fetch_metadata,
    )
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.errors import CliError
    from fairlead_cli.several_names import report_missing

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        there = fetch_metadata(admin).topics
        ask({name: len(there[name].partitions) for name in names if name in there})
    futures = admin.delete_topics(list(dict.fromkeys(names)))
    errors = []
    for name, future in futures.items():
        try:
            future.result()
            tell(f"Deleted topic {name}.")
        except KafkaException as exception:
            error = exception.args[0]
            if error.name() == "POLICY_VIOLATION":
                # The version of librdkafka's request has no field for the broker's message.
                what = f"cannot delete topic '{name}': a manifest declares it (POLICY_VIOLATION)"
                errors.append(CliError(what, hint=DECLARED))
            elif error.name() not in UNKNOWN_TOPIC_NAMES:
                errors.append(build_error(f"cannot delete topic '{name}'", error))
            elif not if_exists:
                topics = list(fetch_metadata(admin).topics)
                errors.append(build_unknown_topic_error(name, topics, is_wanted=False))
    return report_missing(errors)


def ask(partitions: Mapping[str, int]) -> None:
    """Ask the user for all topics in one question; CliError if the answer is no."""
    from fairlead_cli.errors import CliError
    from fairlead_cli.output import format_count

    if not partitions:
        return
    what = ", ".join(
        f"{name} ({format_count(count, 'partition')})" for name, count in partitions.items()
    )
    topics = "topic" if len(partitions) == 1 else "topics"
    if not click.confirm(f"Delete {topics} {what} and all records? There is no way back", err=True):
        raise CliError("nothing was deleted")
