"""What a drill's pod says, whose image users choose: read strictly, and at its own drill's cost."""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fairlead_operator.drills.agent_answer import WHOLE_MAX, read_agent_state
from fairlead_operator.drills.metrics import DrillMetrics
from fairlead_operator.drills.runner import DrillRunner

MEMO: dict[str, Any] = {
    "target": "broker 1",
    "brokerId": 1,
    "controllerEpoch": 4,
    "faultAtMs": 1_767_225_600_000,
    "faultAt": "2026-01-01T00:00:00.000Z",
}
RUN: dict[str, Any] = {
    "number": 1,
    "memo": MEMO,
    "isInjected": True,
    "isEnded": False,
    "sinceFaultMs": 5_000,
    "partitionsLed": 2,
    "electionMs": None,
    "firstAcknowledgedMs": {"0": 110, "1": None},
    "clientRecoveryMs": 200,
    "gapMs": {"0": 150, "1": 140},
    "wholeMs": None,
    "isRecovered": False,
}
VERDICT: dict[str, Any] = {
    **dict.fromkeys(("lost", "duplicated", "reordered", "misplaced", "foreign"), 0),
    "acknowledged": 9,
    "clientErrors": {"no answer": 2},
}
ANSWER: dict[str, Any] = {
    "phase": "observing",
    "problem": None,
    "sinceMs": 60_000,
    "isWell": True,
    "partitions": {"0": {"leader": 1, "isr": [1, 2]}},
    "run": RUN,
    "verdict": VERDICT,
    "isTopicGone": False,
}
ELSEWHERE = "../../../other/cluster/brokers/0"


def test_an_answer_of_our_own_pod_is_read() -> None:
    state = read_agent_state(ANSWER)
    assert state.partitions == ANSWER["partitions"]
    assert state.verdict == VERDICT
    assert state.run is not None
    assert state.run.memo == MEMO
    assert state.run.figures["gapMs"] == {"0": 150, "1": 140}
    bare = read_agent_state(ANSWER | {"run": None, "verdict": None, "partitions": {}})
    assert (bare.run, bare.verdict) == (None, None)
    with_intent = {**RUN, "memo": {**MEMO, "intent": "i-1"}}
    run = read_agent_state(ANSWER | {"run": with_intent}).run
    assert run is not None
    assert run.memo["intent"] == "i-1"


def at(*path: str) -> Callable[[Any], dict[str, Any]]:
    def change(value: Any) -> dict[str, Any]:
        answer = deepcopy(ANSWER)
        place = answer
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        return answer

    return change


@pytest.mark.parametrize(
    "place",
    [
        at("partitions", "0", "leader"),
        at("run", "memo", "brokerId"),
        at("run", "memo", "faultAtMs"),
        at("run", "memo", "controllerEpoch"),
        at("run", "sinceFaultMs"),
        at("run", "electionMs"),
        at("run", "gapMs", "0"),
        at("verdict", "lost"),
        at("verdict", "clientErrors", "no answer"),
    ],
)
@pytest.mark.parametrize("value", [ELSEWHERE, 1.5, True, [], {}, WHOLE_MAX + 1, -WHOLE_MAX - 1])
def test_no_number_is_taken_on_trust(place: Callable[[Any], Any], value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        read_agent_state(place(value))


@pytest.mark.parametrize(
    ("place", "values"),
    [
        (at("partitions"), [None, [], "0", {"0": None}, {"0": {}}, {"0": {"leader": 1, "isr": 1}}]),
        (at("partitions", "0", "isr"), [{}, ["1"], [None], "12"]),
        (at("run"), [[], "1", {}]),
        (at("run", "memo"), [None, [], {}, "memo"]),
        (at("run", "memo", "target"), [None, 1, {}]),
        (at("run", "memo", "faultAt"), [None, 1, "yesterday", "2026-01-01T00:00:00"]),
        (at("run", "gapMs"), [None, [1], 1, {"0": None}]),
        (at("verdict"), [[], "well", {}]),
        (at("phase"), [None, 1, {}]),
        (at("problem"), [1, {"a": 1}]),
    ],
)
def test_nothing_has_another_form(place: Callable[[Any], Any], values: list[Any]) -> None:
    for value in values:
        with pytest.raises((KeyError, TypeError, ValueError)):
            read_agent_state(place(value))


def test_texts_end_where_a_status_has_no_more_room() -> None:
    run = read_agent_state(at("run", "memo", "target")("x" * 5000)).run
    assert run is not None
    assert len(run.memo["target"]) == 253


def new_runner() -> DrillRunner:
    nobody: Any = None
    return DrillRunner(nobody, nobody, nobody, metrics=DrillMetrics(CollectorRegistry()))


def test_a_defect_that_one_drill_meets_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def attend() -> bool:
        runner = new_runner()

        async def fail(_drill: Any) -> bool:
            raise RuntimeError("a defect")

        monkeypatch.setattr(runner, "_step", fail)
        return await runner._attend(("ns", "one"), {"metadata": {"uid": "u"}})

    assert asyncio.run(attend())
    assert "ns/one: trying again after an unexpected error" in caplog.text


def test_a_pod_that_does_not_answer_holds_up_no_other_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def attend() -> None:
        runner = new_runner()
        drills = [("slow", "one"), ("slow", "two"), ("quick", "one")]
        for namespace, name in drills:
            metadata = {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}"}
            runner._drills._objects[namespace, name] = {"metadata": metadata}
        steps: list[str] = []
        several = asyncio.Event()

        async def step(drill: Any) -> bool:
            steps.append(drill["metadata"]["uid"])
            if drill["metadata"]["namespace"] == "slow":
                await asyncio.Event().wait()
            if steps.count("quick-one") == 3:
                several.set()
            return True

        async def follow() -> None:
            await asyncio.Event().wait()

        async def synced() -> None:
            return

        monkeypatch.setattr(runner, "_step", step)
        monkeypatch.setattr(runner._drills, "run", follow)
        monkeypatch.setattr(runner._drills, "synced", synced)
        running = asyncio.create_task(runner.run())
        try:
            await asyncio.wait_for(several.wait(), 60)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert "slow-two" not in steps, "one after another within a namespace"

    asyncio.run(attend())
