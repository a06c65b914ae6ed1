"""Leaders of partitions, by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.client.connection import UNKNOWN_TOPIC_NAMES, build_error, fetch_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

# librdkafka asks for one topic or for all; above this number, one request for all is cheaper.
ASKED_SINGLY_MAX = 16


def read_leaders(admin: AdminClient, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """Return the leaders by partition, -1 if there is none; topics that do not exist are absent."""
    wanted = sorted(set(topics))
    if len(wanted) > ASKED_SINGLY_MAX:
        known = fetch_metadata(admin).topics
    else:
        known = {name: fetch_metadata(admin, name).topics.get(name) for name in wanted}
    leaders = {}
    for name in wanted:
        topic = known.get(name)
        if topic is None:
            continue
        if topic.error is None:
            leaders[name] = {p.id: p.leader for p in topic.partitions.values()}
        elif topic.error.name() not in UNKNOWN_TOPIC_NAMES:
            raise build_error(f"cannot look at topic '{name}'", topic.error)
    return leaders
