"""Commands about one transactional id: what its producers ask, what is logged, markers, and time.

The state machine is the product's. Producers go by names that the transcript gives them; each
remembers the producer id and the epoch that it was told last, as a client does, and the version of
the protocol that it speaks. What the id writes to its log is committed by the command `log`, and
markers are written by `markers`: answers that must wait for that come then.
"""

from __future__ import annotations

from dataclasses import dataclass

from transaction_driver import TV1, TV2, TransactionDriver, metadata

from fairlead_broker.transaction.transaction_types import TransactionState
from fairlead_wire.errors import ErrorCode
from transcripts.transcript import CommandError, Duration, Interpreter, command

VERSIONS = {1: TV1, 2: TV2}


@dataclass
class Producer:
    """What one process knows of itself."""

    version: int
    pair: tuple[int, int] = (-1, -1)


class TransactionsTranscript(Interpreter):
    """One id, and the producers that use it."""

    def __init__(self) -> None:
        super().__init__()
        self._driver = TransactionDriver()
        self._producers: dict[str, Producer] = {}
        self._waiting: dict[str, tuple[str, str]] = {}
        """Requests without an answer, by the driver's name: who asked, and what."""
        self._requests = 0

    def do(self, line: str) -> list[str]:
        state = self._state()
        said = super().do(line)
        self._say_answers()
        if self._state() != state:
            self.say(f"x: {self._state()}")
        later, self._said = self._said, []
        return said + later

    @command
    def old_id(self, epoch: int) -> None:
        """Begin anew with an id that has had so many epochs."""
        self._driver = TransactionDriver(metadata(TransactionState.EMPTY, epoch))
        self._producers.clear()
        self._waiting.clear()

    @command
    def init(self, producer: str, *, version: int = 1, resume: bool = False) -> None:
        """Ask for a producer id and epoch; `resume=yes` as one that has some and goes on."""
        if version not in VERSIONS:
            raise CommandError(f"version is 1 or 2, not {version}")
        known = self._producers.setdefault(producer, Producer(VERSIONS[version]))
        self._driver.init(self._waiter(producer, "init"), known.pair if resume else None)

    @command
    def add(self, producer: str, *partitions: int) -> None:
        """Make partitions of `t` part of the transaction."""
        known = self._producer(producer)
        name = self._waiter(producer, "add")
        self._driver.add(*partitions, pair=known.pair, version=known.version, name=name)

    @command
    def verify(self, producer: str, partition: int) -> None:
        """Let the leader of a partition ask whether it is in the transaction."""
        key = ("t", partition)
        code = self._driver.machine.verify(*self._producer(producer).pair, [key])[key]
        self.say(f"{producer}: verify {_outcome(code)}")

    @command
    def commit(self, producer: str, *, epoch: int | None = None) -> None:
        """End with a commit; `epoch` for one that asks with another than it has."""
        self._end(producer, epoch, commit=True)

    @command
    def abort(self, producer: str, *, epoch: int | None = None) -> None:
        """End with an abort."""
        self._end(producer, epoch, commit=False)

    @command
    def log(self, outcome: str = "ok") -> None:
        """Commit what was written, or fail it with an error."""
        if not self._driver.in_flight:
            raise CommandError("nothing was written")
        if outcome == "ok":
            self._driver.commit()
        elif outcome in ErrorCode.__members__:
            self._driver.fail(ErrorCode[outcome])
        else:
            raise CommandError(f"there is no error {outcome!r}")

    @command
    def markers(self) -> None:
        """Write the markers that were asked for; then the id logs that its end is complete."""
        if not self._driver.endings:
            raise CommandError("no marker is asked for")
        for ending in self._driver.endings:
            what = "commit" if ending.marker.is_commit else "abort"
            partitions = " ".join(f"{name}-{index}" for name, index in sorted(ending.partitions))
            marker = ending.marker
            self.say(
                f"{what} marker of producer {marker.producer_id}, epoch {marker.producer_epoch}, "
                f"to {partitions}"
            )
        self._driver.mark()

    @command
    def time(self, passes: Duration) -> None:
        """Let time pass, with what the coordinator then finds to have timed out."""
        self._driver.now_ms += passes
        self._driver.tick()
        self._driver.time_out()

    @command
    def expire(self, *, expiration: Duration) -> None:
        """Forget the id if nobody has used it for so long."""
        driver = self._driver
        driver.take(driver.machine.maybe_expire(now_ms=driver.wall_ms, expiration_ms=expiration))

    @command
    def another_coordinator(self) -> None:
        """Let another broker coordinate: it has replayed what was committed."""
        if self._driver.in_flight:
            self._driver.fail(ErrorCode.NOT_COORDINATOR)
        self._say_answers()
        self._driver.reload()

    def _end(self, name: str, epoch: int | None, *, commit: bool) -> None:
        known = self._producer(name)
        producer_id, known_epoch = known.pair
        self._driver.end(
            self._waiter(name, "commit" if commit else "abort"),
            commit=commit,
            version=known.version,
            pair=(producer_id, known_epoch if epoch is None else epoch),
        )

    def _producer(self, name: str) -> Producer:
        if name not in self._producers:
            raise CommandError(f"there is no producer {name!r}")
        return self._producers[name]

    def _waiter(self, producer: str, what: str) -> str:
        self._requests += 1
        name = f"{producer} {self._requests}"
        self._waiting[name] = (producer, what)
        return name

    def _state(self) -> str:
        known = self._driver.machine.metadata
        if self._driver.machine.is_unwritten:
            return "unknown"
        said = f"{known.state.title}, producer {known.producer_id}, epoch {known.producer_epoch}"
        if known.partitions:
            said += ", " + " ".join(f"{name}-{index}" for name, index in sorted(known.partitions))
        return said

    def _say_answers(self) -> None:
        for name, (producer, what) in list(self._waiting.items()):
            answer = self._driver.answers.get(name)
            if answer is None:
                continue
            del self._waiting[name]
            said = f"{producer}: {what} {_outcome(answer.error)}"
            if answer.producer_id >= 0:
                self._producers[producer].pair = answer.producer_id, answer.producer_epoch
                said += f", producer {answer.producer_id}, epoch {answer.producer_epoch}"
            self.say(said)


def _outcome(error: ErrorCode) -> str:
    return "ok" if error is ErrorCode.NONE else error.name
