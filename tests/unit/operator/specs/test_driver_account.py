"""Accounts of Spark drivers: what is made, what is left alone, and what a person is told to do."""

import asyncio
from typing import Any

import pytest
from operator_views import cluster_view

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import ROLE_BINDING, SERVICE_ACCOUNT, ResourceKind
from fairlead_operator.clusters.driver_accounts import LOOK_S, DriverAccounts
from fairlead_operator.refusals import Refusals
from fairlead_operator.settings import SettingsError, read_settings
from fairlead_operator.specs.driver_account import (
    AccountStep,
    build_driver_account,
    build_driver_binding,
    decide_account_step,
)
from fairlead_operator.specs.views import ClusterView
from fairlead_operator.stream_jobs.account_advice import DriverAccount, advise

ROLE = "ClusterRole/fairlead-operator-spark-driver"
Manifest = dict[str, Any]


def cluster(*, driver_account: bool = True, uid: str = "uid-1", generation: int = 1) -> ClusterView:
    view = cluster_view(spark={"driverAccount": driver_account})
    return ClusterView(
        name=view.name,
        namespace=view.namespace,
        uid=uid,
        generation=generation,
        spec=view.spec,
    )


def owned_by(manifest: Manifest, *uids: str) -> Manifest:
    owners = [{"kind": "LogCluster", "uid": uid} for uid in uids]
    return manifest | {"metadata": manifest["metadata"] | {"ownerReferences": owners}}


def test_a_binding_gives_the_charts_role_to_the_account_and_goes_with_the_cluster() -> None:
    here = cluster()
    account, binding = build_driver_account(here), build_driver_binding(here, ROLE)
    name = f"{here.name}-spark"
    assert (account["kind"], account["metadata"]["name"]) == ("ServiceAccount", name)
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "fairlead-operator-spark-driver",
    }
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": name, "namespace": here.namespace}
    ]
    for manifest in (account, binding):
        assert [owner["uid"] for owner in manifest["metadata"]["ownerReferences"]] == ["uid-1"]


@pytest.mark.parametrize(
    ("owners", "is_wanted", "step"),
    [
        (("uid-1",), True, AccountStep.KEEP),
        (("uid-1",), False, AccountStep.DELETE),
        (("uid-0",), True, AccountStep.WAIT),
        (("uid-0",), False, AccountStep.LEAVE),
        # Helm's, or a person's.
        ((), True, AccountStep.LEAVE),
        ((), False, AccountStep.LEAVE),
    ],
)
def test_whose_account_it_is(owners: tuple[str, ...], is_wanted: bool, step: AccountStep) -> None:
    here = cluster(driver_account=is_wanted)
    desired = build_driver_binding(here, ROLE)
    assert decide_account_step(desired, owned_by(desired, *owners), here) is step


def test_what_is_not_there_is_made_where_it_is_wanted() -> None:
    for is_wanted, step in ((True, AccountStep.CREATE), (False, AccountStep.KEEP)):
        here = cluster(driver_account=is_wanted)
        assert decide_account_step(build_driver_account(here), None, here) is step


def test_a_binding_of_another_role_is_made_anew() -> None:
    here = cluster()
    live = build_driver_binding(here, "ClusterRole/earlier")
    assert decide_account_step(build_driver_binding(here, ROLE), live, here) is AccountStep.DELETE


