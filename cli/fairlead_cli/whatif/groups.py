"""The affected consumer groups: their partitions or coordinators change leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_cli.client.group_listing import list_groups
from fairlead_cli.client.groups import describe_groups, read_committed_of
from fairlead_cli.whatif.group_row import build_row

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from fairlead_controller.decisions.what_if import Forecast


def read_groups_behind(
    admin: AdminClient, forecast: Forecast, offsets_partitions: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each affected group, and the brokers that did not list their groups.

    A group reads the partitions with its committed offsets, and those of its members.
    """
    listings, untold = list_groups(admin)
    names = [each.group for each in listings]
    committed = read_committed_of(admin, names)
    reads = {group: {(at.topic, at.partition) for at in committed[group]} for group in names}
    with_members = [each.group for each in listings if each.state != "Empty"]
    for described in describe_groups(admin, with_members):
        for member in described.members:
            reads[described.group].update((at.topic, at.partition) for at in member.partitions)
    affected = {(each.topic, each.index): each for each in forecast.partitions}
    rows = []
    for listing in listings:
        row = build_row(listing.group, reads[listing.group], affected, offsets_partitions)
        if row is not None:
            rows.append({"group": listing.group, "state": listing.state} | row)
    return rows, untold
