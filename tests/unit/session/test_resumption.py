"""What a killed process leaves for the next, and when that one may go on with it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from simulated_disk import SimulatedDisk

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.directory import frame_file
from fairlead_broker.log.files.file_names import ROLE_JOURNAL
from fairlead_broker.session import role_journal
from fairlead_broker.session.image_follower import ImageFollower, Position
from fairlead_broker.session.resumption import Roles, replay, resumption_problem
from fairlead_broker.session.role_journal import RoleJournal, roles_in
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.cluster import (
    BrokerChanged,
    Change,
    PartitionChanged,
    TopicChanged,
    empty_image,
)
from fairlead_model.codec import encode_changes
from fairlead_model.features import FeatureRange
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.topic import TopicHeader, TopicState

if TYPE_CHECKING:
    from pathlib import Path

TOPIC_ID = TopicId(b"t" * 16)
ENDPOINTS = (Endpoint("INTERNAL", "127.0.0.1", 1, is_internal=True),)
BEFORE = BrokerRegistration(
    1,
    broker_epoch=7,
    endpoints=ENDPOINTS,
    host_name="here",
    fenced=False,
    directory_id="disk",
    start_id="first",
    boot_id="boot",
    pod_uid="pod",
)
NOW = replace(
    BEFORE,
    broker_epoch=-1,
    start_id="second",
    previous_broker_epoch=7,
    is_recovered_whole=True,
)
IMAGE = empty_image("c").apply(
    [
        BrokerChanged(BEFORE),
        TopicChanged(TopicHeader("t", TOPIC_ID, 1, TopicState.LIVE)),
        PartitionChanged(TOPIC_ID, 0, PartitionRegistration(replicas=(1, 2), isr=(1, 2), leader=1)),
    ]
)
ROLES = Roles(IMAGE, Position(2, 5), 2)
HELD = {(TOPIC_ID, 0)}


def message(sequence: int, *changes: Change, image: bool = False, last: bool = True) -> Any:
    return {
        "type": "changes",
        "position": [2, sequence],
        "changes": encode_changes(changes),
        "is_image": image,
        "is_last": last,
    }


def broker(number: int) -> BrokerChanged:
    return BrokerChanged(BrokerRegistration(number, 1))


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def journal_on(disk: SimulatedDisk, *messages: Any) -> RoleJournal:
    journal = RoleJournal(disk, "/d")
    journal.begin_session("c", 2)
    for each in messages:
        journal.note(each)
    return journal


def found(disk: SimulatedDisk) -> Roles | None:
    return roles_in(RoleJournal(disk, "/d").take())


def test_a_start_may_go_on_where_nothing_was_lost() -> None:
    """R33."""
    assert resumption_problem(ROLES, NOW, HELD) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"boot_id": "another"}, "machine"),
        ({"boot_id": ""}, "machine"),
        ({"pod_uid": "another"}, "pod"),
        ({"directory_id": "another"}, "disk"),
        ({"is_recovered_whole": False}, "whole"),
        ({"is_clean": True}, "good order"),
        ({"directory_ids": ("one", "two")}, "several"),
        ({"previous_broker_epoch": 8}, "epoch 8"),
        ({"previous_broker_epoch": -1}, "epoch -1"),
        ({"endpoints": ()}, "address"),
        ({"host_name": "there"}, "address"),
        ({"min_insync_replicas": 2}, "min.insync.replicas"),
        ({"features": (FeatureRange("fairlead.version", 0, 99),)}, "release"),
    ],
)
def test_a_start_that_is_another_in_any_way_waits(changed: Any, words: str) -> None:
    """R33."""
    problem = resumption_problem(ROLES, replace(NOW, **changed), HELD)
    assert problem is not None
    assert words in problem


@pytest.mark.parametrize("changed", [{"fenced": True}, {"in_controlled_shutdown": True}])
def test_who_was_out_of_service_has_nothing_to_go_on_with(changed: Any) -> None:
    image = IMAGE.apply([BrokerChanged(replace(BEFORE, **changed))])
    problem = resumption_problem(replace(ROLES, image=image), NOW, HELD)
    assert problem == "it was out of service, or stopping"


def test_unreadable_boot_ids_are_never_the_same() -> None:
    image = IMAGE.apply([BrokerChanged(replace(BEFORE, boot_id=""))])
    problem = resumption_problem(replace(ROLES, image=image), replace(NOW, boot_id=""), HELD)
    assert problem == "its machine has restarted"


@pytest.mark.parametrize("held", [set(), {(b"u" * 16, 0)}])
def test_each_replica_needs_its_log(held: set[tuple[bytes, int]]) -> None:
    """Made anew it would be empty, and lead."""
    assert resumption_problem(ROLES, NOW, held) == "its log of t-0 is not here"


def test_a_broker_that_was_never_registered_waits() -> None:
    assert resumption_problem(replace(ROLES, image=empty_image("c")), NOW, set()) is not None


def test_what_was_noted_is_what_the_next_start_finds(disk: SimulatedDisk) -> None:
    journal_on(disk, message(5, broker(1), image=True), message(6, broker(2)))
    roles = found(disk)
    assert roles is not None
    assert set(roles.image.brokers) == {1, 2}
    assert (roles.position, roles.controller_epoch) == (Position(2, 6), 2)


def test_a_publication_without_its_end_has_not_been_acted_on(disk: SimulatedDisk) -> None:
    journal_on(disk, message(5, broker(1), image=True), message(6, broker(2), last=False))
    roles = found(disk)
    assert roles is not None
    assert set(roles.image.brokers) == {1}


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_frame_that_was_cut_off_has_not_been_acted_on(disk: SimulatedDisk, cut: int) -> None:
    journal_on(disk, message(5, broker(1), image=True), message(6, broker(2)))
    content = disk.names[f"/d/{ROLE_JOURNAL}"].content
    del content[-cut:]
    roles = found(disk)
    assert roles is not None
    assert set(roles.image.brokers) == {1}


def test_a_damaged_frame_makes_all_worthless(disk: SimulatedDisk) -> None:
    journal_on(disk, message(5, broker(1), image=True), message(6, broker(2)))
    disk.names[f"/d/{ROLE_JOURNAL}"].content[30] ^= 1
    assert found(disk) is None


def test_no_flipped_bit_makes_it_tell_less(disk: SimulatedDisk) -> None:
    """Roles of earlier would be gone on with, though later ones have been acted on."""
    journal_on(disk, message(5, broker(1), image=True), message(6, broker(2)))
    content = bytes(disk.names[f"/d/{ROLE_JOURNAL}"].content)
    for bit in range(len(content) * 8):
        changed = SimulatedDisk()
        journal_on(changed)
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        changed.names[f"/d/{ROLE_JOURNAL}"].content[:] = damaged
        assert found(changed) is None, f"bit {bit % 8} of byte {bit // 8}"


def test_what_is_longer_than_any_message_was_not_cut_off(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal_on(disk, message(5, broker(1), image=True), message(6, broker(2)))
    del disk.names[f"/d/{ROLE_JOURNAL}"].content[-3:]
    monkeypatch.setattr(frame_file, "JOURNAL_FRAME_BYTES_MAX", 10)
    assert found(disk) is None


def test_a_message_that_is_missing_makes_all_worthless(disk: SimulatedDisk) -> None:
    journal_on(disk, message(5, broker(1), image=True), message(7, broker(2)))
    assert found(disk) is None


def test_a_publication_that_failed_and_came_again_makes_all_worthless(disk: SimulatedDisk) -> None:
    """How much of it was done nobody knows."""
    journal = journal_on(disk, message(5, broker(1), image=True), message(6, broker(2)))
    journal.begin_session("c", 2)
    journal.note(message(6, broker(2)))
    assert found(disk) is None


def test_deltas_without_an_image_are_nothing(disk: SimulatedDisk) -> None:
    journal_on(disk)
    assert found(disk) is None
    assert replay([]) is None


def test_it_is_found_once_unless_it_is_put_back(disk: SimulatedDisk) -> None:
    journal_on(disk, message(5, broker(1), image=True))
    assert found(disk) is not None
    assert found(disk) is None, "the start that took it has not found its logs whole"
    journal_on(disk, message(5, broker(1), image=True))
    second = RoleJournal(disk, "/d")
    second.take()
    second.put_back()
    second.begin_session("c", 3)
    second.note(message(6, broker(2)))
    roles = found(disk)
    assert roles is not None
    assert set(roles.image.brokers) == {1, 2}
    assert roles.controller_epoch == 3


def test_what_was_cut_off_is_not_appended_to(disk: SimulatedDisk) -> None:
    journal_on(disk, message(5, broker(1), image=True), message(6, broker(2)))
    del disk.names[f"/d/{ROLE_JOURNAL}"].content[-3:]
    second = RoleJournal(disk, "/d")
    second.take()
    second.put_back()
    second.note(message(6, broker(3)))
    roles = found(disk)
    assert roles is not None
    assert set(roles.image.brokers) == {1, 3}


def test_a_start_that_registers_begins_anew(disk: SimulatedDisk) -> None:
    journal_on(disk, message(5, broker(1), image=True))
    second = RoleJournal(disk, "/d")
    second.take()
    second.begin_session("c", 3)
    second.note(message(9, broker(2), image=True))
    roles = found(disk)
    assert roles is not None
    assert set(roles.image.brokers) == {2}


def test_a_stop_in_good_order_leaves_nothing(disk: SimulatedDisk) -> None:
    journal_on(disk, message(5, broker(1), image=True)).close()
    assert found(disk) is None
    assert not disk.names


def test_a_full_disk_leaves_no_older_roles(disk: SimulatedDisk) -> None:
    """What is done and not noted must not be found as not done."""
    journal = journal_on(disk, message(5, broker(1), image=True))
    disk.free_bytes = 4
    journal.note(message(6, broker(2)))
    assert found(disk) is None
    disk.free_bytes = None
    journal.note(message(7, broker(3)))
    assert found(disk) is None


def test_where_the_journal_can_neither_grow_nor_go_nothing_is_done(disk: SimulatedDisk) -> None:
    journal = journal_on(disk, message(5, broker(1), image=True))
    disk.failures["pwrite"] = disk.failures["unlink"] = OSError(5, "the disk is gone")
    with pytest.raises(OSError, match="the disk is gone"):
        journal.note(message(6, broker(2)))


def test_a_long_journal_is_written_anew(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_journal, "REWRITE_BYTES", 1200)
    monkeypatch.setattr(role_journal, "CHANGES_PER_MESSAGE", 2)
    follower = ImageFollower()
    follower.begin("c", 2)
    journal = journal_on(disk)

    def take(received: Any) -> None:
        publication = follower.receive(received)
        journal.note(received)
        assert publication is not None
        follower.commit(publication)

    take(message(0, *(broker(each) for each in range(5)), image=True))
    sequence = 0
    while not journal.is_due:
        sequence += 1
        take(message(sequence, broker(sequence % 7)))
    size = len(disk.names[f"/d/{ROLE_JOURNAL}"].content)

    async def rewrite() -> None:
        rewriting = asyncio.create_task(journal.rewrite(follower.image, follower.position))
        await asyncio.sleep(0)
        take(message(sequence + 1, broker(20)))  # While pieces of the image are being written.
        await rewriting

    asyncio.run(rewrite())
    take(message(sequence + 2, broker(21)))
    assert len(disk.names[f"/d/{ROLE_JOURNAL}"].content) < size
    assert (journal.is_due, list(disk.names)) == (False, [f"/d/{ROLE_JOURNAL}"])
    roles = found(disk)
    assert roles is not None
    assert roles.image == follower.image
    assert roles.position == Position(2, sequence + 2)


def test_the_journal_is_its_owners_alone(tmp_path: Path) -> None:
    """It holds what verifies passwords."""
    journal = RoleJournal(RealDisk(), str(tmp_path))
    journal.begin_session("c", 2)
    assert (tmp_path / ROLE_JOURNAL).stat().st_mode & 0o777 == 0o600


def test_a_broker_notes_what_it_hears_before_it_acts_on_it(play: Any, tmp_path: Path) -> None:
    """R33."""
    folder = tmp_path / "broker"
    folder.mkdir()
    known: list[set[str]] = []

    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0, journal=RoleJournal(RealDisk(), str(folder)))
        act = node.session._publish

        def look(delta: Any, image: Any) -> None:
            copy = RoleJournal(_copy_of(folder), "/d")
            roles = roles_in(copy.take())
            assert roles is not None
            known.append(set(roles.image.names))
            assert roles.image == image, "all that is about to be done is noted"
            act(delta, image)

        node.session._publish = look
        await node.create("t")
        assert known[-1] == {"t"}
        roles = roles_in(RoleJournal(RealDisk(), str(folder)).take())
        assert roles is not None
        assert roles.image == node.image
        assert roles.position == node.session.position
        assert roles.broker_epoch(0) == node.session.broker_epoch

    play(story)


def _copy_of(folder: Path) -> SimulatedDisk:
    disk = SimulatedDisk()
    fd = disk.open_write(f"/d/{ROLE_JOURNAL}")
    disk.pwrite(fd, (folder / ROLE_JOURNAL).read_bytes(), 0)
    return disk


def test_a_session_goes_on_and_is_then_registered_anew(play: Any, wait_until: Any) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        first = await stage.start_node(0)
        await first.create("t")
        roles = Roles(first.image, first.session.position, first.session.controller_epoch)
        epoch = first.session.broker_epoch
        await stage.stop_controller()
        again = stage.node(0, start_id="second", previous_broker_epoch=epoch, is_ready=False)
        again.session.go_on(roles)
        assert again.session.broker_epoch == epoch
        assert again.published[0][1] == first.image
        await again.session.start()
        await stage.start_controller()
        await again.session.wait_registered(30)
        assert again.session.broker_epoch > epoch
        await wait_until(lambda: again.is_live(0))
        with pytest.raises(RuntimeError):
            again.session.go_on(roles)

    play(story)
