"""Carries out the steps of `batch_decision.py` on a cluster: the driver's part of a write."""

import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fairlead_spark import limits
from fairlead_spark.cluster import Cluster
from fairlead_spark.errors import SinkError, SourceError, TakenOverError
from fairlead_spark.exactly_once.batch_decision import (
    AbortLeftovers,
    BatchWriter,
    EndTransactions,
    FindLost,
    NoteGivenUp,
    ReadDecision,
    Report,
    Step,
    Steps,
    TakeOver,
    WriteDecision,
    is_of_write,
)
from fairlead_spark.exactly_once.decision_log import DecisionLog
from fairlead_spark.exactly_once.decision_records import DecisionReplay
from fairlead_spark.exactly_once.task_transaction import WriteName
from fairlead_spark.transactions import TransactionClient
from fairlead_wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from fairlead_spark.prepared_transaction import PreparedTransaction

logger = logging.getLogger(__name__)


class BatchCommit:
    """The driver, for one batch.

    `replay` is what a task has already read of the log. `is_remembered`: the log keeps that the
    batch is done.
    """

    def __init__(
        self,
        cluster: Cluster,
        writer: BatchWriter,
        replay: DecisionReplay,
        *,
        is_remembered: bool = True,
    ) -> None:
        self._writer = writer
        self._is_remembered = is_remembered
        self._client = TransactionClient(cluster)
        self._log = DecisionLog(cluster, replay)
        self._owner: PreparedTransaction | None = None
        self._sequence = 0

    def run(self, steps: Steps) -> None:
        """Carry out all steps; an error of a step is first thrown into the generator."""
        answer: Any = None
        failure: TakenOverError | None = None
        while True:
            try:
                step = steps.send(answer) if failure is None else steps.throw(failure)
            except StopIteration:
                return
            answer, failure = None, None
            try:
                answer = self._carry_out(step)
            except TakenOverError as error:
                failure = error
                # Two drivers that take over from each other must not do so in lockstep.
                time.sleep(secrets.randbelow(100) / 100 * limits.RETRY_BACKOFF_S_MAX)

    def _carry_out(self, step: Step) -> Any:
        match step:
            case ReadDecision():
                return self._log.read()
            case TakeOver():
                self._take_over()
            case FindLost():
                return self._client.find_lost(step.transactions)
            case WriteDecision():
                self._write(step)
            case EndTransactions():
                return self._client.end(step.transactions, is_commit=step.is_commit)
            case NoteGivenUp():
                self._log.note_given_up(self._writer.key)
            case AbortLeftovers():
                self._abort_leftovers(step.replaced)
            case Report():
                logger.error("%s; going on, because failOnDataLoss is false", step.text)
        return None

    def _take_over(self) -> None:
        self._sequence = 0
        self._owner = self._client.begin(
            self._writer.transactional_id, limits.DRIVER_TRANSACTION_TIMEOUT_S
        )

    def _write(self, step: WriteDecision) -> None:
        if self._owner is None:
            raise SinkError("a decision is written by nobody: take over first")
        is_done = step.decision.is_ended and not self._is_remembered
        self._log.write(
            None if is_done else step.decision,
            step.behind,
            client=self._client,
            owner=self._owner,
            sequence=self._sequence,
        )
        self._sequence += 1

    def _abort_leftovers(self, replaced: tuple[str, ...]) -> None:
        writer = self._writer
        _abort_open(self._client, writer.name, lambda name: writer.may_abort(name, replaced))


def abort_leftovers(cluster: Cluster, write: WriteName) -> None:
    """Abort the open transactions of all tasks of a batch write that failed.

    Spark tells the driver only of tasks that ended before Spark gave the write up. It lets the
    others run for a while: a task whose transaction begins after this check finds the note. Only
    for a write of which no task has reported: what is decided must not be aborted.
    """
    DecisionLog(cluster, DecisionReplay(write.name)).note_given_up(write.run)
    _abort_open(TransactionClient(cluster), write.name, lambda name: is_of_write(name, write.run))


def _abort_open(client: TransactionClient, name: str, is_meant: Callable[[str], bool]) -> None:
    """Abort open transactions: readers would wait for them until they time out.

    That is their only harm, so a failure is only logged.
    """
    try:
        client.abort_open(is_meant)
    except (SourceError, SinkError, TakenOverError, RemoteProtocolError) as error:
        logger.warning(
            "transactions of tasks of %s that failed are left open: readers of "
            "read_committed wait until they time out: %s",
            name,
            error,
        )
