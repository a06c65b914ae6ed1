"""What the driver and the tasks of an exactly-once write do next. Pure: generators of steps.

Each task writes in a transaction of its own, has all of its rows acknowledged, and leaves the
transaction open. The driver writes one `Decision` into a compacted topic, names in it what the
tasks prepared, and only then ends the transactions. The decision is the point of no return: before
it a batch leaves nothing that `read_committed` shows; after it another run of the batch only
finishes what was decided.

Only one driver may decide: it first takes over the query's own transactional id, so that brokers
refuse a decision of another driver that is still in flight; then it reads the last decision. Of two
drivers the one whose application began later stays: the older one finds a decision of the newer one
and ends.

A task that was suspended may continue when its batch is over. It reads the log right before it
takes its transactional id, and again when its transaction has begun. Ids also alternate, so no
batch has an id of the batch before it (`TURNS`).

A generator yields steps and is sent the result of each. `batch_commit.py` carries them out; tests
do so with their own brokers, and stop it anywhere.
"""

import re
import zlib
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from fairlead_spark.errors import FencedError, LostTransactionError, SinkError, TakenOverError
from fairlead_spark.prepared_transaction import PREFIX, PreparedTransaction

NO_BATCH: Final = -1
"""Batch of a record without a decision, if there was no decision before."""
TAKE_OVERS_MAX: Final = 5
"""Most drivers that may take over, one after the other, while this one is about to decide."""
TURNS: Final = 11
"""Number of batches until first attempts have the same transactional ids again.

A task may read the log, and then be suspended before brokers have its request for an id. For this
number of batches it does no harm: with ten seconds each, that is longer than Spark believes an
executor to be alive (`spark.network.timeout`, 120 s).
"""
DRAWS: Final = 9
"""Ids of a partition in a turn.

Spark counts attempts from 0 again if it runs a stage again. So it does if a program of
`foreachBatch` writes a batch again, whose turn is the same if nobody could give the batch up. One
of this number of pairs of such tasks has the same id. Brokers keep TURNS times DRAWS ids for each
partition for `transactional.id.expiration.ms` (7 days), however many batches there are.
"""
_TASK_ID: Final = re.compile(rf"{re.escape(PREFIX)}\.(.+)\.(\d+)-([^.]+)\.\d+\.(?:r?\d+|\d+-\d+)")
"""Includes ids of first attempts in the format before there were turns: `0`."""
REPLACED_MAX: Final = 100
"""Runs of one application that are remembered, because their processes may still exist."""
_NAMES_SHOWN: Final = 3


class BatchWriter(NamedTuple):
    """The driver and the batch of a write.

    `name` is the query's id, or the user's `txnAppId` and the topic; `batch` is the number of Spark
    or `txnVersion`.
    `run` is one start of the query, `since_ms` when its Spark application began, and `execution`
    counts what that application runs. `write` is a batch write's own, empty in a stream: in
    `foreachBatch` many have one run.
    """

    name: str
    batch: int
    run: str
    since_ms: int
    execution: int = 0
    write: str = ""

    @property
    def key(self) -> str:
        """The log's key under which it is noted that this batch was given up."""
        return self.write or self.run

    @property
    def transactional_id(self) -> str:
        """The id of the driver's own transactions."""
        return f"{PREFIX}.{self.name}.driver"

    def task_transactional_id(self, partition: int, attempt: str) -> str:
        """Return a task's id: it differs for another run, or another `name_attempt`."""
        return f"{PREFIX}.{self.name}.{self.since_ms}-{self.run}.{partition}.{attempt}"

    def may_abort(self, transactional_id: str, replaced: Collection[str]) -> bool:
        """Tell whether a task's id is of this run, or of a run that cannot decide any more."""
        match = _TASK_ID.fullmatch(transactional_id)
        if match is None or match[1] != self.name:
            return False
        since_ms, run = int(match[2]), match[3]
        is_own = since_ms == self.since_ms and run in (self.run, *replaced)
        return is_own or since_ms < self.since_ms


def name_attempt(last: "Decision | None", attempt_id: int, *, is_first: bool) -> str:
    """Return the part of a task's id that differs between attempts for the same partition.

    `last` is the last decision, and `attempt_id` is counted by the application. Ids of later
    attempts are never used again, because there are few.
    """
    if not is_first:
        return f"r{attempt_id}"
    turn = 0 if last is None else last.turn
    # Not the remainder: a stage has the same number of tasks each time.
    return f"{turn % TURNS}-{zlib.crc32(str(attempt_id).encode()) % DRAWS}"


def is_of_write(transactional_id: str, run: str) -> bool:
    """Tell whether an id is that of a task of a batch write, whose `run` no other write has.

    In `foreachBatch` the run in the id is the query's; a write without `txnAppId` has the name.
    """
    match = _TASK_ID.fullmatch(transactional_id)
    return match is not None and run in (match[1], match[3])


