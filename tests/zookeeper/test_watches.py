"""Watches of a client that looks again and again, as controllers do for months."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from zookeeper_store import connected

from fairlead_zookeeper.operations import Create, SetData

if TYPE_CHECKING:
    from fairlead_zookeeper.address import ZooKeeperAccess


def test_whoever_watches_again_and_again_is_told_once(access: ZooKeeperAccess) -> None:
    """Nothing may be kept of each look at a znode that does not change."""

    async def story() -> None:
        async with connected(access) as client:
            await client.ensure_path("/")
            calls: list[str] = []
            changed = asyncio.Event()

            def watch() -> None:
                calls.append("watch")
                changed.set()

            await client.multi([Create("/there", b"1")])
            for _ in range(50):
                assert await client.get("/there", watch=watch) is not None
                assert await client.get("/absent", watch=watch) is None
                assert await client.children("/there", watch=watch) == []
            for operation in (SetData("/there", b"2"), Create("/absent"), Create("/there/child")):
                calls.clear()
                changed.clear()
                await client.multi([operation])
                async with asyncio.timeout(10):
                    await changed.wait()
                await client.sync()
                assert calls == ["watch"]

    asyncio.run(story())
