"""The Kubernetes store when requests fail, against an API server in memory."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fake_api_server import FakeApiServer
from store_fault_contract import StoreFaultContract

from fairlead_kube.credentials import Credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class TestFaultsInMemory(StoreFaultContract):
    request_timeout_s = 0.3

    @asynccontextmanager
    async def backend(self) -> AsyncIterator[tuple[Credentials, str]]:
        server = FakeApiServer()
        await server.start()
        try:
            yield Credentials(server.url, None), "default"
        finally:
            await server.stop()
