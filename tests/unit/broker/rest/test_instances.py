"""Consumer instances: where they stand, what they are called, how many there are."""

from typing import Any

import pytest

from fairlead_broker.authorization import ANONYMOUS, Principal
from fairlead_broker.measures.rest_metrics import RestMetrics
from fairlead_broker.rest.calls import KafkaCalls
from fairlead_broker.rest.instances import registry
from fairlead_broker.rest.instances.instance import InstanceConfig
from fairlead_broker.rest.instances.positions import Positions
from fairlead_broker.rest.instances.registry import ConsumerInstances, broker_of
from fairlead_broker.rest.problems import ProblemError
from fairlead_broker.rest.records.rendering import Form

A, B = ("t", 0), ("t", 1)
CONFIG = InstanceConfig(Form.JSON, "latest", True, 0, 1, None)


def started(positions: Positions, **offsets: int) -> None:
    for name, offset in offsets.items():
        position = positions.get({"a": A, "b": B}[name])
        assert position is not None
        position.start(offset, committed=offset)


def test_what_was_read_counts_as_received_with_the_next_read() -> None:
    positions = Positions()
    positions.add([A, B])
    assert positions.unknown() == [A, B]
    started(positions, a=3, b=5)
    position = positions.get(A)
    assert position is not None
    position.offset = 7
    assert positions.read() == {A: 7, B: 5}
    assert positions.uncommitted() == {}
    positions.receive()
    assert positions.uncommitted() == {A: 7}
    positions.note_committed({A: 7})
    assert positions.uncommitted() == {}


def test_what_was_never_committed_is_committed_with_its_beginning() -> None:
    positions = Positions()
    positions.add([A])
    assert positions.uncommitted() == {}
    position = positions.get(A)
    assert position is not None
    position.start(4, committed=-1)
    assert positions.uncommitted([A, B]) == {A: 4}


def test_a_partition_that_gave_records_is_the_last_one_next_time() -> None:
    positions = Positions()
    positions.add([A, B])
    started(positions, a=0, b=0)
    positions.served(A)
    assert [key for key, _, _ in positions.readable()] == [B, A]


def test_a_place_that_the_log_does_not_have_is_looked_up() -> None:
    positions = Positions()
    positions.add([A, B])
    started(positions, a=1, b=1)
    position = positions.get(A)
    assert position is not None
    position.reset()
    assert positions.unknown() == [A]
    assert position.is_reset
    assert [key for key, _, _ in positions.readable()] == [B]
    position.start(9)
    assert not position.is_reset


def test_a_name_says_which_broker_gave_it() -> None:
    assert broker_of("b12-0a") == 12
    assert [broker_of(name) for name in ("b12", "bx-1", "mine", "xb1-2", "b-1")] == [None] * 5


@pytest.fixture
def instances(stage: Any, monkeypatch: pytest.MonkeyPatch) -> ConsumerInstances:
    monkeypatch.setattr(registry, "REST_INSTANCES_MAX", 2)
    return ConsumerInstances(1, 60_000, RestMetrics())


def test_instances_are_few_and_belong_to_who_made_them(
    stage: Any, instances: ConsumerInstances
) -> None:
    alice = Principal("User", "alice")

    def refused(name: str | None) -> tuple[int, int]:
        with pytest.raises(ProblemError) as caught:
            instances.create(KafkaCalls(host, "", alice, None), "g", name, CONFIG)
        return caught.value.status, caught.value.code

    class Host:
        broker = stage.broker

    host: Any = Host()

    async def act() -> None:
        instance = instances.create(KafkaCalls(host, "", alice, None), "g", "mine", CONFIG)
        assert instances.find(alice, "g", "mine") is instance
        assert instances.find(ANONYMOUS, "g", "mine") is None
        assert instances.find(alice, "h", "mine") is None
        assert refused("mine") == (409, 40902)
        assert refused("b2-1") == (422, 42204)
        given = instances.create(KafkaCalls(host, "", alice, None), "g", None, CONFIG)
        assert broker_of(given.name) == 1
        assert refused(None) == (429, 429)
        await instances.remove(instance, confirm=True)
        assert instances.find(alice, "g", "mine") is None
        again = instances.create(KafkaCalls(host, "", alice, None), "g", "mine", CONFIG)
        assert again is not instance
        await instances.stop()
        assert instances.find(alice, "g", "mine") is None

    stage.run(act())
