"""What people may do: roles that extend Kubernetes' view, edit and admin, and a guard of deletions.

Pure builders of manifests for the operator's chart. No role may write PartitionTables and
ClusterStates: only the controller writes them.
"""

from typing import Any, Final

from fairlead_operator.resources.definition import GROUP, VERSION

Manifest = dict[str, Any]
READ: Final = ("get", "list", "watch")
WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
ALL_PLURALS: Final = (
    "brokerpools",
    "brokerpools/scale",
    "clusterstates",
    "consumergroups",
    "failoverdrills",
    "logclusters",
    "partitiontables",
    "rebalances",
    "streamjobs",
    "topics",
    "users",
)
ADMIN_PLURALS: Final = (
    "brokerpools",
    "brokerpools/scale",
    "failoverdrills",
    "logclusters",
    "rebalances",
)
"""Kinds that decide about brokers; whoever may edit may change topics, groups, jobs and users."""

PROTECTED_PLURALS: Final = ("logclusters", "topics")

_NAMESPACE_CONTROLLER: Final = "system:serviceaccount:kube-system:namespace-controller"


def build_user_roles() -> list[Manifest]:
    """Return the ClusterRoles fairlead-view, fairlead-edit and fairlead-admin.

    Kubernetes adds them to its own roles, each of which includes the one before: edit includes
    view.
    """
    return [
        _role("view", ALL_PLURALS, READ),
        _role("edit", ("consumergroups", "streamjobs", "topics", "users"), WRITE),
        _role("admin", ADMIN_PLURALS, WRITE),
    ]


def _role(name: str, plurals: tuple[str, ...], verbs: tuple[str, ...]) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": f"fairlead-{name}",
            "labels": {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"},
        },
        "rules": [{"apiGroups": [GROUP], "resources": list(plurals), "verbs": list(verbs)}],
    }


def build_deletion_protection() -> list[Manifest]:
    """Return the policy that refuses to delete objects with deletionProtection, and its binding.

    The deletion of a namespace deletes clusters and topics, too: it also deletes the volumes, so a
    refusal would save nothing and block the namespace.
    """
    name = f"deletion-protection.{GROUP}"
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["DELETE"],
        "resources": list(PROTECTED_PLURALS),
    }
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [
                {
                    "name": "namespace-stays",
                    "expression": f"request.userInfo.username != '{_NAMESPACE_CONTROLLER}'",
                }
            ],
            "validations": [
                {
                    "expression": "!has(oldObject.spec.deletionProtection) || "
                    "!oldObject.spec.deletionProtection",
                    "message": "it is protected: set spec.deletionProtection to false before you "
                    "delete it",
                    "reason": "Forbidden",
                }
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return [policy, binding]
