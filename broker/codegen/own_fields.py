"""Fields that Fairlead adds to Kafka's requests between brokers.

They are tagged (KIP-482), so a receiver that does not know them skips them, and a message without
them has Kafka's bytes. Kafka numbers its own tags from 0 on.
"""

from __future__ import annotations

from typing import Any, Final

FIRST_TAG: Final = 10_000

OWN_FIELDS: Final[dict[str, dict[str, list[dict[str, Any]]]]] = {
    "WriteTxnMarkersRequest": {
        "WritableTxnMarkerTopic": [
            {
                "name": "LeaderEpochs",
                "type": "[]int32",
                "versions": "2+",
                "taggedVersions": "2+",
                "tag": FIRST_TAG,
                "ignorable": True,
            }
        ]
    },
    "ConsumerGroupHeartbeatRequest": {
        "ConsumerGroupHeartbeatRequest": [
            {
                "name": name,
                "type": "string",
                "versions": "0+",
                "taggedVersions": "0+",
                "tag": FIRST_TAG + number,
                "ignorable": True,
            }
            for number, name in enumerate(("AskedBy", "AskedFrom"))
        ]
    },
}
"""Definitions as in Kafka's files, by message and by struct (or by the message itself)."""


def with_own_fields(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of a message with Fairlead's fields added to it and its structs."""
    own = OWN_FIELDS.get(definition["name"])
    if own is None:
        return definition
    fields = [_extended(each, own) for each in definition["fields"]]
    return {**definition, "fields": fields + own.get(definition["name"], [])}


def _extended(field: dict[str, Any], own: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    if "fields" not in field:
        return field
    fields = [_extended(each, own) for each in field["fields"]]
    return {**field, "fields": fields + own.get(field["type"].removeprefix("[]"), [])}
