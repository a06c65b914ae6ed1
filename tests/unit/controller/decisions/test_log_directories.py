"""A broker with several log directories comes back: what may its replicas count for?"""

from dataclasses import replace
from typing import Any

import pytest

from fairlead_controller.decisions.events import RegisterBroker, UnfenceBroker
from fairlead_controller.decisions.tables import lines
from fairlead_model.cluster import BrokerChanged
from fairlead_model.codec import decode_registration, encode_registration
from fairlead_model.session.refusals import RefusalCode, RefusedError

TWO = ("disk-a", "disk-b")


@pytest.fixture
def jbod(make_world: Any) -> Any:
    """Broker 0 has two directories, and the last replica in sync of each partition of `t`."""
    world = make_world()
    world.start_broker(0, directory_id="both", directory_ids=TWO)
    world.start_broker(1)
    world.start_broker(2)
    world.create("t", partitions=6, replication_factor=3)
    world.fence(1, 2)
    return world


def come_back(world: Any, held: list[int], **fields: Any) -> Any:
    """Register the next start of broker 0, stopped in good order; what it still counts for."""
    known = world.state.image.brokers[0]
    topic = world.topic("t")
    asking = replace(
        known,
        start_id=f"start after {known.broker_epoch}",
        **{"is_clean": True, "previous_broker_epoch": known.broker_epoch, **fields},
    )
    event = RegisterBroker(
        asking, "", held=tuple((topic.topic_id, index) for index in held), unclean=()
    )
    world.do(event)
    world.do(UnfenceBroker(0, world.epoch(0)))
    return [index for index, each in enumerate(world.partitions("t")) if 0 in each.isr]


def test_with_all_directories_every_replica_counts(jbod: Any) -> None:
    assert come_back(jbod, [0, 1, 2, 3, 4, 5]) == [0, 1, 2, 3, 4, 5]


def test_a_replaced_directory_costs_its_replicas_only(jbod: Any) -> None:
    """R35."""
    fields = {"directory_id": "other", "directory_ids": ("disk-a", "disk-c")}
    assert come_back(jbod, [0, 2, 4], **fields) == [0, 2, 4]


def test_a_directory_that_was_taken_away_costs_its_replicas_only(jbod: Any) -> None:
    assert come_back(jbod, [1], directory_id="disk-b", directory_ids=()) == [1]


def test_a_directory_that_was_added_costs_nothing(jbod: Any) -> None:
    come_back(jbod, [0, 1, 2, 3, 4, 5], directory_id="disk-a", directory_ids=())
    assert come_back(jbod, [0, 1, 2, 3, 4, 5], directory_id="both", directory_ids=TWO) == [
        *range(6)
    ]


def test_what_an_older_controller_has_written_down_of_several_is_enough(jbod: Any) -> None:
    known = jbod.state.image.brokers[0]
    jbod.state = jbod.state.apply((BrokerChanged(replace(known, directory_ids=())),))
    assert come_back(jbod, [0, 1, 5], directory_ids=TWO) == [0, 1, 5]


def test_a_single_folder_that_is_gone_counts_for_nothing(jbod: Any) -> None:
    """Also one that no checkpoint knows of yet."""
    assert come_back(jbod, [0, 1, 2, 4, 5]) == [0, 1, 2, 4, 5]


def test_the_last_replica_in_sync_is_not_believed_either(jbod: Any) -> None:
    assert jbod.sets("t", 3) == (0, "0", "", "")
    jbod.fence(0)
    come_back(jbod, [0, 1, 2, 4, 5], directory_id="other", directory_ids=("disk-a", "disk-c"))
    assert jbod.sets("t", 3) == (-1, "", "", "0")
    assert jbod.sets("t", 4) == (0, "0", "", "")


def test_without_any_directory_of_before_nothing_is_believed(jbod: Any) -> None:
    fields = {"directory_id": "new", "directory_ids": ("disk-c", "disk-d")}
    assert come_back(jbod, [0, 1, 2, 3, 4, 5], **fields) == []


def test_with_directories_that_an_older_start_has_used_last_nothing_is_believed(jbod: Any) -> None:
    assert come_back(jbod, [0, 1, 2, 3, 4, 5], previous_broker_epoch=0) == []


def test_a_start_is_another_one_if_a_directory_was_replaced_before_it_was_answered(
    jbod: Any,
) -> None:
    known = jbod.state.image.brokers[0]
    again = replace(known, directory_id="other", directory_ids=("disk-a", "disk-c"))
    reply = jbod.do(RegisterBroker(again, ""))
    assert reply["broker_epoch"] > known.broker_epoch
    assert not any(0 in each.isr for each in jbod.partitions("t"))


def test_a_shared_directory_proves_that_the_process_before_is_gone(jbod: Any) -> None:
    known = jbod.state.image.brokers[0]
    asking = replace(known, start_id="n", directory_id="o", directory_ids=("disk-b", "disk-c"))
    jbod.do(RegisterBroker(asking, "", is_predecessor_alive=True))
    stranger = replace(asking, start_id="s", directory_id="p", directory_ids=("disk-y", "disk-z"))
    with pytest.raises(RefusedError) as refused:
        jbod.do(RegisterBroker(stranger, "", is_predecessor_alive=True))
    assert refused.value.code == RefusalCode.DUPLICATE_BROKER_REGISTRATION


def test_each_incarnation_has_to_fit(jbod: Any) -> None:
    known = jbod.state.image.brokers[0]
    asking = replace(known, start_id="n", directory_ids=("disk-a", "x" * 65))
    with pytest.raises(RefusedError, match="65 characters"):
        jbod.do(RegisterBroker(asking, ""))


def test_directories_are_kept_in_the_table_and_on_the_way(jbod: Any) -> None:
    known = jbod.state.image.brokers[0]
    assert decode_registration(encode_registration(known)) == known
    assert lines.build_broker(lines.read_line(lines.broker_line(known))) == known
    assert "directories" not in lines.broker_line(replace(known, directory_ids=()))


def test_directories_are_no_field_of_an_unknown_release(jbod: Any) -> None:
    """Else those of an older registration would be put back over new ones."""
    known = jbod.state.image.brokers[0]
    key = lines.broker_key(0)
    read = lines.parse_line_of_any_release(key, lines.broker_line(known), lines.build_broker)
    assert read == (known, {})


def test_what_an_older_controller_kept_of_an_older_start_is_not_believed(jbod: Any) -> None:
    """It knows no such field, and keeps it when the broker registers anew."""
    record = lines.read_line(lines.broker_line(jbod.state.image.brokers[0]))
    record["epoch"] += 1
    assert lines.build_broker(record).directory_ids == ()
