"""When the operator's client of a cluster is made again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead_operator.consumer_groups.group_client import BrokersUnreachableError
from fairlead_operator.consumer_groups.kafka_client import KafkaGroupClient
from fairlead_operator.consumer_groups.renewed_client import LIFE_S, RenewedClient
from fairlead_operator.own_access import LIFE


class FakeClient(KafkaGroupClient):
    def __init__(self) -> None:
        self.looks = 0
        self.is_closed = False
        self.is_silent = False

    async def look(self, group_ids: Any) -> Any:
        self.looks += 1
        if self.is_silent:
            raise BrokersUnreachableError("no answer")
        return {}

    async def partition_counts(self, topics: Any) -> Any:
        assert not self.is_closed
        return {}

    async def close(self) -> None:
        self.is_closed = True


class World:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.made: list[FakeClient] = []
        self.client = RenewedClient(self.connect, now=lambda: self.now_s)

    async def connect(self) -> FakeClient:
        self.made.append(FakeClient())
        return self.made[-1]


def play(story: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        await story(World())

    asyncio.run(run())


def test_a_client_is_replaced_long_before_its_certificate_ends() -> None:
    """Its connections outlive the certificate, and only a broker that restarts refuses it."""

    async def story(world: World) -> None:
        await world.client.look(["a"])
        world.now_s += LIFE_S - 1
        await world.client.look(["a"])
        assert [client.looks for client in world.made] == [2]
        world.now_s += 1
        await world.client.partition_counts(["t"])  # a reset goes on with the client it began with
        await world.client.look(["a"])
        first, second = world.made
        assert (first.is_closed, first.looks) == (True, 2)
        assert (second.is_closed, second.looks) == (False, 1)
        await world.client.look(["a"])
        assert len(world.made) == 2

    play(story)
    assert LIFE.total_seconds() > 24 * LIFE_S


def test_a_client_that_reaches_nobody_is_replaced_at_once() -> None:
    async def story(world: World) -> None:
        await world.client.look(["a"])
        world.made[0].is_silent = True
        with pytest.raises(BrokersUnreachableError):
            await world.client.look(["a"])
        assert world.made[0].is_closed
        await world.client.look(["a"])
        assert [client.looks for client in world.made] == [2, 1]

    play(story)
