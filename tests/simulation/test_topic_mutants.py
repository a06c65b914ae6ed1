"""Mutants of the rules of topics, of log starts, and of leaders that were suspended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from proofs import SIMULATED_MUTANTS
from simulator.mutation import Mutants

from fairlead_broker.local_replicas import LocalReplicas
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_broker.replication import partition as partition_module
from fairlead_broker.replication.follower_log import append_from_leader
from fairlead_broker.replication.follower_state import FollowerState
from fairlead_broker.replication.partition import Partition
from fairlead_broker.replication.wake_guard import WakeGuard
from fairlead_controller.decisions import decide
from fairlead_controller.decisions.tables import loading
from fairlead_controller.decisions.tables.table_plan import WritePlan
from fairlead_controller.decisions.topics import deletion_and_growth as topic_changes
from fairlead_model.cluster import TopicChanged, TopicState

if TYPE_CHECKING:
    from fairlead_model.cluster import TopicHeader

    Patch = pytest.MonkeyPatch

pytestmark = SIMULATED_MUTANTS.marks
MUTANTS = Mutants()
mutant = MUTANTS.register
TOPICS = ("create_topic", "grow_topic", "delete_topic", "replace_topic")


@mutant(*TOPICS, "kill")
def confirms_what_it_still_holds(patch: Patch) -> None:
    def confirm_only(self: LocalReplicas, header: TopicHeader) -> None:
        self._listener.on_topic_deleted(header.topic_id)

    patch.setattr(LocalReplicas, "_remove_topic", confirm_only)


@mutant("create_topic", "replace_topic")
def shows_old_records_under_a_new_id(patch: Patch) -> None:
    """The next topic of the same name gets a deleted log, with the new topic id in its file."""
    remove, find = LocalReplicas._remove, LocalReplicas._partition
    kept: dict[Any, Any] = {}

    def remove_and_keep(self: LocalReplicas, partition: Partition) -> None:
        remove(self, partition)
        kept[self, partition.topic, partition.index] = partition.log

    def find_by_name(self: LocalReplicas, topic: Any, index: int) -> Partition:
        log = kept.pop((self, topic.name, index), None)
        if log is not None:
            self._unclaimed[topic.name, index] = log
            directory: Any = self._log_directories
            log.topic_id = topic.topic_id
            directory._disk.logs[topic.topic_id, index] = log
        return find(self, topic, index)

    patch.setattr(LocalReplicas, "_remove", remove_and_keep)
    patch.setattr(LocalReplicas, "_partition", find_by_name)


@mutant(*TOPICS, "kill")
def forgets_a_topic_before_all_have_let_go(patch: Patch) -> None:
    confirm = topic_changes.decide_confirmation

    def confirm_for_all(state: Any, event: Any) -> Any:
        for topic_id in event.topic_ids:
            header = state.image.deleting.get(topic_id)
            if header is not None:
                alone = replace(header, unconfirmed_deletions=frozenset({event.broker_id}))
                state = state.apply([TopicChanged(alone)])
        return confirm(state, event)

    patch.setattr(decide, "decide_confirmation", confirm_for_all)


@mutant(*TOPICS, "kill", "pause")
def waits_for_those_alone_that_are_in_service(patch: Patch) -> None:
    delete = topic_changes.delete_topic

    def delete_hastily(draft: Any, topic: Any) -> None:
        delete(draft, topic)
        image = draft.state.image
        header = image.deleting[topic.topic_id]
        live = frozenset(each for each in header.unconfirmed_deletions if image.is_live(each))
        draft.add(TopicChanged(replace(header, unconfirmed_deletions=live)))

    patch.setattr(topic_changes, "delete_topic", delete_hastily)


@mutant(*TOPICS)
def makes_a_topic_live_before_it_is_whole(patch: Patch) -> None:
    def provisional(_: WritePlan, __: bytes, header: TopicHeader) -> TopicHeader:
        return header

    patch.setattr(WritePlan, "_provisional", provisional)


@mutant("create_topic", "delete_topic", "second_controller", "kill_controller", "store_doubtful")
def leaves_half_made_topics_behind(patch: Patch) -> None:
    patch.setattr(loading._Partitions, "_remove_line", lambda *_: None)


@mutant(*TOPICS, "kill", "kill_controller")
def deletes_without_marking(patch: Patch) -> None:
    """Brokers delete replicas of topics that are not in the image, without a mark."""
    stages = WritePlan.stages

    def unmarked(self: WritePlan) -> Any:
        return [
            {name: _without_marks(table) for name, table in stage.items()} for stage in stages(self)
        ]

    patch.setattr(WritePlan, "stages", unmarked)


def _without_marks(table: dict[str, str | None]) -> dict[str, str | None]:
    mark = f'"state":"{TopicState.DELETING}"'
    return {key: line for key, line in table.items() if line is None or mark not in line}


@mutant(settle_s=8.0)
def never_starts_over(patch: Patch) -> None:
    patch.setattr(FollowerState, "_on_error", lambda self, *_: self.retry())


@mutant()
def starts_over_at_the_leaders_end(patch: Patch) -> None:
    """A follower removes records that its leader still has."""
    append = append_from_leader

    def append_and_forget(log: Any, *arguments: Any, **settings: Any) -> int:
        high_watermark = append(log, *arguments, **settings)
        log.advance_log_start_offset(high_watermark)
        return high_watermark

    patch.setattr(partition_module, "append_from_leader", append_and_forget)


@mutant()
def deletes_what_is_not_committed(patch: Patch) -> None:
    def delete(self: Partition, before_offset: int) -> int:
        self.log.advance_log_start_offset(min(before_offset, self.log.log_end_offset))
        self.start_moved()
        return self.log.log_start_offset

    patch.setattr(Partition, "delete_records", delete)


@mutant()
def knows_no_duplicates_of_several_records(patch: Patch) -> None:
    find = ProducerState.find_duplicate

    def find_single(self: Any, producer_id: int, epoch: int, first: int, last: int) -> Any:
        found = find(self, producer_id, epoch, first, last)
        return found if first == last else None

    patch.setattr(ProducerState, "find_duplicate", find_single)


@mutant("pause", fault_pause_s=0.6)
def acknowledges_alone_as_soon_as_it_wakes(patch: Patch) -> None:
    patch.setattr(WakeGuard, "is_closed", lambda *_: False)


@pytest.mark.parametrize("name", MUTANTS.all)
def test_a_broken_rule_is_caught(name: str) -> None:
    assert MUTANTS.first_seed_that_catches(name) is not None


@pytest.mark.parametrize("name", MUTANTS.with_settings)
def test_what_brings_a_mutant_out_breaks_no_rule_itself(name: str) -> None:
    for seed in range(3):
        MUTANTS.all[name].play(seed)
