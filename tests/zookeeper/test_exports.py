"""An export is made while a controller writes: it shows one instant, not parts of two."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from decision_world import creatable, create_topics
from zookeeper_store import begin_reign, connected, elected_store

from fairlead_controller.controller import open_controller
from fairlead_controller.decisions.events import CreatePartitions
from fairlead_controller.decisions.tables import loading, table_plan
from fairlead_controller.stores.zookeeper_transfer import export_from_zookeeper
from fairlead_model.session.calls import CreatePartitionsCall, GrowableTopic
from fairlead_zookeeper.client import ZooKeeperClient

if TYPE_CHECKING:
    import pytest

    from fairlead_zookeeper.address import ZooKeeperAccess
    from fairlead_zookeeper.operations import Znode


def test_a_topic_that_grows_during_an_export_is_in_it_as_a_whole(
    access: ZooKeeperAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its header was read with the new count, and the new partition's table was not there yet."""
    for module in (table_plan, loading):
        monkeypatch.setattr(module, "PARTITIONS_PER_TABLE", 1)

    async def story() -> dict[str, int]:
        async with asyncio.timeout(60), connected(access) as client:
            store = await elected_store(client)
            controller = await open_controller(store, now_ms=lambda: 0)
            running = asyncio.create_task(controller.run())
            await begin_reign(controller)
            for name in ("t", "u"):
                await controller.submit(create_topics(creatable(name, partitions=1)))
            get = ZooKeeperClient.get
            is_made = asyncio.Event()
            asked = 0

            async def get_late(self: ZooKeeperClient, path: str, **watch: Any) -> Znode | None:
                nonlocal asked
                if self is client:
                    return await get(self, path, **watch)
                if path.endswith("partitions-00000"):
                    await is_made.wait()
                    return await get(self, path, **watch)
                found = await get(self, path, **watch)
                if path.endswith("partitions-00001"):
                    asked += 1
                    if asked == 1:
                        wanted = GrowableTopic(name="t", count=2, assignments=None)
                        call = CreatePartitionsCall(topics=[wanted], validate_only=False)
                        await controller.submit(CreatePartitions(call))
                        is_made.set()
                return found

            monkeypatch.setattr(ZooKeeperClient, "get", get_late)
            document = await export_from_zookeeper(access)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()
            return {each["header"]["name"]: len(each["partitions"]) for each in document["topics"]}

    assert asyncio.run(story()) == {"t": 2, "u": 1}
