"""PartitionTable and ClusterState: the controller's metadata, one text per object.

Structured lists would cost the API server seven to fourteen times more per write. Only the
controller writes these objects; `kubectl get -o yaml` shows them to people.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from fairlead_model.resources.failover_drill import CLUSTER_NAME
from fairlead_model.resources.resource_shape import Rule, Text, Whole
from fairlead_operator.resources.definition import AGE, Column, ResourceDefinition

LINES_LENGTH_MAX: Final = 1_200_000
"""Characters of one object's records; etcd refuses requests above 1.5 MiB."""

_INTERNAL: Final = (
    "Internal: written by the controller alone. Do not edit or delete it: it is the cluster's "
    "metadata, and deleting it loses data."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One table of records."""

    RULES: ClassVar = (
        Rule(
            cel="self.clusterName == oldSelf.clusterName && self.table == oldSelf.table",
            message="a table cannot become another one; it is written by the controller alone",
        ),
        Rule(
            cel="self.controllerEpoch >= oldSelf.controllerEpoch",
            message="an older controller must not write what a newer one has sealed",
            field="controllerEpoch",
        ),
    )

    cluster_name: Annotated[str, "LogCluster that the table belongs to.", CLUSTER_NAME]
    table: Annotated[
        str,
        "Name of the table.",
        Text(maximum=63, minimum=1, pattern="[a-z]([-a-z0-9]*[a-z0-9])?"),
    ]
    controller_epoch: Annotated[
        int, "Epoch of the controller that last wrote the table.", Whole(0, 2**53)
    ]
    write_number: Annotated[int, "Number of writes of this object.", Whole(0, 2**53)]
    lines: Annotated[
        str, "The records, a line each: a key, a space, a value.", Text(LINES_LENGTH_MAX)
    ]


_COLUMNS: Final = (
    Column("Cluster", ".spec.clusterName"),
    Column("Table", ".spec.table"),
    Column("Epoch", ".spec.controllerEpoch", "integer"),
    Column("Write", ".spec.writeNumber", "integer"),
    AGE,
)

PARTITION_TABLE: Final = ResourceDefinition(
    kind="PartitionTable",
    plural="partitiontables",
    description=f"{_INTERNAL} A table of up to 500 partitions: their leaders, replicas and "
    "in-sync replicas.",
    spec=TableSpec,
    columns=_COLUMNS,
    categories=(),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: PartitionTable
metadata:
  name: demo-partitions-00000
  labels: {fairlead.io/cluster: demo}
spec:
  clusterName: demo
  table: partitions-00000
  controllerEpoch: 7
  writeNumber: 42
  lines: |
    KEY VALUE
""",
)

CLUSTER_STATE: Final = ResourceDefinition(
    kind="ClusterState",
    plural="clusterstates",
    description=f"{_INTERNAL} The cluster's metadata besides partitions: broker "
    "registrations, the controller's epoch, producer ids and the list of tables.",
    spec=TableSpec,
    columns=_COLUMNS,
    categories=(),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: ClusterState
metadata:
  name: demo
  labels: {fairlead.io/cluster: demo}
spec:
  clusterName: demo
  table: cluster
  controllerEpoch: 7
  writeNumber: 3
  lines: |
    KEY VALUE
""",
)
