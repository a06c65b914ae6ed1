"""Groups of KIP-848 in the states that tests need, and a check of refusals."""

from __future__ import annotations

from typing import Any

import pytest
from consumer_group_driver import ConsumerGroupDriver

from fairlead_broker.group.records.consumer_records import MemberState
from fairlead_wire.errors import ErrorCode, KafkaError


def refused(driver: ConsumerGroupDriver, *args: Any, **options: Any) -> ErrorCode:
    """Return the error of a heartbeat, which must change nothing."""
    before = driver.state.copy()
    with pytest.raises(KafkaError) as caught:
        driver.send(*args, **options)
    for name in before.__slots__:
        assert getattr(before, name) == getattr(driver.state, name), name
    return caught.value.code


def pair() -> ConsumerGroupDriver:
    """Return a group of `a` and `b`, with two of four partitions each."""
    driver = ConsumerGroupDriver(t=4)
    driver.join("a")
    driver.join("b")
    driver.settle("a", "b")
    assert (driver.held("a"), driver.held("b")) == ({"t": [0, 1]}, {"t": [2, 3]})
    return driver


def joined_by_a_third() -> tuple[ConsumerGroupDriver, str]:
    """Return a group that `c` has joined, and which of `a` and `b` must still revoke some."""
    driver = pair()
    driver.join("c")
    for member_id in "ab":
        driver.beat(member_id, 3, owned=driver.held(member_id))
        if driver.state.current(member_id).state is MemberState.UNREVOKED_PARTITIONS:
            return driver, member_id
    raise AssertionError("nobody gives anything up")
