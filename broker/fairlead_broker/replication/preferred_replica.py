"""Which replica a consumer should read from, if it names its rack (KIP-392). Pure.

Kafka's `RackAwareReplicaSelector`: the leader if it is in that rack, else the follower there with
the highest end offset, else the leader. Only followers count that are in sync, are in service, and
have the records that the consumer asks for, as far as the leader knows.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Follower(NamedTuple):
    """An in-sync follower that has the consumer's listener."""

    broker_id: int
    rack: str | None
    end_offset: int
    """Its log end, as the leader knows from its last fetch."""


def preferred_follower(
    rack: str, leader_rack: str | None, fetch_offset: int, followers: Iterable[Follower]
) -> int | None:
    """Return the broker to read from instead of the leader; None for the leader."""
    if leader_rack == rack:
        return None
    near = [each for each in followers if each.rack == rack and each.end_offset >= fetch_offset]
    if not near:
        return None
    return max(near, key=lambda each: (each.end_offset, -each.broker_id)).broker_id
