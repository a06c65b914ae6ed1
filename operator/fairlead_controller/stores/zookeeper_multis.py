"""A table's write as ZooKeeper multis: one, and more only if one would be too large.

    check /controller_epoch (the version that this controller's election gave it)
    set   /fairlead/tables/TABLE (the version that the write is based on), or create it
    set   Kafka's znodes of the lines that change

The first check is the fence: from the election of another controller on, no multi of this one can
land, whenever it is sent (I11). Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from fairlead_controller.stores.zookeeper_projections import Projections, ZnodeChange
from fairlead_controller.stores.zookeeper_tables import KnownTable
from fairlead_zookeeper.operations import Check, Create, Operation, SetData
from fairlead_zookeeper.znodes import CONTROLLER_EPOCH, table_path

MULTI_BYTES_MAX: Final = 1_000_000
"""Below `jute.maxbuffer` of 1,048,575: a server drops the connection of a larger request."""
MULTI_OPERATIONS_MAX: Final = 1_000
"""A multi of so many operations takes a server some 50 ms, during which it answers nobody else. A
full table whose partitions all change their leader needs half of it."""
OPERATION_BYTES: Final = 80
"""What an operation takes beside its path and its data: types, lengths, an ACL."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Makes the writes of a controller fail once another has been elected."""

    controller_epoch: int
    version: int
    """The dataVersion of `/controller_epoch` from this epoch's election."""

    @property
    def check(self) -> Check:
        """The operation that begins every multi."""
        return Check(CONTROLLER_EPOCH, self.version)


class Refused(Enum):
    """Which part of a multi was refused."""

    FENCE = auto()
    TABLE = auto()
    PROJECTION = auto()


@dataclass(frozen=True, slots=True)
class Multi:
    """One multi, and the changes of Kafka's znodes that it carries out."""

    operations: list[Operation]
    changes: list[ZnodeChange]
    first_projection: int

    def part_of(self, index: int) -> Refused:
        """Return to which part an operation belongs."""
        if index == 0:
            return Refused.FENCE
        return Refused.TABLE if index < self.first_projection else Refused.PROJECTION


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """The write of one table."""

    content: KnownTable
    multis: list[Multi]
    """The first multi writes the table; the others follow it on the same connection."""


def plan_write(
    content: KnownTable,
    based_on: KnownTable | None,
    changes: Sequence[ZnodeChange],
    projections: Projections,
    fence: Fence,
) -> PlannedWrite:
    """Plan the write of a table that is new or based on a known table, and of Kafka's znodes."""
    path = table_path(content.name)
    head: list[Operation] = [fence.check]
    if based_on is None:
        # The znode is created empty and then set: only a set returns the version that it made.
        head += [Create(path, is_private=True), SetData(path, content.data, 0)]
        after = Check(path, 1)
    else:
        head.append(SetData(path, content.data, based_on.znode_version))
        after = Check(path, based_on.znode_version + 1)
    multis = pack(changes, projections, head, [fence.check, after])
    return PlannedWrite(content, multis)


def pack(
    changes: Sequence[ZnodeChange],
    projections: Projections,
    head: list[Operation],
    next_head: list[Operation],
) -> list[Multi]:
    """Put changes into as few multis as possible; the first begins with `head`."""
    multi = Multi(list(head), [], len(head))
    multis, size = [multi], sum(map(_size, head))
    for change, operations in zip(changes, projections.operations(changes), strict=True):
        grown = sum(map(_size, operations))
        is_full = (
            size + grown > MULTI_BYTES_MAX
            or len(multi.operations) + len(operations) > MULTI_OPERATIONS_MAX
        )
        if is_full:
            multi = Multi(list(next_head), [], len(next_head))
            multis.append(multi)
            size = sum(map(_size, next_head))
        multi.operations.extend(operations)
        multi.changes.append(change)
        size += grown
    return multis


def _size(operation: Operation) -> int:
    value = operation.value if isinstance(operation, Create | SetData) else b""
    return OPERATION_BYTES + len(operation.path) + len(value)
