"""The handlers of LogClusters and BrokerPools, and how kopf is set up around them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import kopf

from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import BROKER_POOL, LOG_CLUSTER
from fairlead_operator.clusters.deletion import Deletions
from fairlead_operator.clusters.reconcile_loop import ReconcileLoop
from fairlead_operator.live_objects import cluster_of
from fairlead_operator.settings import API_CONNECT_TIMEOUT_S, API_TIMEOUT_S

FINALIZER: Final = "fairlead.io/finalizer"
logger = logging.getLogger(__name__)

PREFIX: Final = "fairlead.io"
DELETION_LOOK_S: Final = 1.0
"""How often a deletion that waits looks again."""
DELETION_TELL_S: Final = 5.0
"""After how long a deletion that waits says so on the object."""
DELETION_RETRY_S: Final = 5.0
"""When to look again after the API server has failed."""
WORKERS_STOP_S: Final = 0.2
"""How long handlers may take that are under way at the end; the next process repeats them."""


def build_kopf_settings() -> kopf.OperatorSettings:
    """Return kopf's settings: no peering, no scanning, patient but bounded requests."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.level = logging.WARNING
    settings.networking.connect_timeout = API_CONNECT_TIMEOUT_S
    settings.networking.request_timeout = API_TIMEOUT_S
    settings.networking.error_backoffs = (0.2, 0.5, 1, 2)
    settings.networking.enforce_retry_after = True
    settings.watching.chunk_size = 500
    settings.execution.default_backoff = 2
    settings.queueing.exit_timeout = WORKERS_STOP_S
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=PREFIX)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=PREFIX)
    return settings


def build_registry(loop: ReconcileLoop, deletions: Deletions) -> kopf.OperatorRegistry:
    """Return the handlers; a change only requests a reconcile, which reads everything again."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="pod", errors=kopf.ErrorsMode.IGNORED)(
        kopf.login_with_service_account
    )
    kopf.on.login(registry=registry, id="kubeconfig", errors=kopf.ErrorsMode.IGNORED)(
        kopf.login_with_kubeconfig
    )

    async def reconcile_cluster(namespace: str | None, name: str | None, **_: Any) -> None:
        loop.request((namespace or "", name or ""))

    async def reconcile_pool(body: kopf.Body, namespace: str | None, **_: Any) -> None:
        loop.request((namespace or "", cluster_of(dict(body))))

    async def delete_cluster(
        body: kopf.Body, namespace: str | None, name: str | None, **_: Any
    ) -> None:
        key = (namespace or "", name or "")
        await _until_done(
            lambda: deletions.delete_cluster(key, body),
            lambda waiting_for: deletions.tell_waiting(key, waiting_for),
        )

    async def delete_pool(body: kopf.Body, namespace: str | None, **_: Any) -> None:
        await _until_done(lambda: deletions.delete_pool(namespace or "", body))

    _register(registry, LOG_CLUSTER.plural, reconcile_cluster, delete_cluster)
    _register(registry, BROKER_POOL.plural, reconcile_pool, delete_pool)
    return registry


async def _until_done(
    take_step: Callable[[], Awaitable[str]],
    tell: Callable[[str], Awaitable[None]] | None = None,
) -> None:
    """Take steps until nothing is waited for; kopf would write to the object at each attempt.

    `tell` is called with what is waited for, if that takes longer than brokers need to stop.
    """
    said, clock = "", asyncio.get_running_loop().time
    began = clock()
    while True:
        try:
            waiting_for = await take_step()
            if waiting_for and tell is not None and clock() - began > DELETION_TELL_S:
                await tell(waiting_for)
        except (ApiError, ApiUnavailableError) as error:
            raise kopf.TemporaryError(str(error), delay=DELETION_RETRY_S) from error
        if not waiting_for:
            return
        if waiting_for != said:
            said = waiting_for
            logger.info("a deletion waits: %s", said)
        await asyncio.sleep(DELETION_LOOK_S)


Handler = Callable[..., Awaitable[None]]


def _register(
    registry: kopf.OperatorRegistry, plural: str, reconcile: Handler, delete: Handler
) -> None:
    where = (LOG_CLUSTER.group, LOG_CLUSTER.version, plural)
    kopf.on.resume(*where, registry=registry, id="reconcile")(reconcile)
    kopf.on.create(*where, registry=registry, id="reconcile")(reconcile)
    kopf.on.update(*where, registry=registry, id="reconcile")(reconcile)
    kopf.on.delete(*where, registry=registry, id="delete")(delete)
