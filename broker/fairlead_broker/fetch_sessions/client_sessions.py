"""Incremental fetch sessions (KIP-227): what a client wants, remembered between its requests.

With a session, a request names only what changed and a reply only what moved, so idle partitions
cost no bytes; each is looked at in every fetch, which takes microseconds. A session belongs to its
id, not to a connection. Bounded in slots and in remembered partitions: when full, a slot unused for
long is evicted, else the client is declined (session id 0) and goes on with full requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Sequence

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_INT32_MAX: Final = 2**31 - 1
_NEVER_TOLD: Final = -2

SessionKey: TypeAlias = tuple[str | bytes, int]
"""Topic name, or topic id from Fetch 13 on, and partition index."""


class PartitionFetch:
    """What a client wants from one partition, and what it was told last.

    `topic` is None while the topic id is unknown. The `told_` marks are moved by replies of the
    session; the client hears of a partition again when one of them differs, or with records.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "key",
        "last_fetched_epoch",
        "max_bytes",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        index: int,
        *,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key = (topic or "", index)
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.told_high_watermark = _NEVER_TOLD
        self.told_log_start_offset = _NEVER_TOLD

    def update(self, newer: PartitionFetch) -> None:
        """Take what the client wants now of the same partition."""
        self.topic = newer.topic
        self.key = newer.key
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch

    def tell_again(self) -> None:
        """Have the next reply of the session say something of this partition."""
        self.told_high_watermark = _NEVER_TOLD

    def knows(self, high_watermark: int, log_start_offset: int) -> bool:
        """Tell whether the client has heard of these marks, in a reply without an error."""
        return (
            high_watermark == self.told_high_watermark
            and log_start_offset == self.told_log_start_offset
        )

    def note_told(self, *, high_watermark: int, log_start_offset: int, is_error: bool) -> bool:
        """Take note of a reply without records; whether the client needs to hear it."""
        if is_error:
            # Also next time, until it is gone.
            self.told_high_watermark = _NEVER_TOLD
            return True
        is_news = not self.knows(high_watermark, log_start_offset)
        self.told_high_watermark = high_watermark
        self.told_log_start_offset = log_start_offset
        return is_news


class FetchSession:
    """`epoch` is the one that the next request must carry."""

    __slots__ = ("epoch", "is_privileged", "last_used_ms", "partitions", "session_id", "uses_ids")

    def __init__(
        self,
        session_id: int,
        partitions: dict[SessionKey, PartitionFetch],
        *,
        uses_ids: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH + 1
        self.partitions = partitions
        self.uses_ids = uses_ids
        self.is_privileged = is_privileged
        self.last_used_ms = now_ms

    def move_to_end(self, keys: Iterable[SessionKey]) -> None:
        """Whoever got records now stands behind the others in the next reply's budget."""
        for key in keys:
            fetch = self.partitions.pop(key, None)
            if fetch is not None:
                self.partitions[key] = fetch


class FetchPlan:
    """What one request comes to: partitions in order, and how to answer about them."""

    __slots__ = ("is_incremental", "partitions", "session")

    def __init__(
        self,
        partitions: Collection[PartitionFetch],
        session: FetchSession | None = None,
        *,
        is_incremental: bool = False,
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.is_incremental = is_incremental

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessions:
    """All sessions of a broker, by id and in order of use."""

    def __init__(
        self,
        *,
        slots: int,
        partitions_max: int,
        eviction_ms: int,
        chance: random.Random,
    ) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._eviction_ms = eviction_ms
        self._chance = chance
        self._sessions: dict[int, FetchSession] = {}
        self._partitions_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_count(self) -> int:
        """Partitions remembered, over all sessions."""
        return self._partitions_count

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: Sequence[PartitionFetch],
        forgotten: Iterable[SessionKey],
        *,
        uses_ids: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> FetchPlan | ErrorCode:
        """Return what a request with these session fields asks for, or why it can't be answered."""
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION:
                self._remove(session_id)
            if epoch == FINAL_EPOCH or not wanted:
                return FetchPlan(wanted)
            session = self._create(
                wanted, uses_ids=uses_ids, is_privileged=is_privileged, now_ms=now_ms
            )
            return FetchPlan(wanted, session)
        existing = self._sessions.get(session_id)
        if existing is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if existing.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if existing.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        existing.epoch = 1 if epoch == _INT32_MAX else epoch + 1
        self._update(existing, wanted, forgotten)
        if self._partitions_count > self._partitions_max:
            # It grew beyond what all may hold: its client starts over and may be declined.
            self._remove(session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if not existing.partitions:
            self._remove(session_id)
            return FetchPlan(())
        existing.last_used_ms = now_ms
        # Kept in order of use, the longest unused first.
        self._sessions[session_id] = self._sessions.pop(session_id)
        return FetchPlan(existing.partitions.values(), existing, is_incremental=True)

    def end(self, plan: FetchPlan) -> None:
        """Forget the session of a fetch: its client is not told of it."""
        if plan.session is not None:
            self._remove(plan.session.session_id)

    def _update(
        self,
        session: FetchSession,
        wanted: Sequence[PartitionFetch],
        forgotten: Iterable[SessionKey],
    ) -> None:
        partitions = session.partitions
        before = len(partitions)
        for fetch in wanted:
            key = session_key(fetch, uses_ids=session.uses_ids)
            known = partitions.get(key)
            if known is None:
                partitions[key] = fetch
            else:
                known.update(fetch)
        for key in forgotten:
            partitions.pop(key, None)
        self._partitions_count += len(partitions) - before

    def _create(
        self,
        wanted: Sequence[PartitionFetch],
        *,
        uses_ids: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> FetchSession | None:
        partitions = {session_key(fetch, uses_ids=uses_ids): fetch for fetch in wanted}
        if self._partitions_count + len(partitions) > self._partitions_max:
            return None
        if len(self._sessions) >= self._slots and not self._evict(is_privileged, now_ms):
            return None
        session_id = self._chance.randint(1, _INT32_MAX)
        while session_id in self._sessions:
            session_id = self._chance.randint(1, _INT32_MAX)
        session = FetchSession(
            session_id, partitions, uses_ids=uses_ids, is_privileged=is_privileged, now_ms=now_ms
        )
        self._sessions[session_id] = session
        self._partitions_count += len(partitions)
        return session

    def _evict(self, is_privileged: bool, now_ms: int) -> bool:
        """Free a slot: of whoever was silent for long, or, for a follower, of a consumer."""
        for session in self._sessions.values():
            if now_ms - session.last_used_ms > self._eviction_ms or (
                is_privileged and not session.is_privileged
            ):
                self._remove(session.session_id)
                return True
            if not is_privileged:
                # In order of use: those behind this one were used later.
                return False
        return False

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions_count -= len(session.partitions)


def session_key(fetch: PartitionFetch, *, uses_ids: bool) -> SessionKey:
    """Under what a session remembers a partition."""
    return (fetch.topic_id if uses_ids else fetch.topic or "", fetch.index)
