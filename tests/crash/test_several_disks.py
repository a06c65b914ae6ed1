"""Several log directories, any of which may be lost, put back from a copy or cut off from power.

A broker runs twice on two simulated disks. At every disk operation of the second run it ends, and
something happens to the disks. Then it starts a third time, and the controller's own rules say
which replicas may count: each of them must hold all that was acknowledged.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest
from log_batches import append, batch
from simulated_disk import PowerCut, SimulatedDisk

from fairlead_broker.log.directory.log_directories import LogDirectories
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_controller.decisions.clean_return import clean_return, is_same_start, may_lack_records
from fairlead_controller.decisions.events import RegisterBroker
from fairlead_model.broker import BrokerRegistration
from fairlead_model.configs.log_config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300)
TOPICS = "abcd"
STRIDE = 3


@dataclass(frozen=True)
class Topic:
    """As much of it as the rules look at."""

    name: str

    @property
    def topic_id(self) -> bytes:
        return self.name.encode() * 16


class Host:
    """A broker's disks, and what the controller has written down of its last start."""

    def __init__(self) -> None:
        self.disks = [SimulatedDisk(), SimulatedDisk()]
        self.boot = 0
        self.known: BrokerRegistration | None = None
        self.acknowledged = dict.fromkeys(TOPICS, 0)
        self.directories: LogDirectories

    def copied(self) -> Host:
        """The same once more, no process running."""
        host = Host()
        host.disks = [copy.deepcopy(disk).after_kill() for disk in self.disks]
        host.known = self.known
        host.acknowledged = dict(self.acknowledged)
        return host

    def open(self) -> RegisterBroker:
        """Load everything; what the registration says."""
        self.directories = LogDirectories(
            [
                LogDirectory(
                    f"/{number}", node_id=0, cluster_id="c", disk=disk, boot_id=f"boot {self.boot}"
                )
                for number, disk in enumerate(self.disks)
            ]
        )
        self.directories.load(0, config_for=lambda *_: CONFIG)
        joint = self.directories.start
        registration = BrokerRegistration(
            0,
            directory_id=joint.record.directory_id,
            directory_ids=joint.directory_ids,
            start_id=joint.record.start_id,
            boot_id=joint.record.boot_id,
            is_clean=joint.record.was_clean,
            previous_broker_epoch=joint.record.previous_broker_epoch,
            is_recovered_whole=joint.is_recovered_whole,
        )
        held = tuple((bytes(log.topic_id), log.partition) for log in self.directories.logs)
        return RegisterBroker(registration, "c", unclean=tuple(joint.unclean), held=held)

    def register(self, event: RegisterBroker, epoch: int) -> None:
        self.known = replace(event.registration, broker_epoch=epoch)
        self.directories.confirm_start(epoch)

    def write(self, count: int) -> None:
        """Append to each log; it is acknowledged once it is written."""
        for topic in TOPICS:
            log = self.directories.log(topic, 0)
            if log is None:
                log = self.directories.create_log(topic, 0, Topic(topic).topic_id, CONFIG, 0)
            for _ in range(count):
                append(log, batch())
                self.acknowledged[topic] = log.log_end_offset

    def stop(self, epoch: int) -> None:
        self.directories.close(clean=True, broker_epoch=epoch)

    def counted(self) -> Iterator[str]:
        """Start once more; the topics whose replicas the controller goes on counting."""
        event = self.open()
        known = self.known
        assert known is not None
        if is_same_start(known, event.registration):
            # A repeated registration: what was decided of it holds, and nothing has been written.
            yield from (topic for topic in TOPICS if (topic, 0) not in event.unclean)
            return
        is_clean, _ = clean_return(known, event.registration)
        may_lack = may_lack_records(known, event, is_clean=is_clean)
        for topic in TOPICS:
            if not may_lack(cast("Any", Topic(topic)), 0):
                yield topic

    def check(self) -> list[str]:
        counted = list(self.counted())
        for topic in counted:
            log = self.directories.log(topic, 0)
            assert log is not None, f"{topic} counts and is not here"
            assert log.log_end_offset >= self.acknowledged[topic], (
                f"{topic} counts and lacks records"
            )
        return counted


def first_run() -> Host:
    host = Host()
    host.register(host.open(), 1)
    host.write(3)
    host.stop(1)
    return host


def second_run(host: Host) -> None:
    host.register(host.open(), 2)
    host.write(4)
    host.directories.directories[0].write_checkpoints()
    host.write(9)
    host.stop(2)


def kill(host: Host, _: Host) -> None:
    host.disks = [disk.after_kill() for disk in host.disks]


def replace_one(host: Host, _: Host) -> None:
    kill(host, host)
    host.disks[1] = SimulatedDisk()


def put_back_a_copy(host: Host, before: Host) -> None:
    kill(host, host)
    host.disks[0] = before.copied().disks[0]


def lose_power(host: Host, _: Host) -> None:
    host.disks = [disk.after_power_cut(Random(number)) for number, disk in enumerate(host.disks)]
    host.boot += 1


def lose_power_of_one(host: Host, _: Host) -> None:
    """A disk in a box of its own; the kernel has not noticed that it lost its cache."""
    host.disks = [host.disks[0].after_kill(), host.disks[1].after_power_cut(Random(1))]
    host.boot += 1


HARMS = [kill, replace_one, put_back_a_copy, lose_power, lose_power_of_one]


def cut(host: Host, disk: int, operation: int) -> bool:
    """Run for the second time up to an operation of one disk; False if it was not reached."""
    host.disks[disk].operations = 0
    host.disks[disk].cut_after = operation
    try:
        second_run(host)
    except PowerCut:
        return True
    return False


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("disk", [0, 1])
def test_what_counts_after_a_crash_holds_all_that_was_acknowledged(
    harm: Callable[[Host, Host], None], disk: int
) -> None:
    before = first_run()
    counts = []
    for operation in range(1, 10_000, STRIDE):
        host = before.copied()
        is_cut = cut(host, disk, operation)
        harm(host, before)
        counts.append(len(host.check()))
        if not is_cut:
            break
    assert operation > STRIDE
    if harm is kill:
        assert counts[-1] == len(TOPICS), "a clean stop is believed"
        assert sorted(counts)[len(counts) // 2] == len(TOPICS), "so is a whole recovery"
    if harm is replace_one:
        assert counts[-1] == len(TOPICS) // 2, "the other disk goes on counting"


@pytest.mark.parametrize("harm", [replace_one, put_back_a_copy])
def test_what_harms_one_disk_after_a_clean_stop_costs_only_what_is_on_it(
    harm: Callable[[Host, Host], None],
) -> None:
    before = first_run()
    host = before.copied()
    second_run(host)
    harm(host, before)
    assert host.check() == (["a", "c"] if harm is replace_one else ["b", "d"])


def test_the_next_start_may_write_on() -> None:
    host = first_run()
    second_run(host)
    replace_one(host, host)
    event = host.open()
    host.register(event, 3)
    host.write(2)
    host.stop(3)
    kill(host, host)
    host.acknowledged |= dict.fromkeys("bd", 2)
    assert host.check() == list(TOPICS)
