"""Parses the answers of a drill's pod, strictly. Pure.

Whoever may change the LogCluster chooses the image of that pod. Its answers decide which broker is
broken and end up in the drill's status, so nothing is trusted: each field is read by name, and must
have its type and be within its bounds.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from fairlead_operator.drills.observations import AgentRun, AgentState

COMMIT_FIGURES: Final = ("commitBeforeP99Ms", "commitP99Ms", "leftIsrMs", "fastAgainMs")
WHOLE_MAX: Final = 2**53
TEXT_MAX: Final = 1_024
TARGET_MAX: Final = 253
_FINDINGS: Final = ("lost", "duplicated", "reordered", "misplaced", "foreign", "acknowledged")


def read_agent_state(answer: Mapping[str, Any]) -> AgentState:
    """Parse an answer; KeyError, TypeError or ValueError if it is malformed."""
    answer = _mapping(answer)
    run, verdict = answer["run"], answer["verdict"]
    return AgentState(
        phase=_text(answer["phase"]),
        since_ms=_whole(answer["sinceMs"]),
        is_well=bool(answer["isWell"]),
        problem=_text(answer["problem"] or ""),
        partitions={
            _text(number): {
                "leader": _whole(_mapping(view)["leader"]),
                "isr": [_whole(broker) for broker in _list(view["isr"])],
            }
            for number, view in _mapping(answer["partitions"]).items()
        },
        run=None if run is None else _read_run(_mapping(run)),
        verdict=None if verdict is None else _read_verdict(_mapping(verdict)),
    )


def _read_run(run: Mapping[str, Any]) -> AgentRun:
    memo = _read_memo(_mapping(run["memo"]))
    since_fault_ms = _whole(run["sinceFaultMs"])
    figures = {
        "memo": memo,
        "sinceFaultMs": since_fault_ms,
        "partitionsLed": _whole(run["partitionsLed"]),
        "electionMs": _maybe_whole(run["electionMs"]),
        "firstAcknowledgedMs": _wholes(run["firstAcknowledgedMs"]),
        "clientRecoveryMs": _maybe_whole(run["clientRecoveryMs"]),
        "gapMs": {name: _whole(ms) for name, ms in _wholes(run["gapMs"]).items()},
        "wholeMs": _maybe_whole(run["wholeMs"]),
    }
    # A pod of an older image does not measure these.
    figures |= {name: _maybe_whole(run.get(name)) for name in COMMIT_FIGURES}
    return AgentRun(
        number=_whole(run["number"]),
        is_injected=bool(run["isInjected"]),
        is_ended=bool(run["isEnded"]),
        since_fault_ms=since_fault_ms,
        is_recovered=bool(run["isRecovered"]),
        memo=memo,
        figures=figures,
    )


def _read_memo(memo: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that the pod was given to keep (`DrillRuns`)."""
    at = _text(memo["faultAt"])
    if datetime.fromisoformat(at).tzinfo is None:
        raise ValueError("faultAt has no time zone")
    read: dict[str, Any] = {
        "target": _text(memo["target"])[:TARGET_MAX],
        "brokerId": _maybe_whole(memo["brokerId"]),
        "controllerEpoch": _whole(memo["controllerEpoch"]),
        "faultAtMs": _whole(memo["faultAtMs"]),
        "faultAt": at,
    }
    if "brokerIds" in memo:
        read["brokerIds"] = [_whole(broker) for broker in _list(memo["brokerIds"])]
    if "brokerEpochs" in memo:
        read["brokerEpochs"] = _wholes(memo["brokerEpochs"])
    if "loss" in memo:
        read["loss"] = {name: _whole(count) for name, count in _wholes(memo["loss"]).items()}
    read |= {"holdMs": _whole(memo["holdMs"])} if "holdMs" in memo else {}
    return read | ({"intent": _text(memo["intent"])} if "intent" in memo else {})


def _read_verdict(verdict: Mapping[str, Any]) -> dict[str, Any]:
    errors = _wholes(verdict["clientErrors"])
    return {name: _whole(verdict[name]) for name in _FINDINGS} | {
        "clientErrors": {name: _whole(count) for name, count in errors.items()}
    }


def _wholes(value: object) -> dict[str, int | None]:
    return {_text(name): _maybe_whole(number) for name, number in _mapping(value).items()}


def _maybe_whole(value: object) -> int | None:
    return None if value is None else _whole(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > WHOLE_MAX:
        raise ValueError(f"{str(value)[:64]!r} is no whole number in bounds")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a text belongs")
    return value[:TEXT_MAX]


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} where an object belongs")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} where a list belongs")
    return value
