from fairlead_model.partition import PartitionRegistration

PARTITION = PartitionRegistration(
    replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=4, partition_epoch=7
)


def test_a_change_of_leader_raises_both_epochs() -> None:
    """I3."""
    changed = PARTITION.changed(leader=2)
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (2, 5, 8)


def test_losing_the_leader_raises_the_leader_epoch() -> None:
    changed = PARTITION.changed(leader=-1)
    assert (changed.leader_epoch, changed.partition_epoch) == (5, 8)
    assert not changed.has_leader
    assert changed.is_under_replicated


def test_leader_epoch_is_not_bumped_on_isr_shrink() -> None:
    changed = PARTITION.changed(isr=(1, 2))
    assert (changed.leader_epoch, changed.partition_epoch) == (4, 8)
    assert changed.is_under_replicated


def test_no_difference_is_no_change() -> None:
    assert PARTITION.changed(isr=(1, 2, 3), leader=1) is PARTITION


def test_broken_rules_are_named() -> None:
    assert PARTITION.problems() == []
    assert "isr" in PARTITION.changed(isr=(1, 9)).problems()[0]
    assert "leader" in PARTITION.changed(isr=(2, 3)).problems()[0]
    assert "repeat" in PARTITION.changed(replicas=(1, 1, 2, 3)).problems()[0]
    assert "elr" in PARTITION.changed(elr=(2,)).problems()[0]
    assert "last known" in PARTITION.changed(last_known_elr=(9,)).problems()[0]
    assert "min.insync" in PARTITION.changed(min_insync_replicas=0).problems()[0]
    assert "isr" in PARTITION.changed(isr=(1, 1)).problems()[0]
    assert "directories" in PARTITION.changed(directories=("x",)).problems()[0]
