import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    assert max(spread) - min(spread) <= 2
