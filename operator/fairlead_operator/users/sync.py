"""Users between the API server and the controller.

There are no kopf handlers here, as for Topics: an informer reports resources, and their keys wait
in a queue. When nothing changes, nothing is written.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from fairlead_kube.client import KubeClient
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import LOG_CLUSTER, SECRET, USER
from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.controller_client import (
    CandidateState,
    ControllerRefusedError,
    ControllerStandbyError,
    ControllerUnavailableError,
)
from fairlead_operator.events import EventWriter
from fairlead_operator.specs.names import (
    CLUSTER_LABEL,
    authority_secret_name,
    trust_secret_name,
)
from fairlead_operator.topics.topic_resource import ClusterKey, ResourceKey, differs_for_us
from fairlead_operator.topics.work_queue import WorkQueue
from fairlead_operator.users.reconciler import UserController, UserReconciler
from fairlead_operator.users.user_scope import UserScope
from fairlead_operator.users.user_secret import USER_LABEL
from fairlead_operator.users.user_secrets import UserSecrets

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""How often to check for new reigns."""


class UserSyncController(UserController, Protocol):
    """The methods of the controller's client that are needed here."""

    async def state(self) -> CandidateState:
        """Return the controller's state for each cluster."""
        ...


def _wall_clock() -> datetime:
    return datetime.now(UTC)


class UserSync:
    """The synchronization of all Users; `namespace` is the watch scope, empty for all."""

    def __init__(
        self,
        client: KubeClient,
        controller: UserSyncController,
        events: EventWriter,
        *,
        namespaces: Collection[str] = (),
        now: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = _wall_clock,
    ) -> None:
        self.scope = UserScope()
        self._controller = controller
        self._queue: WorkQueue[ResourceKey] = WorkQueue(now)
        self._clusters = Informer(
            client, LOG_CLUSTER, namespaces=namespaces, on_change=self._on_cluster
        )
        self._users = Informer(client, USER, namespaces=namespaces, on_change=self._on_user)
        self._secrets = Informer(
            client,
            SECRET,
            namespaces=namespaces,
            label_selector=CLUSTER_LABEL,
            on_change=self._on_secret,
        )
        self._user_secrets = UserSecrets(
            client, self._secrets.objects.get, events, wall_clock=wall_clock
        )
        self.reconciler = UserReconciler(
            client,
            controller,
            self.scope,
            self._queue,
            secrets=self._user_secrets,
            events=events,
            wall_clock=wall_clock,
        )

    async def run(self) -> None:
        """Work until cancelled, or until the controller is no longer active.

        The latter shows as a ControllerStandbyError inside an exception group.
        """
        informers = (self._clusters, self._users, self._secrets)
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run())
            for informer in informers:
                await informer.synced()
            group.create_task(self._follow_reigns())
            group.create_task(self.reconciler.run())

    async def _follow_reigns(self) -> None:
        """Tell each new reign which resources exist, and have all of them checked.

        Its tables may be restored ones, with declarations of deleted resources. In a namespace
        whose Users may not be read, unknown Users do not count as deleted: the reign is told
        afterwards.
        """
        while True:
            try:
                state = await self._controller.state()
            except (ControllerUnavailableError, ControllerRefusedError) as error:
                logger.info("Users wait for the controller: %s", error)
            else:
                if not state.is_active:
                    raise ControllerStandbyError("this pod's controller does not hold the Lease")
                # Concurrently: a controller that cannot make changes durable answers late.
                async with asyncio.TaskGroup() as telling:
                    for cluster in self.scope.clusters:
                        reign = state.clusters.get("/".join(cluster))
                        epoch = 0 if reign is None else reign.controller_epoch
                        is_told = self.scope.epochs.get(cluster) == epoch
                        if epoch and not is_told and not self._users.is_hidden(cluster[0]):
                            telling.create_task(self._begin_reign(cluster, epoch))
            await asyncio.sleep(LOOK_S)

    async def _begin_reign(self, cluster: ClusterKey, epoch: int) -> None:
        request: dict[str, Any] = {"isComplete": True, "keep": self.scope.names_to_keep(cluster)}
        try:
            await self._controller.apply_users(*cluster, request)
        except (ControllerUnavailableError, ControllerRefusedError) as error:
            # The error concerns only this cluster: the others go on.
            logger.info("Users of %s/%s wait for the controller: %s", *cluster, error)
            return
        except ControllerStandbyError:
            raise
        except Exception:
            logger.exception("Users of %s/%s: an unexpected error", *cluster)
            return
        self.scope.epochs[cluster] = epoch
        self._add_all(cluster)

    def _on_user(self, change: ObjectChange) -> None:
        is_news = change.old is None or change.new is None or differs_for_us(change.old, change.new)
        concerned = self.scope.take(change.key, change.new)
        if change.new is None:
            self._user_secrets.forget(change.key)
            self.reconciler.forget(change.key)
        if is_news:
            for key in (change.key, *concerned):
                self._queue.add(key)

    def _on_cluster(self, change: ObjectChange) -> None:
        if change.new is None:
            for known in (self.scope.clusters, self.scope.epochs, self.scope.gone):
                known.pop(change.key, None)
        else:
            self.scope.clusters[change.key] = change.new
        if change.old is None or change.new is None or differs_for_us(change.old, change.new):
            self._add_all(change.key)
            self._add_all((change.key[0], NAMELESS))

    def _on_secret(self, change: ObjectChange) -> None:
        """Check the User of a Secret, or all Users whose certificates or trust it affects."""
        manifest = change.new or change.old or {}
        labels: Mapping[str, str] = manifest["metadata"].get("labels") or {}
        if USER_LABEL in labels:
            self._queue.add(change.key)
            return
        namespace, name = change.key
        cluster = labels.get(CLUSTER_LABEL, "")
        if name in {trust_secret_name(cluster), authority_secret_name(cluster)}:
            self._add_all((namespace, cluster))

    def _add_all(self, cluster: ClusterKey) -> None:
        for key in self.scope.of_cluster(cluster):
            self._queue.add(key)


NAMELESS: Final = ""
"""Stands for the cluster of Users that name none."""
