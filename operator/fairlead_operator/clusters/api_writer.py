"""Writes to the API server; counts them, and remembers them until the informers catch up."""

from typing import Any

from fairlead_controller.stores.kubernetes_tables import DELETE_WITH_LABEL
from fairlead_kube.client import JSON_PATCH, KubeClient
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import CLUSTER_STATE, CONFIG_MAP, ResourceKind
from fairlead_operator.clusters.plan import WantedObject
from fairlead_operator.live_objects import LiveObjects, Manifest, version_of
from fairlead_operator.metrics import OperatorMetrics
from fairlead_operator.ownership import is_same_owner
from fairlead_operator.refusals import OtherOwnerError
from fairlead_operator.specs.names import CLUSTER_LABEL, FIELD_MANAGER


class ApiWriter:
    """All writes of reconcilers go through this class."""

    def __init__(self, client: KubeClient, live: LiveObjects, metrics: OperatorMetrics) -> None:
        self._client = client
        self._live = live
        self._metrics = metrics

    async def apply(self, child: WantedObject) -> None:
        """Apply a child's manifest on the server; OtherOwnerError if another owner has the object.

        If no such object of this cluster is known, the server is asked first: names are composed,
        so those of two clusters of a namespace may collide.
        """
        metadata = child.manifest["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        seen = self._live.seen(child.kind, namespace, name)
        before = version_of(seen)
        if seen is None or not is_same_owner(seen, child.manifest, CLUSTER_LABEL):
            there = await self.find(child.kind, child.manifest)
            if there is not None and not is_same_owner(there, child.manifest, CLUSTER_LABEL):
                cluster = metadata["labels"][CLUSTER_LABEL]
                raise OtherOwnerError(child.kind.kind, name, f"LogCluster {cluster}")
        answer = await self._client.apply(
            child.kind, namespace, name, child.manifest, field_manager=FIELD_MANAGER
        )
        self._note("apply", child.kind, namespace, name, answer, before=before)

    async def write_status(
        self, kind: ResourceKind, live: Manifest, status: dict[str, Any]
    ) -> Manifest:
        """Write a status if it differs from the present one; return what the server has now.

        ApiError with a conflict if the object was deleted and created again meanwhile.
        """
        before = live.get("status") or {}
        names = before.keys() | status.keys()
        if all(before.get(name) == status.get(name) for name in names):
            return before
        metadata = live["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        seen = self._live.seen_version(kind, namespace, name)
        answer = await self._client.write_status(kind, namespace, name, status, uid=metadata["uid"])
        self._note("status", kind, namespace, name, answer, before=seen)
        return dict(answer.get("status") or {})

    async def patch(
        self, kind: ResourceKind, namespace: str, name: str, patch: dict[str, Any]
    ) -> None:
        """Change an object by a merge patch."""
        before = self._live.seen_version(kind, namespace, name)
        answer = await self._client.patch(kind, namespace, name, patch)
        self._note("patch", kind, namespace, name, answer, before=before)

    async def mark_tables(self, namespace: str, cluster: str, *, uid: str) -> None:
        """Mark the metadata of a cluster, if it has any, for deletion with this LogCluster."""
        patch = {"metadata": {"labels": {DELETE_WITH_LABEL: uid}}}
        try:
            await self._client.patch(CLUSTER_STATE, namespace, cluster, patch)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return
        self._metrics.writes.labels(CLUSTER_STATE.kind, "patch").inc()

    async def find(self, kind: ResourceKind, manifest: Manifest) -> Manifest | None:
        """Return an object of this name and an unwatched kind; None if it does not exist."""
        metadata = manifest["metadata"]
        return await self._client.find(kind, metadata["namespace"], metadata["name"])

    async def is_namespace_going(self, namespace: str) -> bool:
        """Tell whether a namespace is being deleted: then the server creates nothing in it.

        A dry run of a creation finds out: that needs no permission to read namespaces.
        """
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "try-"}}
        try:
            await self._client.create(CONFIG_MAP, namespace, body, is_dry_run=True)
        except ApiError as error:
            if error.is_namespace_going:
                return True
            raise
        return False

    async def create(self, kind: ResourceKind, manifest: Manifest) -> bool:
        """Create an object, unless it exists; tell whether it was created."""
        try:
            await self._client.create(kind, manifest["metadata"]["namespace"], manifest)
        except ApiError as error:
            if error.is_conflict:
                return False
            raise
        self._metrics.writes.labels(kind.kind, "create").inc()
        return True

    async def replace_spec(self, kind: ResourceKind, manifest: Manifest) -> None:
        """Replace the spec of an object of an unwatched kind."""
        metadata = manifest["metadata"]
        patch = [{"op": "replace", "path": "/spec", "value": manifest["spec"]}]
        await self._client.patch(
            kind, metadata["namespace"], metadata["name"], patch, content_type=JSON_PATCH
        )
        self._metrics.writes.labels(kind.kind, "patch").inc()

    async def delete(
        self, kind: ResourceKind, live: Manifest, *, keeps_dependents: bool = False
    ) -> None:
        """Delete exactly this object, by its uid; do nothing if it was deleted or replaced."""
        metadata = live["metadata"]
        try:
            await self._client.delete(
                kind,
                metadata["namespace"],
                metadata["name"],
                uid=metadata["uid"],
                keeps_dependents=keeps_dependents,
            )
        except ApiError as error:
            if not error.is_not_found and not error.is_conflict:
                raise
            return
        self._metrics.writes.labels(kind.kind, "delete").inc()

    def _note(
        self,
        verb: str,
        kind: ResourceKind,
        namespace: str,
        name: str,
        answer: Manifest,
        *,
        before: str,
    ) -> None:
        self._metrics.writes.labels(kind.kind, verb).inc()
        answer["metadata"].pop("managedFields", None)
        self._live.note_written(kind, namespace, name, answer, before=before)
