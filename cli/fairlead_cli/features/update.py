"""`fairlead features upgrade` and `fairlead features downgrade`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError
from fairlead_cli.options import (
    INT16_MAX,
    bootstrap_option,
    data_option,
    parse_assignments,
    parse_number,
)
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from fairlead_model.session.calls import FeatureUpgradeType

UPGRADE_EPILOG = """\b
Examples:
  fairlead features upgrade --dry-run
  fairlead features upgrade
  fairlead features upgrade group.version=1 transaction.version=2

Without NAME=LEVEL every feature is raised to the highest level that all brokers support.
Once fairlead.version is raised, it can never be lowered, and brokers of releases that do not
support it cannot join.
"""
DOWNGRADE_EPILOG = """\b
Examples:
  fairlead features downgrade transaction.version=1
  fairlead features downgrade group.version=0

Level 0 turns a feature off. fairlead.version can never be lowered.
"""

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only show whether the controller would do it."
)


@click.command("upgrade", epilog=UPGRADE_EPILOG)
@click.argument("levels", nargs=-1, metavar="[NAME=LEVEL]...")
@dry_run_option
@data_option
@bootstrap_option
def upgrade(levels: tuple[str, ...], dry_run: bool, data: Path, bootstrap: str | None) -> None:
    """Raise feature levels, all that are named or none of them."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_model.session.calls import FeatureUpgradeType

    wanted = parse_levels(levels)
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    if not levels:
        wanted = find_higher(admin)
        if not wanted:
            tell("Every feature has the highest level that all brokers support.")
            return
    update(admin, wanted, FeatureUpgradeType.UPGRADE, dry_run=dry_run)


@click.command("downgrade", epilog=DOWNGRADE_EPILOG)
@click.argument("levels", nargs=-1, required=True, metavar="NAME=LEVEL...")
@dry_run_option
@data_option
@bootstrap_option
def downgrade(levels: tuple[str, ...], dry_run: bool, data: Path, bootstrap: str | None) -> None:
    """Lower feature levels, all that are named or none of them."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_model.session.calls import FeatureUpgradeType

    wanted = parse_levels(levels)
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    update(admin, wanted, FeatureUpgradeType.SAFE_DOWNGRADE, dry_run=dry_run)


def parse_levels(texts: tuple[str, ...]) -> dict[str, int]:
    """Read NAME=LEVEL arguments; click.BadParameter for others."""
    levels = {}
    for name, text in parse_assignments(texts, "NAME=LEVEL").items():
        level = parse_number(text, INT16_MAX)
        if level is None:
            raise click.BadParameter(f"{name}={text}: a level is a number from 0 to {INT16_MAX}")
        levels[name] = level
    return levels


def find_higher(admin: AdminClient) -> dict[str, int]:
    """Return the features whose level is below what all answering brokers support."""
    from fairlead_cli.client.features import survey_features

    survey = survey_features(admin)
    highest = {name: survey.highest_of_all(name) for name in survey.levels}
    return {
        name: level
        for name, level in highest.items()
        if level is not None and level > survey.levels[name]
    }


def update(
    admin: AdminClient, levels: Mapping[str, int], kind: FeatureUpgradeType, *, dry_run: bool
) -> None:
    """Ask for the levels and print the new ones; CliError with the controller's reason."""
    from fairlead_cli.client.features import update_levels

    text = ", ".join(f"{name}={level}" for name, level in levels.items())
    if why_not := update_levels(admin, levels, kind, validate_only=dry_run):
        raise CliError(
            f"the levels stay as they are: {why_not}",
            hint=f"See who supports what:  fairlead features describe{cluster_arguments()}",
        )
    tell(f"{'It would be' if dry_run else 'In force'}: {text}")
