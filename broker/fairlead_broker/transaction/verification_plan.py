"""Which questions about transactions go to a coordinator's broker, and which answer each other.

Pure; Kafka's `AddPartitionsToTxnManager`. One request a broker is under way, with one question of
each transactional id in it. Questions of one id that wait for the same broker (KIP-890):

* of a newer epoch: those before it are fenced, INVALID_PRODUCER_EPOCH;
* of an older epoch: it is fenced itself;
* of the same epoch, about the same partition: its client asks again, so those before it are
  answered NETWORK_EXCEPTION, which no one waits for;
* of the same epoch, about other partitions: it goes with the next request. Kafka takes that for a
  repetition, too; but a producer and its group offsets may come to one broker at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from fairlead_broker.transaction.ending import TopicPartition
    from fairlead_broker.transaction.verification import OnVerdicts, Verdicts

RETRY_BACKOFF_MIN_MS: Final = 5
"""The first pause; each next one is twice as long. Kafka pauses for 20 ms each time, which is what
every transaction of a client that goes on at once then takes at least; markers take less."""
RETRIES_END_MS: Final = 100
"""Default of `add.partitions.to.txn.retry.backoff.max.ms`: so long a question is asked again."""
_ID_LENGTH_AS_PARTITION: Final = 256
"""What of a transactional id takes as much in a request as a partition of the longest name."""


class Question:
    """Whether partitions are in a transaction, or shall be: `supports_epoch_bump` adds them.

    `number` tells the order in which questions came up, `tries` how often it was asked again.
    """

    __slots__ = (
        "answer",
        "asked_ms",
        "number",
        "partitions",
        "producer_epoch",
        "producer_id",
        "supports_epoch_bump",
        "transactional_id",
        "tries",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        *,
        supports_epoch_bump: bool,
        answer: OnVerdicts,
        number: int,
        asked_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions = partitions
        self.supports_epoch_bump = supports_epoch_bump
        self.answer = answer
        self.number = number
        self.asked_ms = asked_ms
        self.tries = 0

    def same_for_all(self, code: ErrorCode) -> Verdicts:
        """Return one verdict on every partition."""
        return dict.fromkeys(self.partitions, code)

    def next_try_ms(self, verdicts: Verdicts, now_ms: int) -> int | None:
        """Return how long to pause before it is asked again; None if these verdicts are final.

        They are not while the transaction before is just being ended.
        """
        if (
            now_ms - self.asked_ms >= RETRIES_END_MS
            or ErrorCode.CONCURRENT_TRANSACTIONS not in verdicts.values()
        ):
            return None
        self.tries += 1
        return RETRY_BACKOFF_MIN_MS << (self.tries - 1)


Refusal: TypeAlias = "tuple[Question, ErrorCode]"


class QuestionQueue:
    """Questions that wait until a broker can be asked."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Question]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, question: Question) -> list[Refusal]:
        """Put a question in; the questions that need not be asked any more, with their answers.

        That may be the question itself.
        """
        waiting = self._waiting.get(question.transactional_id, [])
        kept: list[Question] = []
        refused: list[Refusal] = []
        is_refused = False
        for before in waiting:
            loser = _loser(before, question)
            if loser is None:
                kept.append(before)
                continue
            code = (
                ErrorCode.NETWORK_EXCEPTION
                if before.producer_epoch == question.producer_epoch
                else ErrorCode.INVALID_PRODUCER_EPOCH
            )
            if loser is question:
                kept.append(before)
                if not is_refused:
                    is_refused = True
                    refused.append((question, code))
            else:
                refused.append((before, code))
        if not is_refused:
            kept.append(question)
        self._waiting[question.transactional_id] = kept
        return refused

    def take(self, partitions_max: int) -> list[Question]:
        """Take the oldest question of each id for one request, about so many partitions.

        The first one is taken however many it is about. Long ids count, too: clients choose them,
        and a request that is too large for a broker would be made and refused again and again.
        """
        taken: list[Question] = []
        room = partitions_max
        for transactional_id, questions in list(self._waiting.items()):
            question = questions[0]
            room -= len(question.partitions) + len(transactional_id) // _ID_LENGTH_AS_PARTITION
            if taken and room < 0:
                break
            taken.append(question)
            del self._waiting[transactional_id]
            if len(questions) > 1:
                self._waiting[transactional_id] = questions[1:]
        return taken


def _loser(before: Question, question: Question) -> Question | None:
    """Return which of two questions of one id is not asked; None if both are.

    Epochs of different producer ids say nothing about each other.
    """
    if before.producer_id != question.producer_id:
        return None
    if before.producer_epoch != question.producer_epoch:
        return before if before.producer_epoch < question.producer_epoch else question
    if before.partitions.isdisjoint(question.partitions):
        return None
    return before if before.number < question.number else question
