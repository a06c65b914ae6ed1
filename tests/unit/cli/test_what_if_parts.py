"""Parts of `fairlead whatif`: brokers that are not there yet, groups, recovery, what is said."""

import pytest
from what_if_states import T, make_state

from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_cli.whatif.group_row import build_row
from fairlead_cli.whatif.new_brokers import after_plan, imagine_brokers
from fairlead_cli.whatif.recovery import summarize_elections
from fairlead_cli.whatif.report import build_document, print_document
from fairlead_controller.decisions.balance.facts import BalancedBroker, BalancedPartition
from fairlead_controller.decisions.balance.planner import plan_balance
from fairlead_controller.decisions.what_if import forecast_loss

GROUP = "readers"


def test_a_group_feels_its_partitions_and_its_coordinator() -> None:
    assert coordinator_partition(GROUP, 1) == 0
    forecast = forecast_loss(make_state((0, 1), (0,), (1, 0)), [0])
    affected = {(each.topic, each.index): each for each in forecast.partitions}
    everything = {("t", index) for index in range(3)}
    assert build_row(GROUP, everything, affected, 1) == {
        "partitions": 2,
        "withoutLeader": 1,
        "coordinator": {"from": 0, "to": 1},
    }
    assert build_row(GROUP, {("t", 2)}, affected, 0) is None, "nothing of it moves"


def test_the_verdict_comes_first_and_names_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    document = build_document(forecast_loss(make_state((0, 1), (0,), minimum=2), [0]))
    print_document(document)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "NOT SAFE: broker 0 should stay."
    assert "1 partition would lose the last copy of acknowledged records: t-1" in rest
    assert "1 partition would have no leader: t-1" in rest
    below = "1 partition would refuse acks=all: fewer in sync than min.insync.replicas: t-0"
    assert below in rest
    assert document["leadersAfter"] == {"1": 2}


def test_new_brokers_take_their_part_and_make_a_loss_bearable() -> None:
    state = make_state(*[(0, 1)] * 6, minimum=2)
    brokers = [BalancedBroker(each, "one-host", capacity=10) for each in range(2)]
    added = imagine_brokers(brokers, 2)
    assert [(each.broker_id, each.host, each.capacity) for each in added] == [
        (2, "one-host", 10),
        (3, "one-host", 10),
    ]
    partitions = [BalancedPartition("t", index, (0, 1), 0, 100) for index in range(6)]
    plan = plan_balance([*brokers, *added], partitions)
    after = after_plan(state, added, plan)
    assert not forecast_loss(state, [1]).is_safe
    assert len(forecast_loss(after, [1]).partitions) < len(forecast_loss(state, [1]).partitions)
    leaders = [partition.leader for partition in after.image.topics_by_id[T].partitions]
    assert {2, 3} & set(leaders)


def test_new_brokers_go_to_the_racks_that_have_few() -> None:
    brokers = [BalancedBroker(each, f"h{each}", rack) for each, rack in enumerate("aab")]
    added = imagine_brokers(brokers, 3)
    assert [each.rack for each in added] == ["b", "a", "b"]
    assert {each.host for each in added} == {""}, "machines of their own"


def histogram(*counts: int) -> str:
    name = "fairlead_controller_leader_election_seconds_bucket"
    bounds = ("0.01", "0.1", "1", "+Inf")
    pairs = zip(bounds, counts, strict=True)
    return "".join(f'{name}{{le="{bound}"}} {count}\n' for bound, count in pairs)


def test_own_elections_count_once_they_are_some() -> None:
    assert summarize_elections(histogram(1, 2, 4, 4)) is None
    assert summarize_elections("") is None
    assert summarize_elections(histogram(60, 99, 100, 100)) == {
        "count": 100,
        "p50Ms": 10,
        "p99Ms": 100,
    }
    assert summarize_elections(histogram(1, 2, 3, 100)) is None, "above all bounds"
