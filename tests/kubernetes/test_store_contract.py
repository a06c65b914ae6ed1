"""The contract of metadata stores, against the API server itself."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest
from metadata_store_contract import StoreContract

from fairlead_controller.stores.kubernetes import KubernetesStore
from fairlead_kube.client import KubeClient

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_kube.credentials import Credentials

pytestmark = pytest.mark.kubernetes


class OwningStore(KubernetesStore):
    """A store that closes its client too."""

    async def close(self) -> None:
        await super().close()
        await self._client.close()


class TestKubernetesStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, kube_credentials: Credentials, namespace: str) -> None:
        self.credentials = kube_credentials
        self.namespace = namespace

    async def open(self, directory: Path) -> KubernetesStore:
        client = KubeClient(self.credentials, request_timeout_s=10.0, connect_timeout_s=5.0)
        cluster = f"c{zlib.crc32(str(directory).encode()):08x}"
        return OwningStore(client, self.namespace, cluster)
