"""Tables whose LogCluster was deleted while no controller was there to delete them.

Before a LogCluster with `reclaimPolicy: Delete` is removed, its ClusterState is marked with its
uid. That object is deleted last, so the next controller finds the mark after any interruption.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fairlead_controller.kubernetes.session_gate import ClusterKey
from fairlead_controller.stores.kubernetes_tables import DELETE_WITH_LABEL
from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import CLUSTER_STATE


async def find_marked_tables(
    client: KubeClient, namespaces: Collection[str]
) -> dict[ClusterKey, str]:
    """Return the clusters whose tables are marked, with the uid of the LogCluster.

    `namespaces`: empty for all. If one of several namespaces forbids the list, its tables are left
    to the next controller. ApiError or ApiUnavailableError if the caller has to try again.
    """
    marks: dict[ClusterKey, str] = {}
    refusals: list[ApiError] = []
    places: Collection[str | None] = namespaces or [None]
    for namespace in places:
        try:
            listing = await client.list(CLUSTER_STATE, namespace, label_selector=DELETE_WITH_LABEL)
        except ApiError as error:
            if not error.is_forbidden:
                raise
            refusals.append(error)
        else:
            marks |= read_marks(listing.items)
    if len(refusals) == len(places):
        raise refusals[0]
    return marks


def read_marks(states: Iterable[Mapping[str, Any]]) -> dict[ClusterKey, str]:
    """Read the marks of ClusterStates."""
    return {
        (metadata["namespace"], metadata["name"]): metadata["labels"][DELETE_WITH_LABEL]
        for metadata in (state["metadata"] for state in states)
        if (metadata.get("labels") or {}).get(DELETE_WITH_LABEL)
    }
