"""The chart's user roles and its guard of deletions against a real API server."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from resource_manifests import topic

from fairlead_operator.resources.permissions import build_deletion_protection, build_user_roles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.kubernetes

DEADLINE_S = 60.0
Manifest = dict[str, Any]


def kubectl(*arguments: str, manifest: Manifest | None = None) -> subprocess.CompletedProcess[str]:
    given = None if manifest is None else json.dumps(manifest)
    return subprocess.run(
        ["kubectl", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def must(*arguments: str, manifest: Manifest | None = None) -> str:
    done = kubectl(*arguments, manifest=manifest)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:.0f} s: {what}"


@pytest.fixture
def made() -> Iterator[list[Manifest]]:
    """Objects without a namespace that the test makes; they are deleted at its end."""
    objects: list[Manifest] = []
    yield objects
    for manifest in reversed(objects):
        must("delete", "--ignore-not-found", "--wait=false", "-f", "-", manifest=manifest)


def test_a_protected_topic_cannot_be_deleted_until_it_is_let_go(
    namespace: str, made: list[Manifest]
) -> None:
    policy, binding = build_deletion_protection()
    name = f"{namespace}.fairlead.io"
    policy["metadata"]["name"] = binding["metadata"]["name"] = name
    binding["spec"]["policyName"] = name
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding["spec"]["matchResources"] = {"namespaceSelector": only_here}
    for manifest in (policy, binding):
        made.append(manifest)
        must("create", "-f", "-", manifest=manifest)
    must("create", "-n", namespace, "-f", "-", manifest=topic(deletionProtection=True))
    must("create", "-n", namespace, "-f", "-", manifest=topic("free"))
    delete = ("delete", "-n", namespace, "topic")

    def is_refused() -> bool:
        done = kubectl(*delete, "orders", "--dry-run=server")
        return "set spec.deletionProtection to false before you delete it" in done.stderr

    wait_until(is_refused, "the policy holds")
    must(*delete, "free")
    release = '{"spec": {"deletionProtection": false}}'
    must("patch", "-n", namespace, "topic", "orders", "--type=merge", "-p", release)
    must(*delete, "orders")


def test_roles_join_those_of_kubernetes(namespace: str, made: list[Manifest]) -> None:
    for role in build_user_roles():
        role["metadata"]["name"] += f"-{secrets.token_hex(4)}"
        made.append(role)
        must("create", "-f", "-", manifest=role)
    for role_name in ("view", "edit", "admin"):
        arguments = (f"--clusterrole={role_name}", f"--user={role_name}er")
        must("create", "rolebinding", role_name, "-n", namespace, *arguments)

    def may(user: str, verb: str, plural: str) -> bool:
        resource = f"{plural}.fairlead.io" if "/" not in plural else plural
        arguments = ("auth", "can-i", verb, resource, "-n", namespace, f"--as={user}")
        return kubectl(*arguments).stdout.strip() == "yes"

    def becomes_allowed(user: str, verb: str, plural: str) -> None:
        """Each role of Kubernetes is joined by itself, `edit` with what `view` has."""
        wait_until(lambda: may(user, verb, plural), f"{user} may {verb} {plural}")

    becomes_allowed("adminer", "create", "logclusters")
    becomes_allowed("viewer", "list", "topics")
    becomes_allowed("viewer", "get", "partitiontables")
    assert not may("viewer", "create", "topics")
    becomes_allowed("editer", "create", "topics")
    becomes_allowed("editer", "create", "consumergroups")
    becomes_allowed("editer", "watch", "failoverdrills")
    assert not may("editer", "create", "failoverdrills")
    assert not may("editer", "delete", "logclusters")
    becomes_allowed("adminer", "create", "failoverdrills")
    becomes_allowed("adminer", "patch", "rebalances")
    becomes_allowed("viewer", "watch", "rebalances")
    assert not may("editer", "patch", "rebalances")
    assert not may("adminer", "delete", "partitiontables")
    assert not may("adminer", "update", "clusterstates")
