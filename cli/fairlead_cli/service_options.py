"""Options of the service processes: `fairlead broker` and `fairlead controller`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fairlead_cli.name_completion import complete_broker_settings

Command = TypeVar("Command", bound=Callable[..., Any])


def service_options(file: str) -> Callable[[Command], Command]:
    """Add `--config FILE` and `--set NAME=VALUE`; `file` is the usual name of the settings."""

    def add(command: Command) -> Command:
        command = click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="NAME=VALUE",
            shell_complete=complete_broker_settings,
            help="One setting; it overrides the environment (FAIRLEAD_LOG_LEVEL …) and the file.",
        )(command)
        return click.option(
            "--config",
            metavar="FILE",
            type=click.Path(dir_okay=False),
            help=f"Settings as NAME=VALUE lines, such as {file}.",
        )(command)

    return add
