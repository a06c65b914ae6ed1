"""Sessions with ZooKeeper, and stores of elected controllers, for tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from decision_world import registration

from fairlead_controller.decisions.events import ElectLeaders, RegisterBroker, UnfenceBroker
from fairlead_controller.stores.zookeeper import ZooKeeperStore
from fairlead_controller.stores.zookeeper_fence import raise_epoch, read_epoch
from fairlead_controller.stores.zookeeper_projections import CONTAINERS
from fairlead_controller.stores.zookeeper_sweep import ZnodeSweep
from fairlead_zookeeper.client import ZooKeeperClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fairlead_controller.controller import Controller
    from fairlead_zookeeper.address import ZooKeeperAccess


def sweep_of(store: ZooKeeperStore) -> ZnodeSweep:
    """Return the sweep of an elected controller's store."""
    fence = store._fence
    assert fence is not None
    return ZnodeSweep(store._client, fence, store)


@asynccontextmanager
async def connected(access: ZooKeeperAccess) -> AsyncIterator[ZooKeeperClient]:
    """Connect a client with its own session."""
    client = ZooKeeperClient(access)
    client.start()
    try:
        await client.wait_connected()
        yield client
    finally:
        await client.stop()


async def elected_store(client: ZooKeeperClient) -> ZooKeeperStore:
    """Return the store of a controller that was just elected, in a tree with all containers."""
    for path in CONTAINERS:
        await client.ensure_path(path)
    known = await read_epoch(client)
    return ZooKeeperStore(client, await raise_epoch(client, known, known.epoch + 1))


async def begin_reign(controller: Controller) -> None:
    """Have a running controller elect leaders, with brokers 0 to 2 in service."""
    await controller.submit(ElectLeaders())
    for broker_id in (0, 1, 2):
        reply = await controller.submit(RegisterBroker(registration(broker_id), ""))
        await controller.submit(UnfenceBroker(broker_id, reply["broker_epoch"]))
