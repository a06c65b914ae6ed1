"""Mutants of clusters: within some seeds the simulation must detect each rule that is broken.

Each mutant is a small change of code that keeps a promise. If one is not detected, the simulation
no longer checks its rule.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from proofs import SIMULATED_MUTANTS
from simulator import stories
from simulator.mutation import Mutants

from fairlead_broker import broker
from fairlead_broker.fetch_sessions.follower_sessions import FollowerSessions
from fairlead_broker.handlers.records import follower_fetch, produce
from fairlead_broker.local_replicas import LocalReplicas
from fairlead_broker.log.producers import producer_snapshot
from fairlead_broker.replication import partition as partition_module
from fairlead_broker.replication.follower_log import append_from_leader
from fairlead_broker.replication.follower_state import FollowerState
from fairlead_broker.replication.isr import CommittedIsr
from fairlead_broker.replication.leader_state import LeaderState
from fairlead_broker.replication.partition import Partition
from fairlead_broker.session.controller_session import ControllerSession
from fairlead_broker.session.image_follower import ImageFollower
from fairlead_broker.tasks.isr_proposer import IsrProposer
from fairlead_broker.tasks.replica_fetcher import ReplicaFetcher
from fairlead_controller.controller import Controller
from fairlead_controller.decisions import (
    isr_changes,
    leadership,
    membership,
    minimum_in_sync,
    registration,
)
from fairlead_controller.decisions import leader_election as election
from fairlead_controller.decisions.clean_return import clean_return
from fairlead_controller.decisions.membership import members_without
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_plan import WritePlan
from fairlead_controller.stores.committer import Committer
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    TableWrite,
    WriteOutcome,
    WriteResult,
)
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    Patch = pytest.MonkeyPatch

ANY_EPOCH = 1 << 30
pytestmark = SIMULATED_MUTANTS.marks
MUTANTS = Mutants()
mutant = MUTANTS.register


def takes_any_answer(patch: Patch) -> None:
    take = ReplicaFetcher._take

    def take_any(self: ReplicaFetcher, fetched: Any, now_ms: int) -> None:
        partition = self._partitions.get(fetched.key)
        position = None if partition is None else partition.next_fetch()
        if position is not None:
            self._asked[fetched.key] = position, 0
        take(self, fetched, now_ms)

    patch.setattr(ReplicaFetcher, "_take", take_any)


@mutant()
def truncates_to_the_high_watermark(patch: Patch) -> None:
    follow = Partition.follow

    def follow_truncated(self: Partition, record: Any) -> bool:
        was_leading = follow(self, record)
        self.log.truncate_to(self.high_watermark)
        return was_leading

    patch.setattr(Partition, "follow", follow_truncated)


@mutant()
def does_not_look_where_logs_part(patch: Patch) -> None:
    patch.setattr(follower_fetch, "diverging_end", lambda *_, **__: None)


@mutant("elect_preferred", "cut_link", "pause", "cut_off", fault_pause_s=0.4)
def checks_no_leader_epochs(patch: Patch) -> None:
    """The leader does not check the epochs of requests, nor the follower those of answers, and the
    fetcher takes each answer for one to its next request. Each of these checks alone is enough in
    hundreds of seeds, because followers also check where logs diverge."""
    patch.setattr(broker, "check_leader_epoch", lambda *_: None)
    patch.setattr(follower_fetch, "_is_lost", lambda followed: followed.partition.leader is None)
    on_fetched, append = FollowerState.on_fetched, append_from_leader

    def believing(self: FollowerState, log: Any, reply: Any) -> Any:
        position = reply.position._replace(current_leader_epoch=self.leader_epoch)
        return on_fetched(self, log, reply._replace(position=position))

    def append_any(*arguments: Any, leader_epoch: int, now_ms: int) -> int:
        return append(*arguments, leader_epoch=ANY_EPOCH, now_ms=now_ms)

    patch.setattr(FollowerState, "on_fetched", believing)
    patch.setattr(partition_module, "append_from_leader", append_any)
    takes_any_answer(patch)


@mutant(story=stories.only_a_deposed_controller_is_heard)
def obeys_a_deposed_controller(patch: Patch) -> None:
    check = ImageFollower._check

    def check_deltas(self: ImageFollower, position: Any, *, is_image: bool) -> None:
        if not is_image:
            check(self, position, is_image=is_image)

    patch.setattr(ControllerSession, "on_active", lambda *_: None)
    patch.setattr(ControllerSession, "_testimony_for", lambda *_: None)
    patch.setattr(ImageFollower, "check_controller", lambda *_: None)
    patch.setattr(ImageFollower, "_check", check_deltas)


@mutant("kill", "kill_controller", "pause_controller", "cut_link")
def takes_absence_for_deletion(patch: Patch) -> None:
    receive, publish = ImageFollower.receive, LocalReplicas.publish

    def receive_parts(self: ImageFollower, message: dict[str, Any]) -> Any:
        return receive(self, {**message, "is_last": True})

    def publish_deleting(self: LocalReplicas, delta: Any, image: Any) -> None:
        publish(self, delta, image)
        held = {(topic.name, index) for topic, index in image.replicas_of(self._node_id)}
        for key in sorted(self.partitions.keys() - held):
            self._remove(self.partitions[key])

    def remove_unknown(self: LocalReplicas, image: Any) -> None:
        held = {(topic.name, index) for topic, index in image.replicas_of(self._node_id)}
        for key in sorted(self._unclaimed.keys() - held):
            self._log_directories.delete_log(self._unclaimed.pop(key), now_ms=0)

    patch.setattr(ImageFollower, "receive", receive_parts)
    patch.setattr(LocalReplicas, "publish", publish_deleting)
    patch.setattr(LocalReplicas, "_remove_unknown", remove_unknown)


@mutant()
def tells_no_waiting_follower_of_news(patch: Patch) -> None:
    patch.setattr(FollowerSessions, "advanced", lambda *_: None)


@mutant("kill", "pause", fault_pause_s=0.5)
def keeps_the_last_batch_of_a_producer_alone(patch: Patch) -> None:
    pack = producer_snapshot._pack

    def pack_last(entry: Any, **_: Any) -> Any:
        return pack(entry, is_idle=True)

    patch.setattr(producer_snapshot, "_pack", pack_last)


@mutant()
def acknowledges_before_the_high_watermark(patch: Patch) -> None:
    patch.setattr(produce, "acknowledgement", lambda *_: ErrorCode.NONE)


@mutant()
def acknowledges_what_was_not_committed_in_time(patch: Patch) -> None:
    patch.setattr(produce, "time_out_code", lambda *_: ErrorCode.NONE)


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
def takes_a_proposal_for_accepted_as_soon_as_it_is_sent(patch: Patch) -> None:
    ask = IsrProposer._ask

    async def ask_and_believe(self: IsrProposer, batch: Any) -> Any:
        for partition, proposal in batch:
            partition.proposal_accepted(
                proposal,
                [broker_id for broker_id, _ in proposal.isr],
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                now_ms=self._broker.clock.monotonic_ms(),
            )
        return await ask(self, batch)

    patch.setattr(IsrProposer, "_ask", ask_and_believe)


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


@mutant()
def counts_an_unclean_replica_as_in_sync(patch: Patch) -> None:
    patch.setattr(registration, "clean_return", lambda *_: (True, "whatever it says"))


@mutant()
def trusts_the_marker_of_a_clean_stop_only(patch: Patch) -> None:
    judge = clean_return

    def judge_marker(known: Any, asking: Any) -> tuple[bool, str]:
        is_clean, why = judge(known, asking)
        return is_clean and asking.is_clean, why

    patch.setattr(registration, "clean_return", judge_marker)


@mutant()
def keeps_the_last_replica_though_it_is_unclean(patch: Patch) -> None:
    """Then a second, clean restart would make it count as complete."""
    without = members_without

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


@mutant()
def keeps_who_is_eligible_under_any_leader(patch: Patch) -> None:
    patch.setattr(election, "members_under_leader", lambda _, members: members)


@mutant(story=stories.the_minimum_falls_while_a_disk_is_lost)
def forgets_who_leaves_while_nobody_leads(patch: Patch) -> None:
    """As Kafka does with a minimum of one: the last recorded replica may be the lost one."""
    members_with = membership.members_with_isr

    def forget(partition: Any, *arguments: Any) -> Any:
        members = members_with(partition, *arguments)
        return membership.members_under_leader(partition, members) if members.isr else members

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
    """Raised by a mutant for a write with unknown outcome."""


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

    async def commit_or_forget(self: Controller, group: Any, stages: Any) -> None:
        try:
            await commit(self, group, stages)
        except TimedOutError:
            self._pending = self.committed
            self._refuse()

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
