"""Mutants of groups: the simulation must detect each rule that is broken on purpose.

Each mutant is a small change of code that keeps a promise. Some need certain faults more often.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from group_simulator.world import Options, SimulationFailed, run_seed
from proofs import SIMULATED_MUTANTS
from simulator.first_seeds import seeds_to_try

from fairlead_broker.coordinator.loading import ShardLoader
from fairlead_broker.coordinator.replay import Replay
from fairlead_broker.coordinator.replayed_transactions import ReplayedTransactions
from fairlead_broker.coordinator.runtime import CoordinatorRuntime
from fairlead_broker.coordinator.shard import Shard
from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.classic.member import Member, Members
from fairlead_broker.group.classic.membership import Membership
from fairlead_broker.group.classic.rebalance import Rebalance
from fairlead_broker.group.coordinator import GroupCoordinator
from fairlead_broker.group.group_offsets import GroupOffsets
from fairlead_broker.group.group_replay import GroupReplay
from fairlead_broker.group.group_types import Effects, GroupState
from fairlead_broker.group.open_transactions import OpenTransactions
from fairlead_broker.group.shard_groups import ShardGroups
from fairlead_broker.group.transactional_writes import EndMarkerWrite
from fairlead_broker.group.writes import OffsetsWrite
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = pytest.MonkeyPatch

SEEDS_MAX = 150
pytestmark = SIMULATED_MUTANTS.marks
MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...]]] = {}


def mutant(*only: str) -> Callable[[Callable[..., None]], Any]:
    """`only` names the faults that may happen; by default all."""

    def register(change: Callable[[pytest.MonkeyPatch], None]) -> Callable[..., None]:
        MUTANTS[change.__name__] = (change, only)
        return change

    return register


@mutant()
def forgets_to_count_what_a_member_is_given(patch: Patch) -> None:
    def assign(_: Members, member: Member, assignment: bytes) -> None:
        member.assignment = assignment

    patch.setattr(Members, "assign", assign)


@mutant()
def answers_syncs_before_the_write_is_committed(patch: Patch) -> None:
    sync = ClassicGroup.sync

    def answer(self: ClassicGroup, request: Any, waiter: Any, **times: Any) -> Effects:
        effects = sync(self, request, waiter, **times)
        for write in effects.writes:
            effects.replies += self.written(write, ErrorCode.NONE, **times).replies
        return effects

    patch.setattr(ClassicGroup, "sync", answer)


@mutant()
def acknowledges_commits_before_they_are_committed(patch: Patch) -> None:
    add = Shard.add

    def add_and_answer(self: Shard[Any], write: Any) -> bool:
        if isinstance(write, OffsetsWrite):
            write._finish(ErrorCode.NONE)
        return add(self, write)

    patch.setattr(Shard, "add", add_and_answer)


@mutant("restart_instance", "kill_leader")
def answers_a_static_member_before_its_new_id_is_committed(patch: Patch) -> None:
    write_takeover = Rebalance.write_takeover

    def answer(self: Rebalance, member: Any, token: Any, turn: Any) -> None:
        write_takeover(self, member, token, turn)
        turn.reply(token.waiter, token.result)
        token.waiter = None

    patch.setattr(Rebalance, "write_takeover", answer)


@mutant()
def shows_offsets_before_they_are_committed(patch: Patch) -> None:
    add = Shard.add

    def add_and_show(self: Shard[Any], write: Any) -> bool:
        if isinstance(write, OffsetsWrite):
            for name, partition, value in write.offsets:
                write.group.offsets.committed(name, partition, value)
        return add(self, write)

    patch.setattr(Shard, "add", add_and_show)


@mutant()
def completes_commits_under_another_epoch(patch: Patch) -> None:
    """The shard does not check whether its broker still leads in the same epoch."""
    patch.setattr(Shard, "is_current", True)


@mutant("move_leader", "kill_leader")
def keeps_its_groups_when_it_leads_again(patch: Patch) -> None:
    """A broker that leads again keeps its old state, without what others wrote meanwhile."""
    on_role = CoordinatorRuntime.on_role

    def on_new_role(self: Any, partition: Any) -> None:
        known = self.shards.get(partition.index)
        if known is None or known.partition is not partition:
            on_role(self, partition)
        else:
            known.leader_epoch = partition.leader_epoch

    patch.setattr(CoordinatorRuntime, "on_role", on_new_role)


@mutant()
def fails_nobody_when_it_is_deposed(patch: Patch) -> None:
    """It acknowledges waiting writes instead."""
    fail_waiting = Shard.fail_waiting

    def succeed(self: Shard[Any], code: ErrorCode) -> None:
        for appended in self._appended:
            for write in appended.writes:
                write.committed()
        self._appended.clear()
        fail_waiting(self, code)

    patch.setattr(Shard, "fail_waiting", succeed)


@mutant("leave_and_delete", "delete_offsets", "kill_leader", "start_member")
def replays_without_tombstones(patch: Patch) -> None:
    take = Replay._take_records

    def take_and_keep(self: Replay, *arguments: Any, **options: Any) -> int:
        before = dict(self.newest)
        position = take(self, *arguments, **options)
        self.newest = {**before, **self.newest}
        return position

    patch.setattr(Replay, "_take_records", take_and_keep)


@mutant()
def replays_without_empty_groups(patch: Patch) -> None:
    decode = GroupReplay.decode

    def decode_with_members(self: GroupReplay, newest: dict[bytes, bytes]) -> Any:
        yield from decode(self, newest)
        self.group_values = {
            group_id: value
            for group_id, value in self.group_values.items()
            if ClassicGroup.from_record(
                group_id, value, initial_rebalance_delay_ms=0, size_max=9, now_ms=0
            ).members
        }

    patch.setattr(GroupReplay, "decode", decode_with_members)


@mutant()
def loads_half(patch: Patch) -> None:
    next_piece = ShardLoader._next_piece

    def first_piece(self: Any, partition: Any, replay: Replay) -> Any:
        return None if replay.records_count else next_piece(self, partition, replay)

    patch.setattr(ShardLoader, "_next_piece", first_piece)


@mutant()
def serves_what_is_loaded_before_it_is_committed(patch: Patch) -> None:
    async def at_once(self: Any, shard: Any) -> None:
        return

    patch.setattr(ShardLoader, "_until_committed", at_once)


@mutant()
def replays_the_oldest_value_of_an_offset(patch: Patch) -> None:
    take = Replay._take_records

    def take_first(self: Replay, *arguments: Any, **options: Any) -> int:
        before = dict(self.newest)
        position = take(self, *arguments, **options)
        self.newest.update({key: value for key, value in before.items() if key[:2] == b"\0\1"})
        return position

    patch.setattr(Replay, "_take_records", take_first)


@mutant("leave_and_delete", "start_member")
def deletes_groups_that_have_members(patch: Patch) -> None:
    delete = ClassicGroup.delete

    def delete_any(self: ClassicGroup) -> Any:
        if self.state is GroupState.STABLE:
            self.rebalance.state = GroupState.EMPTY
        return delete(self)

    patch.setattr(ClassicGroup, "delete", delete_any)


@mutant()
def checks_no_generation_of_commits(patch: Patch) -> None:
    check_commit = ClassicGroup.check_commit

    def check(self: ClassicGroup, member_id: str, _: int, instance: Any, **times: Any) -> Any:
        return check_commit(self, member_id, self.generation_id, instance, **times)

    patch.setattr(ClassicGroup, "check_commit", check)


@mutant()
def checks_no_members_of_commits(patch: Patch) -> None:
    check_commit = ClassicGroup.check_commit

    def check(self: ClassicGroup, *arguments: Any, **times: Any) -> ErrorCode:
        code = check_commit(self, *arguments, **times)
        return ErrorCode.NONE if code is ErrorCode.UNKNOWN_MEMBER_ID else code

    patch.setattr(ClassicGroup, "check_commit", check)


@mutant("commit_outside", "commit_outside", "kill_broker", "lose_power", "kill_member")
def lets_others_commit_beside_logged_members(patch: Patch) -> None:
    """A group counts as empty although the record of this could not be written."""
    patch.setattr(Rebalance, "is_logged", True)


@mutant("restart_instance", "double_instance")
def forgets_a_fenced_instance(patch: Patch) -> None:
    """The replaced process of an instance is answered as if it were not replaced."""
    check_member = Membership.check_member

    def check(self: Membership, member_id: str, instance: str | None) -> ErrorCode:
        code = check_member(self, member_id, instance)
        return ErrorCode.NONE if code is ErrorCode.FENCED_INSTANCE_ID else code

    patch.setattr(Membership, "check_member", check)


@mutant()
def keeps_the_generation(patch: Patch) -> None:
    """A rebalance ends without a new generation."""
    complete = Rebalance._complete_join

    def complete_again(self: Rebalance, turn: Any) -> None:
        before = self.generation_id
        complete(self, turn)
        if self.generation_id > before > 0:
            self.generation_id = before
            turn.effects.replies[:] = [
                (waiter, replace(result, generation_id=before))
                if getattr(result, "generation_id", 0) > before
                else (waiter, result)
                for waiter, result in turn.effects.replies
            ]

    patch.setattr(Rebalance, "_complete_join", complete_again)


@mutant("pause_leader", "kill_broker", "cut_off_leader", "start_member", "kill_member")
def keeps_the_assignment_after_a_failed_write(patch: Patch) -> None:
    """Waiting members get the leader's assignment, although the log may never have it."""
    on_assignments = Rebalance._on_assignments

    def assign(self: Rebalance, token: Any, error: ErrorCode, turn: Any) -> None:
        on_assignments(self, token, ErrorCode.NONE, turn)

    patch.setattr(Rebalance, "_on_assignments", assign)


