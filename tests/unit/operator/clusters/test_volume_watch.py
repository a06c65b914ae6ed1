"""Volumes that have failed brokers which go on without them."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from operator_views import cluster_view, pool_view

from fairlead_kube.kinds import POD
from fairlead_operator.clusters.plan import PoolPlan
from fairlead_operator.clusters.pool_volumes import HeldVolume, VolumeDecision
from fairlead_operator.clusters.rolling import BrokerState
from fairlead_operator.clusters.status import (
    ClusterFacts,
    PoolFacts,
    build_cluster_status,
    build_pool_status,
)
from fairlead_operator.clusters.volume_watch import VolumeWatch, read_failures
from fairlead_operator.conditions import find_condition

KEY = ("shop", "demo")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOST = {1: "[Errno 5] Input/output error"}
POOL = pool_view(storage={"volumes": [{"id": 0, "size": "1Gi"}, {"id": 1, "size": "2Gi"}]})
HELD = (
    HeldVolume(volume=0, size="1Gi", claims=3, bound=3),
    HeldVolume(volume=1, size="2Gi", claims=3, bound=2),
)


def pool_status(previous: dict[str, Any], **facts: Any) -> dict[str, Any]:
    plan = PoolPlan(pool=POOL, volumes=VolumeDecision(held=HELD))
    return build_pool_status(PoolFacts(generation=1, plan=plan, **facts), previous, NOW)


def test_a_broker_names_its_volumes_by_their_folders() -> None:
    told = {"/var/lib/fairlead-1/log": LOST[1], "/elsewhere": "x"}
    assert read_failures({"state": "serving", "failedLogDirectories": told}, [0, 1]) == LOST


@pytest.mark.parametrize("answer", [None, [], {}, {"failedLogDirectories": ["a"]}])
def test_an_answer_without_failures_or_sense_says_nothing(answer: object) -> None:
    assert read_failures(answer, [0, 1]) == {}


class SeenPods:
    """The part of LiveObjects that a watch looks at: pods, all in one cluster."""

    def __init__(self, *uids: str) -> None:
        pods = [
            {"metadata": {"name": f"demo-main-{at}", "uid": uid}, "status": {"podIP": "127.0.0.1"}}
            for at, uid in enumerate(uids)
        ]
        self._pods = pods
        objects = {("shop", pod["metadata"]["name"]): pod for pod in pods}
        self.informers = {POD: SimpleNamespace(objects=objects)}

    def of_cluster(self, *_: Any) -> list[dict[str, Any]]:
        return self._pods


def brokers(*, is_ready: bool = True) -> dict[str, list[BrokerState]]:
    one = BrokerState(
        broker_id=0, pod="demo-main-0", pod_uid="u", is_outdated=False, is_ready=is_ready
    )
    return {"main": [one]}


def test_brokers_are_asked_now_and_then_and_only_those_with_several_volumes() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        told = {"/var/lib/fairlead-1/log": LOST[1]}
        return web.json_response({"state": "serving", "failedLogDirectories": told})

    async def scenario() -> None:
        application = web.Application()
        application.router.add_get("/healthz", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        live: Any = SeenPods("u")
        watch = VolumeWatch(live, port=port)
        assert await watch.look(KEY, [pool_view()], brokers()) == {}
        assert await watch.look(KEY, [POOL], brokers(is_ready=False)) == {}
        assert asked == []
        assert await watch.look(KEY, [POOL], brokers()) == {0: LOST}
        await runner.cleanup()
        assert await watch.look(KEY, [POOL], brokers()) == {0: LOST}, "its answer holds"
        assert asked == ["/healthz"]
        silent = VolumeWatch(live, port=port)
        assert await silent.look(KEY, [POOL], brokers()) == {}

    asyncio.run(scenario())


def test_a_pool_says_what_it_has_of_each_volume_and_whom_it_has_failed() -> None:
    status = pool_status({}, failed_volumes={2: LOST})
    assert status["storageSize"] == "1Gi"
    assert status["volumes"] == [
        {"id": 0, "size": "1Gi", "claims": 3, "bound": 3},
        {"id": 1, "size": "2Gi", "claims": 3, "bound": 2, "failedOn": [2]},
    ]
    said = find_condition(status["conditions"], "VolumesFailed")
    assert said is not None
    assert (said["status"], said["reason"]) == ("True", "LogDirectoryOffline")
    assert said["message"] == f"volume 1 has failed broker 2: {LOST[1]}"
    repaired = pool_status(status)
    assert find_condition(repaired["conditions"], "VolumesFailed") is None
    assert not any("failedOn" in each for each in repaired["volumes"])


def test_the_cluster_is_degraded_while_a_volume_is_lost_though_all_is_in_sync_again() -> None:
    counts = {"partitions": 1, "underReplicated": 0, "offline": 0}
    controller = {
        "partitions": counts,
        "topics": [],
        "clusterId": "c",
        "controller": {"epoch": 1},
    }
    cluster = cluster_view()
    facts = ClusterFacts(
        name=cluster.name,
        namespace=cluster.namespace,
        generation=1,
        controller=controller,
        failed_volumes={2: LOST},
    )
    degraded = find_condition(build_cluster_status(facts, {}, NOW)["conditions"], "Degraded")
    assert degraded is not None
    assert (degraded["status"], degraded["reason"]) == ("True", "VolumesFailed")
    assert "volume 1 has failed broker 2" in degraded["message"]
