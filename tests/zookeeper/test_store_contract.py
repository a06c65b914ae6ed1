"""The contract of metadata stores, on a real ensemble."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from metadata_store_contract import StoreContract
from zookeeper_store import elected_store

from fairlead_controller.stores import zookeeper
from fairlead_controller.stores.zookeeper import ZooKeeperStore
from fairlead_zookeeper.client import ZooKeeperClient

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_zookeeper.address import ZooKeeperAccess


class OwningStore(ZooKeeperStore):
    """A store that ends its session too."""

    async def close(self) -> None:
        await super().close()
        await self._client.stop()


class TestZooKeeperStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _ensemble(self, access: ZooKeeperAccess, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a write does is asked for here, not whether a busy machine does it in a second."""
        monkeypatch.setattr(zookeeper, "WRITE_TIMEOUT_S", 30.0)
        # A session of 1.5 s gives a connection up that is silent for half a second.
        self.access = replace(access, session_timeout_ms=10_000)

    async def open(self, directory: Path) -> ZooKeeperStore:
        client = ZooKeeperClient(self.access)
        client.start()
        await client.wait_connected()
        store = await elected_store(client)
        return OwningStore(client, store._fence)
