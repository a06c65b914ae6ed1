"""The Kubernetes store when requests to the API server itself fail."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from store_fault_contract import StoreFaultContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fairlead_kube.credentials import Credentials

pytestmark = pytest.mark.kubernetes


class TestFaults(StoreFaultContract):
    # A whole API server on a busy machine may take longer than the contract lets it.
    request_timeout_s = 1.0

    @pytest.fixture(autouse=True)
    def _cluster(self, kube_credentials: Credentials, namespace: str) -> None:
        self.credentials = kube_credentials
        self.namespace = namespace

    @asynccontextmanager
    async def backend(self) -> AsyncIterator[tuple[Credentials, str]]:
        yield self.credentials, self.namespace
