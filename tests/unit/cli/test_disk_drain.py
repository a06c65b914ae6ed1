"""A folder of a broker is emptied, whatever comes in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_broker.limits import MOVE_ROOM_BYTES
from fairlead_cli.broker import disk_drain, drain, log_dir_requests
from fairlead_cli.broker.disk_drain import Contents, Disks, contents, missing_of, plan
from fairlead_cli.client import broker_configs
from fairlead_cli.client.answering import Address
from fairlead_cli.errors import CliError, ExitCode, InputError, NoAnswerError
from fairlead_wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ONE, TWO, THREE = "/one", "/two", "/three"
MIB = 1 << 20
AT = Address("127.0.0.1", 9092)


class FakeBroker:
    """Moves one replica each time that somebody waits, and may be away, or refuse."""

    def __init__(self) -> None:
        self.homes = {("t", index): ONE for index in range(4)}
        self.targets: dict[tuple[str, int], str] = {}
        self.cordoned: str | None = ""
        self.static = ""
        self.folders = [ONE, TWO, THREE]
        self.version = 5
        self.is_stuck = False
        self.away = 0
        self.now = 0.0
        self.asked: list[dict[tuple[str, int], str]] = []
        self.orders: list[str | None] = []
        self.refuses: dict[tuple[str, int], str] = {}
        self.missing: list[str] = []
        self.on_sleep: Callable[[], None] = lambda: None

    @property
    def value(self) -> str:
        return self.static if self.cordoned is None else self.cordoned

    def describe(self, _: Address) -> DescribeLogDirsResponse:
        if self.away:
            raise NoAnswerError("connection refused")
        named = self.value.split(",")
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir=folder,
                    topics=[
                        DescribeLogDirsTopic(
                            "t",
                            [
                                DescribeLogDirsPartition(index, MIB)
                                for (_, index), home in self.homes.items()
                                if home == folder
                            ]
                            + [
                                DescribeLogDirsPartition(index, 0, is_future_key=True)
                                for (_, index), target in self.targets.items()
                                if target == folder
                            ],
                        )
                    ],
                    usable_bytes=1 << 30,
                    is_cordoned=folder in named or named == ["*"],
                )
                for folder in self.folders
            ]
        )

    def try_moves(
        self, _: Address, targets: Mapping[tuple[str, int], str]
    ) -> dict[tuple[str, int], str]:
        self.asked.append(dict(targets))
        for replica, target in targets.items():
            if replica in self.refuses:
                continue
            self.targets.pop(replica, None)
            if self.homes[replica] != target:
                self.targets[replica] = target
        return {each: why for each, why in self.refuses.items() if each in targets}

    def order(self, address: str, broker_id: int, config: str, value: str | None) -> None:
        assert (address, broker_id, config) == (str(AT), 2, "cordoned.log.dirs")
        self.orders.append(value)
        self.cordoned = value

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.away = max(0, self.away - 1)
        self.on_sleep()
        if self.targets and not self.away and not self.is_stuck:
            replica = next(iter(self.targets))
            self.homes[replica] = self.targets.pop(replica)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    broker = FakeBroker()
    monkeypatch.setattr(log_dir_requests, "find_broker", lambda *_: AT)
    monkeypatch.setattr(log_dir_requests, "describe", broker.describe)
    monkeypatch.setattr(log_dir_requests, "newest_describe_version", lambda _: broker.version)
    monkeypatch.setattr(log_dir_requests, "try_moves", broker.try_moves)
    monkeypatch.setattr(drain, "order", broker.order)
    monkeypatch.setattr(broker_configs, "read_config", lambda *_: broker.value)
    monkeypatch.setattr(disk_drain, "find_missing", lambda _: broker.missing)
    # Of that module alone: threads that other tests have left also sleep.
    clock = SimpleNamespace(sleep=broker.sleep, monotonic=lambda: broker.now)
    monkeypatch.setattr(disk_drain, "time", clock)
    return broker


def run(broker: FakeBroker, folder: str = ONE, *, wait: bool = True, timeout_s: float = 60) -> str:
    deadline_s = broker.now + timeout_s if wait else None
    return disk_drain.drain(
        Disks("somewhere", 2, deadline_s), folder, is_waiting=wait, timeout_s=timeout_s
    )


def test_a_folder_with_spaces_can_be_pasted() -> None:
    assert "fairlead broker disks 2 --undrain '/disk one/$a'\n" in disk_drain.next_steps(
        2, "/disk one/$a"
    )


def test_everything_moves_and_what_is_next_is_told(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(broker)
    assert set(broker.homes.values()) == {TWO, THREE}
    assert broker.orders == [ONE]
    assert "take it out of log.dirs of broker 2" in said
    assert "fairlead broker disks 2 --undrain /one" in said
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "Still in /one: 4 replicas, 4.2 MB."
    assert len(told) == 4


def test_without_waiting_it_ends_when_all_is_asked_for(broker: FakeBroker) -> None:
    assert "4 replicas of it are on the way" in run(broker, wait=False)
    assert len(broker.targets) == 4
    assert "4 replicas of it are on the way" in run(broker, wait=False)
    assert len(broker.asked) == 1, "what moves is not asked for again"


def test_what_is_cordoned_already_stays_so_and_gets_nothing(broker: FakeBroker) -> None:
    broker.cordoned = TWO
    run(broker)
    assert broker.orders == [f"{ONE},{TWO}"]
    assert set(broker.homes.values()) == {THREE}


def test_a_restart_is_waited_for_and_what_does_not_move_is_asked_for_again(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def restart() -> None:
        if len(broker.asked) == 1 and not broker.away:
            broker.away, broker.on_sleep = 6, lambda: None
            broker.targets.clear()

    broker.on_sleep = restart
    run(broker)
    assert ONE not in broker.homes.values()
    assert len(broker.asked) == 2
    assert capsys.readouterr().err.count("Broker 2 does not answer; asking again.") == 1


def test_a_broker_that_does_not_come_back_ends_it_in_time(broker: FakeBroker) -> None:
    broker.on_sleep = lambda: setattr(broker, "away", 2)
    with pytest.raises(NoAnswerError):
        run(broker, timeout_s=10)
    assert 10 <= broker.now <= 11


def test_a_broker_that_never_answered_is_not_waited_for(broker: FakeBroker) -> None:
    """Its id may be mistyped."""
    broker.away = 3
    with pytest.raises(NoAnswerError):
        run(broker)
    assert broker.now == 0


def test_without_waiting_a_broker_that_is_away_is_not_waited_for(broker: FakeBroker) -> None:
    broker.away = 1
    with pytest.raises(NoAnswerError):
        run(broker, wait=False)


def test_what_does_not_move_in_time_is_named(broker: FakeBroker) -> None:
    broker.is_stuck = True
    with pytest.raises(CliError, match="4 replicas still in /one after 5 s: t:0, t:1") as error:
        run(broker, timeout_s=5)
    assert error.value.exit_code is ExitCode.FAILED


def test_a_replica_that_cannot_move_ends_it(broker: FakeBroker) -> None:
    broker.refuses = {("t", 2): "KAFKA_STORAGE_ERROR"}
    with pytest.raises(CliError, match="not moved: t:2: KAFKA_STORAGE_ERROR"):
        run(broker, wait=False)
    with pytest.raises(CliError, match="not moved: t:2: KAFKA_STORAGE_ERROR"):
        run(broker)
    assert sum(("t", 2) in each for each in broker.asked) == 1 + disk_drain.ATTEMPTS_MAX
    broker.refuses = {}
    broker.on_sleep = broker.targets.clear
    with pytest.raises(CliError, match="it was begun and given up"):
        run(broker)


def test_a_replica_that_is_nowhere_keeps_the_folder(broker: FakeBroker) -> None:
    broker.missing = ["t:9"]
    with pytest.raises(CliError, match="t:9 should be on broker 2, and is in none of its folders"):
        run(broker)
    broker.homes.clear()
    with pytest.raises(CliError, match="t:9"):
        run(broker, wait=False)


def test_what_metadata_says_is_compared_with_what_the_broker_tells() -> None:
    class Partition:
        def __init__(self, *replicas: int) -> None:
            self.replicas = replicas

    class Topic:
        def __init__(self, *partitions: Partition) -> None:
            self.partitions = dict(enumerate(partitions))

    topics: Any = {"t": Topic(Partition(1, 2), Partition(1, 3), Partition(2))}
    assert missing_of(topics, {("t", 0)}, 2) == ["t:2"]
    assert missing_of(topics, {("t", 0), ("t", 2)}, 2) == []


@pytest.mark.parametrize(
    ("cordoned", "is_whole"),
    [("", False), (ONE, False), (f"{TWO},{ONE}", True), ("*", True), (None, False)],
)
def test_a_broker_is_cordoned_with_all_its_folders(
    monkeypatch: pytest.MonkeyPatch, cordoned: str | None, is_whole: bool
) -> None:
    said = {"cordoned.log.dirs": cordoned, "log.dirs": f"{ONE},{TWO}"}
    monkeypatch.setattr(broker_configs, "read_configs", lambda *_: said)
    assert broker_configs.read_orders("here", 9092, 2).is_cordoned is is_whole


def test_a_folder_that_is_none_is_a_mistake(broker: FakeBroker) -> None:
    with pytest.raises(InputError, match=r"/four is not in log\.dirs") as error:
        run(broker, "/four")
    assert error.value.hint is not None
    assert "/one, /two, /three" in error.value.hint
    assert broker.orders == []


@pytest.mark.parametrize("cordoned", ["/two,/three", "*"])
def test_without_another_folder_nothing_begins(broker: FakeBroker, cordoned: str) -> None:
    broker.cordoned = cordoned
    with pytest.raises(CliError, match="no other folder that takes replicas"):
        run(broker)
    assert broker.orders == []


def test_an_older_broker_is_told(broker: FakeBroker) -> None:
    broker.version = 4
    with pytest.raises(CliError, match=r"too old to know cordoned\.log\.dirs"):
        run(broker)


def test_a_failed_folder_is_said_first(broker: FakeBroker) -> None:
    reply = broker.describe(AT)
    reply.results[1].error_code = 56
    with pytest.raises(CliError, match="/two has failed"):
        contents(reply, ONE)


def test_the_largest_go_first_to_most_room() -> None:
    held = {("a", 0): 5, ("b", 0): 30, ("c", 0): 20, ("d", 0): 1}
    found = Contents(held, frozenset({("d", 0)}), {TWO: 40, THREE: 30})
    assert plan(found) == {("b", 0): TWO, ("c", 0): THREE, ("a", 0): TWO}
    with pytest.raises(CliError, match=r"no room for c:0"):
        plan(Contents(held, frozenset(), {TWO: 40, THREE: 10}))
    assert plan(Contents({}, frozenset(), {})) == {}


def test_room_is_less_what_a_move_leaves_free_and_what_is_to_come(broker: FakeBroker) -> None:
    broker.targets = {("t", 0): TWO}
    found = contents(broker.describe(AT), ONE)
    assert found.rooms[THREE] == (1 << 30) - MOVE_ROOM_BYTES
    assert found.rooms[TWO] == found.rooms[THREE] - MIB
    assert found.moving == {("t", 0)}


def test_undrain_calls_back_what_is_leaving(broker: FakeBroker) -> None:
    run(broker, wait=False)
    broker.sleep(0.5)
    said = disk_drain.undrain(Disks("somewhere", 2), ONE)
    assert "3 replicas on the way to other folders called back" in said
    assert broker.targets == {}
    assert broker.orders == [ONE, None]


def test_undrain_leaves_other_cordons_alone(broker: FakeBroker) -> None:
    broker.cordoned = f"{ONE},{THREE}"
    disk_drain.undrain(Disks("somewhere", 2), ONE)
    assert broker.orders == [THREE]
    broker.cordoned = "*"
    disk_drain.undrain(Disks("somewhere", 2), ONE)
    assert broker.orders[1:] == [f"{TWO},{THREE}"]


def test_undrain_overrules_the_settings(broker: FakeBroker) -> None:
    """Without a dynamic value those would cordon it again."""
    broker.static, broker.cordoned = ONE, None
    disk_drain.undrain(Disks("somewhere", 2), ONE)
    assert broker.orders == [None, ""]
    assert not any(each.is_cordoned for each in broker.describe(AT).results)


def test_undrain_forgets_a_folder_that_was_taken_away(broker: FakeBroker) -> None:
    broker.cordoned, broker.folders = ONE, [TWO, THREE]
    said = disk_drain.undrain(Disks("somewhere", 2), ONE)
    assert "not among the cordoned folders" in said
    assert broker.orders == [None]
    with pytest.raises(InputError, match=r"/one is not in log\.dirs"):
        disk_drain.undrain(Disks("somewhere", 2), ONE)
