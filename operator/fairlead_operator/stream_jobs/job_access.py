"""Where a job reaches its LogCluster, and as whom; or why it does not. Pure.

A job that names no user goes by a listener inside Kubernetes that takes everybody. One that names a
User gets that User's Secret mounted. So the User has to say that its Secret is of this name, which
only the operator writes there.

A job of another namespace than its LogCluster names a Secret of its own namespace. Whoever owns
that namespace has put it there: the operator copies no Secret from one namespace to another, which
would give a User's rights to all who may make jobs somewhere. A driver makes pods, and so can mount
any Secret of its namespace anyway: that a job names one gives its author nothing new.
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
"""Those of Users that a job can do."""


class JobAccess(NamedTuple):
    """Addresses of the brokers, and what is in the way, if anything is."""

    bootstrap: str
    obstacle: Obstacle | None = None


def find_open_access(
    name: str, namespace: str, cluster: Mapping[str, Any], *, is_elsewhere: bool = False
) -> JobAccess:
    """Return where a LogCluster takes clients inside Kubernetes as they are.

    `is_elsewhere` says that the job is in another namespace.
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
        f"each listener of LogCluster {name} inside Kubernetes encrypts, or asks for a login: "
        f"{what} with rights for the topics of the job and for its group"
    )
    return JobAccess("", ("ClusterSecured", message))


def find_user_access(
    name: str, cluster: Mapping[str, Any], user: str, found: Mapping[str, Any] | None
) -> JobAccess:
    """Return where the LogCluster `name` takes a User; `found` is its manifest, if there is one."""
    if found is None:
        return _refused("UserNotFound", f"there is no User {user} in the job's namespace")
    spec, status = found.get("spec") or {}, found.get("status") or {}
    if spec.get("clusterName") != name:
        where = spec.get("clusterName") or "no LogCluster yet"
        return _refused("UserNotFound", f"User {user} is of {where}, not of LogCluster {name}")
    login = (spec.get("authentication") or {}).get("type")
    if login not in LOGINS:
        served = " or ".join(LOGINS)
        return _refused("UserNotUsable", f"User {user} logs in by {login}; jobs can do {served}")
    access = find_access(cluster, login)
    if access is None:
        what = f"no listener of LogCluster {name} has authentication.type {login}"
        return _refused("UserNotReady", f"User {user}: {what}")
    if "deletionTimestamp" in found["metadata"] or status.get("secret") != user:
        # The addresses stay as they are: a driver that runs is left alone.
        what = f"User {user} has no Secret now: its condition says why"
        return _refused("UserNotReady", what, access.bootstrap)
    return JobAccess(access.bootstrap)


def find_secret_access(name: str, cluster: Mapping[str, Any], login: JobLogin) -> JobAccess:
    """Return where the LogCluster `name` takes a login; `job_secret` says what the Secret lacks.

    The addresses do not depend on the Secret, so that a driver that runs is left alone whatever
    becomes of that.
    """
    access = find_access(cluster, login)
    if access is not None:
        return JobAccess(access.bootstrap)
    message = f"no listener of LogCluster {name} has authentication.type {login}"
    return JobAccess("", ("NoListener", f"spec.authentication.type: {message}"))


def elsewhere(job_namespace: str, namespace: str, user: str) -> JobAccess:
    """Return what is said to a job with a User whose LogCluster is in another namespace."""
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
