"""User resources against an API server in memory: what they give, to whom, and when it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_resource_server import FakeResourceServer
from user_bench import bench
from user_stories import STORIES

from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_operator.users import reconciler, user_secrets

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_stories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Any) -> None:
    for module in (reconciler, user_secrets):
        monkeypatch.setattr(module, "SOURCE_LOOK_S", 0.2)

    async def played() -> None:
        server = FakeResourceServer()
        await server.start()
        kube = KubeClient(
            Credentials(server.url, None), request_timeout_s=10.0, connect_timeout_s=5.0
        )
        try:
            async with bench(kube, "shop", tmp_path, **STORIES[story]) as world:
                await story(world)
        finally:
            await kube.close()
            await server.stop()

    asyncio.run(played())
