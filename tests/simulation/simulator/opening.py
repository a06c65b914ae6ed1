"""How every run begins: a cluster that is up, its topics, and clients that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulator.churn import topic_body
from simulator.clients import Consumer, Producer
from simulator.compaction import KEYED
from simulator.keyed_clients import start_keyed_clients

from fairlead_controller.decisions.events import CreateTopics
from fairlead_model.session.calls import CreateTopicsCall

if TYPE_CHECKING:
    from simulator.checker import PartitionKey
    from simulator.world import World

START_S: Final = 10.0
SAFE: Final = "safe"
PLAIN: Final = "plain"


async def set_up(world: World) -> None:
    """Start everything; AssertionError if the cluster does not come up."""
    world.controllers["controller-0"].start()
    for broker in world.brokers.values():
        broker.start()
    world.supervise()
    await world.wait_until_well(lambda: _is_up(world), START_S, "the cluster does not come up")
    await _create_topics(world)
    _start_clients(world)


def _is_up(world: World) -> str | None:
    controller = world.controllers["controller-0"].controller
    if controller is None:
        return "no controller"
    brokers = controller.committed.image.brokers.values()
    live = sum(not broker.fenced for broker in brokers)
    return None if live == len(world.brokers) else f"{live} brokers are up"


async def _create_topics(world: World) -> None:
    controller = world.controllers["controller-0"].controller
    assert controller is not None
    ids = list(world.brokers)
    # A compacted partition replaces the second safe one.
    count = 2 if world.compaction is None else 1
    shuffled = [world.rng.sample(ids, 3) for _ in range(count)]
    more = [] if world.transactions is None else world.transactions.topics(world)
    if world.compaction is not None:
        configs = {"min.insync.replicas": "2", "cleanup.policy": world.compaction.policy}
        more.append(topic_body(KEYED, [world.rng.sample(ids, 3)], configs))
    event = CreateTopics(
        CreateTopicsCall(
            topics=[
                topic_body(SAFE, shuffled, {"min.insync.replicas": "2"}),
                topic_body(PLAIN, [world.rng.sample(ids, 2)], {"min.insync.replicas": "1"}),
                *more,
            ],
            validate_only=False,
            default_partitions=1,
            default_replication_factor=3,
            internal=True,
        )
    )
    reply = await controller.submit(event)
    problems = [topic["error_message"] for topic in reply["topics"] if topic["error_code"]]
    if problems:
        raise AssertionError(problems)
    world.topics = {topic["name"]: topic["topic_id"] for topic in reply["topics"]}


def _start_clients(world: World) -> None:
    safe: list[PartitionKey] = [(world.topics[SAFE], 0)]
    if world.compaction is None:
        safe.append((world.topics[SAFE], 1))
    plain: PartitionKey = (world.topics[PLAIN], 0)
    window = world.rng.choice((1, 3, 5))
    plans: list[tuple[PartitionKey, int, int, int]] = [
        (safe[0], -1, 1000, window),
        (safe[0], -1, 1001, 1),
        (safe[-1], -1, 1002, window),
        (safe[-1], -1, -1, 1),
        (safe[-1], 1, -1, 1),
        (plain, -1, 1003, 1),
    ]
    if world.compaction is not None:
        del plans[2:4]
        start_keyed_clients(world, (world.topics[KEYED], 0), world.compaction.rate)
    for number, (key, acks, producer_id, each_window) in enumerate(plans):
        name = f"clients-p{number}"
        world.producers.append(
            Producer(world, name, key, acks=acks, producer_id=producer_id, window=each_window)
        )
    for number, key in enumerate([*safe, plain]):
        world.consumers.append(Consumer(world, f"clients-c{number}", key))
    for producer in world.producers:
        producer.process.call_soon(producer.start)
    for consumer in world.consumers:
        consumer.process.call_soon(consumer.start)
    if world.transactions is not None:
        world.transactions.start_clients(world)