class Objects:
    """What there is in the API server, and how often it was asked."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], Manifest] = {}
        self.looks = 0
        self.refusal: ApiError | None = None

    async def find(self, kind: ResourceKind, manifest: Manifest) -> Manifest | None:
        self.looks += 1
        return self.held.get((kind.kind, manifest["metadata"]["name"]))

    async def create(self, kind: ResourceKind, manifest: Manifest) -> bool:
        if self.refusal is not None:
            raise self.refusal
        self.held[kind.kind, manifest["metadata"]["name"]] = manifest
        return True

    async def delete(self, kind: ResourceKind, live: Manifest) -> None:
        del self.held[kind.kind, live["metadata"]["name"]]


class Passes:
    """Passes over clusters, one second apart unless a test lets more time go by."""

    def __init__(self, role: str = ROLE) -> None:
        self.objects = Objects()
        self.now = 1000.0
        self._accounts = DriverAccounts(
            self.objects,  # type: ignore[arg-type]
            role,
            monotonic=lambda: self.now,
        )

    def look(self, view: ClusterView, times: int = 1) -> Refusals:
        refusals = Refusals()
        for _ in range(times):
            refusals = Refusals()
            asyncio.run(self._accounts.look_after(view, refusals))
            self.now += 1
        return refusals

    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.objects.held}


def test_an_account_is_made_and_then_left_in_peace() -> None:
    passes = Passes()
    passes.look(cluster(), times=10)
    assert passes.kinds() == {SERVICE_ACCOUNT.kind, ROLE_BINDING.kind}
    assert passes.objects.looks == 4


def test_an_account_that_was_deleted_is_made_again() -> None:
    passes = Passes()
    passes.look(cluster(), times=2)
    passes.objects.held.clear()
    passes.now += LOOK_S
    passes.look(cluster())
    assert passes.kinds() == {SERVICE_ACCOUNT.kind, ROLE_BINDING.kind}


def test_an_account_that_is_no_longer_wanted_goes_at_once() -> None:
    passes = Passes()
    passes.look(cluster(), times=2)
    passes.look(cluster(driver_account=False, generation=2))
    assert passes.kinds() == set()


def test_an_account_of_somebody_else_is_neither_bound_nor_removed() -> None:
    passes, here = Passes(), cluster()
    foreign = owned_by(build_driver_account(here))
    passes.objects.held[SERVICE_ACCOUNT.kind, foreign["metadata"]["name"]] = foreign
    passes.look(here, times=3)
    passes.look(cluster(driver_account=False, generation=2), times=3)
    assert passes.objects.held == {(SERVICE_ACCOUNT.kind, foreign["metadata"]["name"]): foreign}


def test_one_of_an_earlier_cluster_is_waited_for() -> None:
    passes, here = Passes(), cluster()
    earlier = owned_by(build_driver_account(here), "uid-0")
    key = (SERVICE_ACCOUNT.kind, earlier["metadata"]["name"])
    passes.objects.held[key] = earlier
    passes.look(here)
    assert passes.objects.held[key] is earlier
    del passes.objects.held[key]
    passes.look(here)
    assert passes.kinds() == {SERVICE_ACCOUNT.kind, ROLE_BINDING.kind}


def test_a_refusal_is_told_and_tried_again() -> None:
    passes = Passes()
    passes.objects.refusal = ApiError(403, "Forbidden", "serviceaccounts is forbidden")
    assert "serviceaccounts is forbidden" in passes.look(cluster(), times=2).text
    passes.objects.refusal = None
    assert passes.look(cluster(), times=2).text == ""
    assert passes.kinds() == {SERVICE_ACCOUNT.kind, ROLE_BINDING.kind}


def test_an_operator_without_a_role_to_give_touches_nothing() -> None:
    passes = Passes(role="")
    passes.look(cluster(), times=3)
    assert passes.objects.looks == 0


MISSING = (
    '403 Forbidden: pods "job-driver" is forbidden: error looking up service account '
    'jobs/demo-spark: serviceaccount "demo-spark" not found'
)
POWERLESS = (
    'exit code 1: pods is forbidden: User "system:serviceaccount:jobs:demo-spark" cannot list '
    'resource "pods" in API group "" in the namespace "jobs"'
)


def account(**changes: Any) -> DriverAccount:
    given = {
        "name": "demo-spark",
        "namespace": "jobs",
        "cluster": "demo",
        "is_default": True,
        "is_asked_for": True,
        "role": ROLE,
    }
    return DriverAccount(**{**given, **changes})


@pytest.mark.parametrize(
    ("problem", "changes", "todo"),
    [
        (MISSING, {}, "the operator makes it; if this stays, look at"),
        (
            MISSING,
            {"is_asked_for": False},
            """--type=merge -p '{"spec":{"spark":{"driverAccount":true}}}'""",
        ),
        (
            MISSING,
            {"role": ""},
            "kubectl create rolebinding demo-spark -n jobs --role=demo-spark "
            "--serviceaccount=jobs:demo-spark",
        ),
        (
            MISSING,
            {"is_default": False},
            "kubectl create rolebinding demo-spark -n jobs "
            "--clusterrole=fairlead-operator-spark-driver --serviceaccount=jobs:demo-spark",
        ),
        (POWERLESS, {}, "do: kubectl create rolebinding demo-spark -n jobs"),
        (POWERLESS, {"role": ""}, "do: kubectl create role demo-spark -n jobs --verb=create,"),
    ],
)
def test_what_to_do(problem: str, changes: dict[str, Any], todo: str) -> None:
    text = advise(problem, account(**changes))
    assert text.startswith(problem)
    assert todo in text
    assert len(text) <= 1024, "no condition has room for more"


@pytest.mark.parametrize(
    "problem",
    ["exceeded quota: pods=10", POWERLESS.replace("demo-spark", "another"), "the program failed"],
)
def test_other_troubles_are_told_as_they_are(problem: str) -> None:
    assert advise(problem, account()) == problem


@pytest.mark.parametrize("role", ["drivers", "Role/", "Secret/drivers"])
def test_a_role_that_cannot_be_bound_is_refused(role: str) -> None:
    environment = {"POD_NAME": "p", "POD_NAMESPACE": "n", "FAIRLEAD_SPARK_DRIVER_ROLE": role}
    with pytest.raises(SettingsError, match="is not ClusterRole/NAME or Role/NAME"):
        read_settings(environment)
