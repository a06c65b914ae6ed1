"""The controller's shell: events in, decisions committed, images and replies out.

Decisions are taken at once, on the pending state, in the order of the events. What they change is
committed in groups: while one group is being written, the next one gathers. Subscribers hear of
changes, and callers get their replies, only after the commit; a reply that changes nothing waits
for the group before it all the same, because it depends on what that group changes.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fairlead_controller.committer import Committer
from fairlead_controller.decide import decide
from fairlead_controller.decision_journal import DecisionJournal
from fairlead_controller.events import Decision, Event, FenceBroker, PartitionMove
from fairlead_controller.loading import load_state
from fairlead_controller.metrics import ControllerMetrics
from fairlead_controller.placement import RandomSource
from fairlead_controller.state import (
    FIRST_BROKER_EPOCH,
    NOT_PUBLISHED,
    ControllerChange,
    ControllerState,
    CountersChanged,
)
from fairlead_controller.stores.measured import MeasuredStore
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    SealedError,
    StoreError,
    TableWrite,
    WriteOutcome,
)
from fairlead_controller.table_plan import CLUSTER_TABLE, TableLayout, WritePlan, first_lines
from fairlead_model.cluster import Change
from fairlead_model.ids import is_assignable_topic_id, topic_id_text
from fairlead_model.partition import LeaderRecoveryState
from fairlead_model.refusals import RefusalCode, RefusedError

logger = logging.getLogger(__name__)

EVENTS_WAITING_MAX: Final = 10_000
"""Decisions that may wait for the store; beyond, events are refused. A death is not: nobody would
tell it again, and there are never more of them than brokers."""

MOVES_LOGGED_MAX: Final = 20
"""Partitions of one decision that the log names; /explain knows the others."""

Subscriber = Callable[[tuple[Change, ...], ControllerState], None]
Reply = Mapping[str, Any]


class _Answer(NamedTuple):
    """What a decision has for whoever asked for it."""

    future: "asyncio.Future[Reply]"
    decision: Decision
    kind: str
    began_s: float


@dataclass(slots=True)
class _Group:
    """Decisions that will be committed together."""

    changes: list[ControllerChange] = field(default_factory=list)
    replies: list[_Answer] = field(default_factory=list)


class Controller:
    """One reign: from the sealing of the store to its end. Made by `open_controller`."""

    def __init__(
        self,
        state: ControllerState,
        layout: TableLayout,
        committer: Committer,
        *,
        now_ms: Callable[[], int],
        random_source: RandomSource,
        metrics: ControllerMetrics,
    ) -> None:
        self.committed = state
        """What the store holds; the only state that others may see."""
        self._pending = state
        self._layout = layout
        self._committer = committer
        self._now_ms = now_ms
        self._random = random_source
        self._group = _Group()
        self._wake = asyncio.Event()
        self._subscribers: list[Subscriber] = []
        self._waiting = 0
        self.journal = DecisionJournal()
        self.metrics = metrics

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have committed changes told, with the state after them, in order."""
        self._subscribers.append(subscriber)

    async def submit(self, event: Event) -> Reply:
        """Decide an event; give the reply once it holds. RefusedError if it is refused."""
        if self._waiting >= EVENTS_WAITING_MAX and not isinstance(event, FenceBroker):
            raise RefusedError(RefusalCode.REQUEST_TIMED_OUT, "the controller is overloaded")
        began_s = time.monotonic()
        decision = decide(self._pending, event, now_ms=self._now_ms(), random=self._random)
        self._pending = self._pending.apply(decision.changes)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._group.changes.extend(decision.changes)
        self._group.replies.append(_Answer(future, decision, type(event).__name__, began_s))
        self._waiting += 1
        self._wake.set()
        return await future

    async def run(self) -> None:
        """Commit groups for ever; StoreError when the reign is over."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            group, self._group = self._group, _Group()
            try:
                await self._commit(group)
            except BaseException:
                self._refuse(group)
                raise

    async def _commit(self, group: _Group) -> None:
        plan = WritePlan(self._layout)
        plan.add(group.changes)
        await self._committer.commit(plan.stages())
        self.committed = self.committed.apply(group.changes)
        told = tuple(change for change in group.changes if not isinstance(change, NOT_PUBLISHED))
        if told:
            for subscriber in self._subscribers:
                subscriber(told, self.committed)
        for answer in group.replies:
            future, decision = answer.future, answer.decision
            self._tell(decision)
            self._count(answer)
            self._waiting -= 1
            if future.done():
                continue  # The caller has given up.
            if isinstance(decision.reply, RefusedError):
                future.set_exception(decision.reply)
            else:
                future.set_result(decision.reply or {})

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

    def _refuse(self, group: _Group) -> None:
        """Let nobody wait for a controller that ends; whether their changes hold is unknown."""
        for answer in [*group.replies, *self._group.replies]:
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
    """Take over a store: raise the epoch, seal every table, load, repair.

    The caller then runs the controller and submits `ElectLeaders` first.
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
    epoch = 1 + max(table.controller_epoch for table in tables.values())
    sealed = await store.seal(epoch, tables)
    loaded = load_state(sealed, controller_epoch=epoch)
    committer = Committer(store, sealed, epoch)
    for name in loaded.missing_tables:
        loaded.repairs.setdefault(name, {})
    if loaded.repairs:
        logger.info("removing what an unfinished write left in %s", ", ".join(loaded.repairs))
        await committer.commit([loaded.repairs])
    return Controller(
        loaded.state,
        loaded.layout,
        committer,
        now_ms=now_ms,
        random_source=source,
        metrics=metrics,
    )


async def _found_cluster(store: MetadataStore, source: RandomSource) -> None:
    """Write the first table of a new cluster."""
    while not is_assignable_topic_id(cluster_id := source.randbytes(16)):
        pass
    counters = CountersChanged(FIRST_BROKER_EPOCH, 0)
    write = TableWrite(CLUSTER_TABLE, None, 0, first_lines(topic_id_text(cluster_id), counters))
    (result,) = await store.write([write])
    if result.outcome is not WriteOutcome.WRITTEN:
        raise SealedError("another controller is founding the cluster")
