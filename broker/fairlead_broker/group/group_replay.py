"""Decodes the newest records of a partition into its groups.

Pure. Records that make no sense (anybody may produce to the topic) are counted and passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.group.group_offsets import GroupOffsets, TopicOffsets, topic_id_of
from fairlead_broker.group.records import consumer_records
from fairlead_broker.group.records.classic_records import (
    OffsetKey,
    decode_group_value,
    decode_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.coordinator.replayed_transactions import UndecidedRecord
    from fairlead_broker.group.records.consumer_records import RecordKey, RecordValue

RECORDS_PER_STEP: Final = 1_000


class GroupReplay:
    """`offsets` and `group_values` by group id, once `decode` has taken all its steps."""

    def __init__(self) -> None:
        self.unreadable_count = 0
        """Records without a key, or whose key or value is damaged."""
        self.unknown_count = 0
        """Records of a kind that this broker does not keep."""
        self.offsets: dict[str, GroupOffsets] = {}
        self.topic_ids: dict[str, set[bytes]] = {}
        """By name, the topics that offsets say that they were committed for."""
        self.group_values: dict[str, bytes] = {}
        self.consumer_records: dict[str, list[tuple[RecordKey, RecordValue]]] = {}
        """Of groups of KIP-848, by group id; newest values only, so their order does not matter."""

    def decode(self, newest: dict[bytes, bytes]) -> Iterator[None]:
        """Take every value out of `newest`, in steps."""
        topics: dict[bytes, tuple[TopicOffsets, set[bytes]]] = {}
        while newest:
            for _ in range(min(len(newest), RECORDS_PER_STEP)):
                key, value = newest.popitem()
                prefix = key[:-4]
                found = topics.get(prefix)
                if found is not None:
                    topic, topic_ids = found
                    if self._note_topic_id(topic_ids, value):
                        topic.values[int.from_bytes(key[-4:], "big", signed=True)] = value
                    continue
                try:
                    decoded = decode_key(key)
                except ValueError:
                    self.unreadable_count += 1
                    continue
                if decoded is None:
                    self._take_consumer_record(key, value)
                    continue
                if isinstance(decoded, OffsetKey):
                    topic_ids = self._topic_ids(decoded.topic)
                    if self._note_topic_id(topic_ids, value):
                        topic = self._topic(decoded)
                        topic.values[decoded.partition] = value
                        if key[:2] == b"\0\1":
                            # Only keys of our own version: the same prefix then means the same.
                            topics[prefix] = topic, topic_ids
                elif self._is_group_value(value):
                    self.group_values[decoded.group_id] = value
            yield

    def decode_undecided(self, records: Iterator[UndecidedRecord]) -> Iterator[None]:
        """Take what open transactions have staged; in steps, after `decode`."""
        for number, (producer_id, key, offset, value) in enumerate(records, start=1):
            try:
                decoded = decode_key(key)
            except ValueError:
                self.unreadable_count += 1
                continue
            if isinstance(decoded, OffsetKey) and (
                value is None or self._note_topic_id(self._topic_ids(decoded.topic), value)
            ):
                group = self._group(decoded.group_id)
                group.staged(producer_id, decoded.topic, decoded.partition, offset, value)
            if number % RECORDS_PER_STEP == 0:
                yield

    def _topic_ids(self, name: str) -> set[bytes]:
        return self.topic_ids.setdefault(name, set())

    def _topic(self, key: OffsetKey) -> TopicOffsets:
        return self._group(key.group_id).topic(key.topic)

    def _group(self, group_id: str) -> GroupOffsets:
        group = self.offsets.get(group_id)
        if group is None:
            group = self.offsets[group_id] = GroupOffsets(group_id)
        return group

    def _take_consumer_record(self, key: bytes, value: bytes) -> None:
        try:
            decoded = consumer_records.decode_key(key)
            if decoded is None:
                self.unknown_count += 1
                return
            record = decoded, consumer_records.decode_value(decoded.type, value)
        except ValueError:
            self.unreadable_count += 1
        else:
            self.consumer_records.setdefault(decoded.group_id, []).append(record)

    def _note_topic_id(self, topic_ids: set[bytes], value: bytes) -> bool:
        """Note which topic an offset is for; tells whether it is one at all."""
        try:
            topic_ids.add(topic_id_of(value))
        except ValueError:
            self.unreadable_count += 1
            return False
        return True

    def _is_group_value(self, value: bytes) -> bool:
        try:
            decode_group_value(value)
        except ValueError:
            self.unreadable_count += 1
            return False
        return True
