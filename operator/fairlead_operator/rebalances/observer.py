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
from fairlead_kube.kinds import FAILOVER_DRILL, LOG_CLUSTER, REBALANCE
from fairlead_operator.conditions import find_condition, is_asleep
from fairlead_operator.controller_client import (
    ControllerRefusedError,
    ControllerUnavailableError,
    JsonObject,
)
from fairlead_operator.drills.steps import ACTIVE as DRILL_ACTIVE
from fairlead_operator.rebalances.steps import (
    ACTIVE,
    FINAL,
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
        """Begin reassignments, or cancel them; return the refusals."""
        ...

    async def elect_preferred(
        self, namespace: str, cluster: str, partitions: Sequence[JsonObject]
    ) -> list[JsonObject]:
        """Elect preferred leaders; return the partitions for which that is impossible."""
        ...


class Observer:
    """Observes anew each time, and remembers nothing."""

    def __init__(self, client: KubeClient, controller: RebalanceController) -> None:
        self._client = client
        self._controller = controller

    async def look(self, rebalance: Manifest, it: RebalanceView) -> ClusterSight:
        """Observe once; ApiError or ApiUnavailableError if the API server does not answer."""
        return replace(await self._look(rebalance, it), now=datetime.now(UTC))

    async def _look(self, rebalance: Manifest, it: RebalanceView) -> ClusterSight:
        namespace, cluster = rebalance["metadata"]["namespace"], it.spec.cluster_name
        presence = await self._find_cluster(namespace, cluster)
        if presence == "Absent":
            return ClusterSight(presence=presence)
        seen = ClusterSight(presence=presence)
        if it.phase not in ACTIVE:
            # The API server is asked: the informer may not have a Rebalance that has just begun.
            listed = (await self._client.list(REBALANCE, namespace)).items
            automatic = find_automatic(rebalance, cluster, listed) if it.is_automatic else ""
            other = find_other(rebalance, cluster, listed)
            seen = replace(seen, other=other, automatic=automatic)
        if it.phase not in ACTIVE or it.is_automatic:
            drills = (await self._client.list(FAILOVER_DRILL, namespace)).items
            seen = replace(seen, drill=find_drill(cluster, drills))
        if it.phase in ACTIVE:
            # A plan that has begun is followed, whatever else happens.
            return replace(seen, state=await self._read_moved(namespace, it))
        if seen.other or seen.automatic or seen.drill or presence != "Present":
            return seen
        if it.phase == "ProposalReady":
            return replace(seen, state=await self._read_moved(namespace, it))
        return await self._look_at_everything(namespace, it)

    async def _read_moved(self, namespace: str, it: RebalanceView) -> ControllerState | None:
        """Read the topics of a plan."""
        topics = sorted({move["topic"] for move in it.plan["moves"]})
        return await self._read_state(namespace, it.spec.cluster_name, topics)

    async def _look_at_everything(self, namespace: str, it: RebalanceView) -> ClusterSight:
        """Read all partitions, but only if the brokers alone give no reason to wait."""
        cluster = it.spec.cluster_name
        brokers = ClusterSight(state=await self._read_state(namespace, cluster, []))
        if brokers.state is None or find_obstacle(it, brokers) is not None:
            return brokers
        if it.known_brokers == frozenset(brokers.state.image.brokers):
            return brokers
        state = await self._read_state(namespace, cluster, None)
        return ClusterSight(state=state, is_whole=state is not None)

    async def _find_cluster(
        self, namespace: str, name: str
    ) -> Literal["Absent", "Paused", "Hibernated", "Changing", "Present"]:
        try:
            manifest = await self._client.get(LOG_CLUSTER, namespace, name)
        except ApiError as error:
            if error.is_not_found:
                return "Absent"
            raise
        if is_cluster_paused(manifest):
            return "Paused"
        if (manifest.get("spec") or {}).get("hibernated") is True or is_asleep(manifest):
            return "Hibernated"
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


def find_automatic(rebalance: Manifest, cluster: str, all_of_them: Iterable[Manifest]) -> str:
    """Return an older Rebalance of the mode Auto for the cluster; empty if there is none."""

    def age(manifest: Manifest) -> tuple[str, str]:
        metadata = manifest["metadata"]
        return str(metadata.get("creationTimestamp") or ""), str(metadata["name"])

    older = [
        age(other)
        for other in all_of_them
        if other["metadata"]["uid"] != rebalance["metadata"]["uid"]
        and (other.get("spec") or {}).get("clusterName") == cluster
        and (other.get("spec") or {}).get("mode") == "Auto"
        and (other.get("status") or {}).get("phase") not in FINAL
        and age(other) < age(rebalance)
    ]
    return min(older, default=("", ""))[1]


def find_drill(cluster: str, drills: Iterable[Manifest]) -> str:
    """Return a drill of the cluster that is under way; empty if there is none."""
    names = [
        str(drill["metadata"]["name"])
        for drill in drills
        if (drill.get("spec") or {}).get("clusterName") == cluster
        and (drill.get("status") or {}).get("phase") in DRILL_ACTIVE
    ]
    return min(names, default="")


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
