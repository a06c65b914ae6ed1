"""Read the data for a group's table: first its offsets, then the ends of the partitions.

The order matters, because a log only grows: a lag may be a little too large, but never negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.client.commit_metadata import read_commit_metadata
from fairlead_cli.client.groups import read_committed, require_group
from fairlead_cli.client.leaders import read_leaders
from fairlead_cli.client.offsets import read_ends_of
from fairlead_cli.client.places import Place
from fairlead_cli.group.lag import PartitionLag, build_lags

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.groups import GroupDescription


def observe_group(admin: AdminClient, group: str) -> tuple[GroupDescription, list[PartitionLag]]:
    """Return a group that exists, and each of its partitions."""
    description = require_group(admin, group)
    committed = read_committed(admin, group)
    if committed:
        metadata = read_commit_metadata(admin, description)
        committed = {
            place: at._replace(metadata=metadata.get(place, "")) for place, at in committed.items()
        }
    assigned = {place for member in description.members for place in member.partitions}
    leaders, ends = observe_partitions(admin, committed.keys() | assigned)
    return description, build_lags(committed, description.members, ends, leaders)


def observe_partitions(
    admin: AdminClient, places: Iterable[Place]
) -> tuple[dict[str, dict[int, int]], dict[Place, tuple[int, int]]]:
    """Return leaders by topic, and (log start, log end) of every partition that has a leader."""
    wanted = sorted(places)
    leaders = read_leaders(admin, (place.topic for place in wanted))
    led = [at for at in wanted if leaders.get(at.topic, {}).get(at.partition, -1) >= 0]
    ends = read_ends_of(admin, led)
    return leaders, {Place(*at): pair for at, pair in ends.items()}
