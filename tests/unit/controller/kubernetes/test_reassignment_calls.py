"""Reassignments over the pod's socket: the controller's answers, by the operator's client."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from rebalance_bench import ControllerWorld, controller_world, until

from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.kubernetes import reassignment_calls
from fairlead_controller.views.assignment import read_assignment
from fairlead_model.cluster import Change, PartitionChanged
from fairlead_operator.controller_client import ControllerClient, ControllerRefusedError

PLACE = ("ns", "demo")


def play(
    directory: Path, story: Callable[[ControllerWorld, ControllerClient], Awaitable[None]]
) -> None:
    async def played() -> None:
        async with controller_world(directory, PLACE) as (world, socket):
            await world.create_topic("t", [0, 1], [1, 2])
            await world.create_topic("u", [2, 0])
            client = ControllerClient(str(socket))
            try:
                await story(world, client)
            finally:
                await client.close()

    asyncio.run(played())


def wanted(partition: int, *replicas: int, topic: str = "t") -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "replicas": list(replicas) or None}


def test_what_is_told_is_what_the_controller_knows(tmp_path: Path) -> None:
    async def story(world: ControllerWorld, client: ControllerClient) -> None:
        world.copies = False
        assert await client.alter_reassignments(*PLACE, [wanted(0, 3, 1)]) == []
        told = read_assignment(await client.assignment(*PLACE, None))
        known = world.controller.committed
        for name, index in (("t", 0), ("t", 1), ("u", 0)):
            there, here = told.image.partition(name, index), known.image.partition(name, index)
            assert there is not None
            assert here is not None
            for field in (
                "replicas", "isr", "leader", "leader_epoch", "adding_replicas",
                "removing_replicas", "queued_target", "is_under_replicated",
            ):  # fmt: skip
                assert getattr(there, field) == getattr(here, field), field
        assert sorted(told.moves.running) == sorted(known.moves.running)
        assert sorted(told.moves.running)
        assert told.image.brokers.keys() == known.image.brokers.keys()
        assert told.unconfirmed == known.unconfirmed
        one = read_assignment(await client.assignment(*PLACE, ["u", "unknown"]))
        assert [topic.name for topic in one.image.topics()] == ["u"]

    play(tmp_path, story)


def test_moves_begin_are_called_back_and_are_refused_one_by_one(tmp_path: Path) -> None:
    async def story(world: ControllerWorld, client: ControllerClient) -> None:
        world.copies = False
        asked = [wanted(0, 3, 1), wanted(1, 9, 2), wanted(7, 0, 1), wanted(0, 0, 1, 2, topic="u")]
        refused = await client.alter_reassignments(*PLACE, asked)
        assert [(each["partition"], each["reason"]) for each in refused] == [
            (1, "INVALID_REPLICA_ASSIGNMENT"),
            (7, "UNKNOWN_TOPIC_OR_PARTITION"),
            (0, "INVALID_REPLICATION_FACTOR"),
        ]
        assert world.replicas() == [(3, 1), (1, 2)]
        assert await client.alter_reassignments(*PLACE, [wanted(0)]) == []
        assert set(world.replicas()[0]) == {0, 1}
        (quiet,) = await client.alter_reassignments(*PLACE, [wanted(0)])
        assert quiet["reason"] == "NO_REASSIGNMENT_IN_PROGRESS"

    play(tmp_path, story)


def test_preferred_leaders_lead_when_asked(tmp_path: Path) -> None:
    async def story(world: ControllerWorld, client: ControllerClient) -> None:
        await client.alter_reassignments(*PLACE, [wanted(0, 1, 0)])
        await until(lambda: not world.is_moving, "the end of the move")
        assert world.image.partition("t", 0).leader == 0
        named = [{"topic": "t", "partition": index} for index in (0, 1, 5)]
        (refused,) = await client.elect_preferred(*PLACE, named)
        assert refused["reason"] == "UNKNOWN_TOPIC_OR_PARTITION", "t-1 needed none"
        assert world.image.partition("t", 0).leader == 1

    play(tmp_path, story)


def test_many_partitions_are_decided_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once would keep the controller from its brokers, and from renewing its Lease."""
    monkeypatch.setattr(reassignment_calls, "PARTITIONS_PER_DECISION_MAX", 1)

    async def story(world: ControllerWorld, client: ControllerClient) -> None:
        sizes: list[int] = []

        def note(changes: tuple[Change, ...], _: ControllerState) -> None:
            sizes.append(sum(isinstance(each, PartitionChanged) for each in changes))

        world.controller.subscribe(note)
        asked = [wanted(0, 1, 0), wanted(1, 9, 2), wanted(0, 0, 2, topic="u")]
        (refused,) = await client.alter_reassignments(*PLACE, asked)
        assert (refused["topic"], refused["partition"]) == ("t", 1)
        await until(lambda: not world.is_moving, "the end of the moves")
        named = [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 0}]
        assert await client.elect_preferred(*PLACE, named) == []
        assert world.image.partition("t", 0).leader == 1
        assert world.image.partition("u", 0).leader == 0
        assert sum(sizes) >= 4
        assert max(sizes) == 1
        assert await client.alter_reassignments(*PLACE, []) == []

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("partitions", "why"),
    [
        ([wanted(0, 0, 1), wanted(1, 1, 2), wanted(0, 1, 0)], "named more than once"),
        (["t"], "has to be a list"),
        ([{"topic": "t"}], "has a topic and a number"),
        ([wanted(0) | {"replicas": ["1"]}], "list of broker ids"),
    ],
)
def test_nonsense_is_named(tmp_path: Path, partitions: list[Any], why: str) -> None:
    async def story(_: ControllerWorld, client: ControllerClient) -> None:
        with pytest.raises(ControllerRefusedError, match=why):
            await client.alter_reassignments(*PLACE, partitions)
        with pytest.raises(ControllerRefusedError, match="list of names"):
            await client.assignment(*PLACE, [1])  # type: ignore[list-item]

    play(tmp_path, story)
