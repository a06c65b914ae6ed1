"""Rebalances against an API server in memory: proposed, moved, called back, and resumed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_resource_server import FakeResourceServer
from rebalance_bench import RebalanceBench, rebalance_bench
from rebalance_stories import STORIES

from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.kinds import REBALANCE
from fairlead_operator.topics.topic_resource import FINALIZER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def play(directory: Path, story: Callable[[RebalanceBench], Awaitable[None]]) -> None:
    async def played() -> None:
        server = FakeResourceServer()
        await server.start()
        kube = KubeClient(Credentials(server.url, None))
        try:
            async with rebalance_bench(kube, "shop", directory) as bench:
                await story(bench)
        finally:
            await kube.close()
            await server.stop()

    asyncio.run(played())


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_stories(tmp_path: Path, story: Callable[[RebalanceBench], Awaitable[None]]) -> None:
    play(tmp_path, story)


def test_what_cannot_be_read_fails_and_can_be_deleted(tmp_path: Path) -> None:
    async def story(bench: RebalanceBench) -> None:
        await bench.create(approve="no id of a plan")
        finalizers = {"metadata": {"finalizers": [FINALIZER]}}
        await bench.kube.patch(REBALANCE, bench.namespace, "even", finalizers)
        await bench.until("Failed", "InvalidSpec")
        await bench.delete()
        await bench.until_gone()

    play(tmp_path, story)
