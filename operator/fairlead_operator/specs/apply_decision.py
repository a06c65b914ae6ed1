"""Whether a manifest has to be applied again. Pure.

Each child carries a hash of what was last applied, so that a field which the operator no longer
sets is noticed, too. In addition, everything that the manifest says must be in the live object,
however much the API server and others have added to it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead_operator.resources.quantity import quantity_value
from fairlead_operator.specs.names import APPLIED_ANNOTATION

Manifest = dict[str, Any]


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


def is_covered(desired: object, live: object) -> bool:
    """Tell whether everything in `desired` is in `live`; lists correspond item by item."""
    if isinstance(desired, Mapping):
        if not isinstance(live, Mapping):
            return not desired and live is None
        return all(is_covered(value, live.get(name)) for name, value in desired.items())
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        if not isinstance(live, Sequence) or isinstance(live, str):
            return not desired and live is None
        return len(desired) == len(live) and all(
            is_covered(wanted, present) for wanted, present in zip(desired, live, strict=True)
        )
    if desired == live:
        return True
    if isinstance(desired, str) and isinstance(live, str):
        return _is_same_amount(desired, live)
    # Empty and absent are the same to the API server.
    return live is None and desired in ("", 0, False)


def _is_same_amount(one: str, other: str) -> bool:
    """Tell whether two texts are one amount, such as 1000m and 1; the server rewrites them."""
    try:
        return quantity_value(one) == quantity_value(other)
    except ValueError:
        return False
