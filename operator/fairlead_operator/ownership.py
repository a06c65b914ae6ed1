"""Whose an object is that has the name of one of ours.

Informers show only objects with the operator's labels, and a server-side apply takes fields from
any other owner. So an object of such a name is read before it is changed or deleted.
"""

from collections.abc import Mapping
from typing import Any

from fairlead_operator.specs.names import MANAGED_BY_LABEL


def is_same_owner(there: Mapping[str, Any], wanted: Mapping[str, Any], label: str) -> bool:
    """Tell whether an object is of the owner that wants it, by its labels or its owner's uid.

    `label` is the one whose value names the owner, such as the cluster.
    """
    labels = there["metadata"].get("labels") or {}
    ours = wanted["metadata"]["labels"]
    if all(labels.get(each) == ours[each] for each in (MANAGED_BY_LABEL, label)):
        return True
    # Somebody may have taken a label off.
    return not _owners(there).isdisjoint(_owners(wanted))


def _owners(manifest: Mapping[str, Any]) -> set[str]:
    return {each["uid"] for each in manifest["metadata"].get("ownerReferences") or ()}
