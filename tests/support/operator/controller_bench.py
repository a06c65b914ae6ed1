"""The base of benches of resources: a controller in this process, a LogCluster."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.events import ElectLeaders
from fairlead_controller.stores.file import open_file_store
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import LOG_CLUSTER, ResourceKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fairlead_kube.client import KubeClient

CLUSTER = "demo"


@contextlib.asynccontextmanager
async def running_controller(directory: Path) -> AsyncIterator[Controller]:
    """Run an active controller, with its metadata in files and a clock that stands still."""
    store = await open_file_store(directory)
    controller = await open_controller(store, now_ms=lambda: 0, random_source=random.Random(1))
    running = asyncio.create_task(controller.run())
    await controller.submit(ElectLeaders())
    try:
        yield controller
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


async def create_log_cluster(kube: KubeClient, namespace: str, **spec: Any) -> None:
    manifest = {
        "apiVersion": LOG_CLUSTER.api_version,
        "kind": LOG_CLUSTER.kind,
        "metadata": {"name": CLUSTER},
        "spec": spec,
    }
    await kube.create(LOG_CLUSTER, namespace, manifest)


async def let_go(kube: KubeClient, kind: ResourceKind, namespace: str) -> None:
    """Remove the finalizers, so that the namespace can be deleted without an operator."""
    for item in (await kube.list(kind, namespace)).items:
        if item["metadata"].get("finalizers"):
            patch = {"metadata": {"finalizers": None}}
            try:
                await kube.patch(kind, namespace, item["metadata"]["name"], patch)
            except ApiError as error:
                if not error.is_not_found:  # It may have been about to go by itself.
                    raise
