"""The volumes of a pool's brokers: one, or several, each of which is a log directory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from fairlead_model.resources.resource_shape import Bound, Rule, Text, Whole
from fairlead_operator.resources.quantity import quantity_value

VOLUMES_MAX: Final = 16
VOLUME_ID_MAX: Final = 999
LOG_DIRECTORIES_VARIABLE: Final = "FAIRLEAD_LOG_DIRS"
"""Variable in which a pod with several volumes lists its log directories."""

ONLY_GROWS: Final = (
    "volumes can only grow: set at least the present size, or make a new pool and move the "
    "partitions there"
)
NEVER_REMOVED: Final = (
    "a volume cannot be removed while it may hold replicas: drain it on each broker first "
    "(fairlead broker disks ID --drain FOLDER --wait), until its drainedOn in status.volumes lists "
    "them all"
)
_CLASS_STAYS: Final = (
    "the storage class of a pool cannot be changed: make a new pool and move the partitions there"
)
_ANNOTATIONS_STAY: Final = (
    "annotations apply only when volumes are created: annotate the existing "
    "PersistentVolumeClaims, or make a new pool"
)
_FIRST_STAYS: Final = (
    "volume 0 is the volume that the pool had before: leave its storageClassName and "
    "annotations out, because spec.storage has them"
)
_SAME_CLASS: Final = (
    "has(self.storageClassName) == has(oldSelf.storageClassName) && "
    "(!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)"
)
_SAME_ANNOTATIONS: Final = (
    "has(self.annotations) == has(oldSelf.annotations) && "
    "(!has(self.annotations) || self.annotations == oldSelf.annotations)"
)
_SIZE: Final = Text(
    maximum=32,
    minimum=1,
    pattern=r"[0-9]{1,15}(\.[0-9]{1,9})?(k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?",
    hint="write a size such as 500Mi or 100Gi",
)
_Annotations = Mapping[str, Annotated[str, Text(4096)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """One of several volumes of each broker."""

    RULES: ClassVar = (
        Rule(
            cel="quantity(self.size).isGreaterThan(quantity('0'))",
            message="a volume needs a size above 0",
            field="size",
            holds=lambda volume: quantity_value(volume.size) > 0,
        ),
        # The API server compares list entries of the same id; for readers, Storage has the rules.
        Rule(cel=_SAME_CLASS, message=_CLASS_STAYS, field="storageClassName"),
        Rule(cel=_SAME_ANNOTATIONS, message=_ANNOTATIONS_STAY, field="annotations"),
    )

    id: Annotated[
        int,
        "Number of the volume, from which its claims and its folder get their names; it never "
        "changes. Volume 0 is the volume that a pool with spec.storage.size has.",
        Whole(0, VOLUME_ID_MAX),
    ]
    size: Annotated[
        str,
        "Size of this volume of each broker, such as 100Gi. It may only grow. If the volumes "
        "could not grow to it, it may be set back.",
        _SIZE,
    ]
    storage_class_name: Annotated[
        str | None,
        "StorageClass of this volume; it cannot be changed. Default: the class in spec.storage.",
        Text(253, 1),
    ] = None
    annotations: Annotated[
        _Annotations,
        "Annotations that this volume's claims are made with. Default: those of spec.storage.",
        Bound(32),
    ] = field(default_factory=dict)


def _has_one_kind(storage: "Storage") -> bool:
    return (storage.size is None) != (not storage.volumes)


def _has_first(storage: "Storage") -> bool:
    return not storage.volumes or any(volume.id == 0 for volume in storage.volumes)


def _keeps_sizes(old: "Storage", new: "Storage") -> bool:
    before = {volume.id: volume.size for volume in old.each_volume}
    return all(
        quantity_value(volume.size) >= quantity_value(before.get(volume.id, "0"))
        for volume in new.each_volume
    )


def _keeps_volumes(old: "Storage", new: "Storage") -> bool:
    return {volume.id for volume in old.each_volume} <= {volume.id for volume in new.each_volume}


def _keeps_first(old: "Storage", new: "Storage") -> bool:
    """Tell whether volume 0 stays the same when one volume becomes several, or back."""
    if bool(old.volumes) == bool(new.volumes):
        return True
    first = next(each for each in (*old.volumes, *new.volumes) if each.id == 0)
    return first.storage_class_name is None and not first.annotations


def _keeps_classes(old: "Storage", new: "Storage") -> bool:
    before = {volume.id: volume.storage_class_name for volume in old.volumes}
    return old.storage_class_name == new.storage_class_name and all(
        before.get(volume.id, volume.storage_class_name) == volume.storage_class_name
        for volume in new.volumes
    )


def _keeps_annotations(old: "Storage", new: "Storage") -> bool:
    before = {volume.id: volume.annotations for volume in old.volumes}
    return old.annotations == new.annotations and all(
        before.get(volume.id, volume.annotations) == volume.annotations for volume in new.volumes
    )


_SEVERAL: Final = "(has({0}.volumes) && {0}.volumes.size() > 0)"
_PLAIN_FIRST: Final = (
    "{0}.volumes.all(v, v.id != 0 || (!has(v.storageClassName) && !has(v.annotations)))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The volume of each broker, or its volumes."""

    RULES: ClassVar = (
        Rule(
            cel=f"has(self.size) != {_SEVERAL.format('self')}",
            message="a pool has either size, for one volume of each broker, or volumes: set one of "
            "them",
            holds=_has_one_kind,
        ),
        Rule(
            cel=f"!{_SEVERAL.format('self')} || self.volumes.exists(v, v.id == 0)",
            message="volumes need one with the id 0: it is the first log directory of a broker, "
            "and the one that a pool with a size has",
            field="volumes",
            holds=_has_first,
        ),
        Rule(
            cel="!has(self.size) || quantity(self.size).isGreaterThan(quantity('0'))",
            message="a volume needs a size above 0",
            field="size",
            holds=lambda storage: storage.size is None or quantity_value(storage.size) > 0,
        ),
        Rule(
            cel="",  # rules below the root, which also see the status
            message=ONLY_GROWS,
            holds_change=_keeps_sizes,
        ),
        Rule(cel="", message=NEVER_REMOVED, field="volumes", holds_change=_keeps_volumes),
        Rule(
            cel=f"{_SEVERAL.format('self')} == {_SEVERAL.format('oldSelf')} || "
            f"({_SEVERAL.format('self')} ? {_PLAIN_FIRST.format('self')} : "
            f"{_PLAIN_FIRST.format('oldSelf')})",
            message=_FIRST_STAYS,
            field="volumes",
            holds_change=_keeps_first,
        ),
        Rule(
            cel=_SAME_CLASS,
            message=_CLASS_STAYS,
            field="storageClassName",
            holds_change=_keeps_classes,
        ),
        Rule(
            cel=_SAME_ANNOTATIONS,
            message=_ANNOTATIONS_STAY,
            field="annotations",
            holds_change=_keeps_annotations,
        ),
    )

    size: Annotated[
        str | None,
        "Size of each broker's only volume, such as 100Gi; instead of volumes. It may only "
        "grow. If the volumes could not grow to it, it may be set back.",
        _SIZE,
    ] = None
    volumes: Annotated[
        tuple[Volume, ...],
        "Several volumes of each broker, instead of size; each is one of its log directories. "
        "One of them has the id 0. A volume may be added: brokers restart one by one and place "
        "new replicas in the log directory that has the fewest. A volume may be removed once "
        "it is drained on all brokers.",
        Bound(VOLUMES_MAX, key="id"),
    ] = ()
    storage_class_name: Annotated[
        str | None,
        "StorageClass of the volumes that do not name their own; it cannot be changed. "
        "Default: the default class.",
        Text(253, 1),
    ] = None
    annotations: Annotated[
        _Annotations,
        "Annotations that the volumes' claims are made with. They cannot be changed here: annotate "
        "the PersistentVolumeClaims.",
        Bound(32),
    ] = field(default_factory=dict)

    @property
    def each_volume(self) -> tuple[Volume, ...]:
        """Its volumes in the order of their ids, each with all settings that apply to it."""
        volumes = self.volumes or (Volume(id=0, size=self.size or ""),)
        return tuple(
            Volume(
                id=volume.id,
                size=volume.size,
                storage_class_name=volume.storage_class_name or self.storage_class_name,
                annotations=volume.annotations or self.annotations,
            )
            for volume in sorted(volumes, key=lambda volume: volume.id)
        )


