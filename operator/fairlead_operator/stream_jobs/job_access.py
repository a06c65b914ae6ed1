"""Where a job connects to its LogCluster, and as which user; or why it cannot. Pure.

A job without a user needs a listener inside Kubernetes without authentication. A job that names a
User gets that User's Secret mounted. So the User has to confirm that its Secret has this name,
which only the operator writes there.

A job in another namespace than its LogCluster names a Secret of its own namespace. The owner of
that namespace has put it there: the operator copies no Secret between namespaces, because that
would give a User's rights to everybody who may create jobs there. A driver creates pods, and so can
mount any Secret of its namespace anyway: naming a Secret in a job gives its author nothing new.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fairlead_model.resources.stream_job import JobLogin
from fairlead_operator.resources.listener import DEFAULT_LISTENER
from fairlead_operator.resources.user import LoginType
from fairlead_operator.specs.client_access import INSIDE, find_access
from fairlead_operator.specs.names import bootstrap_service_name
from fairlead_operator.stream_jobs.steps import Obstacle

LOGINS: Final[tuple[LoginType, ...]] = ("scram-sha-512", "tls")
"""Logins of Users that a job supports."""


class JobAccess(NamedTuple):
    """Addresses of the brokers, and what prevents access, if anything does."""

    bootstrap: str
    obstacle: Obstacle | None = None


def find_open_access(
    name: str, namespace: str, cluster: Mapping[str, Any], *, is_elsewhere: bool = False
) -> JobAccess:
    """Return where a LogCluster accepts clients inside Kubernetes without authentication.

    `is_elsewhere`: the job is in another namespace.
    """
    service = f"{bootstrap_service_name(name)}.{namespace}.svc"
    listeners = (cluster.get("spec") or {}).get("listeners") or ()
    inside = [each for each in listeners if each.get("type") == INSIDE]
    if not inside:
        return JobAccess(f"{service}:{DEFAULT_LISTENER.port}")
    for each in inside:
        is_tls = (each.get("tls") or {"enabled": False}).get("enabled", True)
        if not is_tls and not each.get("authentication"):
            return JobAccess(f"{service}:{each['port']}")
    what = (
        "name a Secret of the job's namespace by spec.authentication, a copy of that of a User"
        if is_elsewhere
        else "name a User by spec.user,"
    )
    message = (
        f"each listener of LogCluster {name} inside Kubernetes has tls or authentication: "
        f"{what} with rights for the topics of the job and for its group"
    )
    return JobAccess("", ("ClusterSecured", message))


def find_user_access(
    name: str, cluster: Mapping[str, Any], user: str, found: Mapping[str, Any] | None
) -> JobAccess:
    """Return where LogCluster `name` accepts a User; `found` is its manifest, if it exists."""
    if found is None:
        return _refused("UserNotFound", f"there is no User {user} in the job's namespace")
    spec, status = found.get("spec") or {}, found.get("status") or {}
    if spec.get("clusterName") != name:
        where = spec.get("clusterName") or "no LogCluster yet"
        return _refused("UserNotFound", f"User {user} belongs to {where}, not to LogCluster {name}")
    login = (spec.get("authentication") or {}).get("type")
    if login not in LOGINS:
        served = " or ".join(LOGINS)
        message = f"User {user} has authentication.type {login}; jobs can use {served}"
        return _refused("UserNotUsable", message)
    access = find_access(cluster, login)
    if access is None:
        what = f"no listener of LogCluster {name} has authentication.type {login}"
        return _refused("UserNotReady", f"User {user}: {what}")
    if "deletionTimestamp" in found["metadata"] or status.get("secret") != user:
        # The addresses stay unchanged: a running driver is left alone.
        what = f"User {user} has no Secret now: its condition says why"
        return _refused("UserNotReady", what, access.bootstrap)
    return JobAccess(access.bootstrap)


def find_secret_access(name: str, cluster: Mapping[str, Any], login: JobLogin) -> JobAccess:
    """Return where LogCluster `name` accepts a login; `job_secret` says what the Secret lacks.

    The addresses do not depend on the Secret, so a running driver is left alone whatever happens to
    the Secret.
    """
    access = find_access(cluster, login)
    if access is not None:
        return JobAccess(access.bootstrap)
    message = f"no listener of LogCluster {name} has authentication.type {login}"
    return JobAccess("", ("NoListener", f"spec.authentication.type: {message}"))


def elsewhere(job_namespace: str, namespace: str, user: str) -> JobAccess:
    """Return the message for a job with a User whose LogCluster is in another namespace."""
    return _refused(
        "UserNotFound",
        f"a User is in the namespace of its LogCluster, {namespace}, and so is its Secret, which "
        "pods of another namespace cannot mount, and which the operator copies nowhere. Have the "
        f"Secret {user} copied from {namespace} to {job_namespace}, and name the copy by "
        "spec.authentication.secretName instead of spec.user; or make the job in "
        f"{namespace}",
    )


def _refused(reason: str, message: str, bootstrap: str = "") -> JobAccess:
    return JobAccess(bootstrap, (reason, f"spec.user: {message}"))
