"""What a drill sees first: nobody elects before the fault is known."""

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_cli.drill.controller_watch import ControllerWatch
from fairlead_cli.drill.observation import Observation
from fairlead_cli.drill.timings import RunTimings
from fairlead_cli.drill.watch import ClusterWatch, PartitionView

REPLICAS = (1, 2, 0)


def observe(broker_ids: set[int], leaders: dict[int, int]) -> tuple[Observation, ClusterWatch]:
    """Right after the fault; nothing has been seen yet."""
    watch = ClusterWatch("t", [])
    unused: Any = None
    watch.controller = ControllerWatch(unused, lambda: 1.0)
    for number, leader in leaders.items():
        watch.partitions[number] = PartitionView(leader, 5, REPLICAS, REPLICAS, seen_at=1.0)
    workload: Any = SimpleNamespace(mark=lambda: None, first_after_mark=dict[int, float])
    probes: list[Any] = [SimpleNamespace(answers=[]) for _ in leaders]
    observation = Observation(RunTimings(["broker-1"]), watch, probes, workload, broker_ids)
    observation.begin()
    return observation, watch


def elect(watch: ClusterWatch, number: int, leader: int, at: float) -> None:
    view = watch.partitions[number]
    view.leader, view.leader_epoch, view.seen_at = leader, view.leader_epoch + 1, at


def fence(watch: ClusterWatch, broker_id: int, at: float) -> None:
    assert watch.controller is not None
    watch.controller.fenced_at[broker_id] = at


@pytest.mark.parametrize(
    ("fenced_s", "elected_s", "detection_ms"), [(0.030, 0.027, 27), (0.020, 0.027, 20)]
)
def test_a_leader_that_was_chosen_shows_that_the_fault_is_known(
    fenced_s: float, elected_s: float, detection_ms: int
) -> None:
    observation, watch = observe({1}, {0: 1, 1: 2})
    fence(watch, 1, observation.fault_at + fenced_s)
    elect(watch, 0, 2, observation.fault_at + elected_s)
    observation.look()
    run = observation.run
    assert run.detection_ms == pytest.approx(detection_ms, abs=1)
    assert run.election_ms == pytest.approx(27, abs=1)
    assert run.detection_ms is not None and run.election_ms is not None
    assert run.detection_ms <= run.election_ms


def test_each_broken_broker_has_to_be_known_of() -> None:
    observation, watch = observe({1, 2}, {0: 1, 1: 2})
    elect(watch, 0, 0, observation.fault_at + 0.010)
    observation.look()
    assert observation.run.detection_ms is None
    fence(watch, 2, observation.fault_at + 0.040)
    observation.look()
    assert observation.run.detection_ms == pytest.approx(40, abs=1)


def test_what_was_known_before_the_fault_is_no_sign() -> None:
    observation, watch = observe({1}, {0: 1})
    fence(watch, 1, observation.fault_at - 1.0)
    elect_before = watch.partitions[0]
    elect_before.seen_at = observation.fault_at + 0.010  # heard again, no new epoch
    observation.look()
    assert (observation.run.detection_ms, observation.run.election_ms) == (None, None)


def test_where_no_controller_can_be_asked_detection_is_not_measured() -> None:
    observation, watch = observe({1}, {0: 1})
    watch.controller = None
    elect(watch, 0, 2, observation.fault_at + 0.010)
    observation.look()
    assert observation.run.detection_ms is None
    assert observation.run.election_ms == pytest.approx(10, abs=1)


def test_a_follower_has_left_once_no_set_that_it_followed_in_names_it() -> None:
    observation, watch = observe({1}, {0: 1, 1: 2, 2: 0})
    watch.partitions[1].isr = (2, 0)
    observation.look()
    assert observation.run.left_isr_ms is None
    watch.partitions[2].isr = (2, 0)
    # It leads partition 0, and nobody leaves the in-sync set of what it leads itself.
    observation.look()
    assert observation.run.left_isr_ms is not None
