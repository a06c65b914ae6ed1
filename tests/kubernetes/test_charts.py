"""The charts against a real API server: what they render is accepted, what they grant is enough.

Nothing here waits for pods; the end-to-end suite does.
"""

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = ROOT / "charts" / "fairlead"
CLUSTER = ROOT / "charts" / "fairlead-cluster"
VALUES = ROOT / "tests" / "unit" / "charts" / "values"
# The Prometheus operator's definitions need not be there.
PLAIN = ("--set", "podMonitor.enabled=false,prometheusRule.enabled=false")

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.usefixtures("kube_credentials"),
    pytest.mark.skipif(
        shutil.which("helm") is None and not os.environ.get("CI"), reason="helm is not installed"
    ),
]

Run = Callable[..., str]
RELEASE = "events"


def run(*command: str | Path, check: bool = True, stdin: str | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def place() -> Iterator[str]:
    """A namespace of this test's own; cluster-wide objects of a release there carry its name."""
    name = f"k6-charts-{secrets.token_hex(3)}"
    run("kubectl", "create", "namespace", name)
    yield name
    for release in json.loads(run("helm", "list", "-n", name, "-o", "json", "-a")):
        run("helm", "uninstall", release["name"], "-n", name, check=False)
    # An operator that serves all namespaces may be about, and gone before it takes these off.
    found = run("kubectl", "-n", name, "get", "fairlead", "-o", "name").split()
    for resource in (word for word in found if "/" in word):
        patch = ("--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        run("kubectl", "-n", name, "delete", resource, "--wait=false", check=False)
        run("kubectl", "-n", name, "patch", resource, *patch, check=False)
    run("kubectl", "delete", "namespace", name, "--wait=false")


def template(chart: Path, release: str, namespace: str, *arguments: str | Path) -> str:
    command = ("helm", "template", release, chart, "-n", namespace, "--kube-version", "1.34.0")
    return run(*command, *arguments)


@pytest.mark.parametrize("values", sorted(VALUES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_api_server_takes_every_render(values: Path, place: str) -> None:
    is_operator = values.stem.startswith("operator")
    chart, extra = (OPERATOR, PLAIN) if is_operator else (CLUSTER, ())
    # A namespace that is only named would be refused, so everything goes to ours.
    places = {"namespaced": f"watchNamespace={place}", "teams": f"watchNamespaces={{{place}}}"}
    watched = [("--set", given) for word, given in places.items() if word in values.stem]
    rendered = template(chart, "check", place, "-f", values, *extra, *chain(*watched))
    applied = run(
        *("kubectl", "apply", "--server-side", "--force-conflicts", "--dry-run=server"),
        *("--validate=strict", "-f", "-"),
        stdin=rendered,
    )
    assert "statefulset" in applied or "logcluster" in applied


def test_a_default_makes_no_cluster_another_than_it_is(place: str) -> None:
    """Neither does an upgrade of a release in clear, by values that do not say so."""
    definitions = str(ROOT / "crds")
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", definitions)

    def upgrade(release: str, *values: str) -> str:
        flags = [part for value in values for part in ("--set", value)]
        command = ("helm", "upgrade", "--install", release, CLUSTER, "-n", place)
        return run(*command, *flags, check=False)

    def spec(name: str) -> dict[str, Any]:
        return dict(
            json.loads(run("kubectl", "-n", place, "get", "logcluster", name, "-o", "json"))["spec"]
        )

    upgrade("old", "cluster.secure=false")
    before = spec("old")
    assert "listeners" not in before
    # Without any value Helm takes those of before.
    assert "LogCluster old is there already, without the listener" in upgrade("old", "keep=true")
    assert spec("old") == before
    # What Helm cannot see, as where it only renders, the API server refuses as a whole.
    refused = run(
        *("kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-"),
        check=False,
        stdin=template(CLUSTER, "old", place),
    )
    assert "interBroker.tls cannot be changed" in refused
    assert spec("old") == before
    told = upgrade("old", "cluster.secure=false", "cluster.interBroker.tls=true")
    assert "brokers of LogCluster old were made with false" in told
    # Who says so gets the listener; brokers go on as they began.
    upgrade("old", "cluster.secure=true")
    now = spec("old")
    assert [each["name"] for each in now["listeners"]] == ["tls"]
    assert not now.get("interBroker", {}).get("tls")
    # From then on, and for what is secure from the start, nothing has to be said.
    assert "has been upgraded" in upgrade("old", "keep=true")
    # The pool of that name is the other's.
    upgrade("new", "pools.brokers=null")
    new = spec("new")
    assert (new["interBroker"]["tls"], len(new["listeners"])) == (True, 1)
    assert "has been upgraded" in upgrade(
        "new", "pools.brokers=null", "cluster.config.log\\.retention\\.hours=48"
    )
    assert spec("new")["interBroker"]["tls"] is True


def test_backups_end_where_they_are_taken_out_of_the_values(place: str) -> None:
    run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    backup = f"{RELEASE}-metadata-backup"

    def upgrade(is_enabled: str) -> None:
        values = f"cluster.image=fairlead:1,metadataBackup.enabled={is_enabled}"
        command = ("helm", "upgrade", "--install", RELEASE, CLUSTER, "-n", place)
        run(*command, "--set", values)

    def left() -> set[str]:
        kinds = "logclusters,brokerpools,cronjobs,roles,rolebindings,serviceaccounts,pvc"
        found = run("kubectl", "-n", place, "get", kinds, "-o", "name").split()
        kinds_and_names = (each.split("/") for each in found)
        return {f"{kind.partition('.')[0]}/{name}" for kind, name in kinds_and_names}

    made = {f"{kind}/{backup}" for kind in ("cronjob", "role", "rolebinding", "serviceaccount")}
    upgrade("true")
    assert made <= left()
    upgrade("false")
    assert not made & left()
    stays = {f"logcluster/{RELEASE}", "brokerpool/brokers", f"persistentvolumeclaim/{backup}"}
    assert stays <= left(), "exports that were made are not lost"
    upgrade("true")
    run("helm", "uninstall", RELEASE, "-n", place)
    assert stays <= left()
    assert not made & left()


NEEDED = [
    "list logclusters.fairlead.io",
    "watch topics.fairlead.io",
    "create topics.fairlead.io",
    "patch brokerpools.fairlead.io",
    "patch topics.fairlead.io/status",
    "watch consumergroups.fairlead.io",
    "patch consumergroups.fairlead.io",
    "patch consumergroups.fairlead.io/status",
    # Its finalizer, while a drill has cut off a broker.
    "patch failoverdrills.fairlead.io",
    "patch failoverdrills.fairlead.io/status",
    "watch rebalances.fairlead.io",
    "patch rebalances.fairlead.io",
    "patch rebalances.fairlead.io/status",
    "update logclusters.fairlead.io/finalizers",
    "update partitiontables.fairlead.io",
    "create clusterstates.fairlead.io",
    "delete partitiontables.fairlead.io",
    "patch statefulsets.apps",
    "patch services",
    "patch configmaps",
    "create secrets",
    "watch secrets",
    # Access rules and credentials are tables in Secrets.
    "update secrets",
    "delete secrets",
    "delete pods",
    "watch pods",
    # An annotation that changes has a kubelet look at once for new certificates.
    "patch pods",
    "patch persistentvolumeclaims",
    "patch poddisruptionbudgets.policy",
    "patch networkpolicies.networking.k8s.io",
    "create events.events.k8s.io",
    "create events",
]
# Of accounts for Spark drivers; the chart's value spark.driverAccounts takes them away.
NEEDED_FOR_ACCOUNTS = [
    "create serviceaccounts",
    "delete serviceaccounts",
    "create rolebindings.rbac.authorization.k8s.io",
    "delete rolebindings.rbac.authorization.k8s.io",
]
TOO_MUCH = [
    "update logclusters.fairlead.io/status",
    "delete failoverdrills.fairlead.io",
    "delete rebalances.fairlead.io",
    "watch partitiontables.fairlead.io",
    "delete consumergroups.fairlead.io",
    "create pods/exec",
    "create pods/attach",
    "patch deployments.apps",
    "delete namespaces",
    "delete nodes",
    "patch nodes",
    "delete persistentvolumes",
    "create roles.rbac.authorization.k8s.io",
    "create clusterrolebindings.rbac.authorization.k8s.io",
    "bind clusterroles.rbac.authorization.k8s.io",
    "escalate clusterroles.rbac.authorization.k8s.io",
    "patch rolebindings.rbac.authorization.k8s.io",
    "create serviceaccounts/token",
    "delete customresourcedefinitions.apiextensions.k8s.io",
    "delete logclusters.fairlead.io",
    "create brokerpools.fairlead.io",
    "impersonate users",
]


def may(account: str, action: str, namespace: str) -> bool:
    verb, resource = action.split()
    resource, _, subresource = resource.partition("/")
    of = (f"--subresource={subresource}",) if subresource else ()
    answer = run(
        *("kubectl", "auth", "can-i", verb, resource, *of, "-n", namespace, "--as", account),
        check=False,
    )
    return "yes" in answer.splitlines()


def missing(account: str, needed: list[str], namespace: str) -> list[str]:
    """What an account may not do of all that its roles allow, which hold soon after they come."""
    left = list(needed)

    def has_all() -> bool:
        while left and may(account, left[0], namespace):
            del left[0]
        return not left

    with suppress(AssertionError):
        wait_until(has_all)
    return left


@pytest.fixture
def roles(place: str) -> Iterator[Callable[..., str]]:
    """Applies the chart's roles; gives the name of the operator's account."""
    applied = []

    def apply(*arguments: str) -> str:
        rendered = template(OPERATOR, "fairlead", place, "-s", "templates/rbac.yaml", *arguments)
        applied.append(rendered)
        run("kubectl", "apply", "-f", "-", stdin=rendered)
        return f"system:serviceaccount:{place}:fairlead-operator"

    yield apply
    for rendered in applied:
        run("kubectl", "delete", "--ignore-not-found", "-f", "-", stdin=rendered)


def test_the_operator_may_do_what_it_needs_and_no_more(
    roles: Callable[..., str], place: str
) -> None:
    account = roles()
    elsewhere = "default"
    assert missing(account, NEEDED, elsewhere) == []
    assert missing(account, ["watch nodes"], elsewhere) == []
    lease = ("kubectl", "auth", "can-i", "update", "leases.coordination.k8s.io/fairlead-operator")
    wait_until(lambda: "yes" in run(*lease, "-n", place, "--as", account, check=False).split())
    assert [action for action in TOO_MUCH if may(account, action, elsewhere)] == []
    assert not may(account, "update leases.coordination.k8s.io", place)
    assert not may(account, "create leases.coordination.k8s.io", elsewhere)


def test_an_operator_of_one_namespace_may_do_nothing_elsewhere(
    roles: Callable[..., str], place: str
) -> None:
    account = roles("--set", f"watchNamespace={place},rbac.nodes=false")
    assert missing(account, NEEDED, place) == []
    assert [action for action in NEEDED if may(account, action, "default")] == []
    assert not may(account, "list nodes", place)


@pytest.mark.parametrize("scope", ["everywhere", "one namespace"])
def test_the_operator_binds_drivers_to_one_role_and_to_nothing_that_is_more(
    roles: Callable[..., str], place: str, scope: str
) -> None:
    watched = "" if scope == "everywhere" else place
    account = roles("--set", f"watchNamespace={watched}")
    kind = "role" if watched else "clusterrole"
    name = "fairlead-operator" if watched else f"fairlead-operator-{place}"[:50].rstrip("-")
    assert missing(account, NEEDED_FOR_ACCOUNTS, place) == []
    bind = ("kubectl", "create", "rolebinding", "-n", place, "--as", account)
    subject = f"--serviceaccount={place}:demo-spark"
    run(*bind, "demo-spark", f"--{kind}={name}-spark-driver", subject)
    driver = f"system:serviceaccount:{place}:demo-spark"
    resources = ("pods", "services", "configmaps", "persistentvolumeclaims")
    verbs = ("create", "deletecollection", "watch")
    needed = [f"{verb} {resource}" for resource in resources for verb in verbs]
    assert missing(driver, needed, place) == []
    assert not may(driver, "get secrets", place)
    assert not may(driver, "create pods", "default")
    refused = run(*bind, "more", "--clusterrole=edit", subject, check=False)
    assert "attempting to grant RBAC permissions not currently held" in refused


def test_an_operator_that_makes_no_accounts_has_no_right_to(
    roles: Callable[..., str], place: str
) -> None:
    account = roles("--set", "spark.driverAccounts=false")
    assert missing(account, NEEDED, place) == []
    assert [action for action in NEEDED_FOR_ACCOUNTS if may(account, action, place)] == []


def names(kind: str, namespace: str) -> list[str]:
    return run("kubectl", "-n", namespace, "get", kind, "-o", "name").split()


def test_a_cluster_survives_upgrade_uninstall_and_reinstall(place: str) -> None:
    release = ("helm", "upgrade", "--install", "events", CLUSTER, "-n", place)
    small = ("--set", "pools.brokers.replicas=0,pools.brokers.storage.size=1Gi")
    notes = run(*release, *small, "--set", "topics.orders.partitions=2")
    assert f"events-bootstrap.{place}.svc:9093" in notes
    identity = ("get", "logcluster", "events", "-o", "jsonpath={.metadata.uid}")
    uid = run("kubectl", "-n", place, *identity)
    # A topic that is taken out of the values stays: its records are worth more than tidiness.
    run(*release, *small, "--set", "topics.audit.partitions=1")
    expected = ["topic.fairlead.io/audit", "topic.fairlead.io/orders"]
    assert names("topics.fairlead.io", place) == expected
    run("helm", "uninstall", "events", "-n", place)
    assert names("topics.fairlead.io", place) == expected
    assert names("brokerpools.fairlead.io", place) == ["brokerpool.fairlead.io/brokers"]
    # Helm takes up what is there as it is; what changes afterwards is applied.
    run(*release, *small, "--set", "topics.orders.partitions=2")
    assert run("kubectl", "-n", place, *identity) == uid
    run(*release, *small, "--set", "topics.orders.partitions=4")
    count = ("get", "topics.fairlead.io", "orders", "-o", "jsonpath={.spec.partitions}")
    assert run("kubectl", "-n", place, *count) == "4"


def test_an_operator_release_leaves_nothing_behind_but_definitions(place: str) -> None:
    release = ("helm", "upgrade", "--install", "fairlead", OPERATOR, "-n", place)
    options = ("--set", f"crds.install=false,watchNamespace={place},rbac.aggregatedRoles=false")
    nowhere = ("--set", "nodeSelector.nowhere=yes")
    run(*release, *options, *nowhere)
    run(*release, *options, *nowhere, "--set", "replicas=1")
    assert names("statefulsets", place) == ["statefulset.apps/fairlead-operator"]
    run("helm", "uninstall", "fairlead", "-n", place, "--wait")
    for kind in ("statefulsets", "services", "roles", "rolebindings", "networkpolicies"):
        assert names(kind, place) == [], kind
    wide = "priorityclasses,flowschemas,prioritylevelconfigurations,clusterroles"
    assert [name for name in names(wide, place) if place in name] == []
    assert "topics.fairlead.io" in run("kubectl", "get", "customresourcedefinitions", "-o", "name")
