"""Records of groups of KIP-848 that would break a rule: they are never written."""

import pytest
from consumer_group_cases import pair
from consumer_group_driver import partitions

from fairlead_broker.group.records.consumer_records import (
    CurrentAssignment,
    GroupEpoch,
    MemberState,
    RecordKey,
    RecordType,
    RecordValue,
    TargetMetadata,
)
from fairlead_broker.group.records.record_rules import require_consumer_record
from fairlead_model.invariants import InvariantViolation


def current(epoch: int, held: dict[str, list[int]], pending: dict[str, list[int]]) -> RecordValue:
    return CurrentAssignment(
        epoch,
        epoch,
        MemberState.STABLE,
        dict.fromkeys(partitions(held), epoch),
        dict.fromkeys(partitions(pending), epoch),
    )


def is_refused(record_type: RecordType, value: RecordValue, name: str = "") -> bool:
    """Of a group in epoch 3, where `a` has partitions 0 and 1 and `b` 2 and 3."""
    try:
        require_consumer_record(RecordKey(record_type, "g", name), value, pair().state)
    except InvariantViolation:
        return True
    return False


def test_what_another_member_has_is_given_to_nobody() -> None:
    """G12."""
    kind = RecordType.CURRENT_ASSIGNMENT
    assert not is_refused(kind, current(3, {"t": [0]}, {"t": [1]}), "a")
    assert is_refused(kind, current(3, {"t": [0, 2]}, {}), "a")
    assert is_refused(kind, current(3, {}, {"t": [3]}), "a")
    assert is_refused(kind, current(3, {}, {}), "nobody")


def test_epochs_neither_fall_nor_run_ahead() -> None:
    """G13."""
    for epoch, is_wrong in ((2, True), (3, False), (4, False)):
        assert is_refused(RecordType.EPOCH, GroupEpoch(epoch)) is is_wrong
    for epoch, is_wrong in ((2, True), (3, False), (4, True)):
        assert is_refused(RecordType.TARGET_METADATA, TargetMetadata(epoch)) is is_wrong
    for epoch, is_wrong in ((-2, False), (0, False), (3, False), (4, True)):
        value = current(epoch, {}, {})
        assert is_refused(RecordType.CURRENT_ASSIGNMENT, value, "a") is is_wrong


def test_what_breaks_a_rule_fails_the_whole_change() -> None:
    speculative = pair().group.members.speculative
    speculative.put(RecordType.CURRENT_ASSIGNMENT, current(3, {"t": [3]}, {}), "a")
    write = speculative.close([])
    assert write is not None
    assert "which b has" in write.violation


@pytest.mark.parametrize("name", ["a", "b"])
def test_members_may_always_have_less(name: str) -> None:
    assert not is_refused(RecordType.CURRENT_ASSIGNMENT, current(3, {}, {}), name)
