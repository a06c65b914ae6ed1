"""Shell completion of transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.name_completion import ask_cluster

if TYPE_CHECKING:
    import click
    from confluent_kafka.admin import AdminClient


def complete_transactional_ids(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return transactional ids with this prefix."""
    return [each for each in ask_cluster(ctx, read_ids) if each.startswith(incomplete)]


def read_ids(admin: AdminClient) -> list[str]:
    """Return the ids from the brokers that answer."""
    from fairlead_cli.client.transactions import TransactionFilter, list_transactions

    listings, _ = list_transactions(admin, TransactionFilter())
    return [each.transactional_id for each in listings]
