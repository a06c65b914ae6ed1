"""Puts metadata that was made safe (`new_beginning`) into a store: an export, or its own tables.

Meanwhile this process is the controller: it seals the tables, so that a reigning controller, or
another such process, fails. The cluster's table has the note `rolled-back` until everything is
written. A crash in between leaves a store on which no controller reigns; the same command then
starts again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.history import first_history
from fairlead_controller.decisions.tables.loading import load_state
from fairlead_controller.decisions.tables.new_beginning import jumped_epoch, new_beginning
from fairlead_controller.decisions.tables.regressions import rolled_back_tables
from fairlead_controller.decisions.tables.security_lines import SCRAM_PREFIX
from fairlead_controller.decisions.tables.stored_table import (
    HighestSeen,
    StoredTable,
    StoreError,
)
from fairlead_controller.decisions.tables.table_plan import (
    CLUSTER_TABLE,
    Stage,
    TableLayout,
    WritePlan,
    first_lines,
)
from fairlead_controller.stores.committer import Committer
from fairlead_controller.stores.metadata_document import RestoredMetadata, read_document
from fairlead_controller.stores.metadata_store import MetadataStore, TableWrite, WriteOutcome
from fairlead_model.ids import ControllerEpoch

Tables = Mapping[str, StoredTable]

CONFIRMING: Final = "it is being confirmed; if that was interrupted, confirm it again"
IMPORTING: Final = "an export is being imported; if that was interrupted, import it again"


class NothingFoundError(StoreError):
    """Tables look well: confirming them would only take leaders away."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The result of a confirmation."""

    cluster_id: str
    controller_epoch: ControllerEpoch
    finding: str
    """What had kept controllers from reigning; empty if nothing had."""


def choose_confirmed_epoch(tables: Tables) -> ControllerEpoch:
    """Return the controller epoch for confirmed tables; StoreError if there is no cluster."""
    _, seen = _read_note(tables)
    return jumped_epoch(_highest_epoch(tables), seen)


def require_finding(tables: Tables) -> None:
    """Raise NothingFoundError if nothing shows that tables went back in time.

    StoreCorruptError if they contradict each other: they are damaged, whether or not they went
    back.
    """
    finding, _ = _read_note(tables)
    if not finding and not rolled_back_tables(tables):
        load_state(tables, controller_epoch=0)
        raise NothingFoundError("nobody has found that this metadata went back in time")


async def confirm_metadata(
    store: MetadataStore, tables: Tables, epoch: ControllerEpoch
) -> Confirmed:
    """Make the tables of a store safe, in place, and let controllers reign on them.

    `tables` were just loaded, `epoch` is at least `choose_confirmed_epoch` of them. StoreError if
    they contradict each other: then only an export helps. SealedError if a controller or another
    confirmation is at work.
    """
    finding, seen = _read_note(tables)
    # Check before the first write: tables that cannot be loaded, or have no room, are not changed.
    loaded = load_state(tables, controller_epoch=epoch)
    plan = WritePlan(loaded.layout)
    plan.add(new_beginning(loaded.state, seen))
    sealed = await store.seal(epoch, tables, first=CLUSTER_TABLE)
    committer = Committer(store, sealed, epoch)
    await committer.commit([_noted(CONFIRMING, seen), *_ending_the_note(plan.stages(), epoch)])
    return Confirmed(loaded.state.image.cluster_id, epoch, finding)


def read_replacement(tables: Tables, document: object) -> RestoredMetadata:
    """Read an export that is to replace tables, with an epoch above theirs.

    DocumentError for a wrong document; StoreError if the tables belong to another cluster that has
    brokers. A cluster that is new, because the old cluster's tables were deleted, has none.
    """
    _, seen = _read_note(tables)
    restored = read_document(document, seen=seen, epoch_above=_highest_epoch(tables))
    cluster = tables[CLUSTER_TABLE].lines
    line = cluster.get(lines.CLUSTER_KEY, "{}")
    cluster_id = lines.parse_line(lines.CLUSTER_KEY, line, lambda record: record.get("cluster_id"))
    has_brokers = any(key.startswith(lines.BROKER_PREFIX) for key in cluster)
    if has_brokers and cluster_id != restored.cluster_id:
        raise StoreError(
            f"the metadata there is that of cluster {cluster_id}, which has brokers; the export is "
            f"of cluster {restored.cluster_id}"
        )
    return restored


