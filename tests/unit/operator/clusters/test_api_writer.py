"""What is applied, and what is left as it is because it was there before (design: no force)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import POD_DISRUPTION_BUDGET
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.plan import WantedObject
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.metrics import OperatorMetrics
from fairlead_operator.refusals import Refusals
from fairlead_operator.specs.names import cluster_labels

Manifest = dict[str, Any]
NAME = ("shop", "demo")
OWNER = {"kind": "LogCluster", "name": "demo", "uid": "u-1"}


def budget(**metadata: Any) -> Manifest:
    names = {"namespace": NAME[0], "name": NAME[1], "resourceVersion": "7"}
    return {"metadata": names | metadata, "spec": {"maxUnavailable": 1}}


def wanted() -> WantedObject:
    manifest = budget(labels=cluster_labels("demo"), ownerReferences=[OWNER])
    return WantedObject(POD_DISRUPTION_BUDGET, manifest)


class Server:
    """An API server with one object, or none."""

    def __init__(self, there: Manifest | None) -> None:
        self.there = there
        self.applied: list[Manifest] = []
        self.asked = 0

    find = KubeClient.find

    async def get(self, *_: Any) -> Manifest:
        self.asked += 1
        if self.there is None:
            raise ApiError(404, "NotFound", "")
        return self.there

    async def apply(self, *call: Any, **_: Any) -> Manifest:
        self.applied.append(call[3])
        return budget(resourceVersion="8")


def apply(server: Server, *, seen_of: str = "") -> Refusals:
    """Apply the budget of a cluster; an informer shows that of the cluster `seen_of` already."""
    client: Any = server
    live = LiveObjects(client, (NAME[0],), lambda _: None)
    seen = {NAME: budget(labels=cluster_labels(seen_of))} if seen_of else {}
    informer: Any = SimpleNamespace(objects=seen, is_hidden=lambda _: False)
    live.informers[POD_DISRUPTION_BUDGET] = informer
    refusals = Refusals()

    async def run() -> None:
        with refusals.noting(*wanted().key):
            await ApiWriter(client, live, OperatorMetrics()).apply(wanted())

    asyncio.run(run())
    return refusals


@pytest.mark.parametrize(
    "metadata",
    [{}, {"labels": {"app": "shop"}}, {"labels": cluster_labels("other")}],
    ids=["bare", "labelled", "of another cluster"],
)
def test_what_was_there_before_is_left_as_it_is_and_named(metadata: Manifest) -> None:
    """A PodDisruptionBudget that somebody had made was taken over, with its selector."""
    server = Server(budget(**metadata))
    refusals = apply(server)
    assert not server.applied
    assert refusals.text.startswith("PodDisruptionBudget demo was there before LogCluster demo")
    assert "delete it, or create it under another name" in refusals.text


@pytest.mark.parametrize(
    "there",
    [
        None,
        budget(labels=cluster_labels("demo")),
        budget(ownerReferences=[OWNER]),
    ],
    ids=["none", "orphaned", "without its labels"],
)
def test_what_is_of_the_cluster_is_applied(there: Manifest | None) -> None:
    server = Server(there)
    assert apply(server).text == ""
    assert len(server.applied) == 1


def test_what_is_seen_costs_no_request() -> None:
    server = Server(None)
    apply(server, seen_of="demo")
    assert (len(server.applied), server.asked) == (1, 0)


def test_what_is_seen_of_another_cluster_is_left_as_it_is() -> None:
    """shop with the pool eu-brokers has objects of the same names as shop-eu with brokers."""
    server = Server(budget(labels=cluster_labels("other")))
    refusals = apply(server, seen_of="other")
    assert not server.applied
    assert refusals.text.startswith("PodDisruptionBudget demo was there before LogCluster demo")


def test_what_another_cluster_has_given_up_is_made() -> None:
    server = Server(None)
    assert apply(server, seen_of="other").text == ""
    assert len(server.applied) == 1
