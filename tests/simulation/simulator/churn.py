"""Topics that are created, grow and are deleted during all other faults, and their clients."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from simulator.clients import Consumer, Producer

from fairlead_model.session.calls import Method

if TYPE_CHECKING:
    from simulator.checker import PartitionKey
    from simulator.clients import Client
    from simulator.topic_watch import Header
    from simulator.world import World

    from fairlead_model.session.calls import CreatableTopic

NAMES: Final = ("churn-a", "churn-b")
PARTITIONS_MAX: Final = 4
CLIENTS_MAX: Final = 6
"""Most partitions in use at a time: more would only take longer."""
GOES_ON_S: Final = 3.0
"""How long clients of a deleted topic go on before they notice."""
FIRST_PRODUCER_ID: Final = 500_000


class Churn:
    """An operator's actions: topics under two names, again and again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clients: dict[PartitionKey, list[Client]] = {}
        self._producers = 0

    def create(self) -> None:
        rng = self._world.rng
        replicas = rng.choice((3, 3, 2))
        self.create_named(rng.choice(NAMES), replicas=replicas, partitions=rng.randint(1, 3))

    def create_named(self, name: str, *, replicas: int, partitions: int = 2) -> None:
        """Create a topic in which two replicas can commit, so that a slow one delays nothing."""
        topic = {
            "name": name,
            "partitions": partitions,
            "replication_factor": replicas,
            "assignments": {},
            "configs": {"min.insync.replicas": str(replicas - 1)},
        }
        body = {
            "topics": [topic],
            "validate_only": False,
            "default_partitions": 1,
            "default_replication_factor": 3,
        }
        self._world.tell_controller(Method.CREATE_TOPICS, body)

    def grow(self) -> None:
        name = self._world.rng.choice(NAMES)
        topics = self._world.checker.topics
        topic_id = topics.live(name)
        if topic_id is None:
            self.create()
            return
        count = topics.headers[topic_id].count
        if count < PARTITIONS_MAX:
            wanted = self._world.rng.randint(count + 1, PARTITIONS_MAX)
            body = {
                "topics": [{"name": name, "count": wanted, "assignments": None}],
                "validate_only": False,
            }
            self._world.tell_controller(Method.CREATE_PARTITIONS, body)

    def delete(self, name: str | None = None) -> None:
        topic = {"name": name or self._world.rng.choice(NAMES), "topic_id": bytes(16)}
        self._world.tell_controller(Method.DELETE_TOPICS, {"topics": [topic]})

    def replace(self) -> None:
        """Delete a topic and create another one of the same name at once."""
        self.delete()
        self._world.later(self._world.rng.random(), self.create)

    def on_live(self, topic_id: bytes, header: Header) -> None:
        """Start clients of a topic that is new or has grown."""
        if header.name not in NAMES:
            return
        for index in range(header.count):
            key = (topic_id, index)
            if key not in self._clients and len(self._clients) < CLIENTS_MAX:
                self._clients[key] = self._start_clients(key)

    def on_deleted(self, topic_id: bytes) -> None:
        for key in [key for key in self._clients if key[0] == topic_id]:
            clients = self._clients.pop(key)
            self._world.later(GOES_ON_S, partial(_end, clients))

    def _start_clients(self, key: PartitionKey) -> list[Client]:
        world = self._world
        number = self._producers
        self._producers += 1
        producer_id = world.rng.choice((-1, FIRST_PRODUCER_ID + number))
        producer = Producer(
            world, f"clients-t{number}p", key, acks=-1, producer_id=producer_id, rate=2.0
        )
        consumer = Consumer(world, f"clients-t{number}c", key)
        world.producers.append(producer)
        world.consumers.append(consumer)
        producer.is_finishing = world.is_healing
        for client in (producer, consumer):
            client.process.call_soon(client.start)
        return [producer, consumer]


def _end(clients: list[Client]) -> None:
    for client in clients:
        client.world.network.end_process(client.process, dark=False)
        client.process.end()


def topic_body(name: str, assignments: list[list[int]], configs: dict[str, str]) -> CreatableTopic:
    """A topic to create with given replicas."""
    return {
        "name": name,
        "partitions": -1,
        "replication_factor": -1,
        "assignments": dict(enumerate(assignments)),
        "configs": {**configs},
    }
