"""How a table looks as a Kubernetes object. Pure.

| table | object |
|---|---|
| `cluster` | ClusterState `<cluster>` |
| any other | PartitionTable `<cluster>-<table>` |

The lines of a table are one text, a line "KEY VALUE" each, in the order in which they were made:
many small fields cost the API server far more than one long one, and a person can read it all the
same. The object's resourceVersion is the table's version. It moves only if the object differs, so
`spec.writeNumber` counts all writes of the object: one that changes nothing else outdates a stuck
one too. The number that the writer gives its write, which tells a repeated one, is an annotation.

What others have added to an object's metadata is kept.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_controller.kube.kinds import CLUSTER_STATE, PARTITION_TABLE, ResourceKind
from fairlead_controller.stores.metadata_store import (
    StoreCorruptError,
    StoredTable,
    StoreError,
    TableWrite,
)
from fairlead_controller.table_plan import CLUSTER_TABLE

CLUSTER_LABEL: Final = "fairlead.io/cluster"
DELETE_WITH_LABEL: Final = "fairlead.io/delete-with"
"""On a ClusterState: uid of the LogCluster with which the tables of the cluster have to go."""
ATTEMPT_ANNOTATION: Final = "fairlead.io/attempt"

OBJECT_BYTES_MAX: Final = 1_200_000
"""Largest object that is sent. etcd refuses requests of more than 1.5 MiB, the API server adds to
what it stores, and the schema allows a text of this length."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KnownTable:
    """An object as it was last read or written."""

    metadata: Mapping[str, Any]
    controller_epoch: int
    write_count: int
    text: str

    @property
    def version(self) -> str:
        """The table's version."""
        version: str = self.metadata["resourceVersion"]
        return version

    def stored(self) -> StoredTable:
        """Give the table; StoreCorruptError if the text is not what a store writes."""
        lines = decode_lines(self.text, self.metadata["name"])
        attempt = (self.metadata.get("annotations") or {}).get(ATTEMPT_ANNOTATION, "0")
        number = int(attempt) if attempt.isdecimal() else 0
        return StoredTable(self.version, self.controller_epoch, number, lines)


def table_kind(table: str) -> ResourceKind:
    """Give the kind of object that holds a table."""
    return CLUSTER_STATE if table == CLUSTER_TABLE else PARTITION_TABLE


def object_name(cluster: str, table: str) -> str:
    """Give the name of the object that holds a table."""
    return cluster if table == CLUSTER_TABLE else f"{cluster}-{table}"


def encode_lines(lines: Mapping[str, str]) -> str:
    """Give the text of a table; StoreError if it could not be read back."""
    for key, line in lines.items():
        if not key or " " in key or "\n" in key or "\n" in line:
            raise StoreError(f"a table cannot hold the line {key!r}: {line[:80]!r}")
    return "".join(f"{key} {line}\n" for key, line in lines.items())


def decode_lines(text: str, name: str) -> dict[str, str]:
    """Read the text of a table; StoreCorruptError if it is not what `encode_lines` makes."""
    lines: dict[str, str] = {}
    for number, record in enumerate(text.split("\n"), start=1):
        if not record:
            continue
        key, blank, line = record.partition(" ")
        if not key or not blank or key in lines:
            raise StoreCorruptError(f"{name} is damaged in line {number}: {record[:80]!r}")
        lines[key] = line
    return lines


def read_table(manifest: Mapping[str, Any], cluster: str) -> tuple[str, KnownTable]:
    """Give the name and content of the table in an object; StoreCorruptError if it is none."""
    metadata = manifest["metadata"]
    try:
        spec = manifest["spec"]
        owner, table = spec["clusterName"], str(spec["table"])
        epoch, count = int(spec["controllerEpoch"]), int(spec["writeNumber"])
        text = str(spec.get("lines", ""))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreCorruptError(f"{metadata['name']} has no readable spec: {error!r}") from error
    if owner != cluster or metadata["name"] != object_name(cluster, table):
        raise StoreCorruptError(
            f"{metadata['name']} says that it is table {table} of the cluster {owner}"
        )
    return table, KnownTable(_kept(metadata), epoch, count, text)


def build_table(
    write: TableWrite, known: KnownTable | None, *, namespace: str, cluster: str
) -> tuple[Manifest, KnownTable]:
    """Give the object that a write makes of a known table (None: a new one), and its content.

    StoreError if the lines cannot be held, or not in one object.
    """
    name = object_name(cluster, write.table)
    lines = {} if known is None else decode_lines(known.text, name)
    for key, line in write.lines.items():
        if line is None:
            lines.pop(key, None)
        else:
            lines[key] = line
    text = encode_lines(lines)
    metadata = _new_metadata(name, namespace, cluster) if known is None else dict(known.metadata)
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(ATTEMPT_ANNOTATION, None)
    if write.write_number:
        annotations[ATTEMPT_ANNOTATION] = str(write.write_number)
    metadata["annotations"] = annotations
    write_count = 1 if known is None else known.write_count + 1
    kind = table_kind(write.table)
    manifest = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": {
            "clusterName": cluster,
            "table": write.table,
            "controllerEpoch": write.controller_epoch,
            "writeNumber": write_count,
            "lines": text,
        },
    }
    # In JSON, a character has at most six bytes: measuring small tables would be a waste.
    if len(text) * 6 > OBJECT_BYTES_MAX // 2:
        size = len(json.dumps(manifest, ensure_ascii=False).encode())
        if size > OBJECT_BYTES_MAX:
            raise StoreError(
                f"table {write.table} would have {size} bytes, but an object of the Kubernetes API "
                f"can have {OBJECT_BYTES_MAX}: {len(lines)} lines are too many or too long"
            )
    return manifest, KnownTable(metadata, write.controller_epoch, write_count, text)


def adopt_answer(sent: KnownTable, answer: Mapping[str, Any]) -> KnownTable:
    """Give what is known once the server has answered with the new metadata."""
    metadata = _kept(answer["metadata"])
    return KnownTable(metadata, sent.controller_epoch, sent.write_count, sent.text)


def _new_metadata(name: str, namespace: str, cluster: str) -> Manifest:
    labels = {
        "app.kubernetes.io/name": "fairlead",
        "app.kubernetes.io/instance": cluster,
        "app.kubernetes.io/managed-by": "fairlead-operator",
        CLUSTER_LABEL: cluster,
    }
    return {"name": name, "namespace": namespace, "labels": labels}


def _kept(metadata: Mapping[str, Any]) -> Manifest:
    return {key: value for key, value in metadata.items() if key != "managedFields"}
