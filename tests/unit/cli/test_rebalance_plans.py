"""Plans as documents: what their ids stand for, what makes them stale, where they are kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead_cli.errors import CliError, InputError
from fairlead_cli.rebalance import progress
from fairlead_cli.rebalance.plan_shelf import KEPT_MAX, find_plan, keep_plan, shelf
from fairlead_controller.decisions.balance.facts import BalancedBroker, BalancedPartition
from fairlead_controller.decisions.balance.plan_document import (
    build_plan_document,
    changes_since,
    plan_id,
)
from fairlead_controller.decisions.balance.planner import plan_balance
from fairlead_controller.decisions.state import ControllerState, CountersChanged, initial_state
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerRemoved,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicRemoved,
    empty_image,
)
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration

T, U = TopicId(b"t" * 16), TopicId(b"u" * 16)
CLUSTER = "a-cluster"


def registered(broker_id: int) -> BrokerChanged:
    return BrokerChanged(BrokerRegistration(broker_id, 1, fenced=False))


def record(replicas: tuple[int, ...] = (0, 1), leader: int = 0, epoch: int = 3) -> Any:
    return PartitionRegistration(replicas, replicas, leader, leader_epoch=epoch)


@pytest.fixture
def state() -> ControllerState:
    """Brokers 0 and 1 with four partitions, and an empty broker 2."""
    image = empty_image(CLUSTER).apply(
        [
            *map(registered, range(3)),
            TopicChanged(TopicHeader("t", T, 4)),
            *(PartitionChanged(T, index, record()) for index in range(4)),
        ]
    )
    return initial_state(image, controller_epoch=1, counters=CountersChanged(1, 0))


@pytest.fixture
def document(state: ControllerState) -> dict[str, Any]:
    brokers = [BalancedBroker(each) for each in range(3)]
    partitions = [BalancedPartition("t", index, (0, 1), 0, 100) for index in range(4)]
    return build_plan_document(CLUSTER, state, plan_balance(brokers, partitions), 100)


def test_a_plan_says_what_moves_how_much_and_how_long(document: dict[str, Any]) -> None:
    assert document["partitionsMoved"] >= 2
    assert document["bytes"] == sum(move["bytes"] for move in document["moves"])
    assert document["durationS"] == document["bytes"] / 100, "broker 0 sends everything"
    assert document["moves"][0]["leaderEpoch"] == 3
    goals = {goal["goal"]: (goal["before"], goal["after"]) for goal in document["goals"]}
    assert goals["disks"][1] < goals["disks"][0]


def test_the_id_stands_for_moves_and_metadata(document: dict[str, Any]) -> None:
    assert document["id"] == plan_id(document)
    for name, value in (("after", [9, 9]), ("leaderEpoch", 4), ("topicId", "x"), ("partition", 7)):
        changed = json.loads(json.dumps(document))
        changed["moves"][0][name] = value
        assert plan_id(changed) != document["id"], name
    assert plan_id(document | {"clusterId": "another"}) != document["id"]
    assert plan_id(document | {"brokers": [0, 1]}) != document["id"]
    assert plan_id(document | {"durationS": 5}) == document["id"]


def test_what_has_changed_is_named(document: dict[str, Any], state: ControllerState) -> None:
    first = document["moves"][0]["partition"]

    def changes(*events: Any, waiting: Any = (), cluster: str = CLUSTER) -> list[str]:
        return changes_since(document, cluster, state.apply(events), waiting)

    assert changes() == []
    assert changes(cluster="another") == ["it is of cluster a-cluster, this is cluster another"]
    assert changes(registered(5)) == ["broker 5 has come"]
    assert changes(BrokerRemoved(2)) == ["broker 2 is not in service any more"]
    assert changes(waiting=[("t", first)]) == [f"t-{first} is being reassigned"]
    other = PartitionChanged(T, first, record((0, 2)))
    assert changes(other) == [f"t-{first} has replicas 0, 2 instead of 0, 1"]
    other = PartitionChanged(T, first, record(leader=1, epoch=4))
    assert changes(other) == [f"t-{first} has leader epoch 4 instead of 3: broker 1 leads now"]
    gone = changes(TopicRemoved(T))
    assert set(gone) == {"topic t is gone, or another one"}
    again = [
        TopicRemoved(T),
        TopicChanged(TopicHeader("t", U, 4)),
        *(PartitionChanged(U, index, record()) for index in range(4)),
    ]
    assert changes(*again) == gone, "the same name, another topic"


def test_a_partition_that_is_not_there_is_a_change(document: dict[str, Any]) -> None:
    """Metadata of before the topic grew was put back."""
    image = empty_image(CLUSTER).apply(
        [
            *map(registered, range(3)),
            TopicChanged(TopicHeader("t", T, 1)),
            PartitionChanged(T, 0, record()),
        ]
    )
    shorter = initial_state(image, controller_epoch=2, counters=CountersChanged(1, 0))
    missing = [move["partition"] for move in document["moves"] if move["partition"]]
    assert missing
    found = changes_since(document, CLUSTER, shorter, ())
    assert found == [f"t-{index} is not there any more" for index in missing]


def test_what_does_not_move_may_change(document: dict[str, Any], state: ControllerState) -> None:
    moved = {move["partition"] for move in document["moves"]}
    still = min(set(range(4)) - moved)
    other = PartitionChanged(T, still, record(leader=1, epoch=9))
    assert changes_since(document, CLUSTER, state.apply([other]), ()) == []


def test_plans_are_kept_the_newest_ones(
    document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in range(KEPT_MAX + 3):
        keep_plan(document | {"id": f"old{number:04}"})
    keep_plan(document)
    assert len(list(shelf().iterdir())) == KEPT_MAX
    assert find_plan(document["id"]) == document


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no plan"),
        ("[" * 200_000, "is no plan: it is nested too deeply"),
        ('{"version": ' + "[" * 970 + "]" * 970 + "}", "is no plan: it is nested too deeply"),
        ("[]", "is no plan of this release"),
        ('{"version": 1}', "its moves are not complete"),
        ('{"version": 1, "moves": [{}]}', "its moves are not complete"),
        ('{"version": 1, "moves": [], "id": "x"}', "was changed after"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        find_plan(str(path))


def told(**count: int) -> dict[str, Any]:
    counts = dict.fromkeys(("done", "moving", "notMoved", "changedSince"), 0) | count
    rows = [{"state": name} for name, number in counts.items() for _ in range(number)]
    return counts | {"partitions": len(rows), "rows": rows}


@pytest.mark.parametrize(
    ("answers", "looks"),
    [
        ([told(moving=1), told(done=1)], 2),
        # The controller knows that it is there, and the broker that was asked does not yet.
        ([told(moving=1), told(changedSince=1), told(done=1)], 3),
        ([told(notMoved=1), told(moving=1), told(done=1)], 3),
        ([told(changedSince=1, done=1), told(changedSince=1, done=1)], 2),
    ],
)
def test_a_broker_that_hears_later_than_the_controller_ends_no_wait(
    answers: list[dict[str, Any]], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = iter(answers)
    monkeypatch.setattr(progress, "read_progress", lambda *_: next(given))
    monkeypatch.setattr(progress, "POLL_S", 0.0)
    assert progress.wait({}, "", 60.0) == answers[looks - 1]


def test_who_does_not_wait_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([told(changedSince=1)])
    monkeypatch.setattr(progress, "read_progress", lambda *_: next(given))
    assert progress.wait({}, "", 0.0)["changedSince"] == 1


def test_a_user_without_a_home_is_told_where_plans_can_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a pod's user that no list of users knows."""

    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", refuse)
    with pytest.raises(CliError, match="no home directory") as refused:
        shelf()
    assert "XDG_STATE_HOME" in (refused.value.hint or "")