@mutant()
def gives_everybody_the_leaders_part(patch: Patch) -> None:
    synced = Rebalance.synced

    def synced_as_leader(self: Rebalance, member: Any) -> Any:
        return synced(self, self.membership.members.get(self.membership.leader) or member)

    patch.setattr(Rebalance, "synced", synced_as_leader)


@mutant()
def stays_stable_when_a_member_comes(patch: Patch) -> None:
    """A new member is answered with the present generation."""
    wait = Rebalance.wait_for_rebalance

    def wait_or_answer(self: Rebalance, member: Any, waiter: Any, turn: Any) -> None:
        if self.state is GroupState.STABLE:
            turn.reply(waiter, self.joined(member))
        else:
            wait(self, member, waiter, turn)

    patch.setattr(Rebalance, "wait_for_rebalance", wait_or_answer)


@mutant()
def forgets_the_record_of_an_empty_group(patch: Patch) -> None:
    become_empty = Rebalance._become_empty

    def become_empty_quietly(self: Rebalance, turn: Any) -> None:
        become_empty(self, turn)
        turn.effects.writes.clear()

    patch.setattr(Rebalance, "_become_empty", become_empty_quietly)


@mutant("kill_broker", "cut_off_leader", "pause_leader", "stop_member")
def never_writes_a_failed_record_again(patch: Patch) -> None:
    written = Rebalance.written

    def written_once(self: Rebalance, write: Any, error: ErrorCode, **times: Any) -> Effects:
        effects = written(self, write, error, **times)
        self._rewrite_at_ms = None
        return effects

    patch.setattr(Rebalance, "written", written_once)


