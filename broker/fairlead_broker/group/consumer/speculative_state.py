"""The committed state of a group of KIP-848, and its latest state with writes in flight.

Pure (Kafka's timeline of snapshots). Requests are decided on the `latest` state, which includes
writes in flight; requests that describe the group get the `committed` one. An answer is sent when
all records that it depends on are committed. If a write fails, the latest state falls back (G14).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_broker.group.group_types import GroupWrite
from fairlead_broker.group.records.consumer_records import RecordKey, encode_key, encode_value
from fairlead_broker.group.records.record_rules import require_consumer_record
from fairlead_model.invariants import InvariantViolation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.group.records.consumer_records import RecordType, RecordValue
    from fairlead_broker.group.records.consumer_state import ConsumerGroupState

EncodedRecord = tuple[bytes, bytes | None]
Reply = tuple[Any, Any]
"""A waiter, and what it is answered with if the records are committed."""


class _Change(NamedTuple):
    """The token of a write: its records, and the waiters."""

    records: list[tuple[RecordKey, RecordValue]]
    replies: list[Reply]


class SpeculativeState:
    """`open` has the records of the change that is being made.

    A record that would break a rule fails the whole change; what rule is in `violation`.
    """

    __slots__ = ("_writes", "committed", "latest", "open", "violation")

    def __init__(self, committed: ConsumerGroupState) -> None:
        self.committed = committed
        self.latest = committed.copy()
        self.open: list[tuple[RecordKey, RecordValue]] = []
        self._writes: list[GroupWrite] = []
        self.violation = ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way to the log."""
        return not self._writes

    def put(self, record_type: RecordType, value: RecordValue, name: str = "") -> None:
        """Change the latest state, with a record that will be written."""
        key = RecordKey(record_type, self.latest.group_id, name)
        try:
            require_consumer_record(key, value, self.latest)
        except InvariantViolation as violation:
            self.violation = str(violation)
        self.open.append((key, value))
        self.latest.apply(key, value)

    def remove(self, key: RecordKey) -> None:
        """Change the latest state with a tombstone."""
        self.open.append((key, None))
        self.latest.apply(key, None)

    def close(
        self,
        replies: list[Reply],
        *,
        before: Sequence[EncodedRecord] = (),
        after: Sequence[EncodedRecord] = (),
    ) -> GroupWrite | None:
        """End the change: the write that makes it last, None if it has no records.

        `before` and `after` are records of the group in another protocol, in the same batch. The
        replies of a change without records wait for what is on its way; `wait` takes those.
        """
        records, self.open = self.open, []
        violation, self.violation = self.violation, ""
        if not records and not before and not after and not violation:
            return None
        encoded = [(encode_key(key), encode_value(value)) for key, value in records]
        write = GroupWrite([*before, *encoded, *after], _Change(records, replies))
        write.counts_late, write.violation = True, violation
        self._writes.append(write)
        return write

    def wait(self, reply: Reply) -> bool:
        """Have an answer wait for all that is on its way; False if nothing is."""
        if not self._writes:
            return False
        self._writes[-1].token.replies.append(reply)
        return True

    def abandon(self) -> bool:
        """Take back the change that is being made; says whether there was one."""
        was_open = bool(self.open)
        if was_open:
            self.open, self.violation = [], ""
            self._fall_back()
        return was_open

    def settle(self, write: GroupWrite, *, is_committed: bool) -> list[Reply]:
        """Apply the outcome of a write; return its waiters."""
        if write in self._writes:
            self._writes.remove(write)
        change: _Change = write.token
        if is_committed:
            for key, value in change.records:
                self.committed.apply(key, value)
        else:
            self._fall_back()
        return take_replies(write)

    def all_replies(self) -> list[Reply]:
        """Give up all writes; return their waiters."""
        return [reply for write in self._writes for reply in take_replies(write)]

    def _fall_back(self) -> None:
        self.latest = self.committed.copy()
        for write in self._writes:
            for key, value in write.token.records:
                self.latest.apply(key, value)


def take_replies(write: GroupWrite) -> list[Reply]:
    """Return the waiters of a write; each is answered once."""
    replies: list[Reply] = write.token.replies
    taken = list(replies)
    replies.clear()
    return taken
