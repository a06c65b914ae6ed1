"""How many writes the tables had had when each reign ended. Pure.

A controller tells brokers how many writes all of its tables have had (`MetadataSeen`), and brokers
remember that durably. The numbers of the tables themselves only rise, so a broker that has seen
more of a reign than its end shows that the store was put back from a copy (I12).

The sum at hand is not enough to tell: reigns that begin and end while no broker is there write, too
(each seals all tables), and would climb past what was lost. So a line of the table of the cluster
keeps where reigns ended, as a leader-epoch checkpoint does for logs (KIP-101). Reigns that have
written no more than a takeover does need no line of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.stored_table import StoredTable
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_model.ids import ControllerEpoch
from fairlead_model.metadata_seen import MetadataSeen

REIGNS_KEPT: Final = 32


class ReignEnd(NamedTuple):
    """The end of a reign."""

    controller_epoch: ControllerEpoch
    writes: int
    """Writes that all tables had had by then."""


@dataclass(frozen=True, slots=True)
class MetadataHistory:
    """The ends of the reigns before this one; `load_history` reads it."""

    controller_epoch: ControllerEpoch
    """Of this reign."""
    since: ControllerEpoch
    """Epoch from which writes are counted. Earlier reigns prove nothing: the tables were restored
    since, or are of a release that did not count."""
    ends: tuple[ReignEnd, ...]
    """Of earlier reigns, in their order; the last one is that of the last reign that has begun. A
    takeover that was interrupted before it wrote the line does not count: no broker has heard of
    it."""
    takeover_writes: int
    """The most writes that a takeover makes."""

    def writes_at_most(self, seen_epoch: ControllerEpoch) -> int | None:
        """Return how many writes an earlier reign can have announced; None if that is not known."""
        if not self.since <= seen_epoch < self.controller_epoch:
            return None
        before: ReignEnd | None = None
        for end in self.ends:
            if end.controller_epoch < seen_epoch:
                before = end
                continue
            if before is None or end.controller_epoch == seen_epoch:
                return end.writes
            break
        # Between two, or behind the last: like its neighbors it has only taken over, if so much.
        return None if before is None else self._idle_end(before, seen_epoch)

    def problem(self, seen: MetadataSeen) -> str:
        """Say why what a broker has seen cannot have been of these tables; empty if it can."""
        bound = self.writes_at_most(seen.controller_epoch)
        if bound is None or seen.writes <= bound:
            return ""
        return (
            f"has seen {seen.writes} writes of the tables under controller epoch "
            f"{seen.controller_epoch}, the tables know of {bound}"
        )

    def line(self) -> str:
        """Return the line of the table of the cluster."""
        ends = [list(end) for end in self.ends]
        return lines.dump_line({"epoch": self.controller_epoch, "since": self.since, "ends": ends})

    def ended(self, end: ReignEnd) -> "MetadataHistory":
        """Return the history with one reign more."""
        ends = self.ends
        if len(ends) > 1 and ends[-1].writes <= self._idle_end(ends[-2], ends[-1].controller_epoch):
            ends = ends[:-1]
        return replace(self, ends=(*ends, end)[-REIGNS_KEPT:])

    def _idle_end(self, before: ReignEnd, epoch: ControllerEpoch) -> int:
        return before.writes + (epoch - before.controller_epoch) * self.takeover_writes


def first_history(controller_epoch: ControllerEpoch) -> MetadataHistory:
    """Return the history of tables whose writes count from an epoch on."""
    return MetadataHistory(controller_epoch, controller_epoch, (), 0)


def count_writes(tables: Mapping[str, StoredTable]) -> int:
    """Count the writes that all tables have had."""
    return sum(table.write_count for table in tables.values())


def load_history(
    tables: Mapping[str, StoredTable], controller_epoch: ControllerEpoch
) -> MetadataHistory:
    """Return the history for a controller of an epoch that takes over tables, not sealed yet."""
    cluster = tables[CLUSTER_TABLE]
    line = cluster.lines.get(lines.HISTORY_KEY)
    # Every table is sealed, may be repaired, and that of the cluster has two notes.
    takeover_writes = 2 * len(tables) + 2
    if line is None:
        end = ReignEnd(cluster.controller_epoch, count_writes(tables))
        return MetadataHistory(controller_epoch, controller_epoch, (end,), takeover_writes)
    known = lines.parse_line(lines.HISTORY_KEY, line, _build)
    end = ReignEnd(known.controller_epoch, count_writes(tables))
    ended = replace(known, takeover_writes=takeover_writes).ended(end)
    return replace(ended, controller_epoch=controller_epoch)


def _build(record: dict[str, Any]) -> MetadataHistory:
    ends = tuple(ReignEnd(int(epoch), int(writes)) for epoch, writes in record["ends"])
    return MetadataHistory(int(record["epoch"]), int(record["since"]), ends, 0)
