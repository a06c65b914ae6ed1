"""The contract of metadata stores, against the API server itself."""

from __future__ import annotations

import importlib.util
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fairlead_controller.kube.client import KubeClient
from fairlead_controller.stores.kubernetes import KubernetesStore

if TYPE_CHECKING:
    from fairlead_controller.kube.credentials import Credentials

pytestmark = pytest.mark.kubernetes

_SPEC = importlib.util.spec_from_file_location(
    "metadata_store_contract",
    Path(__file__).resolve().parents[1] / "unit/controller/metadata_store_contract.py",
)
assert _SPEC is not None
assert _SPEC.loader is not None
_CONTRACT = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CONTRACT)


class OwningStore(KubernetesStore):
    """A store that closes its client too."""

    async def close(self) -> None:
        await super().close()
        await self._client.close()


class TestKubernetesStore(_CONTRACT.StoreContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, kube_credentials: Credentials, namespace: str) -> None:
        self.credentials = kube_credentials
        self.namespace = namespace

    async def open(self, directory: Path) -> KubernetesStore:
        client = KubeClient(self.credentials, request_timeout_s=10.0, connect_timeout_s=5.0)
        cluster = f"c{zlib.crc32(str(directory).encode()):08x}"
        return OwningStore(client, self.namespace, cluster)
