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
from fairlead_operator.clusters.status import (
    ClusterFacts,
    PoolFacts,
    build_cluster_status,
    build_pool_status,
)
from fairlead_operator.clusters.volume_use import ClaimUse, PodVolumes, find_use, read_volumes
from fairlead_operator.clusters.volume_watch import VolumeWatch
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


def own_claims(pod: str, *volumes: int) -> dict[int, str]:
    return {each: f"data-{each}-{pod}" if each else f"data-{pod}" for each in volumes}


TWO = own_claims("demo-main-0", 0, 1)
DRAINED = {"state": "serving", "drainedLogDirectories": ["/var/lib/fairlead-1/log", "/elsewhere"]}


def test_a_broker_names_its_volumes_by_their_folders() -> None:
    told = {"/var/lib/fairlead-1/log": LOST[1], "/elsewhere": "x"}
    said = read_volumes(TWO, {"state": "serving", "failedLogDirectories": told})
    assert (said.failed, said.drained) == (LOST, frozenset())
    said = read_volumes(TWO, DRAINED)
    assert (said.failed, said.drained) == ({}, frozenset({1}))


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"failedLogDirectories": ["a"]},
        DRAINED | {"state": "loading"},
        {"state": "serving", "drainedLogDirectories": "/var/lib/fairlead-1/log"},
    ],
)
def test_an_answer_without_sense_or_before_all_is_read_says_nothing(answer: object) -> None:
    assert read_volumes(TWO, answer) == PodVolumes(claims=TWO)


def test_a_claim_is_unused_without_a_pod_that_has_it_or_once_its_broker_has_emptied_it() -> None:
    names = ["demo-main-0", "demo-main-1", "demo-main-2", "demo-main-3"]
    pods = {
        names[0]: PodVolumes(claims=own_claims(names[0], 0, 1), drained=frozenset({1})),
        names[1]: PodVolumes(claims=own_claims(names[1], 0, 1), drained=frozenset()),
        names[2]: PodVolumes(claims=own_claims(names[2], 0)),
        names[3]: PodVolumes(claims=own_claims(names[3], 0, 1)),
    }
    claims = [
        claim for name in (*names, "demo-main-4") for claim in own_claims(name, 0, 1).values()
    ]
    assert find_use(pods, claims) == ClaimUse(
        unused=frozenset({"data-1-demo-main-0", "data-1-demo-main-2"}),
        in_use=frozenset({"data-demo-main-0", "data-demo-main-1", "data-1-demo-main-1"}),
    )


def test_the_claim_of_a_pool_whose_name_ends_like_another_is_not_its() -> None:
    pods = {"demo-main-0": PodVolumes(claims=own_claims("demo-main-0", 0))}
    assert not find_use(pods, ["data-1-demo-demo-main-0"]).unused


class SeenPods:
    """The part of LiveObjects that a watch looks at: one pod, with the volumes 0 and 1."""

    def __init__(self, *, is_ready: bool = True) -> None:
        condition = {"type": "Ready", "status": "True" if is_ready else "False"}
        volumes = [
            {
                "name": claim.removesuffix("-demo-main-0"),
                "persistentVolumeClaim": {"claimName": claim},
            }
            for claim in TWO.values()
        ]
        self.pod: dict[str, Any] = {
            "metadata": {"name": "demo-main-0", "uid": "u"},
            "spec": {"volumes": [{"name": "config", "configMap": {}}, *volumes]},
            "status": {"podIP": "127.0.0.1", "conditions": [condition]},
        }
        self.informers = {POD: SimpleNamespace(objects={("shop", "demo-main-0"): self.pod})}

    def of_cluster(self, *_: Any) -> list[dict[str, Any]]:
        return [self.pod]


class SeveralVolumes:
    """A broker's health page, which counts how often it is asked."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.asked = 0
        self.port = 0
        self._answer = answer
        application = web.Application()
        application.router.add_get("/healthz", self._tell)
        self._runner = web.AppRunner(application)

    async def _tell(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response(self._answer)

    async def __aenter__(self) -> "SeveralVolumes":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


NAMED = [POOL]
ONE_NAMED = [pool_view(storage={"volumes": [{"id": 0, "size": "1Gi"}]})]


def watch_of(pods: SeenPods, port: int) -> VolumeWatch:
    live: Any = pods
    return VolumeWatch(live, port=port)


def test_brokers_are_asked_now_and_then_and_only_those_with_several_volumes() -> None:
    async def scenario() -> None:
        told = {"/var/lib/fairlead-1/log": LOST[1]}
        one, several = SeenPods(), SeenPods()
        one.pod["spec"] = {"volumes": several.pod["spec"]["volumes"][:2]}
        async with SeveralVolumes({"state": "serving", "failedLogDirectories": told}) as page:
            single = await watch_of(one, page.port).look(KEY, NAMED)
            assert single == {"demo-main-0": PodVolumes(claims=own_claims("demo-main-0", 0))}
            starting = await watch_of(SeenPods(is_ready=False), page.port).look(KEY, NAMED)
            assert starting == {"demo-main-0": PodVolumes(claims=TWO)}
            assert page.asked == 0
            watch = watch_of(several, page.port)
            assert (await watch.look(KEY, NAMED))["demo-main-0"].failed == LOST
        assert (await watch.look(KEY, NAMED))["demo-main-0"].failed == LOST, "its answer holds"
        assert page.asked == 1
        silent = await watch_of(several, page.port).look(KEY, NAMED)
        assert silent == {"demo-main-0": PodVolumes(claims=TWO)}

    asyncio.run(scenario())


def test_a_broker_whose_volume_is_to_go_is_asked_every_time_and_silence_is_no_yes() -> None:
    async def scenario() -> None:
        async with SeveralVolumes(DRAINED) as page:
            watch = watch_of(SeenPods(), page.port)
            for _ in range(2):
                assert (await watch.look(KEY, NAMED))["demo-main-0"].drained == frozenset({1})
            assert page.asked == 1
            for _ in range(2):
                assert (await watch.look(KEY, ONE_NAMED))["demo-main-0"].drained == frozenset({1})
            assert page.asked == 3
        assert (await watch.look(KEY, ONE_NAMED))["demo-main-0"].drained is None

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
    emptied = pool_status({}, drained_volumes={0: [1], 2: [1]})
    assert [each.get("drainedOn") for each in emptied["volumes"]] == [None, [0, 2]]
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
