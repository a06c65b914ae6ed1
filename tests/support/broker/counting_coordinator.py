"""A second kind of state in an internal topic: counters by key, without groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.coordinator.record_batching import encode_body
from fairlead_broker.coordinator.runtime import CoordinatorRuntime
from fairlead_broker.coordinator.shard import size_in_batch
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica_cluster import ReplicaCluster

    from fairlead_broker.broker import Broker
    from fairlead_broker.coordinator.replayed_transactions import UndecidedRecord
    from fairlead_broker.coordinator.shard import Shard

TOPIC = "counters"


class Addition:
    """An increment of a counter: the write of this kind of state, and its outcome."""

    def __init__(self, counters: Counters, key: str, value: int) -> None:
        self.counters = counters
        self.key = key
        self.value = value
        self.outcomes: list[ErrorCode | str] = []
        self.bodies: Sequence[bytes] = [encode_body(key.encode(), b"%d" % value)]
        self.size = size_in_batch(self.bodies)

    def committed(self) -> None:
        self.counters.values[self.key] = self.value
        self.outcomes.append(ErrorCode.NONE)

    def failed(self, code: ErrorCode) -> None:
        self.outcomes.append(code)

    def timed_out(self) -> None:
        self.outcomes.append("timed out")


class Counters:
    """The state machine of one partition."""

    def __init__(self, shard: Shard[Any], events: list[str]) -> None:
        self.shard = shard
        self.values: dict[str, int] = {}
        self._replayed: dict[str, int] = {}
        self._events = events

    @property
    def contents(self) -> str:
        return f"{len(self.values)} counters"

    def replay(self, records: dict[bytes, bytes]) -> Iterator[None]:
        for key, value in records.items():
            self._replayed[key.decode()] = int(value)
            yield

    def replay_undecided(self, records: Iterator[UndecidedRecord]) -> Iterator[None]:
        raise AssertionError("nobody counts in transactions")

    def begin(self) -> Iterator[None]:
        self._events.append("begins")
        self.values = self._replayed
        yield

    def on_loaded(self) -> None:
        self._events.append("is loaded")

    def on_unloaded(self) -> None:
        self._events.append("is unloaded")


class Alarm:
    """An object with a deadline."""

    def __init__(self, deadline_ms: int) -> None:
        self.scheduled_ms: int | None = None
        self.is_gone = False
        self.deadline_ms = deadline_ms

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms


class CountingCoordinator:
    """A coordinator on one broker, beside the groups; created before the topic is."""

    def __init__(self, broker: Broker, *, write_timeout_ms: int = 60_000) -> None:
        self.events: list[str] = []
        self.rung: list[Alarm] = []
        self.faulty: list[Alarm] = []
        """Alarms that fail."""
        self.runtime: CoordinatorRuntime[Counters, Alarm] = CoordinatorRuntime(
            broker,
            TOPIC,
            build=lambda shard: Counters(shard, self.events),
            on_deadline=self._ring,
            write_timeout_ms=write_timeout_ms,
            load_buffer_size=1_000,
        )
        broker.coordinators[TOPIC] = self.runtime

    def _ring(self, alarm: Alarm) -> None:
        if alarm in self.faulty:
            raise RuntimeError("it is broken")
        self.rung.append(alarm)

    def add(self, key: str) -> Addition:
        """Increment a counter; KafkaError if this broker may not."""
        shard = self.runtime.shard_of(key)
        addition = Addition(shard.machine, key, shard.machine.values.get(key, 0) + 1)
        self.runtime.append(shard, addition)
        return addition

    def value(self, key: str) -> int:
        return self.runtime.shard_of(key).machine.values.get(key, 0)

    def code(self, key: str) -> ErrorCode:
        """Return why this broker does not serve the key; NONE if it does."""
        try:
            self.runtime.shard_of(key)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


def counting(cluster: ReplicaCluster, broker_id: int, **options: int) -> CountingCoordinator:
    return CountingCoordinator(cluster.members[broker_id].broker, **options)
