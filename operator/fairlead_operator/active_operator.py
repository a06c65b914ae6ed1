"""Everything that the kopf process does while its pod's controller is active.

It ends with the reign. Its tasks are cancelled together, so that nothing is written after it.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterator
from typing import Any

import kopf

from fairlead_kube.client import KubeClient
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.broker_roller import BrokerRoller
from fairlead_operator.clusters.deletion import Deletions
from fairlead_operator.clusters.hibernation_watch import HibernationWatch
from fairlead_operator.clusters.reconcile_loop import ReconcileLoop
from fairlead_operator.clusters.reconciler import ClusterReconciler
from fairlead_operator.clusters.status_writer import StatusWriter
from fairlead_operator.consumer_groups.metrics import GroupMetrics
from fairlead_operator.consumer_groups.sync import GroupSync
from fairlead_operator.controller_client import ControllerClient, ControllerStandbyError
from fairlead_operator.drills.metrics import DrillMetrics
from fairlead_operator.drills.observations import ControllerAccess
from fairlead_operator.drills.runner import DrillRunner
from fairlead_operator.events import EventWriter
from fairlead_operator.health import HealthServer
from fairlead_operator.kopf_handlers import build_kopf_settings, build_registry
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.metrics import OperatorMetrics, ReignCounters
from fairlead_operator.rebalances.metrics import RebalanceMetrics
from fairlead_operator.rebalances.runner import RebalanceRunner
from fairlead_operator.reign_watch import wait_until_over
from fairlead_operator.served_namespaces import find_served, wait_for_another_set
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.stop_signals import StopSignals, end_tasks
from fairlead_operator.stream_jobs.metrics import StreamJobMetrics
from fairlead_operator.stream_jobs.runner import StreamJobRunner
from fairlead_operator.topics.metrics import TopicNamespaceMetrics
from fairlead_operator.topics.sync import TopicSync
from fairlead_operator.users.sync import UserSync

logger = logging.getLogger(__name__)


class _EveryTask(Collection[asyncio.Task[Any]]):
    """Tasks that kopf must not cancel: its own end with their parents, the others are ours."""

    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(())

    def __len__(self) -> int:
        return 0


class ActiveOperator:
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

    async def run(self, signals: StopSignals) -> str:
        """Act until the reign is over, or cancelled; return why it is."""
        loop = ReconcileLoop(self._metrics)
        served = await find_served(self._client, self._settings.watch_namespaces)
        live = LiveObjects(
            self._client, served, loop.request, closed=closed_of(self._settings, served)
        )
        self._health.begin(live)
        over = asyncio.create_task(wait_until_over(self._controller, self._identity))
        work = {
            asyncio.create_task(task, name=name)
            for name, task in self._tasks(loop, live, served, signals).items()
        }
        try:
            done, _ = await asyncio.wait({over, *work}, return_when=asyncio.FIRST_COMPLETED)
            return _describe_end(done, over)
        finally:
            await end_tasks({over, *work})
            _tell_failures(work)

    def _tasks(
        self,
        loop: ReconcileLoop,
        live: LiveObjects,
        namespaces: tuple[str, ...],
        signals: StopSignals,
    ) -> dict[str, Coroutine[Any, Any, Any]]:
        client, controller, settings = self._client, self._controller, self._settings
        events = EventWriter(client, instance=settings.pod_name)
        writer = ApiWriter(client, live, self._metrics)
        roller = BrokerRoller(live, writer, controller)
        reconciler = ClusterReconciler(
            live,
            writer,
            controller=controller,
            roller=roller,
            hibernations=HibernationWatch(live, client, roller, events),
            events=events,
            settings=settings,
        )
        deletions = Deletions(
            live, writer, controller=controller, statuses=StatusWriter(live, writer, events)
        )
        topics = self._topics(events, namespaces, loop)
        users = UserSync(client, controller, events, namespaces=namespaces)
        self._metrics.registry.register(
            ReignCounters(
                events=events.counters,
                topic_statuses=lambda: topics.statuses.written,
                user_statuses=lambda: users.reconciler.statuses_written,
            )
        )
        self._metrics.registry.register(TopicNamespaceMetrics(topics.scope))
        groups = GroupSync(client, events, namespaces=namespaces)
        self._metrics.registry.register(
            GroupMetrics(groups.scope, statuses=lambda: groups.statuses.written, looks=groups.looks)
        )
        return {
            "informers": live.run(),
            "watch of the served namespaces": wait_for_another_set(
                client, settings.watch_namespaces, namespaces
            ),
            "reconcilers": _reconcile(loop, live, reconciler),
            "kopf": _run_kopf(loop, live, deletions, namespaces, signals),
            "topics": topics.run(),
            "users": users.run(),
            "consumer groups": groups.run(),
            "rebalances": RebalanceRunner(
                client,
                controller,
                events,
                namespaces=namespaces,
                metrics=RebalanceMetrics(self._metrics.registry),
            ).run(),
            "drills": self._drills(events, namespaces).run(),
            "stream jobs": StreamJobRunner(
                client,
                events,
                clusters=live,
                operator_namespace=settings.namespace,
                default_image=settings.spark_image,
                driver_role=settings.spark_driver_role,
                namespaces=namespaces,
                metrics=StreamJobMetrics(self._metrics.registry),
            ).run(),
        }

    def _topics(
        self, events: EventWriter, namespaces: tuple[str, ...], loop: ReconcileLoop
    ) -> TopicSync:
        return TopicSync(
            self._client,
            self._controller,
            events,
            namespaces=namespaces,
            closed=closed_of(self._settings, namespaces),
            on_health=loop.request,
        )

    def _drills(self, events: EventWriter, namespaces: tuple[str, ...]) -> DrillRunner:
        settings = self._settings
        return DrillRunner(
            self._client,
            self._controller,
            events,
            metrics=DrillMetrics(self._metrics.registry),
            namespaces=namespaces,
            controller_access=ControllerAccess(
                is_allowed=settings.allows_controller_drills,
                operator_namespace=settings.namespace,
            ),
        )


def closed_of(settings: OperatorSettings, served: Collection[str]) -> frozenset[str]:
    """Return the namespaces that are to be served, and do not let us now."""
    return frozenset(settings.watch_namespaces) - frozenset(served)


async def _reconcile(loop: ReconcileLoop, live: LiveObjects, reconciler: ClusterReconciler) -> None:
    """Reconcile once all informers have synced: what was not listed yet is not missing."""
    await live.synced()
    await loop.run(reconciler)


async def _run_kopf(
    loop: ReconcileLoop,
    live: LiveObjects,
    deletions: Deletions,
    namespaces: tuple[str, ...],
    signals: StopSignals,
) -> None:
    await live.synced()
    tasks = await kopf.spawn_tasks(
        registry=build_registry(loop, deletions),
        settings=build_kopf_settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )
    signals.listen()
    await kopf.run_tasks(tasks, ignored=_EveryTask())


def _describe_end(done: set[asyncio.Task[Any]], over: asyncio.Task[str]) -> str:
    if over in done:
        return over.result()
    task = done.pop()
    error = task.exception()
    if error is not None and _is_lost_lease(error):
        return f"{task.get_name()}: the controller of this pod does not hold the Lease any more"
    return f"{task.get_name()} ended"


def _tell_failures(work: set[asyncio.Task[Any]]) -> None:
    """Log the tasks that failed, except those that only found out about the lost Lease."""
    for task in work:
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None and not _is_lost_lease(error):
            logger.error("%s failed", task.get_name(), exc_info=error)


def _is_lost_lease(error: BaseException) -> bool:
    """Tell whether a task failed only because the reign is over."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_lost_lease(inner) for inner in error.exceptions)
    return isinstance(error, ControllerStandbyError)