@dataclass(frozen=True)
class Decision:
    """The last decided batch, and its driver. `transactions` are to be committed.

    `replaced` are earlier runs of the same application: the process that commits for a query may
    outlive it, and find the next run at work. `turn` counts decisions, and batches given up.
    """

    batch: int
    run: str
    since_ms: int
    transactions: tuple[PreparedTransaction, ...] = ()
    is_ended: bool = False
    execution: int = 0
    replaced: tuple[str, ...] = ()
    turn: int = 0


@dataclass(frozen=True)
class ReadDecision:
    """Read the last decision of the query; the generator is sent a Decision or None."""


@dataclass(frozen=True)
class TakeOver:
    """Take over the query's transactional id: brokers then refuse writes of its old owner."""


@dataclass(frozen=True)
class FindLost:
    """Find which of these transactions are not open any more; the generator is sent a list."""

    transactions: tuple[PreparedTransaction, ...]


@dataclass(frozen=True)
class WriteDecision:
    """Write this durably, in a transaction of the query's id, if the last decision is `behind`.

    TakenOverError if it is not, or if another driver has taken over.
    """

    decision: Decision
    behind: Decision | None


@dataclass(frozen=True)
class EndTransactions:
    """Commit or abort; the generator is sent a list of transactions with another outcome."""

    transactions: tuple[PreparedTransaction, ...]
    is_commit: bool


@dataclass(frozen=True)
class NoteGivenUp:
    """Note durably that this writer's batch was given up, for tasks that still run."""


@dataclass(frozen=True)
class AbortLeftovers:
    """Abort transactions that tasks have left open, of failed attempts and of replaced runs.

    Only after a decision of this driver: then no older driver, nor one of the `replaced` runs, can
    decide to commit them.
    """

    replaced: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """Log an error that does not end the query."""

    text: str


Step = (
    ReadDecision
    | TakeOver
    | FindLost
    | WriteDecision
    | EndTransactions
    | NoteGivenUp
    | AbortLeftovers
    | Report
)
Steps = Generator[Step, Any, None]


def must_write(
    writer: BatchWriter, decision: Decision | None, given_up: Collection[str] = ()
) -> bool:
    """Tell whether a task has anything to write: it has not if its batch is decided.

    A task asks three times. First, before it computes anything. Second, right before it takes its
    transactional id, which aborts that id's open transaction: its batch may be long over. Third,
    after its own transaction has begun: a driver that gives a batch up notes that, and then aborts
    open transactions, so the task or its driver sees the other.
    FencedError: the task's driver was replaced. SinkError: its batch was given up.
    """
    _check_order(writer, decision)
    if writer.key in given_up:
        raise SinkError(
            f"batch {writer.batch} of {writer.name} is over, while this task was still at work: "
            "another of its tasks failed, or another attempt took this one's place"
        )
    return decision is None or decision.batch < writer.batch


def commit_batch(
    writer: BatchWriter,
    prepared: Sequence[PreparedTransaction],
    *,
    is_decided: bool = False,
    fail_on_data_loss: bool = True,
) -> Steps:
    """Decide that a batch is written, and end its transactions, repeatedly if necessary.

    `is_decided`: a task found a decision, and wrote nothing.

    FencedError: there is a newer driver. SinkError: the batch may be run again.
    LostTransactionError: the batch was decided, and a part of it is lost.
    """
    own = tuple(prepared)

    def commit(decided: Decision | None) -> Generator[Step, Any, Decision]:
        if decided is None or decided.batch < writer.batch:
            if is_decided:
                raise SinkError(
                    f"batch {writer.batch} of {writer.name}: its tasks found that it is decided, "
                    "and left out its rows, but the log of decisions does not hold that any more"
                )
            if decided is not None:
                decided = yield from _finish(writer, decided, fail_on_data_loss=fail_on_data_loss)
            decided = yield from _decide(writer, own, decided)
        else:
            needless = tuple(each for each in own if each not in decided.transactions)
            if needless:
                yield EndTransactions(needless, is_commit=False)
            if decided.is_ended and not _is_by(writer, decided):
                # An older driver that is about to decide its next batch finds the new owner.
                ended = _noted_by(writer, decided)
                yield WriteDecision(ended, decided)
                decided = ended
        return (yield from _finish(writer, decided, fail_on_data_loss=fail_on_data_loss))

    yield from _as_owner(writer, commit)


def abort_batch(writer: BatchWriter, prepared: Sequence[PreparedTransaction]) -> Steps:
    """Abort what tasks of a failed batch have prepared, unless it was decided after all.

    Spark calls this also after a commit that failed, maybe after its decision. So it aborts only
    after its own record in the log, which shows that there is no such decision.
    """

    def abort(decided: Decision | None) -> Generator[Step, Any, Decision | None]:
        if decided is not None and decided.batch >= writer.batch:
            return None
        nothing = Decision(NO_BATCH, writer.run, writer.since_ms, is_ended=True)
        own = replace(_owned_by(writer, decided or nothing), turn=_next_turn(decided))
        yield WriteDecision(own, decided)
        yield NoteGivenUp()
        if prepared:
            yield EndTransactions(tuple(prepared), is_commit=False)
        return own

    yield from _as_owner(writer, abort)


