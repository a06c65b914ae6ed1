"""What the loss of brokers would do, told by cases."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead_cli.drill.danger import count_losses, require_safe
from fairlead_cli.errors import CliError
from fairlead_controller.decisions.events import FenceBroker, FenceReason
from fairlead_controller.decisions.what_if import Forecast, forecast_loss
from fairlead_controller.kubernetes.cluster_pages import loss_page


def named(forecast: Forecast, kind: str) -> list[tuple[str, int]]:
    return [(each.topic, each.index) for each in forecast.partitions if getattr(each, kind)]


def create(world: Any, name: str, minimum: int, *replicas: list[int]) -> None:
    answer = world.create(
        name,
        partitions=-1,
        replication_factor=-1,
        assignments=dict(enumerate(replicas)),
        configs={"min.insync.replicas": str(minimum)},
    )
    assert not answer["error_code"], answer


def test_another_leads_and_nothing_is_lost(world: Any) -> None:
    create(world, "t", 2, [0, 1, 2], [1, 2, 0])
    forecast = forecast_loss(world.state, [0])
    assert forecast.is_safe
    assert [each.after.leader for each in forecast.partitions] == [1, 1]
    assert named(forecast, "changes_leader") == [("t", 0)]
    assert forecast.leaders_after() == {1: 2, 2: 0}
    assert world.leaders("t") == [0, 1], "nothing has happened"


def test_what_is_lost_has_a_name_each(world: Any) -> None:
    create(world, "one", 1, [0])
    create(world, "two", 2, [0, 1], [1, 2])
    create(world, "more", 1, [2, 0, 1])
    forecast = forecast_loss(world.state, [0])
    assert not forecast.is_safe
    assert named(forecast, "loses_leader") == [("one", 0)]
    assert named(forecast, "loses_last_copy") == [("one", 0)]
    assert named(forecast, "falls_below_minimum") == [("two", 0)]
    assert [each.topic for each in forecast.partitions] == ["more", "one", "two"]


def test_drills_are_told_the_same_counts_by_a_controller_and_by_the_command(world: Any) -> None:
    create(world, "one", 1, [0])
    create(world, "two", 2, [0, 1], [1, 2])
    create(world, "more", 1, [2, 0, 1], [0, 1, 2])
    page = loss_page(world.state, [0])
    assert page == {"leadersMove": 2, "withoutLeader": 1, "belowMinimum": 1, "lastCopies": 1}
    assert count_losses(forecast_loss(world.state, [0])) == page
    # One broker may be broken whatever that costs, as ever; several may not.
    require_safe(forecast_loss(world.state, [0]))
    with pytest.raises(CliError, match="brokers 0, 1 may not be broken at once: 2 partitions"):
        require_safe(forecast_loss(world.state, [0, 1]))


def test_two_are_more_than_one_and_one(world: Any) -> None:
    create(world, "t", 1, [0, 1])
    assert forecast_loss(world.state, [0]).is_safe
    assert forecast_loss(world.state, [1]).is_safe
    both = forecast_loss(world.state, [0, 1])
    assert named(both, "loses_leader") == named(both, "loses_last_copy") == [("t", 0)]


def test_what_is_broken_already_is_not_put_down_to_the_loss(world: Any) -> None:
    create(world, "t", 2, [0, 1])
    create(world, "u", 1, [1])
    world.fence(1)
    forecast = forecast_loss(world.state, [2])
    assert (forecast.is_safe, forecast.partitions) == (True, ())
    assert (forecast.already_without_leader, forecast.already_below_minimum) == (1, 1)


def test_who_is_eligible_still_has_a_copy(world: Any) -> None:
    create(world, "t", 2, [0, 1])
    world.fence(1)
    forecast = forecast_loss(world.state, [0])
    assert named(forecast, "loses_leader") == [("t", 0)]
    assert named(forecast, "loses_last_copy") == [], "broker 1 is away, and holds everything"


def test_a_broker_that_nobody_knows_takes_nothing_along(world: Any) -> None:
    create(world, "t", 1, [0])
    assert forecast_loss(world.state, [7]).is_safe


# The fixture is the class: each example makes a world of its own.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.permutations(range(4)), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sets(st.integers(0, 3), max_size=2),
    st.sets(st.integers(0, 3), min_size=1, max_size=3),
)
def test_the_order_of_deaths_makes_no_difference(
    make_world: Any,
    orders: list[list[int]],
    factor: int,
    minimum: int,
    gone: set[int],
    lost: set[int],
) -> None:
    world = make_world(4)
    create(world, "t", minimum, *[order[:factor] for order in orders])
    world.fence(*gone)
    forecast = forecast_loss(world.state, lost)
    for order in permutations(lost):
        state = world.state
        for each in order:
            death = FenceBroker(each, world.epoch(each), FenceReason.SESSION_EXPIRED)
            world.state = world.state.apply(world.decide(death).changes)
        for foretold in forecast.partitions:
            record = world.partition("t", foretold.index)
            assert record.leader == foretold.after.leader
            assert len(record.isr) == len(foretold.after.isr)
        world.state = state