@mutant()
def ends_no_sessions(patch: Patch) -> None:
    keep_alive = Membership.keep_alive

    def keep_for_ever(self: Membership, member: Any, now_ms: int) -> None:
        keep_alive(self, member, now_ms + 1_000_000)

    patch.setattr(Membership, "keep_alive", keep_for_ever)


@mutant()
def answers_no_second_time_only_by_luck(patch: Patch) -> None:
    """A member keeps its waiter after the answer."""
    take = Members.take_join_waiter

    def peek(self: Members, member: Any) -> Any:
        waiter = take(self, member)
        if waiter is not None:
            self.park_join(member, waiter)
        return waiter

    patch.setattr(Members, "take_join_waiter", peek)


@mutant()
def loses_the_first_partition(patch: Patch) -> None:
    committed = GroupOffsets.committed

    def commit_others(self: GroupOffsets, topic: str, partition: int, value: bytes) -> None:
        if partition:
            committed(self, topic, partition, value)

    patch.setattr(GroupOffsets, "committed", commit_others)


@mutant()
def shows_what_is_aborted(patch: Patch) -> None:
    end = GroupOffsets.transaction_ended

    def commit(self: GroupOffsets, producer_id: int, *, is_commit: bool) -> None:
        end(self, producer_id, is_commit=True)

    patch.setattr(GroupOffsets, "transaction_ended", commit)


@mutant("kill_leader", "move_leader")
def loads_what_is_aborted(patch: Patch) -> None:
    end = ReplayedTransactions.end

    def commit(
        self: ReplayedTransactions, producer_id: int, *, is_commit: bool, **log: Any
    ) -> None:
        end(self, producer_id, is_commit=True, **log)

    patch.setattr(ReplayedTransactions, "end", commit)


@mutant()
def lets_the_last_marker_win(patch: Patch) -> None:
    """The end of a transaction overwrites an offset committed after its own."""
    patch.setattr(OpenTransactions, "overtake", lambda *_: None)


@mutant("kill_leader", "move_leader", "commit_outside")
def lets_the_last_marker_win_when_it_loads(patch: Patch) -> None:
    end = ReplayedTransactions.end

    def end_in_order_of_markers(self: ReplayedTransactions, *producer: int, **log: Any) -> None:
        self._changed_at.clear()
        end(self, *producer, **log)

    patch.setattr(ReplayedTransactions, "end", end_in_order_of_markers)