def _as_owner(
    writer: BatchWriter,
    act: Callable[[Decision | None], Generator[Step, Any, Decision | None]],
) -> Steps:
    """Take over, act on the last decision, and tidy up; start again if another driver takes over.

    `act` returns this driver's own decision, None if there is none.
    """
    # Without this check, an old driver that resumes would fence the driver that replaced it.
    _check_order(writer, (yield ReadDecision()))
    for _ in range(TAKE_OVERS_MAX):
        yield TakeOver()
        decided = yield ReadDecision()
        _check_order(writer, decided)
        try:
            own = yield from act(decided)
        except TakenOverError:
            continue
        if own is not None:
            yield AbortLeftovers(own.replaced)
        return
    raise SinkError(
        f"batch {writer.batch} of {writer.name}: {TAKE_OVERS_MAX} times another driver took over "
        f"{writer.transactional_id} while this one was about to write there. Run one driver of a "
        "query; the batch may be run again, and what was decided is finished then"
    )


def _decide(
    writer: BatchWriter, prepared: tuple[PreparedTransaction, ...], last: Decision | None
) -> Generator[Step, Any, Decision]:
    lost = yield FindLost(prepared)
    if lost:
        yield EndTransactions(prepared, is_commit=False)
        raise SinkError(
            f"batch {writer.batch} of {writer.name} is not written: before it was decided, brokers "
            f"had ended {_names(lost)} of its transactions. It may be run again. If it takes "
            "longer than kafka.transaction.timeout.ms, raise that"
        )
    decision = Decision(
        writer.batch,
        writer.run,
        writer.since_ms,
        prepared,
        execution=writer.execution,
        replaced=_replaced_by(writer, last),
        turn=_next_turn(last),
    )
    yield WriteDecision(decision, last)
    return decision


def _finish(
    writer: BatchWriter, decided: Decision, *, fail_on_data_loss: bool
) -> Generator[Step, Any, Decision]:
    """End the decided transactions, and note that they have ended."""
    if decided.is_ended:
        return decided
    lost = yield EndTransactions(decided.transactions, is_commit=True)
    if lost:
        text = (
            f"batch {decided.batch} of {writer.name} was decided, but brokers had ended "
            f"{_names(lost)} of its transactions before they could be committed: the rows of "
            "these tasks are lost, those of its other tasks are written. The driver was away for "
            "longer than kafka.transaction.timeout.ms, or somebody aborted them"
        )
        # The decision may be an old one of a replaced leader; then its ids have changed.
        yield WriteDecision(decided, decided)
        if fail_on_data_loss:
            raise LostTransactionError(
                f"{text}. Raise that setting; to go on without these rows set failOnDataLoss to "
                "false"
            )
        yield Report(text)
    ended = _noted_by(writer, decided)
    yield WriteDecision(ended, decided)
    return ended


def _is_by(writer: BatchWriter, decided: Decision) -> bool:
    return (decided.run, decided.since_ms) == (writer.run, writer.since_ms)


def _noted_by(writer: BatchWriter, decided: Decision) -> Decision:
    """Return the decision without its transactions: all of them have ended."""
    return replace(_owned_by(writer, decided), transactions=(), is_ended=True)


def _owned_by(writer: BatchWriter, decided: Decision) -> Decision:
    return replace(
        decided,
        run=writer.run,
        since_ms=writer.since_ms,
        execution=writer.execution,
        replaced=_replaced_by(writer, decided),
    )


def _next_turn(last: Decision | None) -> int:
    return 1 if last is None else last.turn + 1


def _replaced_by(writer: BatchWriter, last: Decision | None) -> tuple[str, ...]:
    """Return the runs of this application that this run replaces."""
    if last is None or last.since_ms != writer.since_ms:
        return ()
    if last.run == writer.run:
        return last.replaced
    return (*last.replaced, last.run)[-REPLACED_MAX:]


def _check_order(writer: BatchWriter, decided: Decision | None) -> None:
    if decided is None:
        return
    if writer.since_ms < decided.since_ms:
        raise FencedError(
            f"batch {writer.batch} of {writer.name}: a driver whose application began "
            f"{decided.since_ms - writer.since_ms} ms after this one's has written batch "
            f"{decided.batch}: this one was replaced, and ends"
        )
    is_same = writer.since_ms == decided.since_ms
    if is_same and writer.run != decided.run and writer.execution < decided.execution:
        raise FencedError(
            f"batch {writer.batch} of {writer.name}: the query was started again in this "
            f"application, and run {decided.run} has taken the place of {writer.run}"
        )
    if writer.batch < decided.batch:
        raise FencedError(
            f"batch {writer.batch} of {writer.name} was decided long ago, the last one is "
            f"{decided.batch}: this driver was replaced, or its checkpoint is an old copy"
        )


def _names(transactions: Sequence[PreparedTransaction]) -> str:
    shown = ", ".join(each.transactional_id for each in transactions[:_NAMES_SHOWN])
    more = ", …" if len(transactions) > _NAMES_SHOWN else ""
    return f"{len(transactions)} ({shown}{more})"