def _of_first(spec: str, variable: str, claim: Callable[[str], str]) -> str:
    """Return CEL about the size of volume 0, wherever a spec has it.

    The API server cannot bound the length of a text that a filter or a choice has found.
    """
    one, entry = claim(f"{spec}.storage.size"), claim(f"{variable}.size")
    several = f"{spec}.storage.volumes.all({variable}, {variable}.id != 0 || {entry})"
    return f"(has({spec}.storage.size) ? {one} : {several})"


def _at_least(new: str) -> Callable[[str], str]:
    return lambda old: f"quantity({new}).compareTo(quantity({old})) >= 0"


FIRST_GROWS_CEL: Final = (
    # A size that the volumes never got may be set back.
    _of_first("self.spec", "v", lambda new: _of_first("oldSelf.spec", "o", _at_least(new)))
    + " || (has(self.status) && has(self.status.storageSize) && "
    + _of_first("self.spec", "v", lambda new: _at_least(new)("self.status.storageSize"))
    + ")"
)
OTHERS_GROW_CEL: Final = (
    "!has(self.spec.storage.volumes) || !has(oldSelf.spec.storage.volumes) || "
    "self.spec.storage.volumes.all(v, v.id == 0 || "
    "oldSelf.spec.storage.volumes.all(o, o.id != v.id || "
    "quantity(v.size).compareTo(quantity(o.size)) >= 0) || "
    "(has(self.status) && has(self.status.volumes) && "
    "self.status.volumes.exists(s, s.id == v.id && "
    "quantity(v.size).compareTo(quantity(s.size)) >= 0)))"
)
VOLUMES_STAY_CEL: Final = (
    # A volume that no broker has yet, or that all brokers have emptied, may be removed.
    "!has(oldSelf.spec.storage.volumes) || oldSelf.spec.storage.volumes.all(o, o.id == 0 || "
    "(has(self.spec.storage.volumes) && self.spec.storage.volumes.exists(v, v.id == o.id)) || "
    "(has(self.status) && has(self.status.volumes) && "
    "self.status.volumes.exists(s, s.id == o.id && (s.bound == 0 || "
    "(has(s.drainedOn) && s.drainedOn.size() >= s.bound)))))"
)
"""Rules below the root of a BrokerPool, which also see its status."""