@mutant("kill_leader", "move_leader")
def forgets_open_transactions_when_it_loads(patch: Patch) -> None:
    patch.setattr(ShardGroups, "replay_undecided", lambda *_: iter(()))


@mutant("kill_leader", "move_leader")
def reads_no_markers_when_it_loads(patch: Patch) -> None:
    patch.setattr(ReplayedTransactions, "end", lambda *_, **__: None)


@mutant()
def shows_offsets_of_open_transactions(patch: Patch) -> None:
    def show(self: GroupOffsets, _: int, topic: str, index: int, __: int, value: bytes) -> None:
        self.committed(topic, index, value)

    patch.setattr(GroupOffsets, "staged", show)


@mutant()
def ends_transactions_before_their_markers_are_committed(patch: Patch) -> None:
    append_to = EndMarkerWrite.append_to

    def append_and_end(self: EndMarkerWrite, *arguments: Any) -> Any:
        result = append_to(self, *arguments)
        self._groups.transaction_ended(self._marker.producer_id, is_commit=self._marker.is_commit)
        return result

    patch.setattr(EndMarkerWrite, "append_to", append_and_end)


@mutant()
def acknowledges_markers_before_they_are_committed(patch: Patch) -> None:
    append_to = EndMarkerWrite.append_to

    def append_and_answer(self: EndMarkerWrite, *arguments: Any) -> Any:
        result = append_to(self, *arguments)
        self._finish(ErrorCode.NONE)
        return result

    patch.setattr(EndMarkerWrite, "append_to", append_and_answer)


@mutant("kill_leader", "move_leader", "kill_producer")
def takes_markers_while_it_loads(patch: Patch) -> None:
    """The load may have passed the place of the marker, and then nobody applies it."""

    def end_anyhow(self: GroupCoordinator, index: int, marker: Any, answer: Any) -> None:
        shard = self.runtime.shards.get(index)
        if shard is None:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self.runtime.append(shard, EndMarkerWrite(shard.machine, marker, answer))

    patch.setattr(GroupCoordinator, "end_transaction", end_anyhow)


@mutant("delete_offsets", "leave_and_delete", "start_member")
def keeps_what_is_staged_before_a_tombstone(patch: Patch) -> None:
    patch.setattr(OpenTransactions, "forget", lambda *_: None)


@mutant("delete_offsets", "delete_offsets", "move_leader", "kill_producer")
def loads_what_is_staged_before_a_tombstone(patch: Patch) -> None:
    undecided = ReplayedTransactions.undecided

    def with_removed(self: ReplayedTransactions) -> Any:
        self._removed_at.clear()
        return undecided(self)

    patch.setattr(ReplayedTransactions, "undecided", with_removed)


@mutant()
def ends_all_transactions_with_one_marker(patch: Patch) -> None:
    def end_all(self: ShardGroups, _: int, *, is_commit: bool) -> None:
        for producer_id, groups in self._transactions.items():
            for group in groups:
                group.offsets.transaction_ended(producer_id, is_commit=is_commit)
        self._transactions.clear()

    patch.setattr(ShardGroups, "transaction_ended", end_all)


@mutant("kill_leader", "move_leader")
def does_not_note_the_groups_of_what_it_loads(patch: Patch) -> None:
    """A marker then finds no group with offsets of the transaction."""
    patch.setattr(OpenTransactions, "producer_ids", [])


@mutant()
def checks_no_generation_of_transactional_commits(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "check_transactional_commit", lambda *_: ErrorCode.NONE)


def first_seed_that_catches(name: str) -> int | None:
    change, only = MUTANTS[name]
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        for seed in seeds_to_try(name, SEEDS_MAX):
            try:
                run_seed(seed, Options(only=only))
            except SimulationFailed as failure:
                cause: BaseException | None = failure.__cause__
                while isinstance(cause, ExceptionGroup):
                    cause = cause.exceptions[0]
                if isinstance(cause, TypeError | AttributeError | NameError):
                    raise  # The mutant no longer fits the code.
                return seed
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_of_groups_is_caught(name: str) -> None:
    assert first_seed_that_catches(name) is not None


@pytest.mark.parametrize("name", [name for name, (_, only) in MUTANTS.items() if only])
def test_what_brings_a_mutant_out_breaks_no_rule_of_groups_itself(name: str) -> None:
    for seed in range(20):
        run_seed(seed, Options(only=MUTANTS[name][1]))
