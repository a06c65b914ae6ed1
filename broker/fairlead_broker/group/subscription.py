"""Which topics a consumer's subscription names (Kafka's ConsumerProtocolSubscription).

Pure. To the group protocol a subscription is opaque; the broker looks into it only to keep the
offsets of topics that are being read. All versions begin alike: version, topics, user data.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from fairlead_broker.limits import MEMBER_TOPICS_MAX

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_HEAD: Final = Struct(">hi")
_INT16: Final = Struct(">h")
TOPIC_BYTES_MIN: Final = 2


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics; None if the bytes are not a subscription, or name too many."""
    size = len(metadata)
    if size < _HEAD.size:
        return None
    version, count = _HEAD.unpack_from(metadata)
    if version < 0 or not 0 <= count * TOPIC_BYTES_MIN <= size - _HEAD.size:
        return None
    if count > MEMBER_TOPICS_MAX:
        # With a mebibyte of them from each member, to look costs minutes. All offsets stay.
        return None
    position = _HEAD.size
    topics = set()
    for _ in range(count):
        if position + 2 > size:
            return None
        (length,) = _INT16.unpack_from(metadata, position)
        start, position = position + 2, position + 2 + length
        if length < 0 or position > size:
            return None
        try:
            topics.add(metadata[start:position].decode())
        except UnicodeDecodeError:
            return None
    return frozenset(topics)
