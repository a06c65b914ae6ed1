"""Advice if Kubernetes refuses a driver's requests, or does not know its account. Pure."""

import re
from dataclasses import dataclass
from typing import Final

# From the admission plugin ServiceAccount, which checks every new pod.
_NO_ACCOUNT: Final = re.compile(r'serviceaccount "[^"]*" not found')
# From the API server, if a permission is missing.
_NO_RIGHT: Final = 'User "system:serviceaccount:{namespace}:{account}" cannot '
RESOURCES: Final = ("configmaps", "persistentvolumeclaims", "pods", "services")
VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "watch")
"""The permissions that a driver needs in its namespace; the charts' roles have the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAccount:
    """The ServiceAccount of a job's driver, and who creates it."""

    name: str
    namespace: str
    cluster: str
    is_default: bool
    """It is the cluster's account; the job names none."""
    is_asked_for: bool
    """The field `spec.spark.driverAccount` of the LogCluster."""
    role: str
    """The role that the operator binds, as ClusterRole/NAME or Role/NAME; empty if it may not."""


def advise(problem: str, account: DriverAccount) -> str:
    """Return the problem, with advice if the account is its cause."""
    name, namespace = account.name, account.namespace
    is_missing = _NO_ACCOUNT.search(problem) is not None
    has_no_right = _NO_RIGHT.format(namespace=namespace, account=name) in problem
    if not is_missing and not has_no_right:
        return problem
    can_be_made = account.is_default and bool(account.role)
    if can_be_made and account.is_asked_for and is_missing:
        todo = "the operator makes it; if this stays, look at the conditions of LogCluster "
        return f"{problem}; {todo}{account.cluster}"
    commands = [f"kubectl create serviceaccount {name} -n {namespace}"] if is_missing else []
    commands += _grant(account)
    text = f"{problem}; do: {' && '.join(commands)}"
    if can_be_made and not account.is_asked_for and is_missing:
        text += (
            f"; or let the operator do it: kubectl patch logcluster {account.cluster} "
            f'-n {namespace} --type=merge -p \'{{"spec":{{"spark":{{"driverAccount":true}}}}}}\''
        )
    return text


def _grant(account: DriverAccount) -> list[str]:
    kind, _, role = account.role.partition("/")
    commands = []
    if not role:
        kind, role = "Role", account.name
        what = f"--verb={','.join(VERBS)} --resource={','.join(RESOURCES)}"
        commands.append(f"kubectl create role {role} -n {account.namespace} {what}")
    subject = f"--serviceaccount={account.namespace}:{account.name}"
    commands.append(
        f"kubectl create rolebinding {account.name} -n {account.namespace} "
        f"--{kind.lower()}={role} {subject}"
    )
    return commands
