"""The controller's shell: events in, decisions committed, images and replies out.

Decisions are made at once, on the pending state, in the order of the events. Their changes are
committed in groups: while one group is being written, the next one collects decisions. Subscribers
get changes, and callers get replies, only after the commit. A reply without a change also waits for
the group before it, because it depends on what that group changes.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fairlead_controller.counters import ControllerMetrics
from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.events import (
    CallMovesBack,
    Decision,
    DrainLeaders,
    ElectLeaderless,
    ElectOnRequest,
    Event,
    FenceBroker,
    FenceByOrder,
    LeavePartitions,
    NoteDirectory,
    PartitionMove,
    RegisterBroker,
    RelieveReplicas,
    ReturnUnclean,
    SpreadMinimum,
)
from fairlead_controller.decisions.placement import RandomSource
from fairlead_controller.decisions.record_rules import BrokenDecisionError, next_state
from fairlead_controller.decisions.registration import fencing_to_divide, parts_max
from fairlead_controller.decisions.requested_elections import election_parts
from fairlead_controller.decisions.security.mutation_quota import MutationQuotas
from fairlead_controller.decisions.state import (
    FIRST_BROKER_EPOCH,
    NOT_PUBLISHED,
    ControllerChange,
    ControllerState,
    CountersChanged,
)
from fairlead_controller.decisions.tables.history import MetadataHistory, load_history
from fairlead_controller.decisions.tables.lines import (
    FEATURES_KEY,
    HISTORY_KEY,
    SEALED_KEY,
    build_features,
    dump_line,
    features_line,
    parse_line,
)
from fairlead_controller.decisions.tables.loading import Loaded, load_state
from fairlead_controller.decisions.tables.regressions import rolled_back_tables
from fairlead_controller.decisions.tables.stored_table import (
    HighestSeen,
    StoredTable,
    StoreError,
    StoreRolledBackError,
    StoreTooNewError,
)
from fairlead_controller.decisions.tables.table_plan import (
    CLUSTER_TABLE,
    Stage,
    TableLayout,
    WritePlan,
    first_lines,
)
from fairlead_controller.decisions.tables.table_room import UNFINISHED_TOPICS_MAX, TableRoom
from fairlead_controller.stores.committer import Committer
from fairlead_controller.stores.measured import MeasuredStore
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    SealedError,
    TableWrite,
    WriteOutcome,
)
from fairlead_controller.views.decision_journal import DecisionJournal
from fairlead_model.cluster import Change
from fairlead_model.features import features_of_new_cluster, unsupported_levels, who_reads
from fairlead_model.ids import (
    BrokerId,
    ControllerEpoch,
    is_assignable_topic_id,
    topic_id_text,
)
from fairlead_model.partition import LeaderRecoveryState
from fairlead_model.release import RELEASE
from fairlead_model.session.refusals import RefusalCode, RefusedError

logger = logging.getLogger(__name__)

EVENTS_WAITING_MAX: Final = 10_000
"""Decisions that may wait for the store. Beyond this number events are refused, except the death of
a broker and what decisions have left: nobody would ask for it again, and there are never more of
these than brokers."""
_NEVER_REFUSED: Final = (
    FenceBroker,
    LeavePartitions,
    ElectLeaderless,
    NoteDirectory,
    FenceByOrder,
    DrainLeaders,
    CallMovesBack,
    RelieveReplicas,
)

SPREAD_RETRY_S: Final = 1.0

LINES_LOADED_AT_ONCE_MAX: Final = 5_000
"""Tables with at most so many lines are loaded on the event loop, which takes some 0.1 s."""

MOVES_LOGGED_MAX: Final = 20
"""Partitions of one decision that the log names; `/explain` shows the others."""

Subscriber = Callable[[tuple[Change, ...], ControllerState], None]
Reply = Mapping[str, Any]


class _Answer(NamedTuple):
    """The caller that waits for a decision, and the answer that it will get."""

    future: "asyncio.Future[Reply]"
    decision: Decision
    kind: str
    began_s: float


@dataclass(slots=True)
class _Group:
    """Decisions that will be committed together.

    The plan grows with each decision, so that the layout is always that of the pending state.
    """

    plan: WritePlan
    after: ControllerState
    """The state with these decisions, and all before them."""
    changes: list[ControllerChange] = field(default_factory=list)
    replies: list[_Answer] = field(default_factory=list)


class Controller:
    """One reign: from the sealing of the store to its end. `open_controller` makes it."""

    def __init__(
        self,
        state: ControllerState,
        layout: TableLayout,
        committer: Committer,
        *,
        history: MetadataHistory,
        now_ms: Callable[[], int],
        random_source: RandomSource,
        metrics: ControllerMetrics,
    ) -> None:
        self.committed = state
        """What the store holds; the only state that other modules may see."""
        self.history = history
        """What controllers of earlier reigns may have told brokers."""
        self._pending = state
        self._layout = layout
        self._committer = committer
        self._now_ms = now_ms
        self._random = random_source
        self._mutations = MutationQuotas()
        self._group = _Group(WritePlan(layout), state)
        self._full: deque[tuple[_Group, list[Stage]]] = deque()
        """Groups that are full, with the stages that write them; they are written before
        `_group`."""
        self._wake = asyncio.Event()
        self._subscribers: list[Subscriber] = []
        self._waiting = 0
        self._spreading: asyncio.Task[None] | None = None
        self._parts: set[asyncio.Task[Reply]] = set()
        """Decisions in parts; a task that nothing refers to may be collected."""
        self.journal = DecisionJournal()
        self.metrics = metrics
        self._loaded: ControllerState | None = state
        self._end: StoreError | None = None

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with each committed change and the state after it, in order."""
        self._subscribers.append(subscriber)

    def has_heard(self, broker_id: BrokerId) -> bool:
        """Tell whether a broker of this id has registered in this reign."""
        state = self.committed
        if broker_id in state.departed:
            return True  # The broker may have followed this reign before it was unregistered.
        return broker_id in state.image.brokers and broker_id not in state.unconfirmed

    def state_before(self, broker_id: BrokerId) -> ControllerState:
        """Return a state that contains all that a broker of this id can know.

        A broker that has not registered in this reign is compared with the state as it was loaded.
        Later decisions may have raised epochs, which would hide that the loaded ones were too low.
        """
        if not self.committed.unconfirmed:
            self._loaded = None  # All brokers have been heard.
        if self._loaded is None or self.has_heard(broker_id):
            return self.committed
        return self._loaded

    def end(self, error: StoreError) -> None:
        """Stop deciding; `run` raises this error soon."""
        if self._end is None:
            self._end = error
            self._wake.set()

    @property
    def writes(self) -> int:
        """How many times the tables were written; brokers remember this number."""
        return self._committer.writes

    async def end_if_deposed(self, seen: HighestSeen) -> None:
        """End the reign because a broker has followed a controller of a higher epoch.

        The tables show the reason: another controller has sealed them, or an earlier controller had
        sealed tables that no longer exist. While the store does not answer, the reason cannot be
        found: the reign goes on, and the broker asks again.
        """
        try:
            reason = await self._committer.explain_epoch(seen)
        except StoreError as error:
            logger.warning(
                "whether controller epoch %d is newer is not known: %s",
                seen.controller_epoch,
                error,
            )
            return
        self.end(reason)

    async def submit(self, event: Event) -> Reply:
        """Decide an event; return the reply once it is durable, or raise RefusedError.

        BrokenDecisionError, at once, if the decision would break a rule of the records.
        """
        if isinstance(event, FenceBroker) and fencing_to_divide(self._pending, event) is not None:
            return await self._fence_in_parts(event)
        if isinstance(event, ElectOnRequest) and event.call["partitions"] is None:
            return await self._elect_in_parts(event)
        return await self._submit(event)

    async def make_way(self, event: RegisterBroker) -> None:
        """Fence the start of a broker before this one in parts if it has very many partitions.

        Likewise remove its replicas if they may lack records. Else the registration does both in
        one decision. The caller looks again who is there.
        """
        broker_id = event.registration.broker_id
        known = self._pending.image.brokers.get(broker_id)
        if known is None:
            return
        fencing = fencing_to_divide(self._pending, event)
        if fencing is not None:
            # What has begun ends with the fencing, though the caller may give up.
            await asyncio.shield(self._begin(fencing))
        part = ReturnUnclean(event, known.broker_epoch)
        for _ in range(parts_max(self._pending, broker_id)):
            reply = await self._submit(part)
            if reply["rest_fits"]:
                break

    def _begin(self, event: Event) -> "asyncio.Task[Reply]":
        """Submit an event that is decided though nobody waits for it."""
        task = asyncio.create_task(self.submit(event))
        self._parts.add(task)
        task.add_done_callback(self._parts.discard)
        return task

    async def _fence_in_parts(self, fencing: FenceBroker) -> Reply:
        """Fence a broker that has very many partitions; between two parts the loop runs."""
        part = LeavePartitions(fencing.broker_id, fencing.broker_epoch, fencing.reason)
        # So many parts at most: a broker that is not dead may come in sync anew in between.
        for _ in range(parts_max(self._pending, fencing.broker_id)):
            reply = await self._submit(part)
            if reply["rest_fits"]:
                break
        return await self._submit(fencing)

    async def _elect_in_parts(self, event: ElectOnRequest) -> Reply:
        """Elect in all partitions that need it; between two parts the loop runs."""
        results: list[Any] = []
        for part in election_parts(self._pending, event):
            reply = await self._submit(part)
            # Others may have elected since: the caller has not named these partitions.
            results += [
                each
                for each in reply["partitions"]
                if each["error_code"] != RefusalCode.ELECTION_NOT_NEEDED
            ]
        return {"partitions": results}

    async def _submit(self, event: Event) -> Reply:
        """Decide an event whole, before anything else runs; RefusedError as for `submit`."""
        if self._end is not None:
            raise RefusedError(RefusalCode.NOT_CONTROLLER, "the controller is stopping")
        if self._waiting >= EVENTS_WAITING_MAX and not isinstance(event, _NEVER_REFUSED):
            raise RefusedError(RefusalCode.REQUEST_TIMED_OUT, "the controller is overloaded")
        began_s = time.monotonic()
        decision, pending = self._decide(event)
        self._plan(decision)
        self._pending = self._group.after = pending
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._group.changes.extend(decision.changes)
        self._group.replies.append(_Answer(future, decision, type(event).__name__, began_s))
        self._waiting += 1
        self._wake.set()
        return await future

    async def run(self) -> None:
        """Commit groups until the reign ends; then raise StoreError."""
        try:
            await self._commit_groups()
        finally:
            if self._spreading is not None:
                self._spreading.cancel()
            # Also where it is cancelled before it has looked at what waits.
            self._end = self._end or StoreError("the controller is stopping")
            self._refuse()

    async def _commit_groups(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._close_group()
            try:
                while self._full:
                    if self._end is not None:
                        raise self._end
                    await self._commit(*self._full[0])
                    self._full.popleft()
                self._maybe_spread()
            except BaseException as error:
                self._end = self._end or StoreError("the controller is stopping")
                self._refuse()
                if isinstance(error, StoreRolledBackError):
                    await self._committer.note_rollback(error)
                raise

    def _maybe_spread(self) -> None:
        """Continue a change of min.insync.replicas that concerns very many partitions."""
        is_at_it = self._spreading is not None and not self._spreading.done()
        if not self.committed.is_minimum_spread and not is_at_it:
            self._spreading = asyncio.create_task(self._spread())

    async def _spread(self) -> None:
        while not self.committed.is_minimum_spread:
            try:
                await self.submit(SpreadMinimum())
            except RefusedError as refusal:
                logger.warning("partitions keep their min.insync.replicas: %s", refusal.message)
                await asyncio.sleep(SPREAD_RETRY_S)

    def _decide(self, event: Event) -> tuple[Decision, ControllerState]:
        """Return what an event changes, and the state after it.

        BrokenDecisionError if the decision would break a rule of the records. Such a decision is
        never planned; the next event is decided on the state before it.
        """
        kind = type(event).__name__
        now_ms = self._now_ms()
        try:
            decision = decide(
                self._pending,
                event,
                now_ms=now_ms,
                random=self._random,
                room=TableRoom(self._layout),
                allowance=self._mutations.allowance(self._pending.image, event, now_ms),
            )
            pending = decision.after or next_state(self._pending, decision.changes)
        except BrokenDecisionError as broken:
            self._note_broken(kind, broken.violation)
            raise
        for violation in decision.violations:
            self._note_broken(kind, violation)
        return decision, pending

    def _note_broken(self, kind: str, violation: str) -> None:
        self.metrics.broken_decisions[kind] += 1
        logger.error("a wrong decision of %s is not carried out: %s", kind, violation)

    def _plan(self, decision: Decision) -> None:
        """Add a decision to the present group, or to the next one if that is full."""
        try:
            plan = self._group.plan
            if (
                plan.count_unfinished()
                and plan.count_unfinished(decision.changes) > UNFINISHED_TOPICS_MAX
            ):
                self._close_group()
            self._group.plan.add(decision.changes)
        except Exception as error:
            # A decision that is planned only in part can neither be written nor built upon.
            self.end(StoreError(f"a decision could not be planned: {error!r}"))
            raise

    def _close_group(self) -> None:
        """Begin the next group; fix what this one writes, so that the layout can change."""
        self._full.append((self._group, self._group.plan.stages()))
        self._group = _Group(WritePlan(self._layout), self._pending)

    async def _commit(self, group: _Group, stages: list[Stage]) -> None:
        await self._committer.commit(stages)
        self.committed = group.after
        told = tuple(change for change in group.changes if not isinstance(change, NOT_PUBLISHED))
        if told:
            for subscriber in self._subscribers:
                subscriber(told, self.committed)
        for answer in group.replies:
            future, decision = answer.future, answer.decision
            self._tell(decision)
            self._count(answer)
            self._waiting -= 1
            for event in decision.rest:
                self._begin(event).add_done_callback(self._on_rest_decided)
            if future.done():
                continue  # The caller has given up.
            if isinstance(decision.reply, RefusedError):
                future.set_exception(decision.reply)
            else:
                future.set_result(decision.reply or {})

    def _on_rest_decided(self, task: "asyncio.Task[Reply]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._end is None:
            logger.error("what a decision has left is not decided: %r", error)

    def _tell(self, decision: Decision) -> None:
        self.journal.note(decision, self._now_ms())
        for sentence in decision.explanations:
            logger.info("%s", sentence)
        for move in decision.moves[:MOVES_LOGGED_MAX]:
            level = logging.WARNING if _is_doubtful(move) else logging.INFO
            logger.log(level, "%s", move.sentence())
        if len(decision.moves) > MOVES_LOGGED_MAX:
            logger.info("… and %d more partitions", len(decision.moves) - MOVES_LOGGED_MAX)

    def _count(self, answer: _Answer) -> None:
        metrics, moves = self.metrics, answer.decision.moves
        metrics.decisions[answer.kind] += 1
        if isinstance(answer.decision.reply, RefusedError):
            metrics.refusals[answer.kind] += 1
        if changes := sum(move.changes_leader for move in moves):
            metrics.leader_changes += changes
            metrics.elections.observe(time.monotonic() - answer.began_s)
            metrics.unclean_elections += sum(map(_is_doubtful, moves))

    def _refuse(self) -> None:
        """Fail all waiting callers; whether their changes are durable is unknown."""
        groups = [group for group, _ in self._full]
        for answer in [answer for group in [*groups, self._group] for answer in group.replies]:
            if not answer.future.done():
                answer.future.set_exception(
                    RefusedError(RefusalCode.NOT_CONTROLLER, "the controller is stopping")
                )


def _is_doubtful(move: PartitionMove) -> bool:
    return (
        move.changes_leader
        and move.after.leader_recovery_state is LeaderRecoveryState.RECOVERING
        and move.after.has_leader
    )


async def open_controller(
    store: MetadataStore,
    *,
    now_ms: Callable[[], int],
    random_source: RandomSource | None = None,
) -> Controller:
    """Take over a store: raise the epoch, seal every table, load and repair.

    The caller then runs the controller and submits `ElectLeaders` first. If tables are older than
    an earlier controller or a broker has seen them, this raises StoreRolledBackError and only
    writes a note. StoreTooNewError if this release does not support the cluster's feature levels.
    """
    source = random_source or random.SystemRandom()
    metrics = ControllerMetrics()
    store = MeasuredStore(store, metrics)
    tables = await store.load()
    if CLUSTER_TABLE not in tables:
        if tables:
            raise StoreError(f"the store holds tables but not the table {CLUSTER_TABLE!r}")
        await _found_cluster(store, source)
        tables = await store.load()
    if problem := rolled_back_tables(tables):
        raise StoreRolledBackError(problem)
    # Check before the first write: a controller that can read the tables may be active.
    _require_readable(tables[CLUSTER_TABLE])
    epoch = store.next_epoch(tables)
    history = load_history(tables, epoch)
    sealed = await store.seal(epoch, tables, first=CLUSTER_TABLE)
    committer = Committer(store, sealed, epoch)
    try:
        loaded = await _load(sealed, epoch)
    except StoreRolledBackError as error:
        await committer.note_rollback(error)
        raise
    await committer.commit(_first_stages(loaded, epoch, history))
    return Controller(
        loaded.state,
        loaded.layout,
        committer,
        history=history,
        now_ms=now_ms,
        random_source=source,
        metrics=metrics,
    )


async def _load(tables: Mapping[str, StoredTable], epoch: ControllerEpoch) -> Loaded:
    """Load tables; many of them in a thread.

    Loading 100,000 partitions takes seconds. Meanwhile the loop has to renew what makes this
    process the controller: a Lease, or the heartbeats that other candidates expect.
    """
    if sum(len(table.lines) for table in tables.values()) <= LINES_LOADED_AT_ONCE_MAX:
        return load_state(tables, controller_epoch=epoch)
    return await asyncio.to_thread(load_state, tables, controller_epoch=epoch)


def _first_stages(loaded: Loaded, epoch: ControllerEpoch, history: MetadataHistory) -> list[Stage]:
    """Return what a reign writes first, in stages.

    What a crash has left is removed first. Then the cluster's table records that it was removed,
    that every table is sealed, and where the reign before ended.
    """
    repairs = dict(loaded.repairs)
    last = repairs.pop(CLUSTER_TABLE, {})
    for name in loaded.missing_tables:
        repairs.setdefault(name, {})
    if repairs:
        logger.info("removing what an unfinished write left in %s", ", ".join(repairs))
    if loaded.unknown_lines or loaded.layout.surplus:
        logger.warning(
            "a newer release has written to the tables: %d lines of unknown kinds, and %d lines "
            "with unknown fields, are kept as they are",
            loaded.unknown_lines,
            len(loaded.layout.surplus),
        )
    sealed = loaded.layout.surplus.added_to(SEALED_KEY, dump_line({"epoch": epoch}))
    last = last | {SEALED_KEY: sealed, HISTORY_KEY: history.line()}
    return [*([repairs] if repairs else []), {CLUSTER_TABLE: last}]


def _require_readable(cluster: StoredTable) -> None:
    """Raise StoreTooNewError if the cluster has feature levels that this release does not know."""
    line = cluster.lines.get(FEATURES_KEY)
    if line is None:
        return
    features = parse_line(FEATURES_KEY, line, build_features)
    if problem := unsupported_levels(features):
        raise StoreTooNewError(
            f"this release, {RELEASE}, does not support the feature levels of the cluster: "
            f"{problem}; run {who_reads(features)}"
        )


async def _found_cluster(store: MetadataStore, source: RandomSource) -> None:
    """Write the first table of a new cluster."""
    while not is_assignable_topic_id(cluster_id := source.randbytes(16)):
        pass
    counters = CountersChanged(FIRST_BROKER_EPOCH, 0)
    first = {
        **first_lines(topic_id_text(cluster_id), counters),
        FEATURES_KEY: features_line(features_of_new_cluster()),
    }
    write = TableWrite(CLUSTER_TABLE, None, 0, first)
    (result,) = await store.write([write])
    if result.outcome is not WriteOutcome.WRITTEN:
        raise SealedError("another controller is founding the cluster")
