"""The volume claims of a StatefulSet, which nobody can change while it exists. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from fairlead_operator.resources.storage import Volume
from fairlead_operator.specs.names import DATA_VOLUME, data_volume
from fairlead_operator.specs.views import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTemplate:
    """How the claims for one volume are made, one claim per broker."""

    volume: int
    """Id of the volume."""
    size: str
    storage_class_name: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_volume(cls, volume: Volume) -> Self:
        """Return the template that a pool requests."""
        return cls(
            volume=volume.id,
            size=volume.size,
            storage_class_name=volume.storage_class_name,
            annotations=volume.annotations,
        )


def build_claim_template(claim: ClaimTemplate, labels: Mapping[str, str]) -> Manifest:
    """Return an entry of a StatefulSet's volumeClaimTemplates."""
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": claim.size}},
    }
    if claim.storage_class_name is not None:
        spec["storageClassName"] = claim.storage_class_name
    metadata: Manifest = {"name": data_volume(claim.volume), "labels": dict(labels)}
    if claim.annotations:
        metadata["annotations"] = dict(claim.annotations)
    return {"metadata": metadata, "spec": spec}


def read_claim_templates(stateful_set: Mapping[str, Any]) -> tuple[ClaimTemplate, ...]:
    """Return the templates of a live StatefulSet for volumes of brokers."""
    return tuple(
        ClaimTemplate(
            volume=volume,
            size=template["spec"]["resources"]["requests"]["storage"],
            storage_class_name=template["spec"].get("storageClassName"),
            annotations=template["metadata"].get("annotations") or {},
        )
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ()
        if (volume := volume_of(template["metadata"]["name"])) is not None
    )


def volume_of(name: str) -> int | None:
    """Return the id of a pool's volume by its name in a pod; None for any other volume."""
    if name == DATA_VOLUME:
        return 0
    stem, _, number = name.rpartition("-")
    return int(number) if stem == DATA_VOLUME and number.isascii() and number.isdecimal() else None
