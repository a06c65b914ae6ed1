"""Declared topics that wait are asked for again, also when no broker comes."""

import asyncio
import random
from pathlib import Path

import pytest
from topic_bench import start_broker
from waiting import until

from fairlead_controller import controller as shell
from fairlead_controller import startup_topics
from fairlead_controller.controller import Controller, Reply, open_controller
from fairlead_controller.decisions.events import (
    AlterReassignments,
    DeclareTopics,
    ElectLeaders,
    Event,
)
from fairlead_controller.startup_topics import Declarations
from fairlead_controller.stores.file import open_file_store
from fairlead_model.partition import PartitionRegistration
from fairlead_model.resources.topic_manifest import TopicSpec
from fairlead_model.session.calls import AlterReassignmentsCall, ReassignablePartition


def move(*replicas: int) -> AlterReassignments:
    """Ask for the replicas of the one partition, or with none for what was before."""
    partition = ReassignablePartition(topic="t", index=0, replicas=list(replicas) or None)
    call = AlterReassignmentsCall(partitions=[partition], allow_replication_factor_change=True)
    return AlterReassignments(call)


def only_partition(controller: Controller) -> PartitionRegistration:
    topic = controller.committed.image.topic("t")
    assert topic is not None
    return topic.partitions[0]


def test_a_topic_that_somebody_moves_is_resized_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup_topics, "AGAIN_S", 0.01)

    async def scenario() -> None:
        store = await open_file_store(tmp_path)
        controller = await open_controller(store, now_ms=lambda: 0, random_source=random.Random(1))
        running = asyncio.create_task(controller.run())
        await controller.submit(ElectLeaders())
        for broker_id in range(3):
            await start_broker(controller, broker_id)
        await controller.submit(DeclareTopics((TopicSpec("t", "t", 1, 1),)))
        (held,) = only_partition(controller).replicas
        await controller.submit(move((held + 1) % 3))
        declared = DeclareTopics((TopicSpec("t", "t", 1, 2),))
        declarations = Declarations(controller, declared, expected_brokers=3)
        applying = asyncio.create_task(declarations.run())
        await until(lambda: declarations.problems, "it waits for what is being moved")
        assert "are being moved by somebody else" in declarations.problems[0]
        await controller.submit(move())
        await asyncio.wait_for(applying, 20)
        assert len(only_partition(controller).target_replicas) == 2
        assert declarations.status() == {"waiting": [], "problems": []}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())


@pytest.mark.parametrize("may_create", [False, True])
def test_a_controller_that_takes_no_decisions_now_reigns_on_without_declared_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, may_create: bool
) -> None:
    """A refusal ended this task, and with it the reign, while the store did not answer."""
    monkeypatch.setattr(startup_topics, "AGAIN_S", 0.01)
    monkeypatch.setattr(startup_topics, "REFUSED_RETRY_S", 0.01)
    waiting_max = shell.EVENTS_WAITING_MAX

    async def scenario() -> None:
        store = await open_file_store(tmp_path)
        controller = await open_controller(store, now_ms=lambda: 0, random_source=random.Random(1))
        running = asyncio.create_task(controller.run())
        await controller.submit(ElectLeaders())
        await start_broker(controller, 0)
        submit, is_overloaded = controller.submit, True

        async def ask(event: Event) -> Reply:
            is_refused = isinstance(event, DeclareTopics) and event.may_create is may_create
            full = 0 if is_refused and is_overloaded else waiting_max
            monkeypatch.setattr(shell, "EVENTS_WAITING_MAX", full)
            return await submit(event)

        monkeypatch.setattr(controller, "submit", ask)
        declared = DeclareTopics((TopicSpec("t", "t", 1, 1),))
        declarations = Declarations(controller, declared, expected_brokers=1)
        applying = asyncio.create_task(declarations.run())
        await until(lambda: declarations.problems or applying.done())
        assert declarations.status() == {
            "waiting": ["t"],
            "problems": ["declared topics are as they were: the controller is overloaded"],
        }
        is_overloaded = False
        await asyncio.wait_for(applying, 20)
        assert only_partition(controller).replicas == (0,)
        assert declarations.status() == {"waiting": [], "problems": []}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
