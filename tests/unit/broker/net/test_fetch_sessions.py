"""Fetch sessions: bounded in slots and partitions, evicted by disuse, never mixed up."""

import random

import pytest

from fairlead_broker.fetch_sessions.client_sessions import (
    FetchPlan,
    FetchSessions,
    PartitionFetch,
)
from fairlead_wire.errors import ErrorCode
from fairlead_wire.primitives import NULL_UUID


def wanted(*indexes: int) -> list[PartitionFetch]:
    return [
        PartitionFetch(
            "t",
            NULL_UUID,
            index,
            fetch_offset=0,
            max_bytes=1,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
        )
        for index in indexes
    ]


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(slots=3, partitions_max=10, eviction_ms=1000, chance=random.Random(3))


def begin(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    *indexes: int,
    now_ms: int = 0,
    is_privileged: bool = False,
) -> FetchPlan | ErrorCode:
    return sessions.begin(
        session_id,
        epoch,
        wanted(*indexes),
        [],
        uses_ids=False,
        is_privileged=is_privileged,
        now_ms=now_ms,
    )


def opened(sessions: FetchSessions, *indexes: int, **options: int) -> int:
    plan = begin(sessions, 0, 0, *indexes, **options)  # type: ignore[arg-type]
    assert isinstance(plan, FetchPlan)
    return plan.session_id


def test_slots_are_declined_until_one_was_unused_for_long(sessions: FetchSessions) -> None:
    ids = [opened(sessions, 0, now_ms=i) for i in range(3)]
    assert len(set(ids)) == 3
    assert opened(sessions, 0, now_ms=900) == 0
    assert begin(sessions, ids[0], 1, now_ms=1000) is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    fresh = opened(sessions, 0, now_ms=1500)
    assert fresh > 0
    assert begin(sessions, ids[1], 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "unused longest"
    assert isinstance(begin(sessions, ids[0], 2), FetchPlan)


def test_a_follower_takes_the_slot_of_a_consumer(sessions: FetchSessions) -> None:
    for _ in range(3):
        opened(sessions, 0)
    assert opened(sessions, 0, is_privileged=True) > 0
    assert len(sessions) == 3


def test_partitions_are_bounded_over_all_sessions(sessions: FetchSessions) -> None:
    first = opened(sessions, *range(6))
    assert opened(sessions, *range(6)) == 0
    assert opened(sessions, *range(4)) > 0
    assert begin(sessions, first, 1, *range(9)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions_count == 4


def test_an_epoch_wraps_to_one(sessions: FetchSessions) -> None:
    plan = begin(sessions, 0, 0, 1)
    assert isinstance(plan, FetchPlan)
    assert plan.session is not None
    plan.session.epoch = 2**31 - 1
    assert isinstance(begin(sessions, plan.session_id, 2**31 - 1), FetchPlan)
    assert isinstance(begin(sessions, plan.session_id, 1), FetchPlan)


def test_a_session_without_partitions_is_closed(sessions: FetchSessions) -> None:
    session_id = opened(sessions, 1)
    plan = sessions.begin(
        session_id, 1, [], [("t", 1)], uses_ids=False, is_privileged=False, now_ms=0
    )
    assert isinstance(plan, FetchPlan)
    assert plan.session_id == 0
    assert len(sessions) == sessions.partitions_count == 0


def test_opening_anew_closes_the_old_one(sessions: FetchSessions) -> None:
    session_id = opened(sessions, 1)
    plan = begin(sessions, session_id, 0, 1)
    assert isinstance(plan, FetchPlan)
    assert plan.session_id not in (0, session_id)
    assert len(sessions) == 1
