"""`fairlead controller`: run a controller as this process, with its metadata in ZooKeeper."""

from __future__ import annotations

import click

from fairlead_cli.service_options import service_options

EPILOG = """\b
Examples:
  fairlead controller --config /etc/fairlead/controller.properties
  fairlead controller --config controller.properties --set fairlead.log.level=DEBUG

Several controllers may run on different hosts: one is active, and another takes over when it dies.
A controller logs to stderr, and prints one line that begins with `ready` once it listens. SIGTERM
stops it. Exit codes: 0 stopped on request, 1 it cannot start, 2 wrong settings, 3 another
controller has taken over, or may have: start it again, and it stands by.
"""


@click.command(epilog=EPILOG)
@service_options("controller.properties")
def controller(config: str | None, assignments: tuple[str, ...]) -> int:
    """Run a controller that keeps the metadata of its cluster in ZooKeeper."""
    if config is None:
        raise click.UsageError("name a file of settings with --config FILE")
    from fairlead_controller.zookeeper.main import main

    chosen = [f"--set={assignment}" for assignment in assignments]
    return main(["--config", config, *chosen])
