"""Writes of ours and what informers show: whichever is later counts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_kube.errors import ApiUnavailableError
from fairlead_kube.kinds import LOG_CLUSTER, POD, SERVICE, STATEFUL_SET
from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.live_objects import OWN_S, LiveObjects
from fairlead_operator.metrics import OperatorMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

Manifest = dict[str, Any]
KEY = ("shop", "demo")


def log_cluster(version: int, **spec: Any) -> Manifest:
    names = {"namespace": KEY[0], "name": KEY[1], "uid": "u-1"}
    metadata = names | {"resourceVersion": str(version)}
    return {"kind": "LogCluster", "metadata": metadata, "spec": spec, "status": {}}


class Server:
    """Answers a patch of a status; `meanwhile` happens before its answer is here."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None

    async def write_status(self, *_: Any, uid: str) -> Manifest:
        assert uid == "u-1"
        self.meanwhile()
        return log_cluster(105, retention=1)


class Sight:
    """What the operator sees of one LogCluster, and writes to it."""

    def __init__(self) -> None:
        self.server = Server()
        client: Any = self.server
        self.live = LiveObjects(client, (KEY[0],), lambda _: None)
        self.writer = ApiWriter(client, self.live, OperatorMetrics())
        self.heard: dict[tuple[str, str], Manifest] = {}
        informer: Any = SimpleNamespace(objects=self.heard, is_hidden=lambda _: False)
        self.live.informers[LOG_CLUSTER] = informer
        self.hear(log_cluster(100, retention=1))

    def hear(self, manifest: Manifest) -> None:
        """An event of the watch comes."""
        self.heard[KEY] = manifest

    def write_status(self) -> None:
        seen = self.live.get(LOG_CLUSTER, *KEY)
        assert seen is not None
        asyncio.run(self.writer.write_status(LOG_CLUSTER, seen, {"ready": True}))

    @property
    def version(self) -> str:
        shown = self.live.get(LOG_CLUSTER, *KEY)
        return "" if shown is None else str(shown["metadata"]["resourceVersion"])


def test_the_answer_counts_until_the_informer_hears_more() -> None:
    sight = Sight()
    sight.write_status()
    assert sight.version == "105"
    sight.hear(log_cluster(106, retention=2))
    assert sight.version == "106"


def test_a_change_that_is_heard_before_the_answer_is_not_hidden_by_it() -> None:
    """Nothing would happen to the object any more, so it would be hidden for ever."""
    sight = Sight()

    def both_come() -> None:
        sight.hear(log_cluster(105, retention=1))
        sight.hear(log_cluster(106, retention=2))

    sight.server.meanwhile = both_come
    sight.write_status()
    assert sight.version == "106"


def test_an_object_that_went_before_the_answer_came_does_not_come_back() -> None:
    sight = Sight()
    sight.server.meanwhile = sight.heard.clear
    sight.write_status()
    assert sight.version == ""


def test_what_may_not_be_read_is_not_taken_for_absent() -> None:
    live = LiveObjects(None, ("shop", "team"), lambda _: None)  # type: ignore[arg-type]
    hidden: Any = SimpleNamespace(objects={}, is_hidden={"shop"}.__contains__)
    live.informers |= {POD: hidden, SERVICE: hidden}
    with pytest.raises(ApiUnavailableError, match="pods of the namespace shop may not be read"):
        live.of_cluster(POD, KEY)
    with pytest.raises(ApiUnavailableError):
        live.get(POD, "shop", "demo-main-0")
    assert live.of_cluster(POD, ("team", "demo")) == []
    assert live.of_cluster(SERVICE, KEY) == []  # is applied again, and the API server says why not


def made(live: LiveObjects) -> Manifest:
    """A StatefulSet that the operator has just made; the informer has not heard of it."""
    labels = {"fairlead.io/cluster": KEY[1]}
    stamps = {"namespace": "shop", "name": "demo-main", "resourceVersion": "7", "labels": labels}
    manifest = {"kind": "StatefulSet", "metadata": stamps}
    live.note_written(STATEFUL_SET, "shop", "demo-main", manifest, before="")
    assert live.of_cluster(STATEFUL_SET, KEY) == [manifest]
    return manifest


def test_what_is_deleted_before_anybody_asks_is_gone() -> None:
    clusters: list[tuple[str, str]] = []
    live = LiveObjects(None, ("shop",), clusters.append)  # type: ignore[arg-type]
    manifest = made(live)
    for old, new in ((None, manifest), (manifest, None)):
        on_change: Any = live.informers[STATEFUL_SET]._parts[0]._on_change
        on_change(ObjectChange(("shop", "demo-main"), old, new))
    assert clusters == [KEY, KEY]
    assert live.get(STATEFUL_SET, "shop", "demo-main") is None
    assert live.of_cluster(STATEFUL_SET, KEY) == []


def test_what_is_made_and_deleted_between_two_lists_is_gone_after_a_while() -> None:
    clock = [100.0]
    live = LiveObjects(None, ("shop",), lambda _: None, now=lambda: clock[0])  # type: ignore[arg-type]
    made(live)
    clock[0] += OWN_S
    assert live.get(STATEFUL_SET, "shop", "demo-main") is None
    assert live.of_cluster(STATEFUL_SET, KEY) == []


def test_a_cluster_of_a_namespace_that_is_not_served_for_now_is_not_called_absent() -> None:
    """The driver of a job that names it would be stopped for that."""
    nobody: Any = None
    live = LiveObjects(nobody, ("shop", "web"), lambda _: None, closed=("team",))
    with pytest.raises(ApiUnavailableError, match="team may not be read"):
        live.find_cluster("shop", "demo", "team")
    with pytest.raises(LookupError, match="serves no jobs of namespace shop"):
        live.find_cluster("shop", "demo", "nowhere")
