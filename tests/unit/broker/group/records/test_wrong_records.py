"""A group's record that breaks a rule is never written; its operation fails, and others go on.

Each test breaks the production state machine, and lets the real coordinator carry the outcome out.
"""

from pathlib import Path
from typing import Any

import pytest
from group_cluster import NO_DELAY, GroupCluster, commit_code, records_of, run
from group_driver import GroupDriver
from replica_cluster import ReplicaCluster

from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.classic.membership import Turn
from fairlead_broker.group.classic.rebalance import Rebalance
from fairlead_broker.group.group_types import Effects
from fairlead_broker.group.records.classic_records import GroupKey, decode_key
from fairlead_broker.group.records.record_rules import require_group_record
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_groups import DeleteGroupsRequest
from fairlead_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def group_records(cluster: ReplicaCluster, group_id: str) -> list[bytes | None]:
    """Values of a group's own records in the log."""
    return [
        record.value
        for batch in records_of(cluster)
        for record in batch
        if record.key is not None and decode_key(record.key) == GroupKey(group_id)
    ]


def forgets_who_leads(patch: pytest.MonkeyPatch) -> None:
    write = Rebalance.write_assignments

    def write_wrongly(self: Rebalance, *arguments: Any) -> None:
        self.membership.leader = "nobody"
        write(self, *arguments)

    patch.setattr(Rebalance, "write_assignments", write_wrongly)


def test_an_assignment_under_no_leader_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G6: its members hear of an error, join again, and are stable once the fault is gone."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            join = groups.join("g")
            member_id, generation = join.reply.member_id, join.reply.generation_id
            request = SyncGroupRequest(
                group_id="g",
                generation_id=generation,
                member_id=member_id,
                assignments=[SyncGroupRequestAssignment(member_id, b"all")],
            )
            with monkeypatch.context() as patch:
                forgets_who_leads(patch)
                sync = groups.call(request, 3)
                assert sync.reply.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
                assert sync.replies == 1
            assert groups.coordinator().metrics.broken_decisions == 1
            assert "group 'g' is not written: nobody leads generation 1" in caplog.text
            await groups.stable("other")
            assert group_records(cluster, "g") == []
            assert len(group_records(cluster, "other")) == 1
            _, again = await groups.stable("g", member_id=member_id)
            assert again == generation + 1
            assert len(group_records(cluster, "g")) == 1

    run(story())


def test_a_group_with_members_gets_no_tombstone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.stable("g")

            def delete_at_once(self: ClassicGroup) -> tuple[ErrorCode, Effects]:
                turn = Turn(0, 0)
                self.rebalance.write_tombstone(turn)
                return ErrorCode.NONE, turn.effects

            monkeypatch.setattr(ClassicGroup, "delete", delete_at_once)
            reply = await groups.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
            assert reply.results[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            await groups.committed("other", 1)
            assert None not in group_records(cluster, "g")
            assert groups.coordinator().metrics.broken_decisions == 1

    run(story())


def test_nothing_is_committed_for_a_group_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R22: the log would have offsets that the group in memory never gets."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 1)
            coordinator = groups.coordinator()
            gone = coordinator.groups["g"]
            coordinator._remove(gone)
            monkeypatch.setattr(type(coordinator), "check_commit", lambda *_, **__: gone)
            call = groups.commit("g", 2)
            assert commit_code(call) is ErrorCode.UNKNOWN_SERVER_ERROR
            assert coordinator.metrics.broken_decisions == 1
            assert len(records_of(cluster)) == 1

    run(story())


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, None),
        ({"generation_id": 0}, "generation 0 after 1"),
        ({"leader": "nobody"}, "nobody leads"),
        ({"leader": None}, "None leads"),
        ({"members": ()}, "leads generation 1"),
        ({"members": ("a", "a")}, "twice"),
        ({"members": ("a", "b")}, None),
        ({"members": ("", "a")}, "twice"),
        ({"members": ("a", "b"), "instance": "i"}, "instance"),
    ],
)
def test_a_record_that_no_group_can_have(fields: dict[str, Any], complaint: str | None) -> None:
    """G6: whatever the state machine makes is looked at."""
    driver = GroupDriver()
    driver.gather(1)
    record = driver.group.rebalance._record()
    (member,) = record.members
    instance = fields.pop("instance", None)
    if "members" in fields:
        fields["members"] = tuple(
            member._replace(member_id=name, group_instance_id=instance)
            for name in fields["members"]
        )
        if fields["members"]:
            fields["leader"] = "a"
    record = record._replace(**fields)
    if complaint is None:
        require_group_record(record, member_count=1, recorded_generation_id=1)
        return
    with pytest.raises(InvariantViolation, match=complaint):
        require_group_record(record, member_count=1, recorded_generation_id=1)
