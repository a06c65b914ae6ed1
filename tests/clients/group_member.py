"""One small face for members of a consumer group, whichever client they are.

A member polls in a thread of its own, as an application does, and notes what it is told: partitions
that come and go, records, errors. Commands run in that thread, between two polls.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Self, TypeVar

_Result = TypeVar("_Result")

Place = tuple[str, int]
"""Topic and partition."""
POLL_S = 0.05
ANSWER_S = 60
"""How long a client waits for one answer of a broker that a busy machine may let run late."""
COMMAND_TIMEOUT_S = 70
END_TIMEOUT_S = 60
CHOSEN_BY_THE_BROKER = (
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)
"""What a member of KIP-848's protocol may not set itself."""


@dataclass(frozen=True)
class Membership:
    """How to be in which group. `pattern` is a regular expression, given instead of topics."""

    group: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    reset: str = "earliest"
    assignor: str = "range"
    auto_commit_ms: int = 0
    """0: it commits what it is told to, when it is told to."""
    instance: str = ""
    session_ms: int = 20_000
    """Tests in which a member is missed say after which time."""
    max_poll_ms: int = 30_000
    metadata_age_ms: int = 1_000
    heartbeat_ms: int = 200
    protocol: str = "classic"
    """`consumer` is KIP-848's, where the broker chooses assignor, session and heartbeats."""


@dataclass(frozen=True)
class Found:
    """A record as a member read it."""

    topic: str
    partition: int
    offset: int
    value: bytes

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True)
class Event:
    """What a member was told of its partitions: `kind` is assigned, revoked or lost."""

    kind: str
    places: frozenset[Place]


class GroupMember(ABC):
    """`start`, ask and watch, `close`; `assignors` are those that the client has."""

    name: str
    assignors: tuple[str, ...]

    def __init__(self, bootstrap: str, membership: Membership) -> None:
        self.bootstrap, self.membership = bootstrap, membership
        self.found: list[Found] = []
        self.events: list[Event] = []
        self.errors: list[str] = []
        self.retries: list[str] = []
        self._commands: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._closing, self._awake = threading.Event(), threading.Event()
        self._awake.set()
        self._thread = threading.Thread(target=self._run, name=f"{self.name} member")

    def start(self) -> Self:
        self._thread.start()
        return self

    @property
    def assigned(self) -> frozenset[Place]:
        """As the events tell it."""
        held: frozenset[Place] = frozenset()
        for event in tuple(self.events):
            held = held | event.places if event.kind == "assigned" else held - event.places
        return held

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in tuple(self.found)]

    @property
    def last_error(self) -> str:
        return self.errors[-1] if self.errors else ""

    def ask(self, command: Callable[[], _Result]) -> _Result:
        """Runs in the member's thread; raises what it raises."""
        answer: Future[_Result] = Future()
        self._commands.put((command, answer))
        return answer.result(COMMAND_TIMEOUT_S)

    def stall(self) -> None:
        """The application has stopped polling, until `wake`; a poll under way has ended."""
        self._awake.clear()
        self.ask(lambda: None)

    def wake(self) -> None:
        self._awake.set()

    def begin_close(self) -> None:
        self._closing.set()
        self._awake.set()

    def close(self) -> None:
        """Leaves the group as an application does that ends."""
        self.begin_close()
        if self._thread.ident is not None:
            self._thread.join(END_TIMEOUT_S)
            assert not self._thread.is_alive(), f"{self.name} does not come back from close()"

    def _run(self) -> None:
        try:
            self._open()
            try:
                while not self._closing.is_set():
                    self._answer_commands()
                    if self._awake.is_set():
                        self._poll_again()
                    else:
                        self._idle()
            finally:
                self._close()
        except Exception as error:
            self.errors.append(self.name_error(error))
        self._answer_commands()

    def _poll_again(self) -> None:
        """An error that the client itself calls retriable is no reason to stop polling."""
        try:
            self._poll()
        except Exception as error:
            if not getattr(error, "retriable", False):
                raise
            self.retries.append(self.name_error(error))

    def _answer_commands(self) -> None:
        while not self._commands.empty():
            command, answer = self._commands.get()
            try:
                answer.set_result(command())
            except Exception as error:
                answer.set_exception(error)

    def _idle(self) -> None:
        """A moment of doing something else than polling."""
        self._awake.wait(POLL_S)

    def note(self, kind: str, places: Sequence[Any]) -> None:
        self.events.append(Event(kind, frozenset((each.topic, each.partition) for each in places)))

    def name_error(self, error: Exception) -> str:
        return type(error).__name__

    @abstractmethod
    def _open(self) -> None: ...
    @abstractmethod
    def _poll(self) -> None: ...
    @abstractmethod
    def _close(self) -> None: ...
    @abstractmethod
    def commit(self, offsets: dict[Place, int], note: str = "") -> None:
        """Waits until it is done; raises the client's exception."""

    @abstractmethod
    def commit_later(self, offsets: dict[Place, int]) -> "Future[str]":
        """Returns at once; the future has the name of the error, or nothing."""

    @abstractmethod
    def committed(self, place: Place) -> tuple[int, str] | None:
        """Offset and metadata."""

    @abstractmethod
    def seek(self, place: Place, offset: int) -> None: ...
    @abstractmethod
    def seek_to_beginning(self, place: Place) -> None: ...
    @abstractmethod
    def offset_at(self, place: Place, timestamp_ms: int) -> int: ...
