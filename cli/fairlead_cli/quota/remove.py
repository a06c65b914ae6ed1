"""`fairlead quota remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.options import bootstrap_option, data_option
from fairlead_cli.quota.entity_options import entity_options

if TYPE_CHECKING:
    from pathlib import Path

EPILOG = """\b
Examples:
  fairlead quota remove --user alice producer_byte_rate
  fairlead quota remove --default-user
"""


@click.command("remove", epilog=EPILOG)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@entity_options
@data_option
@bootstrap_option
def command(keys: tuple[str, ...], data: Path, bootstrap: str | None, **options: Any) -> int:
    """Remove quotas of a user, a client id, both, or an address; all of them if no KEY is named."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.quotas import alter_quotas, fetch_quotas
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note
    from fairlead_cli.quota.entity_options import entity_text, read_entity

    entity = read_entity(options)
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    known = fetch_quotas(admin).get(entity, {})
    wanted = keys or tuple(sorted(known))
    removed = [key for key in wanted if key in known]
    if removed:
        alter_quotas(admin, entity, dict.fromkeys(removed))
        click.echo(f"Removed for {entity_text(entity)}: {', '.join(removed)}.")
    for key in wanted:
        if key not in known:
            note(f"{entity_text(entity)} has no {key}.")
    if not wanted:
        note(f"{entity_text(entity)} has no quotas.")
    return 0 if removed and len(removed) == len(wanted) else 1
