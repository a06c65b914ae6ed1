"""The simulation itself is tested: every rule, broken on purpose, must be caught within some seeds.

Each mutant is a small change of the code that keeps a promise. If one survives, the simulation has
stopped looking at what the rule is for.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from simulator import leader_service, stories
from simulator.broker_process import BrokerProcess
from simulator.memory_log import MemoryLog
from simulator.mutation import Mutants

from fairlead_broker.replication.follower_state import FollowerState
from fairlead_broker.replication.isr import CommittedIsr
from fairlead_broker.replication.leader_state import LeaderState
from fairlead_broker.replication.partition import Partition
from fairlead_broker.replication.replica import Replica
from fairlead_broker.session.controller_session import ControllerSession
from fairlead_broker.session.image_follower import ImageFollower
from fairlead_controller import (
    isr_changes,
    leadership,
    membership,
    minimum_in_sync,
    registration,
)
from fairlead_controller.committer import Committer
from fairlead_controller.controller import Controller
from fairlead_controller.state import ControllerState
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    TableWrite,
    WriteOutcome,
    WriteResult,
)
from fairlead_controller.table_plan import WritePlan
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    Patch = pytest.MonkeyPatch

MUTANTS = Mutants()
mutant = MUTANTS.register


# Followers.


@mutant()
def truncates_to_the_high_watermark(patch: Patch) -> None:
    follow = Replica.follow

    def follow_truncated(self: Replica, record: Any) -> bool:
        was_leading = follow(self, record)
        self.log.truncate_to(self.high_watermark)
        return was_leading

    patch.setattr(Replica, "follow", follow_truncated)


@mutant()
def does_not_look_where_logs_part(patch: Patch) -> None:
    patch.setattr(leader_service, "parting_point", lambda *_: None)


@mutant("elect_preferred", "cut_link", "pause", "cut_off", fault_pause_s=0.4)
def checks_no_leader_epochs(patch: Patch) -> None:
    """Neither the leader those of questions nor the follower those of answers. Either check alone
    is enough for all that hundreds of seeds bring about: where logs part is looked at besides."""
    patch.setattr(Partition, "check_leader_epoch", lambda *_: ErrorCode.NONE)
    on_fetched, append = FollowerState.on_fetched, MemoryLog.append_as_follower

    def believing(self: FollowerState, log: Any, reply: Any) -> Any:
        position = reply.position._replace(current_leader_epoch=self.leader_epoch)
        return on_fetched(self, log, reply._replace(position=position))

    def append_any(self: MemoryLog, batches: Any, *, now_ms: int, leader_epoch: Any) -> None:
        append(self, batches, now_ms=now_ms)

    patch.setattr(FollowerState, "on_fetched", believing)
    patch.setattr(MemoryLog, "append_as_follower", append_any)


@mutant(story=stories.only_a_deposed_controller_is_heard)
def obeys_a_deposed_controller(patch: Patch) -> None:
    check = ImageFollower._check

    def check_deltas(self: ImageFollower, position: Any, *, is_image: bool) -> None:
        if not is_image:
            check(self, position, is_image=is_image)

    patch.setattr(ControllerSession, "on_active", lambda *_: None)
    patch.setattr(ImageFollower, "check_controller", lambda *_: None)
    patch.setattr(ImageFollower, "_check", check_deltas)


@mutant("kill", "kill_controller", "pause_controller", "cut_link")
def takes_absence_for_deletion(patch: Patch) -> None:
    receive, publish = ImageFollower.receive, BrokerProcess.publish

    def receive_parts(self: ImageFollower, message: dict[str, Any]) -> Any:
        return receive(self, {**message, "is_last": True})

    def publish_deleting(self: BrokerProcess, delta: Any, image: Any) -> None:
        held = {(topic.topic_id, index) for topic, index in image.replicas_of(self.broker_id)}
        for key in sorted(self.disk.logs.keys() - held):
            del self.disk.logs[key]
            self.partitions.pop(key, None)
        publish(self, delta, image)

    patch.setattr(ImageFollower, "receive", receive_parts)
    patch.setattr(BrokerProcess, "publish", publish_deleting)


# Leaders.


@mutant()
def acknowledges_before_the_high_watermark(patch: Patch) -> None:
    patch.setattr(leader_service, "may_acknowledge", lambda *_: True)


@mutant()
def shrinks_the_isr_alone(patch: Patch) -> None:
    propose = LeaderState._propose

    def shrink_alone(self: LeaderState, isr: frozenset[int]) -> Any:
        if isr < self.isr_state.isr:
            self.isr_state = CommittedIsr(isr)
            self._note_isr()
            self.maybe_advance_high_watermark()
            return None
        return propose(self, isr)

    patch.setattr(LeaderState, "_propose", shrink_alone)


@mutant()
def counts_who_joins_only_once_committed(patch: Patch) -> None:
    note = LeaderState._note_isr

    def note_committed(self: LeaderState) -> None:
        note(self)
        isr = self.isr_state.isr
        self._counted = tuple(
            progress for replica, progress in self.followers.items() if replica in isr
        )

    patch.setattr(LeaderState, "_note_isr", note_committed)


@mutant()
def commits_below_the_minimum(patch: Patch) -> None:
    note = LeaderState._note_isr

    def note_nothing(self: LeaderState) -> None:
        note(self)
        self._is_below_minimum = False

    patch.setattr(LeaderState, "_note_isr", note_nothing)


@mutant()
def lets_a_laggard_join(patch: Patch) -> None:
    def is_fit(self: LeaderState, replica: int) -> bool:
        return replica not in self.isr_state.isr and self.brokers.may_join(replica)

    patch.setattr(LeaderState, "_is_fit", is_fit)


@mutant()
def tells_an_end_that_is_not_certain(patch: Patch) -> None:
    patch.setattr(LeaderState, "is_high_watermark_valid", True)


@mutant(story=stories.an_old_question_comes_late)
def believes_an_earlier_start_of_a_follower(patch: Patch) -> None:
    def is_fit(self: LeaderState, replica: int) -> bool:
        follower = self.followers[replica]
        return (
            replica not in self.isr_state.isr
            and follower.end_offset >= max(self.high_watermark, self.epoch_start_offset)
            and self.brokers.may_join(replica)
        )

    patch.setattr(LeaderState, "is_stale", lambda *_: False)
    patch.setattr(LeaderState, "_is_fit", is_fit)
    patch.setattr(isr_changes, "_check_members", lambda *_: None)


# The controller.


@mutant()
def counts_an_unclean_replica_as_in_sync(patch: Patch) -> None:
    patch.setattr(registration, "clean_return", lambda *_: (True, "whatever it says"))


@mutant()
def keeps_the_last_replica_though_it_is_unclean(patch: Patch) -> None:
    """A second, clean restart would launder it."""
    without = leadership.members_without

    def keep_last(partition: Any, leaving: int, *, is_unclean: bool) -> Any:
        is_last = partition.isr == (leaving,)
        return without(partition, leaving, is_unclean=is_unclean and not is_last)

    patch.setattr(leadership, "members_without", keep_last)


@mutant(story=stories.power_fails_before_the_answer)
def knows_a_start_by_its_id_alone(patch: Patch) -> None:
    patch.setattr(
        registration, "is_same_start", lambda known, asking: known.start_id == asking.start_id
    )


@mutant()
def writes_the_registration_before_the_tables(patch: Patch) -> None:
    stages = WritePlan.stages
    patch.setattr(WritePlan, "stages", lambda self: stages(self)[::-1])


@mutant()
def elects_whoever_is_alive(patch: Patch) -> None:
    patch.setattr(ControllerState, "allows_unclean_election", lambda *_: True)


@mutant()
def forgets_who_is_eligible(patch: Patch) -> None:
    members_with = membership.members_with_isr

    def forget(*arguments: Any) -> Any:
        return dataclasses.replace(members_with(*arguments), elr=())

    patch.setattr(membership, "members_with_isr", forget)


@mutant("change_min_insync", "kill", "pause")
def lowers_the_minimum_and_keeps_who_is_eligible(patch: Patch) -> None:
    patch.setattr(
        minimum_in_sync,
        "with_min_insync_replicas",
        lambda partition, minimum: partition.changed(min_insync_replicas=minimum),
    )


@mutant()
def accepts_proposals_for_an_older_record(patch: Patch) -> None:
    patch.setattr(isr_changes, "_check_epochs", lambda *_: None)


# The store.


@mutant()
def takes_over_without_sealing(patch: Patch) -> None:
    async def load_only(self: MetadataStore, *_: Any, **__: Any) -> Any:
        return await self.load()

    patch.setattr(MetadataStore, "seal", load_only)


@mutant("store_doubtful", "kill", "kill_controller", "second_controller")
def believes_that_a_timed_out_write_has_landed(patch: Patch) -> None:
    async def settle(self: Committer, write: TableWrite) -> WriteResult:
        table = await self._store.read(write.table)
        return WriteResult(WriteOutcome.WRITTEN, None if table is None else table.version)

    patch.setattr(Committer, "_settle", settle)


class TimedOutError(Exception):
    """What a mutant makes of a write of unknown outcome."""


@mutant("store_doubtful", "kill", "pause")
def reads_a_timed_out_write_as_failed(patch: Patch) -> None:
    commit = Controller._commit

    async def settle(self: Committer, write: TableWrite) -> WriteResult:
        raise TimedOutError

    async def write_stage(self: Committer, stage: Any) -> None:
        for name, lines in stage.items():
            while True:
                write = TableWrite(name, self._versions.get(name), self._epoch, lines)
                (result,) = await self._store.write([write])
                if result.outcome is WriteOutcome.UNKNOWN:
                    raise TimedOutError
                table = await self._store.read(name)
                self._versions[name] = None if table is None else table.version
                if result.outcome is WriteOutcome.WRITTEN:
                    break

    async def commit_or_forget(self: Controller, group: Any) -> None:
        try:
            await commit(self, group)
        except TimedOutError:
            self._pending = self.committed
            self._refuse(group)

    patch.setattr(Committer, "_settle", settle)
    patch.setattr(Committer, "_write_stage", write_stage)
    patch.setattr(Controller, "_commit", commit_or_forget)


@pytest.mark.parametrize("name", MUTANTS.all)
def test_a_broken_rule_is_caught(name: str) -> None:
    assert MUTANTS.first_seed_that_catches(name) is not None


@pytest.mark.parametrize("name", MUTANTS.with_settings)
def test_what_brings_a_mutant_out_breaks_no_rule_itself(name: str) -> None:
    for seed in range(3):
        MUTANTS.all[name].play(seed)
