"""Fields that Fairlead's brokers tell one another besides Kafka's, in requests of Kafka's.

They are tagged (KIP-482), so whoever does not know them passes them over, and a message without
them is what Kafka's would be. Kafka gives tags out from 0 on.
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
    }
}
"""By message and struct: definitions as in Kafka's files."""


def with_own_fields(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of a message with the fields that are added to its structs."""
    own = OWN_FIELDS.get(definition["name"])
    if own is None:
        return definition
    return {**definition, "fields": [_extended(each, own) for each in definition["fields"]]}


def _extended(field: dict[str, Any], own: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    if "fields" not in field:
        return field
    fields = [_extended(each, own) for each in field["fields"]]
    return {**field, "fields": fields + own.get(field["type"].removeprefix("[]"), [])}
