"""Whether a manifest has to be applied again. Pure.

Each child carries a hash of what was last applied, so that a field which the operator no longer
sets is noticed, too. In addition, everything in the manifest must be in the live object, whatever
the API server and others have added to it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlead_operator.resources.quantity import quantity_value
from fairlead_operator.specs.names import APPLIED_ANNOTATION

Manifest = dict[str, Any]
FAMILIES: Final = "ipFamilies"
TARGET: Final = "targetPort"
_MERGED_BY: Final[Mapping[str, Mapping[str, str | None]]] = {
    "containers": {"name": None},
    "env": {"name": None},
    "imagePullSecrets": {"name": None},
    "initContainers": {"name": None},
    "ownerReferences": {"uid": None},
    "ports": {"containerPort": None, "protocol": "TCP"},
    "volumeMounts": {"mountPath": None},
    "volumes": {"name": None},
}
"""The keys (`x-kubernetes-list-map-keys`) of lists in pods and metadata, each with its default.

Of lists called ports, only those of containers: a NetworkPolicy's are replaced as a whole."""
_SERVICE_PORT: Final = {"port": None, "protocol": "TCP"}
"""The keys of a Service's ports, which have a target, unlike other ports."""


def with_hash(desired: Manifest) -> Manifest:
    """Return the manifest with the hash of its content among its annotations."""
    content = json.dumps(desired, sort_keys=True, separators=(",", ":")).encode()
    metadata = dict(desired["metadata"])
    digest = hashlib.sha256(content).hexdigest()[:16]
    metadata["annotations"] = {**metadata.get("annotations", {}), APPLIED_ANNOTATION: digest}
    return {**desired, "metadata": metadata}


def needs_apply(desired: Manifest, live: Mapping[str, Any] | None) -> bool:
    """Tell whether the live object lacks something; `desired` carries its hash."""
    return live is None or not is_covered(desired, live)


def is_covered(desired: object, live: object, field: str = "") -> bool:
    """Tell whether everything in `desired`, the value of a field, is in `live`.

    Lists correspond item by item, except for those that the API server merges by a key: others'
    entries stay there whatever is applied.
    """
    if isinstance(desired, Mapping):
        if not isinstance(live, Mapping):
            return not desired and live is None
        return all(is_covered(value, live.get(name), name) for name, value in desired.items())
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        if not isinstance(live, Sequence) or isinstance(live, str):
            return not desired and live is None
        present = _without_others(field, desired, live)
        return len(desired) == len(present) and all(map(is_covered, desired, present))
    if desired == live:
        return True
    if isinstance(desired, str) and isinstance(live, str):
        return _is_same_amount(desired, live)
    # Empty and absent are the same to the API server.
    return live is None and desired in ("", 0, False)


def _without_others(field: str, desired: Sequence[Any], live: Sequence[Any]) -> Sequence[Any]:
    """Leave out entries of a list that others have added and an apply would not remove."""
    if field == FAMILIES:
        # With PreferDualStack the server adds the second family after ours.
        return live[: max(1, len(desired))]
    keys = _MERGED_BY.get(field, {})
    if field == "ports" and all(isinstance(each, Mapping) and TARGET in each for each in desired):
        keys = _SERVICE_PORT
    if not all(isinstance(item, Mapping) and next(iter(keys), "") in item for item in desired):
        return live

    def key_of(item: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(item.get(name, default) for name, default in keys.items())

    ours = {key_of(item) for item in desired}
    return [item for item in live if key_of(item) in ours] if ours else live


def _is_same_amount(one: str, other: str) -> bool:
    """Tell whether two texts are the same amount, such as 1000m and 1; the server rewrites them."""
    try:
        return quantity_value(one) == quantity_value(other)
    except ValueError:
        return False
