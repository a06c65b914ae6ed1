"""Observes what a Rebalance's next step depends on: its cluster, its rivals, the controller."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.views.assignment import read_assignment
from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import LOG_CLUSTER, REBALANCE
from fairlead_operator.conditions import find_condition
from fairlead_operator.controller_client import (
    ControllerRefusedError,
    ControllerUnavailableError,
    JsonObject,
)
from fairlead_operator.rebalances.steps import (
    ACTIVE,
    ClusterSight,
    RebalanceView,
    find_obstacle,
)
from fairlead_operator.specs.views import is_cluster_paused, is_going

Manifest = Mapping[str, Any]


class RebalanceController(Protocol):
    """The methods of the controller's client that are needed here."""

    async def assignment(
        self, namespace: str, cluster: str, topics: Sequence[str] | None
    ) -> JsonObject:
        """Return where partitions are."""
        ...

    async def alter_reassignments(
        self, namespace: str, cluster: str, partitions: Sequence[JsonObject]
    ) -> list[JsonObject]:
        """Begin reassignments, or call them back; return what is refused."""
        ...

    async def elect_preferred(
        self, namespace: str, cluster: str, partitions: Sequence[JsonObject]
    ) -> list[JsonObject]:
        """Let preferred leaders lead; return those that cannot."""
        ...


class Observer:
    """Looks anew each time, and remembers nothing."""

    def __init__(self, client: KubeClient, controller: RebalanceController) -> None:
        self._client = client
        self._controller = controller

    async def look(self, rebalance: Manifest, it: RebalanceView) -> ClusterSight:
        """Observe once; ApiError and its like when the API server cannot be asked."""
        return replace(await self._look(rebalance, it), now=datetime.now(UTC))

    async def _look(self, rebalance: Manifest, it: RebalanceView) -> ClusterSight:
        namespace, cluster = rebalance["metadata"]["namespace"], it.spec.cluster_name
        presence = await self._find_cluster(namespace, cluster)
        if presence == "Absent":
            return ClusterSight(presence=presence)
        other = ""
        if it.phase not in ACTIVE:
            # Asked of the API server: the informer may not have heard of one that has just begun.
            listed = await self._client.list(REBALANCE, namespace)
            other = find_other(rebalance, cluster, listed.items)
            if other or presence != "Present":
                return ClusterSight(presence=presence, other=other)
        if it.phase == "Pending":
            return await self._look_at_everything(namespace, it)
        topics = sorted({move["topic"] for move in it.plan["moves"]})
        state = await self._read_state(namespace, cluster, topics)
        return ClusterSight(presence=presence, state=state)

    async def _look_at_everything(self, namespace: str, it: RebalanceView) -> ClusterSight:
        """Read all partitions, but only once the brokers alone are nothing to wait for."""
        cluster = it.spec.cluster_name
        brokers = ClusterSight(state=await self._read_state(namespace, cluster, []))
        if find_obstacle(it, brokers) is not None:
            return brokers
        return ClusterSight(state=await self._read_state(namespace, cluster, None))

    async def _find_cluster(
        self, namespace: str, name: str
    ) -> Literal["Absent", "Paused", "Changing", "Present"]:
        try:
            manifest = await self._client.get(LOG_CLUSTER, namespace, name)
        except ApiError as error:
            if error.is_not_found:
                return "Absent"
            raise
        if is_cluster_paused(manifest):
            return "Paused"
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        progressing = find_condition(conditions, "Progressing") or {}
        if is_going(manifest) or progressing.get("status") == "True":
            return "Changing"
        return "Present"

    async def _read_state(
        self, namespace: str, cluster: str, topics: Sequence[str] | None
    ) -> ControllerState | None:
        try:
            answer = await self._controller.assignment(namespace, cluster, topics)
        except (ControllerUnavailableError, ControllerRefusedError):
            return None
        return await asyncio.to_thread(read_assignment, answer)


def find_other(rebalance: Manifest, cluster: str, all_of_them: Iterable[Manifest]) -> str:
    """Return another Rebalance of the cluster that is under way; empty if there is none."""
    names = [
        str(other["metadata"]["name"])
        for other in all_of_them
        if other["metadata"]["uid"] != rebalance["metadata"]["uid"]
        and (other.get("spec") or {}).get("clusterName") == cluster
        and (other.get("status") or {}).get("phase") in ACTIVE
    ]
    return min(names, default="")
