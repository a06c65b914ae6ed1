"""What lives in one partition of an internal topic, as far as its shard has to know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.coordinator.replayed_transactions import UndecidedRecord


class StateMachine(Protocol):
    """State that a log keeps: consumer groups, or transactional ids (Kafka's `CoordinatorShard`).

    It is made empty when this broker begins to lead the partition, loaded from the records in three
    steps, and given up with the leadership; the next leadership begins with a new one. While it is
    served it changes only when a `Write` that it gave its shard is committed, so that it always
    equals a replay of the log (R22).
    """

    @property
    def contents(self) -> str:
        """How much it holds, as the log of the process says it: `3 groups`."""

    def replay(self, records: dict[bytes, bytes]) -> Iterator[None]:
        """Decode the newest value of each key, in steps; may use the dictionary up.

        Records that make no sense are passed over: anybody may produce to the topic. Nothing is
        committed for certain yet, so nothing may be written, and no session begins.
        """

    def replay_undecided(self, records: Iterator[UndecidedRecord]) -> Iterator[None]:
        """Decode what is staged in open transactions, in steps; after `replay`, if there is any.

        Their markers come later, through this machine's own shard.
        """

    def begin(self) -> Iterator[None]:
        """Take over what was replayed, which is committed now, in steps. Its deadlines begin."""

    def on_loaded(self) -> None:
        """Serve from here on."""

    def on_unloaded(self) -> None:
        """Answer whoever waits: another broker, or another leader epoch, coordinates now.

        Writes on their way fail after this.
        """