async def replace_metadata(
    store: MetadataStore, tables: Tables, restored: RestoredMetadata
) -> None:
    """Replace everything that a store holds by what `read_replacement` returned.

    SealedError if a controller or another import is at work.
    """
    epoch = restored.controller_epoch
    _, seen = _read_note(tables)
    sealed = await store.seal(epoch, tables, first=CLUSTER_TABLE)
    plan = WritePlan(TableLayout())
    plan.add((*restored.changes, *restored.users))
    # An export holds no credentials. The present ones stay, so that users can still log in.
    emptied: Stage = {
        name: {key: None for key in table.lines if not key.startswith(SCRAM_PREFIX)}
        for name, table in sealed.items()
    }
    old = emptied.pop(CLUSTER_TABLE)
    # Unneeded tables stay, empty, and the cluster's table names them.
    kept = {key for key in old if key.startswith(lines.TABLE_PREFIX)}
    last = {key: None for key in old if key not in kept} | dict(
        first_lines(restored.cluster_id, restored.counters)
    )
    stages = [_noted(IMPORTING, seen), *([emptied] if emptied else [])]
    stages += _ending_the_note(plan.stages(), epoch, last)
    await Committer(store, sealed, epoch).commit(stages)


async def write_restored(store: MetadataStore, restored: RestoredMetadata) -> None:
    """Fill an empty store; the next controller takes it over like any other store."""
    if await store.load():
        raise StoreError("there is metadata already: restore into an empty folder")
    epoch = restored.controller_epoch
    first = dict(first_lines(restored.cluster_id, restored.counters))
    note = _noted(IMPORTING, HighestSeen())[CLUSTER_TABLE]
    (result,) = await store.write([TableWrite(CLUSTER_TABLE, None, epoch, first | note)])
    if result.outcome is not WriteOutcome.WRITTEN:
        raise StoreError("the first write did not succeed; try again")
    plan = WritePlan(TableLayout())
    plan.add((*restored.changes, *restored.users))
    committer = Committer(store, await store.load(), epoch)
    await committer.commit(_ending_the_note(plan.stages(), epoch))


def _read_note(tables: Tables) -> tuple[str, HighestSeen]:
    """Return why controllers do not reign, and what was seen; StoreError without a cluster."""
    if CLUSTER_TABLE not in tables:
        raise StoreError("there is no metadata of a cluster")
    line = tables[CLUSTER_TABLE].lines.get(lines.ROLLED_BACK_KEY)
    if line is None:
        return "", HighestSeen()
    return lines.parse_line(
        lines.ROLLED_BACK_KEY,
        line,
        lambda record: (str(record["reason"]), lines.build_seen(record)),
    )


def _highest_epoch(tables: Tables) -> ControllerEpoch:
    return max(table.controller_epoch for table in tables.values())


def _noted(reason: str, seen: HighestSeen) -> Stage:
    return {CLUSTER_TABLE: {lines.ROLLED_BACK_KEY: lines.rolled_back_line(reason, seen)}}


def _ending_the_note(
    stages: list[Stage],
    epoch: ControllerEpoch,
    cluster_lines: Mapping[str, str | None] = MappingProxyType({}),
) -> list[Stage]:
    """Return stages; the last one lets controllers reign again, and counts writes from here."""
    last: Stage = {CLUSTER_TABLE: dict(cluster_lines)}
    if stages and set(stages[-1]) == {CLUSTER_TABLE}:
        last[CLUSTER_TABLE] |= stages[-1][CLUSTER_TABLE]
        stages = stages[:-1]
    last[CLUSTER_TABLE] |= {
        lines.HISTORY_KEY: first_history(epoch).line(),
        lines.ROLLED_BACK_KEY: None,
    }
    return [*stages, last]
