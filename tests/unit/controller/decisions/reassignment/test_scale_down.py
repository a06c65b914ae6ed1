"""A pool gives brokers up: all are drained or none, and only its own orders are taken back."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fairlead_controller.decisions.events import RecordIntent, ScaleDownPool, UnregisterBroker
from fairlead_controller.decisions.intents import INTENTS_MAX
from fairlead_controller.decisions.reassignment.scale_down import find_leaving
from fairlead_model.session.refusals import RefusalCode, RefusedError

AT_MS = 1_000


def scale(mover: Any, leaving: Iterable[int], staying: Iterable[int] = ()) -> str:
    """Order a scale-down; what is in the way."""
    event = ScaleDownPool("main", frozenset(leaving), frozenset(staying), AT_MS)
    return str(mover.world.do(event)["problem"])


def replicas(mover: Any, broker_id: int) -> int:
    load = mover.world.state.loads.get(broker_id)
    return 0 if load is None else int(load.replicas)


@pytest.fixture
def five(make_mover: Callable[[int], Any]) -> Any:
    """Five brokers with 30 partitions of three replicas."""
    mover = make_mover(5)
    mover.world.create("t", partitions=30, replication_factor=3)
    return mover


def test_several_brokers_are_emptied_together(five: Any) -> None:
    assert scale(five, [3, 4]) == ""
    assert not {3, 4} & set(five.world.leaders("t")), "no leader moves from one to the other"
    assert find_leaving(five.world.state) == {3: "main", 4: "main"}
    five.settle()
    assert (replicas(five, 3), replicas(five, 4)) == (0, 0)
    assert {frozenset(each.replicas) for each in five.world.partitions("t")} == {
        frozenset(range(3))
    }


def test_asked_again_nothing_is_written(five: Any) -> None:
    scale(five, [3, 4], range(3))
    event = ScaleDownPool("main", frozenset({3, 4}), frozenset(range(3)), AT_MS + 1)
    assert five.world.decide(event).changes == ()


def test_nothing_begins_where_one_of_them_would_not_become_empty(five: Any) -> None:
    problem = scale(five, [2, 3, 4])
    assert "has 3 replicas, and besides only brokers 0, 1 could have them" in problem
    assert (five.world.state.cordoned, find_leaving(five.world.state)) == (frozenset(), {})
    assert scale(five, range(5)).endswith(
        "and besides no broker could have them; add a broker, or lower the topic's replication "
        "factor"
    )


def test_brokers_without_replicas_leave_though_nobody_is_left(
    make_mover: Callable[[int], Any],
) -> None:
    mover = make_mover(2)
    assert scale(mover, [0, 1]) == ""
    assert mover.world.state.cordoned == {0, 1}


def test_a_pool_that_keeps_its_brokers_gets_back_what_moves(five: Any) -> None:
    """Also what leaves two of them at once."""
    before = [set(each.replicas) for each in five.world.partitions("t")]
    scale(five, [3, 4])
    five.tick()
    assert five.world.state.moves
    assert scale(five, [], range(5)) == ""
    assert (five.world.state.cordoned, find_leaving(five.world.state)) == (frozenset(), {})
    assert not five.world.state.moves
    assert [set(each.replicas) for each in five.world.partitions("t")] == before


def test_only_those_stay_that_shall(five: Any) -> None:
    scale(five, [3, 4])
    scale(five, [4], range(4))
    assert five.world.state.cordoned == {4}
    five.settle()
    assert replicas(five, 4) == 0
    assert replicas(five, 3) > 0


def test_what_a_person_drains_stays_drained(five: Any) -> None:
    five.drain(4)
    scale(five, [3, 4])
    assert find_leaving(five.world.state) == {3: "main"}
    scale(five, [], range(5))
    assert five.world.state.cordoned == {4}


def test_what_a_person_undrains_is_drained_again_while_the_pool_is_to_lose_it(five: Any) -> None:
    scale(five, [4])
    five.undrain(4)
    assert five.world.state.cordoned == frozenset()
    scale(five, [4])
    assert five.world.state.cordoned == {4}
    scale(five, [], range(5))
    assert five.world.state.cordoned == frozenset()


def test_other_dynamic_configs_of_a_broker_stay(five: Any) -> None:
    rate = {"leader.replication.throttled.rate": "1000"}
    five.set_configs(4, rate)
    scale(five, [4])
    scale(five, [], range(5))
    assert five.world.state.image.configs_of_broker(4) == rate


def test_a_broker_that_never_registered_is_nobody_to_drain(five: Any) -> None:
    assert scale(five, [5]) == ""
    assert find_leaving(five.world.state) == {}


def test_no_partition_loses_a_rack_or_a_machine(make_mover: Callable[[int], Any]) -> None:
    mover = make_mover(0)
    places = [("a", "h1"), ("b", "h2"), ("c", "h3"), ("b", "h2"), ("a", "h1")]
    for broker_id, (rack, host) in enumerate(places):
        mover.world.start_broker(broker_id, rack=rack, host_name=host)
    fields = {"partitions": -1, "replication_factor": -1}
    mover.world.create("t", assignments={0: [0, 1, 2]}, **fields)
    assert "t-0 is spread over 3 racks, of which 2 would be left" in scale(mover, [2])
    assert mover.world.state.cordoned == frozenset()
    assert scale(mover, [0]) == "", "broker 4 is in rack a, too"


def test_machines_count_where_there_are_no_racks(make_mover: Callable[[int], Any]) -> None:
    mover = make_mover(0)
    for broker_id, host in enumerate(["h1", "h2", "h2", "h2"]):
        mover.world.start_broker(broker_id, host_name=host)
    fields = {"partitions": -1, "replication_factor": -1}
    mover.world.create("t", assignments={0: [0, 1]}, **fields)
    assert "spread over 2 machines, of which 1 would be left" in scale(mover, [0])
    assert scale(mover, [1]) == ""
    assert mover.drain(0)[0] is RefusalCode.NONE, "a person may"
    assert scale(mover, [0]) == "", "and the pool follows"


def test_who_has_the_only_copy_and_is_down_is_named(make_mover: Callable[[int], Any]) -> None:
    mover = make_mover(3)
    fields = {"partitions": -1, "replication_factor": -1}
    mover.world.create("t", assignments={0: [2]}, **fields)
    mover.world.fence(2)
    assert scale(mover, [2]).startswith("partition t-0 has no leader that could send a copy")
    assert mover.world.state.cordoned == frozenset()
    mover.world.restart(2, "again")
    assert scale(mover, [2]) == ""


def test_a_broker_that_dies_meanwhile_is_in_the_way_until_it_is_back(
    make_mover: Callable[[int], Any],
) -> None:
    mover = make_mover(4)
    mover.world.create("t", partitions=12, replication_factor=3)
    assert scale(mover, [3]) == ""
    mover.world.fence(2)
    assert "besides only brokers 0, 1 could have them" in scale(mover, [3])
    assert mover.world.state.cordoned == {3}, "what is ordered goes on as far as it can"
    mover.world.restart(2, "again")
    assert scale(mover, [3]) == ""
    mover.settle()
    assert replicas(mover, 3) == 0


def test_orders_to_leave_take_no_room_from_other_intents(five: Any) -> None:
    scale(five, [3, 4])
    for number in range(INTENTS_MAX):
        five.world.do(RecordIntent(f"i{number}", "delete-pod", f"pod-{number}", AT_MS))
    with pytest.raises(RefusedError, match="intents are open already"):
        five.world.do(RecordIntent("one more", "delete-pod", "pod", AT_MS))


def test_who_is_unregistered_is_a_new_broker_if_it_comes_back(five: Any) -> None:
    scale(five, [4])
    five.settle()
    for index in range(30):
        five.confirm(4, index=index)
    five.world.fence(4)
    five.world.do(UnregisterBroker(4))
    assert find_leaving(five.world.state) == {}
    five.world.start_broker(4, start_id="anew")
    assert five.world.state.cordoned == frozenset()
