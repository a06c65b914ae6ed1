"""The account of a cluster's Spark drivers, and what to do with existing objects. Pure.

The operator creates no Roles and cannot: its chart has a role with a driver's permissions, and the
operator may bind only that role. Objects of these names that others have created stay unchanged.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from fairlead_kube.kinds import ROLE_BINDING, SERVICE_ACCOUNT
from fairlead_operator.specs.apply_decision import is_covered
from fairlead_operator.specs.names import COMPONENT_LABEL, cluster_labels, driver_account_name
from fairlead_operator.specs.session_secret import is_leftover
from fairlead_operator.specs.views import ClusterView, Manifest, build_child

DRIVER_COMPONENT = "spark-driver"


class AccountStep(Enum):
    """What to do with one object of the account."""

    KEEP = auto()
    """It is as it should be."""
    CREATE = auto()
    DELETE = auto()
    """It is ours and not wanted, or has to be replaced: a binding's role cannot be changed."""
    WAIT = auto()
    """It belongs to an earlier LogCluster of this name; Kubernetes is about to delete it."""
    LEAVE = auto()
    """Somebody else created it."""


def build_driver_account(cluster: ClusterView) -> Manifest:
    """Return the ServiceAccount."""
    return build_child(
        SERVICE_ACCOUNT, cluster, driver_account_name(cluster.name), _labels(cluster)
    )


def build_driver_binding(cluster: ClusterView, role: str) -> Manifest:
    """Return the RoleBinding; `role` is ClusterRole/NAME or Role/NAME."""
    name = driver_account_name(cluster.name)
    kind, _, role_name = role.partition("/")
    manifest = build_child(ROLE_BINDING, cluster, name, _labels(cluster))
    return manifest | {
        "roleRef": {"apiGroup": ROLE_BINDING.group, "kind": kind, "name": role_name},
        "subjects": [{"kind": SERVICE_ACCOUNT.kind, "name": name, "namespace": cluster.namespace}],
    }


def decide_account_step(
    desired: Manifest, live: Mapping[str, Any] | None, cluster: ClusterView
) -> AccountStep:
    """Return what to do with one object, given the live object of its name."""
    is_wanted = cluster.spec.spark.driver_account
    if live is None:
        return AccountStep.CREATE if is_wanted else AccountStep.KEEP
    owners = {entry["uid"] for entry in live["metadata"].get("ownerReferences") or ()}
    if is_leftover(live, cluster.uid):
        return AccountStep.WAIT if is_wanted else AccountStep.LEAVE
    if cluster.uid not in owners:
        return AccountStep.LEAVE
    # Labels are ignored: an account that is created again would cost running drivers their rights.
    said = {name: value for name, value in desired.items() if name != "metadata"}
    return AccountStep.KEEP if is_wanted and is_covered(said, live) else AccountStep.DELETE


def _labels(cluster: ClusterView) -> dict[str, str]:
    return cluster_labels(cluster.name) | {COMPONENT_LABEL: DRIVER_COMPONENT}
