"""The state in one partition of an internal topic, as far as its shard has to know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.coordinator.replayed_transactions import UndecidedRecord


class StateMachine(Protocol):
    """State that a log stores: consumer groups, or transactional ids (Kafka's `CoordinatorShard`).

    It is created empty when this broker begins to lead the partition, loaded from the records in
    three steps, and dropped with the leadership; the next leadership gets a new one. While it is
    served it changes only when one of its `Write`s is committed, so that it always equals a replay
    of the log (R22).
    """

    @property
    def contents(self) -> str:
        """Return its size for the process's log, such as `3 groups`."""

    def replay(self, records: dict[bytes, bytes]) -> Iterator[None]:
        """Decode the newest value of each key, in steps; it may empty the dictionary.

        Records that cannot be decoded are skipped, because any client may produce to the topic. The
        records may not be committed yet, so nothing may be written, and no session begins.
        """

    def replay_undecided(self, records: Iterator[UndecidedRecord]) -> Iterator[None]:
        """Decode records of open transactions, in steps; called after `replay`, if there are any.

        Their markers come later, through this machine's own shard.
        """

    def begin(self) -> Iterator[None]:
        """Adopt the replayed state, which is committed now, in steps. Its deadlines begin."""

    def on_loaded(self) -> None:
        """Serve from here on."""

    def on_unloaded(self) -> None:
        """Answer waiting requests: another broker, or another leader epoch, coordinates now.

        Writes in flight fail after this.
        """
