"""The claims that were made for checkpoints, when their jobs change later.

A claim is made with its job as its owner, unless the job says `retain` by then. If the job says so
later, the claim is freed of its owner: otherwise Kubernetes would delete it with the job. All else
about a claim stays as it was made, and an Event says so where the job asks for more.
"""

from collections.abc import Mapping
from typing import Any

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import PERSISTENT_VOLUME_CLAIM
from fairlead_kube.object_changes import ObjectKey
from fairlead_model.resources.stream_job import CheckpointClaim
from fairlead_operator.events import EventWriter
from fairlead_operator.refusals import describe_refusal, is_refusal
from fairlead_operator.resources.quantity import quantity_value
from fairlead_operator.stream_jobs.manifests import owns
from fairlead_operator.stream_jobs.names import claim_name

Manifest = dict[str, Any]


class KeptClaims:
    """The claims of all jobs."""

    def __init__(self, client: KubeClient, events: EventWriter) -> None:
        self._client = client
        self._events = events
        self._seen: dict[ObjectKey, tuple[str, int]] = {}
        """Uid and generation of each job whose claim was looked at."""

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted job."""
        self._seen.pop(key, None)

    async def look_after(
        self, key: ObjectKey, job: Manifest, claim: CheckpointClaim | None
    ) -> None:
        """Free a job's claim if the job says so, and tell what it lacks, once for each spec.

        ApiError with a conflict if somebody else changes the claim: the caller tries again.
        """
        metadata = job["metadata"]
        spec = (str(metadata["uid"]), int(metadata.get("generation") or 1))
        if self._seen.get(key) == spec:
            return
        if claim is not None and claim.size is not None:
            try:
                there = await self._client.find(PERSISTENT_VOLUME_CLAIM, key[0], claim_name(key[1]))
            except ApiError as error:
                if not is_refusal(error):
                    raise
                return  # the job goes on; its next look asks again
            if there is not None and claim.retain and owns(job, there):
                await self._free(job, there)
            if there is not None and (lacking := find_lack(claim, there)):
                await self._events.emit(job, "ClaimStays", lacking, "Warning")
        self._seen[key] = spec

    async def _free(self, job: Manifest, there: Manifest) -> None:
        metadata = there["metadata"]
        name = metadata["name"]
        others = [
            each for each in metadata["ownerReferences"] if each["uid"] != job["metadata"]["uid"]
        ]
        patch = {
            "metadata": {
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
                "ownerReferences": others or None,
            }
        }
        try:
            await self._client.patch(PERSISTENT_VOLUME_CLAIM, metadata["namespace"], name, patch)
        except ApiError as error:
            if not is_refusal(error):
                raise
            message = describe_refusal(PERSISTENT_VOLUME_CLAIM.kind, name, error)
            message += "; it would be deleted with the job, although retain is true"
            await self._events.emit(job, "ClaimNotRetained", message, "Warning")


def find_lack(claim: CheckpointClaim, there: Mapping[str, Any]) -> str:
    """Return what a job asks of a claim that was made without it; empty if there is nothing."""
    spec, name = there.get("spec") or {}, there["metadata"]["name"]
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is not None and quantity_value(str(asked)) < quantity_value(str(claim.size)):
        return (
            f"spec.checkpoint.claim.size: PersistentVolumeClaim {name} was made with {asked} and "
            "stays so: enlarge that claim itself"
        )
    if claim.shared and "ReadWriteMany" not in (spec.get("accessModes") or ("ReadWriteMany",)):
        return (
            f"spec.checkpoint.claim.shared: PersistentVolumeClaim {name} was made for one node and "
            "stays so: name another claim, to which you have copied the checkpoint"
        )
    return ""
