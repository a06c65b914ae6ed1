"""How a table looks as a Kubernetes object. Pure.

| table | object |
|---|---|
| `cluster` | ClusterState `<cluster>` |
| `security-…` | Secret `<cluster>-<table>`, whose data are the same fields |
| any other | PartitionTable `<cluster>-<table>` |

The lines of a table are one text (`table_text`). The object's resourceVersion is the table's
version. It changes only if the object differs, so `spec.writeNumber` counts all writes of the
object: even a write without another change outdates a stuck one. An annotation holds the number
that the writer gives its write, by which a repeated write is recognised.

Metadata that others have added to an object is kept.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fairlead_controller.decisions.tables.security_lines import is_security_table
from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoredTable,
    StoreError,
)
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_controller.stores.table_text import decode_lines, encode_lines
from fairlead_kube.kinds import CLUSTER_STATE, PARTITION_TABLE, SECRET, ResourceKind

CLUSTER_LABEL: Final = "fairlead.io/cluster"
SECURITY_LABEL: Final = "fairlead.io/security-of"
"""On a Secret with rules and credentials: the cluster. Such a Secret does not have the label above,
by which the operator watches Secrets: only processes that need verifiers keep copies of them."""
DELETE_WITH_LABEL: Final = "fairlead.io/delete-with"
"""On a ClusterState: the uid of the LogCluster with which the tables have to be deleted."""
ATTEMPT_ANNOTATION: Final = "fairlead.io/attempt"
SECURITY_TYPE: Final = "fairlead.io/security"
"""The type of these Secrets."""

OBJECT_BYTES_MAX: Final = 1_200_000
"""The largest object that is sent. etcd refuses requests of more than 1.5 MiB, the API server adds
fields to what it stores, and the schema allows a text of this length."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KnownTable:
    """An object as it was last read or written."""

    metadata: Mapping[str, Any]
    controller_epoch: int
    write_count: int
    text: str
    is_secret: bool = False
    """Whether errors show nothing of the text."""

    @property
    def version(self) -> str:
        """The table's version."""
        version: str = self.metadata["resourceVersion"]
        return version

    def stored(self) -> StoredTable:
        """Return the table; StoreCorruptError if no store would write such a text."""
        lines = decode_lines(self.text, self.metadata["name"], is_secret=self.is_secret)
        attempt = (self.metadata.get("annotations") or {}).get(ATTEMPT_ANNOTATION, "0")
        number = int(attempt) if attempt.isdecimal() else 0
        return StoredTable(self.version, self.controller_epoch, number, lines, self.write_count)


def table_kind(table: str) -> ResourceKind:
    """Return the kind of object that holds a table."""
    if table == CLUSTER_TABLE:
        return CLUSTER_STATE
    return SECRET if is_security_table(table) else PARTITION_TABLE


def object_name(cluster: str, table: str) -> str:
    """Return the name of the object that holds a table."""
    return cluster if table == CLUSTER_TABLE else f"{cluster}-{table}"


def read_table(manifest: Mapping[str, Any], cluster: str) -> tuple[str, KnownTable]:
    """Return the name and content of the table in an object; StoreCorruptError if malformed."""
    metadata, is_secret = manifest["metadata"], "spec" not in manifest
    try:
        spec = _decoded(manifest["data"]) if is_secret else manifest["spec"]
        owner, table = spec["clusterName"], str(spec["table"])
        epoch, count = int(spec["controllerEpoch"]), int(spec["writeNumber"])
        text = str(spec.get("lines", ""))
    except (KeyError, TypeError, ValueError) as error:
        # The text of an error may show what a Secret holds.
        problem = type(error).__name__ if is_secret else repr(error)
        raise StoreCorruptError(f"{metadata['name']} has no readable spec: {problem}") from None
    if owner != cluster or metadata["name"] != object_name(cluster, table):
        raise StoreCorruptError(
            f"{metadata['name']} says that it is table {table} of the cluster {owner}"
        )
    return table, KnownTable(_kept(metadata), epoch, count, text, is_secret)


def build_table(
    write: TableWrite, known: KnownTable | None, *, namespace: str, cluster: str
) -> tuple[Manifest, KnownTable]:
    """Return the object that a write makes of a table (None: a new one), and its content.

    StoreError if the lines cannot be stored, or not in one object.
    """
    name = object_name(cluster, write.table)
    lines = {} if known is None else decode_lines(known.text, name, is_secret=known.is_secret)
    for key, line in write.lines.items():
        if line is None:
            lines.pop(key, None)
        else:
            lines[key] = line
    text = encode_lines(lines)
    if known is not None:
        metadata = dict(known.metadata)
    else:
        label = SECURITY_LABEL if is_security_table(write.table) else CLUSTER_LABEL
        metadata = _new_metadata(name, namespace, cluster, label)
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(ATTEMPT_ANNOTATION, None)
    if write.write_number:
        annotations[ATTEMPT_ANNOTATION] = str(write.write_number)
    metadata["annotations"] = annotations
    write_count = 1 if known is None else known.write_count + 1
    kind = table_kind(write.table)
    spec = {
        "clusterName": cluster,
        "table": write.table,
        "controllerEpoch": write.controller_epoch,
        "writeNumber": write_count,
        "lines": text,
    }
    manifest: Manifest = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
    }
    if kind is SECRET:
        manifest |= {"type": SECURITY_TYPE, "data": _encoded(spec)}
    else:
        manifest["spec"] = spec
    # In JSON, a character has at most six bytes: small tables need not be measured.
    if len(text) * 6 > OBJECT_BYTES_MAX // 2:
        size = len(json.dumps(manifest, ensure_ascii=False).encode())
        if size > OBJECT_BYTES_MAX:
            raise StoreError(
                f"table {write.table} would have {size} bytes, but an object of the Kubernetes API "
                f"can have {OBJECT_BYTES_MAX}: {len(lines)} lines are too many or too long"
            )
    content = KnownTable(metadata, write.controller_epoch, write_count, text, kind is SECRET)
    return manifest, content


def adopt_answer(sent: KnownTable, answer: Mapping[str, Any]) -> KnownTable:
    """Return the known table once the server has answered with the new metadata."""
    metadata = _kept(answer["metadata"])
    return replace(sent, metadata=metadata)


def _encoded(spec: Mapping[str, object]) -> dict[str, str]:
    return {key: base64.b64encode(str(value).encode()).decode() for key, value in spec.items()}


def _decoded(data: Mapping[str, str]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def _new_metadata(name: str, namespace: str, cluster: str, label: str) -> Manifest:
    labels = {
        "app.kubernetes.io/name": "fairlead",
        "app.kubernetes.io/instance": cluster,
        "app.kubernetes.io/managed-by": "fairlead-operator",
        label: cluster,
    }
    return {"name": name, "namespace": namespace, "labels": labels}


def _kept(metadata: Mapping[str, Any]) -> Manifest:
    return {key: value for key, value in metadata.items() if key != "managedFields"}
