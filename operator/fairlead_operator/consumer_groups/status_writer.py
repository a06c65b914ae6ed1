"""Writes statuses of ConsumerGroups: only changes, and only over the version that was read.

Every write carries the resource's version. So an operator that has been replaced cannot undo its
successor's writes, and a reset acts only after its record is written.
"""

from collections.abc import Mapping
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.kinds import CONSUMER_GROUP
from fairlead_operator.consumer_groups.group_resource import ResourceKey, read_group_resource
from fairlead_operator.consumer_groups.group_scope import Followed, GroupScope
from fairlead_operator.consumer_groups.reset_record import ResetRecord, build_reset_status
from fairlead_operator.cut_fields import CutFields
from fairlead_operator.events import EventType, EventWriter
from fairlead_operator.topics.topic_status import build_status_patch

_EVENTS: Final[Mapping[str, tuple[str, EventType]]] = {
    "Waiting": ("OffsetResetWaiting", "Normal"),
    "Done": ("OffsetsReset", "Normal"),
    "Failed": ("OffsetResetFailed", "Warning"),
}


class GroupStatusWriter:
    """Updates the scope with its own writes before the informer does."""

    def __init__(self, client: KubeClient, scope: GroupScope, events: EventWriter) -> None:
        self.written = 0
        """Statuses written, for metrics."""
        self._client = client
        self._scope = scope
        self._events = events
        self._cut = CutFields()

    def forget(self, key: ResourceKey) -> None:
        """Forget a resource that was deleted."""
        self._cut.forget(key)

    async def write(self, followed: Followed, after: Mapping[str, Any]) -> Followed:
        """Write the differences, if any; return the resource after that.

        ApiError with a conflict if somebody else wrote meanwhile.
        """
        before = followed.manifest.get("status") or {}
        metadata, key = followed.manifest["metadata"], followed.resource.key
        fields = build_status_patch(before, after)
        fields = self._cut.without_cut(key, metadata["uid"], fields, before)
        patch = dict(fields)
        if patch.get("lastReset") and before.get("lastReset"):
            # A merge patch keeps the fields of a mapping that it does not name.
            patch["lastReset"] = build_status_patch(before["lastReset"], patch["lastReset"])
        if not patch:
            return followed
        body = {
            "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "status": patch,
        }
        answer = await self._client.patch(CONSUMER_GROUP, *key, body, subresource="status")
        self.written += 1
        if key in self._scope.groups:
            self._cut.note(key, metadata["uid"], fields, answer.get("status") or {})
        self._scope.take_answer(key, answer, before=str(metadata["resourceVersion"]))
        await self._tell_reset(answer, before.get("lastReset"), after.get("lastReset"))
        return Followed(followed.resource, answer)

    async def write_reset(self, followed: Followed, record: ResetRecord) -> Followed:
        """Write the state of a reset, and nothing else."""
        before = followed.manifest.get("status") or {}
        return await self.write(followed, before | {"lastReset": build_reset_status(record)})

    async def read(self, followed: Followed) -> Followed | None:
        """Read a resource from the API server; None if it was replaced or is being deleted.

        ApiError if it was deleted.
        """
        key = followed.resource.key
        before = self._scope.version(key)
        manifest = await self._client.get(CONSUMER_GROUP, *key)
        self._scope.take_answer(key, manifest, before=before)
        now = Followed(read_group_resource(manifest), manifest)
        is_same = now.resource.uid == followed.resource.uid and now.resource.is_ours
        return now if is_same else None

    async def warn(self, followed: Followed, reason: str, message: str) -> None:
        """Emit a Warning that a group cannot be followed."""
        await self._events.emit(followed.manifest, reason, message, "Warning")

    async def _tell_reset(
        self,
        manifest: Mapping[str, Any],
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
    ) -> None:
        fields = ("id", "phase")
        if after is None or [(before or {}).get(f) for f in fields] == [after[f] for f in fields]:
            return
        event = _EVENTS.get(after["phase"])
        if event is not None:
            message = f"reset {after['id']}: {after.get('message', '')}"
            await self._events.emit(manifest, event[0], message, event[1])
