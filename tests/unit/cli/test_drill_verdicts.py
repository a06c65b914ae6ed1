"""What a drill makes of its measurements: times, limits, targets, and when it fails."""

from types import SimpleNamespace
from typing import Any

import click
import pytest

from fairlead_cli.drill.checker import Findings
from fairlead_cli.drill.faults import FaultKind
from fairlead_cli.drill.limits import default_limit_ms, find_failures, judged_timing
from fairlead_cli.drill.probe import Answer, first_answer_after, longest_gap_after
from fairlead_cli.drill.targets import Target, TargetKind, parse_target, resolve_broker
from fairlead_cli.drill.timings import Distribution, RunTimings, percentile, summarize, to_ms
from fairlead_cli.errors import CliError


def runs(*recoveries: int | None) -> list[RunTimings]:
    return [RunTimings(["broker-0"], recovery_ms=ms, longest_gap_ms=ms) for ms in recoveries]


def failures(timings: list[RunTimings], findings: Findings | None = None, **errors: int) -> Any:
    return find_failures(
        timings, findings or Findings(), errors, timing="recovery_ms", limit_ms=250
    )


def test_only_an_attempt_begun_after_the_fault_counts_as_recovery() -> None:
    answers = [Answer(0.9, 0.95), Answer(0.98, 1.03), Answer(1.05, 1.2), Answer(1.22, 1.24)]
    assert first_answer_after(answers, 1.0) == pytest.approx(0.2)
    assert first_answer_after(answers, 2.0) is None
    assert first_answer_after([], 0.0) is None


def test_the_longest_gap_reaches_from_before_the_fault_to_now() -> None:
    answers = [Answer(0, 0.5), Answer(0, 0.98), Answer(0, 1.4), Answer(0, 1.5)]
    assert longest_gap_after(answers, 1.0, 1.6) == pytest.approx((0.42, 0.98))
    assert longest_gap_after(answers, 1.0, 9.5) == pytest.approx((8.0, 1.5))
    assert longest_gap_after([], 1.0, 3.0) == pytest.approx((2.0, 1.0))


def test_milliseconds_are_rounded_up_and_percentiles_were_measured() -> None:
    assert to_ms(0.2501) == 251
    assert to_ms(None) is None
    values = list(range(1, 101))
    assert [percentile(values, f) for f in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert percentile([7], 0.99) == 7
    assert percentile([3, 1, 2], 0.5) == 2


def test_a_summary_leaves_out_what_no_run_has() -> None:
    summary = summarize(runs(100, None, 300))
    assert summary["recovery_ms"] == Distribution(count=2, p50=100, p99=300, max=300)
    assert "detection_ms" not in summary


def test_a_good_drill_has_no_failures() -> None:
    assert failures(runs(100, 250)) == []


@pytest.mark.parametrize("what", ["lost", "duplicated", "reordered", "misplaced", "foreign"])
def test_a_single_bad_record_fails_a_drill(what: str) -> None:
    found: dict[str, Any] = {what: 1}
    (failure,) = failures(runs(10), Findings(**found))
    assert failure.startswith("1 ")


def test_slowness_errors_and_problems_fail_a_drill() -> None:
    assert failures(runs(100, 251)) == [
        "recovery: 251 ms at the 99th percentile, 250 ms are allowed"
    ]
    assert failures(runs(1), _MSG_TIMED_OUT=3) == ["the application saw _MSG_TIMED_OUT, 3 times"]
    broken = RunTimings(["controller"], problem="it is gone")
    assert failures([*runs(1), broken]) == ["run 2: it is gone"]


def test_limits_are_those_that_are_promised() -> None:
    def limit(kind: FaultKind, *, broker: bool = True, controller: bool = False) -> int:
        return default_limit_ms(kind, is_broker=broker, is_controller=controller)

    assert [limit(kind) for kind in FaultKind] == [250, 100, 2000, 2000, 2000, 250, 2000]
    assert limit(FaultKind.KILL, controller=True) == 4500
    assert limit(FaultKind.PAUSE, controller=True) == 4500
    assert limit(FaultKind.PAUSE, broker=False, controller=True) == 250
    assert judged_timing(FaultKind.KILL, is_broker=True) == "recovery_ms"
    assert judged_timing(FaultKind.STOP, is_broker=True) == "longest_gap_ms"
    assert judged_timing(FaultKind.SLOW, is_broker=True) == "longest_gap_ms"
    assert judged_timing(FaultKind.KILL, is_broker=False) == "longest_gap_ms"


@pytest.mark.parametrize(
    "text",
    [
        *("leader:a.b/c-d/3", "follower:orders/0", "broker:2", "broker:0,2", "controller"),
        *("rack:a", "all"),
    ],
)
def test_targets_read_as_they_print(text: str) -> None:
    if "a.b/c" in text:
        assert parse_target(text) == Target(TargetKind.LEADER, topic="a.b/c-d", partition=3)
    assert str(parse_target(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "leader", "leader:orders", "leader:/1", "broker:x", "broker:-1", "broker:1,", "rack:"],
)
def test_other_targets_are_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(click.BadParameter, match="leader:TOPIC/PARTITION"):
        parse_target(text)


def metadata(leader: int, isr: list[int]) -> Any:
    partition = SimpleNamespace(leader=leader, replicas=[2, 0, 1], isrs=isr)
    return SimpleNamespace(topics={"orders": SimpleNamespace(partitions={4: partition})})


def test_targets_are_looked_up_at_the_moment_of_the_fault() -> None:
    at: dict[str, Any] = {"topic": "orders", "partition": 4}
    leader, follower = Target(TargetKind.LEADER, **at), Target(TargetKind.FOLLOWER, **at)
    assert resolve_broker(leader, metadata(2, [2, 0, 1])) == 2
    assert resolve_broker(follower, metadata(2, [2, 1])) == 1
    assert resolve_broker(Target(TargetKind.BROKER, broker_id=7), metadata(2, [])) == 7
    with pytest.raises(CliError, match="no leader"):
        resolve_broker(leader, metadata(-1, []))
    with pytest.raises(CliError, match="no in-sync follower"):
        resolve_broker(follower, metadata(2, [2]))
    with pytest.raises(CliError, match="no partition 9"):
        resolve_broker(Target(TargetKind.LEADER, topic="orders", partition=9), metadata(2, [2]))
