"""What a rolling restart sees of brokers whose pool is not looked after."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from operator_views import pool_view

from fairlead_kube.errors import ApiUnavailableError
from fairlead_kube.kinds import POD, STATEFUL_SET
from fairlead_operator.clusters import broker_roller
from fairlead_operator.clusters.broker_roller import BrokerRoller
from fairlead_operator.clusters.rolling import RollAction, Wait
from fairlead_operator.controller_client import ControllerUnavailableError
from fairlead_operator.live_objects import LiveObjects

KEY = ("shop", "demo")
READY = [{"type": "Ready", "status": "True"}]
CONTROLLER: dict[str, Any] = {
    "brokers": [
        {"id": broker, "state": "live", "leaders": 0, "host": ""} for broker in (0, 1, 2, 10)
    ],
    "partitions": {"underReplicated": 0, "offline": 0},
}


def pod(name: str, *, is_ready: bool = True, **metadata: Any) -> dict[str, Any]:
    labels = {"fairlead.io/cluster": "demo", "controller-revision-hash": "old"}
    stamps = {"name": name, "namespace": "shop", "uid": name, "labels": labels}
    status = {"conditions": READY if is_ready else []}
    return {"kind": "Pod", "metadata": stamps | metadata, "status": status}


class Admin:
    """Takes every order."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[str, str]] = {}
        """Action and target of the intents that are open."""
        self.is_deaf = False

    async def drain(self, *_: Any, **__: Any) -> None: ...

    async def record_intent(self, _namespace: str, _cluster: str, action: str, target: str) -> str:
        self.open[f"about {target}"] = (action, target)
        return f"about {target}"

    async def clear_intent(self, _namespace: str, _cluster: str, intent: str) -> None:
        if self.is_deaf:
            raise ControllerUnavailableError("no answer in time")
        del self.open[intent]

    async def intents(self, *_: str) -> list[dict[str, Any]]:
        return [
            {"id": intent, "action": action, "object": target, "atMs": 1}
            for intent, (action, target) in self.open.items()
        ]


class Writer:
    """Notes what is deleted."""

    def __init__(self, error: Exception | None = None) -> None:
        self.deleted: list[str] = []
        self.error = error

    async def delete(self, _kind: Any, manifest: dict[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        self.deleted.append(manifest["metadata"]["name"])


def seen(pods: list[dict[str, Any]], replicas: int) -> LiveObjects:
    """What the informers have: these pods, and the StatefulSet of the pool `main`."""
    nobody: Any = None
    live = LiveObjects(nobody, (), lambda _: None)
    live.informers[POD]._objects |= {("shop", each["metadata"]["name"]): each for each in pods}
    live.informers[STATEFUL_SET]._objects["shop", "demo-main"] = {
        "kind": "StatefulSet",
        "metadata": {"name": "demo-main", "namespace": "shop", "generation": 1},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": 1, "updateRevision": "new"},
    }
    return live


def roll(other: dict[str, Any]) -> tuple[RollAction, list[str]]:
    """The pool `main` has to restart and nothing leads; `other` is a pod of no known pool."""
    pods = [*(pod(f"demo-main-{ordinal}") for ordinal in range(3)), other]
    live, writer, admin = seen(pods, 3), Writer(), Admin()
    pools = [pool_view(replicas=3)]

    async def step_twice() -> RollAction:
        roller = BrokerRoller(live, writer, admin)  # type: ignore[arg-type]
        for _ in range(2):
            states = await roller.observe(KEY, pools, CONTROLLER)
            action = await roller.roll(KEY, pools, states, CONTROLLER)
        return action

    return asyncio.run(step_twice()), writer.deleted


@pytest.mark.parametrize(
    "other",
    [pod("demo-old-0", deletionTimestamp="now"), pod("demo-old-0", is_ready=False)],
    ids=["terminating", "not ready"],
)
def test_a_broker_of_a_pool_that_goes_must_serve_before_another_restarts(
    other: dict[str, Any],
) -> None:
    action, deleted = roll(other)
    assert action == Wait("BrokerNotReady", "the broker of pod demo-old-0 does not serve")
    assert not deleted


def test_one_that_serves_holds_up_nobody() -> None:
    _, deleted = roll(pod("demo-old-0"))
    assert deleted == ["demo-main-0"]


NO_ANSWER = ApiUnavailableError("no answer in time", may_have_landed=True)


@pytest.mark.parametrize(
    ("error", "is_deaf"), [(NO_ANSWER, False), (None, True)], ids=["deleting", "forgetting"]
)
def test_an_intent_that_was_not_taken_back_goes_with_the_next_pass(
    error: Exception | None, is_deaf: bool
) -> None:
    """The pod may be gone by then, so that nobody would come by it again."""
    pods = [pod(f"demo-main-{ordinal}") for ordinal in range(3)]
    writer, admin, pools = Writer(error), Admin(), [pool_view(replicas=3)]
    admin.is_deaf = is_deaf

    async def story() -> None:
        roller = BrokerRoller(seen(pods, 3), writer, admin)  # type: ignore[arg-type]
        await roller.release(KEY, CONTROLLER)
        with pytest.raises((ApiUnavailableError, ControllerUnavailableError)):
            for _ in range(2):
                states = await roller.observe(KEY, pools, CONTROLLER)
                await roller.roll(KEY, pools, states, CONTROLLER)
        assert admin.open == {"about demo-main-0": ("delete-pod", "demo-main-0")}
        admin.is_deaf = False
        await roller.release(KEY, CONTROLLER)
        assert not admin.open

    asyncio.run(story())


def test_intents_that_an_operator_left_when_it_died_are_dropped_by_the_next_one() -> None:
    admin, nobody = Admin(), None
    leaving = {"remove-broker-7": ("remove-broker", "main")}
    admin.open = {"about demo-main-0": ("delete-pod", "demo-main-0"), **leaving}

    async def story() -> None:
        roller = BrokerRoller(nobody, nobody, admin)  # type: ignore[arg-type]
        await roller.release(KEY, CONTROLLER)

    asyncio.run(story())
    assert admin.open == leaving, "these are the controller's own"


def test_brokers_that_do_not_answer_are_asked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty on nodes that are gone would else take longer than a pass may: none would ever end."""
    count = 40
    pods = [pod(f"demo-main-{ordinal}", is_ready=False) for ordinal in range(count)]
    for number, each in enumerate(pods):
        running = [{"name": "broker", "state": {"running": {}}}]
        each["status"] |= {"podIP": f"10.0.0.{number}", "containerStatuses": running}
    asked: set[str] = set()

    async def observe() -> None:
        all_asked = asyncio.Event()

        async def probe(address: str) -> None:
            asked.add(address)
            if len(asked) == count:
                all_asked.set()
            await all_asked.wait()

        monkeypatch.setattr(broker_roller, "probe_recovery", probe)
        roller = BrokerRoller(seen(pods, count), Writer(), Admin())  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            states = await roller.observe(KEY, [pool_view(replicas=count)], CONTROLLER)
        assert {each.is_recovering for each in states["main"]} == {None}

    asyncio.run(observe())
