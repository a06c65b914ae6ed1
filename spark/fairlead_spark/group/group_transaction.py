"""The transactions that commit a query's offsets to its group, one after the other.

A commit is fenced twice: by the group's coordinator, which knows the members, and by the
coordinator of the query's transactional id, which knows its last owner (KIP-447). The second one
also detects that another driver came and went, and committed nothing, while this one was suspended.

The id belongs to the query, not to a driver: it is derived from the group and from what the source
reads, because sources of one query may share a group.

Everything here blocks, sends each request once, and belongs to one thread.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from fairlead_spark import limits
from fairlead_spark.cluster import Cluster, PassingError
from fairlead_spark.errors import OptionError, SinkError, SourceError, TakenOverError
from fairlead_spark.options import Subscription
from fairlead_spark.prepared_transaction import PREFIX, PreparedTransaction
from fairlead_spark.transactions import TransactionClient

_DIGITS: Final = 16


def name_transactions(group: str, subscription: Subscription) -> str:
    """Return the transactional id of a query's offsets: the same for all drivers of the query."""
    read = (sorted(subscription.topics), subscription.pattern, sorted(subscription.assigned))
    digest = hashlib.sha256(repr(read).encode()).hexdigest()[:_DIGITS]
    return f"{PREFIX}.{group}.{digest}.offsets"


class GroupTransaction:
    """The query's transactional id, and this driver's state of it.

    If another driver has taken the id, it matters whether this driver has been a member of the
    group all the time since it took the id. If so, the other driver took it by mistake: it had read
    the group before this one came, was suspended, and will find that it is not a member any more.
    This driver then takes the id back. If not, this driver was the one that was suspended.
    """

    def __init__(self, cluster: Cluster, group: str, subscription: Subscription) -> None:
        self._group = group
        self._name = name_transactions(group, subscription)
        self._client = TransactionClient(cluster, is_patient=False)
        self._producer: PreparedTransaction | None = None
        self._is_member_since = False

    def take(self) -> None:
        """Take the id unless this driver has it: another driver that had it is fenced."""
        if self._producer is None:
            self._producer = self._begin(None)
            self._is_member_since = True

    def forget(self) -> None:
        """Leave the id to another query of this driver, which got partitions of this one."""
        self._producer = None

    def note_lost_place(self) -> None:
        """Note that this driver is not a member of the group any more."""
        self._is_member_since = False

    def commit(self, send: Callable[[PreparedTransaction], None]) -> None:
        """Commit the offsets that `send` writes for a producer; repeat it after a failed attempt.

        A transaction that an earlier attempt left open is ended with this one. TakenOverError:
        another driver has the id, or brokers have ended the transaction.
        """
        producer = self._producer
        if producer is None:
            raise PassingError(f"transactional id {self._name} is not taken")
        try:
            self._client.add_group(producer, self._group)
            send(producer)
            lost = self._client.end([producer], is_commit=True)
        except SinkError as error:
            raise SourceError(f"group {self._group}: {error}") from error
        if lost:
            raise TakenOverError(f"transactional id {self._name}: its transaction was ended")
        self._is_member_since = True

    def take_back(self) -> None:
        """Take the id back; TakenOverError if another driver has it, and keeps it.

        The request has the driver's old epoch: from it brokers can distinguish another driver from
        a transaction that only took too long (KIP-360).
        """
        resumed = None if self._is_member_since else self._producer
        self._producer = self._begin(resumed)
        self._is_member_since = True

    def _begin(self, resumed: PreparedTransaction | None) -> PreparedTransaction:
        try:
            return self._client.begin(self._name, limits.GROUP_TRANSACTION_TIMEOUT_S, resumed)
        except (SinkError, OptionError) as error:
            raise SourceError(f"group {self._group}: {error}") from error
