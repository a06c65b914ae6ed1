"""Everything that the kopf process does while its pod's controller is active: built here, run here.

Ends with the reign. Its tasks are cancelled together, so that nothing is written after it.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

import aiohttp
import kopf

from fairlead_controller.kube.client import KubeClient
from fairlead_operator.api_writer import ApiWriter
from fairlead_operator.broker_roller import BrokerRoller
from fairlead_operator.cluster_reconciler import ClusterReconciler
from fairlead_operator.consumer_groups.metrics import GroupMetrics
from fairlead_operator.consumer_groups.sync import GroupSync
from fairlead_operator.controller_client import ControllerClient, ControllerStandbyError
from fairlead_operator.deletion import Deletions
from fairlead_operator.drills.metrics import DrillMetrics
from fairlead_operator.drills.runner import DrillRunner
from fairlead_operator.events import EventWriter
from fairlead_operator.handlers.registry import build_kopf_settings, build_registry
from fairlead_operator.health import HealthServer
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.metrics import OperatorMetrics, ReignCounters
from fairlead_operator.reconcile_loop import ReconcileLoop
from fairlead_operator.reign_watch import wait_until_over
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.status_writer import StatusWriter
from fairlead_operator.stream_jobs.metrics import StreamJobMetrics
from fairlead_operator.stream_jobs.runner import StreamJobRunner
from fairlead_operator.topics.sync import TopicSync

logger = logging.getLogger(__name__)

STOP_S: Final = 3.0


class Reign:
    """One reign, from winning the Lease to losing it or to a signal."""

    def __init__(
        self,
        client: KubeClient,
        controller: ControllerClient,
        settings: OperatorSettings,
        *,
        metrics: OperatorMetrics,
        health: HealthServer,
        identity: str,
    ) -> None:
        self._client = client
        self._controller = controller
        self._settings = settings
        self._metrics = metrics
        self._health = health
        self._identity = identity

    async def run(self, stopping: asyncio.Event) -> str:
        """Act until the reign is over; give why it is."""
        loop = ReconcileLoop(self._metrics)
        live = LiveObjects(self._client, self._settings.watch_namespace, loop.request)
        self._health.begin(live)
        async with aiohttp.ClientSession() as session:
            over = asyncio.create_task(wait_until_over(self._controller, self._identity))
            stop = asyncio.create_task(stopping.wait())
            work = {
                asyncio.create_task(task, name=name)
                for name, task in self._tasks(loop, live, session).items()
            }
            try:
                done, _ = await asyncio.wait(
                    {over, stop, *work}, return_when=asyncio.FIRST_COMPLETED
                )
                return _describe_end(done, over, stop)
            finally:
                tasks = {over, stop, *work}
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=STOP_S)
                _tell_failures(work)

    def _tasks(
        self, loop: ReconcileLoop, live: LiveObjects, session: aiohttp.ClientSession
    ) -> dict[str, Coroutine[Any, Any, Any]]:
        client, controller, settings = self._client, self._controller, self._settings
        events = EventWriter(client, instance=settings.pod_name)
        writer = ApiWriter(client, live, self._metrics)
        reconciler = ClusterReconciler(
            live,
            writer,
            controller=controller,
            roller=BrokerRoller(live, writer, controller, session),
            events=events,
            settings=settings,
        )
        deletions = Deletions(
            live, writer, controller=controller, statuses=StatusWriter(writer, events)
        )
        namespace = settings.watch_namespace
        topics = TopicSync(client, controller, events, namespace=namespace)
        self._metrics.registry.register(
            ReignCounters(events=events.counters, topic_statuses=lambda: topics.statuses.written)
        )
        groups = GroupSync(client, events, namespace=namespace)
        self._metrics.registry.register(
            GroupMetrics(groups.scope, statuses=lambda: groups.statuses.written, looks=groups.looks)
        )
        return {
            "informers": live.run(),
            "reconcilers": _reconcile(loop, live, reconciler),
            "kopf": _run_kopf(loop, live, deletions, namespace),
            "topics": topics.run(),
            "consumer groups": groups.run(),
            "drills": DrillRunner(
                client,
                controller,
                events,
                metrics=DrillMetrics(self._metrics.registry),
                namespace=namespace,
            ).run(),
            "stream jobs": StreamJobRunner(
                client,
                events,
                find_cluster=live.find_cluster,
                default_image=settings.spark_image,
                namespace=namespace,
                metrics=StreamJobMetrics(self._metrics.registry),
            ).run(),
        }


async def _reconcile(loop: ReconcileLoop, live: LiveObjects, reconciler: ClusterReconciler) -> None:
    """Nothing is planned before everything has been seen: what is unseen is not missing."""
    await live.synced()
    await loop.run(reconciler)


async def _run_kopf(
    loop: ReconcileLoop, live: LiveObjects, deletions: Deletions, namespace: str
) -> None:
    await live.synced()
    await kopf.operator(
        registry=build_registry(loop, deletions),
        settings=build_kopf_settings(),
        standalone=True,
        clusterwide=not namespace,
        namespaces=[namespace] if namespace else [],
    )


def _describe_end(
    done: set[asyncio.Task[Any]], over: asyncio.Task[str], stop: asyncio.Task[Any]
) -> str:
    if stop in done:
        return "asked to stop"
    if over in done:
        return over.result()
    task = done.pop()
    error = task.exception()
    if error is not None and _is_lost_lease(error):
        return f"{task.get_name()}: the controller of this pod does not hold the Lease any more"
    return f"{task.get_name()} ended"


def _tell_failures(work: set[asyncio.Task[Any]]) -> None:
    """Log what failed; that several tasks found out about a lost Lease is no failure."""
    for task in work:
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None and not _is_lost_lease(error):
            logger.error("%s failed", task.get_name(), exc_info=error)


def _is_lost_lease(error: BaseException) -> bool:
    """Tell whether a task only found out before the others that the reign is over."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_lost_lease(inner) for inner in error.exceptions)
    return isinstance(error, ControllerStandbyError)
