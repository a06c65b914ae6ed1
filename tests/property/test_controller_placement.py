import random
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_controller.decisions.broker_loads import BrokerLoad
from fairlead_controller.decisions.placement import check_assignments, place_partitions
from fairlead_model.broker import BrokerRegistration
from fairlead_model.session.refusals import RefusalCode, RefusedError


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz")), min_size=1, max_size=8),
    st.integers(1, 30),
    st.integers(1, 4),
    st.integers(),
)
def test_placement_holds_its_constraints(
    machines: list[tuple[str, str]], count: int, factor: int, seed: int
) -> None:
    brokers = [
        BrokerRegistration(number, host_name=host, rack=rack, fenced=False)
        for number, (host, rack) in enumerate(machines)
    ]
    factor = min(factor, len(brokers))
    placed = place_partitions(
        brokers, {}, partition_count=count, replication_factor=factor, random=random.Random(seed)
    )
    assert len(placed) == count
    hosts = [host for host, _ in machines]
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = {hosts[broker] for broker in replicas}
        # No host twice while another is free.
        assert len(used) == min(factor, len(set(hosts)))
    leaders = Counter(replicas[0] for replicas in placed)
    spread = [leaders[broker.broker_id] for broker in brokers]
    assert max(spread) - min(spread) <= 1
    again = place_partitions(
        brokers, {}, partition_count=count, replication_factor=factor, random=random.Random(seed)
    )
    assert again == placed


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans()), min_size=1),
    st.integers(1, 10),
    st.integers(1, 4),
    st.integers(),
)
def test_a_closed_broker_gets_nothing_and_what_needs_it_is_refused(
    machines: list[tuple[str, bool, bool]], count: int, factor: int, seed: int
) -> None:
    """I17: drained, fenced or cordoned, up or down."""
    brokers = [
        BrokerRegistration(number, host_name=host, fenced=is_down)
        for number, (host, is_down, _) in enumerate(machines)
    ]
    closed = {number for number, (_, _, is_closed) in enumerate(machines) if is_closed}
    free = [broker for broker in brokers if broker.broker_id not in closed]

    def place() -> list[tuple[int, ...]]:
        return place_partitions(
            brokers,
            {},
            partition_count=count,
            replication_factor=factor,
            cordoned=closed,
            random=random.Random(seed),
        )

    if len(free) < factor or not any(broker.may_lead for broker in free):
        with pytest.raises(RefusedError) as refused:
            place()
        assert refused.value.code is RefusalCode.INVALID_REPLICATION_FACTOR
        by_hand = {0: [broker.broker_id for broker in brokers]}
        known = {broker.broker_id: broker for broker in brokers}
        if closed:
            with pytest.raises(RefusedError) as refused:
                check_assignments(by_hand, known, cordoned=closed)
            assert refused.value.code is RefusalCode.INVALID_REPLICA_ASSIGNMENT
        return
    assert all(closed.isdisjoint(replicas) for replicas in place())


@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 3))
def test_replicas_are_even_where_hosts_do_not_constrain(
    brokers: int, count: int, factor: int
) -> None:
    machines = [
        BrokerRegistration(number, host_name=str(number), fenced=False) for number in range(brokers)
    ]
    placed = place_partitions(
        machines,
        {},
        partition_count=count,
        replication_factor=min(factor, brokers),
        random=random.Random(0),
    )
    held = Counter(broker for replicas in placed for broker in replicas)
    spread = [held[number] for number in range(brokers)]
    assert max(spread) - min(spread) <= 1


def place_slowly(
    brokers: Sequence[BrokerRegistration],
    loads: dict[int, BrokerLoad],
    existing: Sequence[tuple[int, ...]],
    count: int,
    factor: int,
    seed: int,
) -> list[tuple[int, ...]]:
    """Place by the order of goals alone: look at every broker for every replica."""
    alive = [broker for broker in brokers if broker.may_lead]
    members = {b.broker_id: b for b in (alive if factor <= len(alive) else brokers)}
    shuffled = random.Random(seed).sample(sorted(members), len(members))
    order = {broker: place for place, broker in enumerate(shuffled)}
    of_topic = Counter(each for replicas in existing for each in replicas)
    led_of_topic = Counter(replicas[0] for replicas in existing)
    held = {each: loads[each].replicas for each in members}
    led = {each: loads[each].preferred_leaders for each in members}

    def as_leader(each: int) -> tuple[int, ...]:
        return led_of_topic[each], of_topic[each], led[each], held[each], order[each]

    placed: list[tuple[int, ...]] = []
    for _ in range(count):
        chosen = [min(members, key=as_leader)]
        led_of_topic[chosen[0]] += 1
        led[chosen[0]] += 1

        def as_follower(each: int, chosen: list[int] = chosen) -> tuple[int, ...]:
            return (
                int(not members[each].may_lead),
                int(members[each].host_name in [members[other].host_name for other in chosen]),
                [members[other].rack for other in chosen].count(members[each].rack),
                of_topic[each] - led_of_topic[each],
                of_topic[each],
                held[each],
                led[each],
                order[each],
            )

        while len(chosen) < factor:
            chosen.append(min(set(members) - set(chosen), key=as_follower))
        for each in chosen:
            held[each] += 1
            of_topic[each] += 1

        def as_second(each: int, leader: int = chosen[0]) -> tuple[bool, int]:
            taken = [replicas[:2] for replicas in (*existing, *placed)]
            return not members[each].may_lead, taken.count((leader, each))

        placed.append((chosen[0], *sorted(chosen[1:], key=as_second)))
    return placed


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.sampled_from(["x", "y", "z", None]),
            st.sampled_from([False, False, True]),
            st.integers(0, 9),
            st.integers(0, 9),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 25),
    st.integers(1, 6),
    st.integers(),
    st.data(),
)
def test_placement_is_the_one_that_looks_at_every_broker_for_every_replica(
    machines: list[tuple[str, str | None, bool, int, int]],
    count: int,
    factor: int,
    seed: int,
    data: st.DataObject,
) -> None:
    brokers = [
        BrokerRegistration(number, host_name=host, rack=rack, fenced=is_down)
        for number, (host, rack, is_down, _, _) in enumerate(machines)
    ]
    brokers[0] = BrokerRegistration(0, host_name="a", rack="x", fenced=False)
    loads = {
        number: BrokerLoad(replicas, leaders)
        for number, (*_, replicas, leaders) in enumerate(machines)
    }
    factor = min(factor, len(brokers))
    one = st.permutations(range(len(brokers))).map(lambda ids: tuple(ids[:factor]))
    existing = data.draw(st.lists(one, max_size=5))
    placed = place_partitions(
        brokers,
        loads,
        partition_count=count,
        replication_factor=factor,
        existing=existing,
        random=random.Random(seed),
    )
    assert placed == place_slowly(brokers, loads, existing, count, factor, seed)


def test_many_brokers_do_not_make_a_partition_dear() -> None:
    """10,000 partitions of one request held the controller for 2 s of 300 brokers."""

    def time_with(count: int) -> int:
        machines = [
            BrokerRegistration(number, host_name=str(number), rack=str(number % 3), fenced=False)
            for number in range(count)
        ]
        started_ns = time.process_time_ns()
        place_partitions(
            machines, {}, partition_count=1500, replication_factor=3, random=random.Random(0)
        )
        return time.process_time_ns() - started_ns

    assert min(time_with(300) for _ in range(3)) < 5 * min(time_with(10) for _ in range(3))
