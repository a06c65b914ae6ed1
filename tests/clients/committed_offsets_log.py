"""The commits of groups in the order in which `__consumer_offsets` holds them.

Read as any client may read that topic, and decoded by hand: a key is a version of two bytes (0 or
1), then group and topic with their lengths, then the partition; a value begins with its version and
the offset, in all of its versions.
"""

import struct
from collections import defaultdict
from typing import Any, Final

from group_member import Place

_TOPIC: Final = "__consumer_offsets"
_COMMIT_VERSIONS: Final = (0, 1)
_TIMEOUT_S: Final = 60

CommitLog = dict[str, dict[Place, list[int | None]]]
"""By group and partition: every offset that was committed, None where it was removed."""


def read_commit_log(bootstrap: str) -> CommitLog:
    """Return every commit of every group, from the beginning of the log to its present end."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-the-log-and-commits-nothing",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(_TOPIC, _TIMEOUT_S).topics[_TOPIC].partitions
        consumer.assign([TopicPartition(_TOPIC, each, OFFSET_BEGINNING) for each in partitions])
        return _read(consumer, set(partitions))
    finally:
        consumer.close()


def _read(consumer: Any, unread: set[int]) -> CommitLog:
    from confluent_kafka import KafkaError

    found: CommitLog = defaultdict(lambda: defaultdict(list))
    while unread:
        messages = consumer.consume(1_000, timeout=_TIMEOUT_S)
        assert messages, f"no end of {_TOPIC} {sorted(unread)} within {_TIMEOUT_S} s"
        for message in messages:
            if message.error() is None:
                _note(found, message.key(), message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                unread.discard(message.partition())
    return found


def _note(found: CommitLog, key: bytes, value: bytes | None) -> None:
    (version,) = struct.unpack_from(">h", key)
    if version in _COMMIT_VERSIONS:
        group, rest = _text(key[2:])
        topic, rest = _text(rest)
        (partition,) = struct.unpack(">i", rest)
        offset = None if value is None else struct.unpack_from(">q", value, 2)[0]
        found[group][topic, partition].append(offset)


def _text(data: bytes) -> tuple[str, bytes]:
    (size,) = struct.unpack_from(">h", data)
    return data[2 : 2 + size].decode(), data[2 + size :]
